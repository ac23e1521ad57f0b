"""What a run's folder says of the run; no code of the run is loaded or executed.

Promised: a generation that TRL logged again (it is logged at each optimizer step that uses it) is
kept once; of a run with more completions than `MAX_COMPLETIONS` whole generations are kept at even
distances, the first and the last among them, and `logged` is how many there were.

Not covered: images, what a run did not log (with `logging_steps` > 1 the generations between are
lost), and whether a completion is right: `full` is true where every verifier that scored it gave
its full reward, and None where none did score it.
"""

import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow

from recipes.common.evaluation.scores import compare, metric_names, rows_changed, summarize
from recipes.common.report.verdict import verdict_of_run
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import FIRST_COLUMNS, messages, read_json
from recipes.common.utils.tables import percent

MAX_COMPLETIONS = 5_000
MAX_UNCHANGED = 200  # held-out rows
FAILURES = ("errors/", "unparsed/")
OUTCOME = ("steps", "minutes", "seconds", "engine", "stopped", "best_checkpoint")


def read_run(folder: Path) -> dict[str, Any]:
    """Read everything that a report shows of one run; what it has not come to yet is None or empty.

    `FileNotFoundError` where no run wrote the folder, `ValueError` where a file of completions is
    not whole.
    """
    config, summary = files.read_config(folder), read_json(folder / files.SUMMARY, {})
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    chosen = (summary.get("best_checkpoint") or {}).get("step")
    return {
        "name": folder.resolve().name,
        "config": config,
        "starts": read_json(folder / files.VERSIONS, []),
        **{name: summary.get(name) for name in OUTCOME},
        "log": files.read_log(folder),
        "validation": files.read_validation(folder),
        **figures_of(folder, chosen),
        **held_out(before, after),
        **_read_completions(folder, config),
    }


def figures_of(folder: Path, chosen: int | None) -> dict[str, Any]:
    """Verdict, before and after, as far as the run has come; `chosen` as of `verdict_of_run`."""
    log, validation = files.read_log(folder), files.read_validation(folder)
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    return {
        "verdict": asdict(verdict_of_run(log, validation, before, after, chosen)),
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if after else None,
        "changed": rows_changed(before, after) if after else None,
        "voided": voided_sentence(log),
    }


def ending_of(run: dict[str, Any]) -> list[str]:
    """Sentences on a finished run: what it lost, and which model it ends with.

    The final figures are of other rows than those by which a checkpoint was chosen.
    """
    sentences = [run["voided"]] if run["voided"] else []
    if run["stopped"]:
        sentences.append(f"Stopped early: {run['stopped']}.")
    if best := run["best_checkpoint"]:
        value = f"{best['value']:.3g} over {best['rows']} validation rows"
        model = f"The model is that of step {best['step']}, the best by {best['metric']}"
        sentences.append(f"{model}: {value}.")
    return sentences


def voided_sentence(log: list[dict[str, Any]]) -> str | None:
    """The share of completions that taught nothing because a reward could not score them, if any.

    >>> voided_sentence([{"completions/voided": 0.25, "errors/right": 0.25}, {"reward": 1.0}])
    '25.0 % of the completions were voided and taught nothing: right could not score them.'
    """
    shares = [entry["completions/voided"] for entry in log if "completions/voided" in entry]
    if not any(shares):
        return None
    keys = {key for entry in log for key in entry if key.startswith(FAILURES) and entry[key]}
    names = ", ".join(sorted({key.partition("/")[2] for key in keys}))
    voided = f"{percent(mean(shares))} of the completions were voided and taught nothing"
    return f"{voided}: {names} could not score them."


def config_rows(
    configs: list[dict[str, Any]], differing: bool = False
) -> list[tuple[str, list[Any]]]:
    """Each setting with its value in every run; with `differing` only those that are not the same.

    >>> config_rows([{"a": 1, "seed": 0}, {"a": 1, "seed": 1}], differing=True)
    [('seed', [0, 1])]
    """
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [(name, [config.get(name) for config in configs]) for name in names]
    return [row for row in rows if not differing or any(v != row[1][0] for v in row[1])]


WAYS = {(False, True): "won", (True, False): "lost", (True, True): "kept", (False, False): "missed"}


def held_out(before: list[dict], after: list[dict]) -> dict[str, Any]:
    """The held-out rows with both texts, those first of which a metric changed, and all counted.

    `counts`: metric -> way of `WAYS` -> number of rows. Of the rows that no metric changed at most
    `MAX_UNCHANGED` are kept, at even distances. `metrics` of a row: name -> (was, is).
    """
    changed, unchanged, counts = [], [], {}
    for old, new in zip(before if after else [], after, strict=True):
        names = [name for name in metric_names([old]) if name in new["metrics"]]
        metrics = {name: (old["metrics"][name], new["metrics"][name]) for name in names}
        for name, pair in metrics.items():
            counts.setdefault(name, Counter())[WAYS[pair]] += 1
        row = {
            "row": old["row"],
            "answer": old.get("answer"),
            "prompt": messages(old["prompt"]),
            "before": _stage(old),
            "after": _stage(new),
            "metrics": metrics,
        }
        has_changed = any(was != now for was, now in metrics.values())
        (changed if has_changed else unchanged).append(row)
    counted = {name: {way: of[way] for way in WAYS.values()} for name, of in counts.items()}
    return {"held_out": [*changed, *evenly(unchanged, MAX_UNCHANGED)], "counts": counted}


def _stage(row: dict[str, Any]) -> dict[str, Any]:
    """What is shown of an evaluated row; with tools the whole conversation."""
    return {
        "text": _shown(row.get("messages") or row["completion"]),
        "rewards": {name: _number(value) for name, value in row["rewards"].items()},
        "truncated": row["truncated"],
    }


def _shown(completion: str | list[dict]) -> str:
    return "\n".join(text for _, text in messages(completion))


def _read_completions(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The completions that were logged, with the rewards in the order of their columns."""
    generations, logged = _generations(files.completion_files(folder))
    # A reward may log a column of its own for the first time in a later generation.
    columns = list(dict.fromkeys(name for table in generations for name in table.column_names))
    lines = read_json(folder / files.PREFLIGHT, {"rewards": []})["rewards"]
    full, kinds = {}, {}
    for line in lines:
        kinds[line["reward"]] = line["kind"]
        if line["kind"] == "verifier" and line["full"] is not None:
            full[line["reward"]] = line["full"]
    names = kinds or dict.fromkeys(range(len(config["reward_funcs"])))
    weights = zip(config.get("reward_weights") or [1.0] * len(names), names.values(), strict=True)
    weights = [weight for weight, kind in weights if kind != "step"]  # step rewards have no column
    rewards = dict(zip(columns[len(FIRST_COLUMNS) :], weights, strict=False))
    extras = [name for name in columns if name not in (*FIRST_COLUMNS, *rewards, "advantage")]
    rows = [row for table in generations for row in table.to_pylist()]
    return {
        "rewards": list(rewards),
        "extras": extras,
        "completions": [_completion(row, rewards, extras, full) for row in rows],
        "logged": logged,
    }


def _completion(
    row: dict[str, Any], weights: dict[str, float], extras: list[str], full: dict[str, float]
) -> dict[str, Any]:
    scores = {name: _number(row.get(name)) for name in weights}
    known = {name: score for name, score in scores.items() if score is not None}
    verified = [known[name] >= amount for name, amount in full.items() if name in known]
    return {
        "step": row["step"],
        "prompt": messages(row["prompt"]),
        "text": _shown(row["completion"]),
        "rewards": list(scores.values()),
        "total": sum(weights[name] * score for name, score in known.items()) if known else None,
        "advantage": _number(row.get("advantage")),
        "extras": [_text(row.get(name)) for name in extras],
        "full": all(verified) if verified else None,
    }


def _text(value: Any) -> str | None:
    is_text = value is None or isinstance(value, str)
    return value if is_text else json.dumps(value, default=str)


def _generations(paths: list[Path]) -> tuple[list[pyarrow.Table], int]:
    """The tables to show, and how many completions were generated in all."""
    kept, previous, count = [], None, 0
    for path in paths:
        content = files.read_completions(path).drop_columns(["step"])
        if previous is None or not content.equals(previous):
            kept.append(path)
            count += content.num_rows
        previous = content
    share = min(1.0, MAX_COMPLETIONS / max(1, count))
    return [
        files.read_completions(path) for path in evenly(kept, max(2, int(share * len(kept))))
    ], count


def evenly(items: list, count: int) -> list:
    """At most `count` (two or more) of the items at even distances, first and last included."""
    places = [round(i * (len(items) - 1) / (count - 1)) for i in range(count)]
    return [items[place] for place in places] if len(items) > count else items


def _number(value: Any) -> float | None:
    """JSON knows no NaN: without a score the value is None."""
    return None if value is None or not math.isfinite(value) else float(value)
