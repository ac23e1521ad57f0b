"""The data of a report, read from the folder of a run; no code of the run is loaded or executed.

Promised: a generation that TRL logged again (it is logged at each optimizer step that uses it) is kept once; of a run
with more completions than `MAX_COMPLETIONS` or `MAX_BYTES`, whole generations are kept at even distances, the first and
the last among them, and `logged` is how many there were.

Not covered: images, what a run did not log (with `logging_steps` > 1 the generations between are lost), and whether a
completion is right: `full` is true where every verifier that scored it gave its full reward, and None where none did
score it. The marked answer is where answers usually stand; the reward of the run may read it elsewhere.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from recipes.common.evaluation.scores import compare, metric_names, summarize
from recipes.common.report.verdict import verdict_of_run
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import (
    FIRST_COLUMNS,
    checkpoints,
    messages,
    read_json,
    read_log,
    read_rows,
    read_validation,
)
from rewards.code_blocks import extract_program
from rewards.text import last_boxed, tag_text

MAX_COMPLETIONS = 5_000
MAX_UNCHANGED = 200  # held-out rows
MAX_BYTES = 30_000_000
FAILURES = ("errors/", "unparsed/")
OUTCOME = ("steps", "minutes", "seconds", "engine", "stopped", "best_checkpoint")


def read_run(folder: Path) -> dict[str, Any]:
    """Read everything that a report shows of one run; what the run has not come to yet is None or empty.

    `FileNotFoundError` where no run wrote the folder, `ValueError` where a file of completions is not whole.
    """
    config = read_json(folder / files.RECORD)
    if config is None:
        raise FileNotFoundError(
            f"{folder} holds no {files.RECORD}: give the output_dir of a run that was started."
        )
    summary = read_json(folder / files.SUMMARY, {})
    paths = [folder / files.BEFORE, folder / files.AFTER]
    before, after = (read_rows(path) if path.is_file() else [] for path in paths)
    both = before and after
    started = (folder / files.STATE).is_file() or checkpoints(folder)
    log, validation = read_log(folder) if started else [], read_validation(folder)
    chosen = (summary.get("best_checkpoint") or {}).get("step")
    is_known = both or len(validation) > 1
    return {
        "name": folder.resolve().name,
        "config": config,
        "starts": read_json(folder / files.VERSIONS, []),
        "outcome": {name: summary.get(name) for name in OUTCOME},
        "log": log,
        "voided": voided_sentence(log, config),
        "validation": validation,
        "verdict": verdict_of_run(log, validation, before, after, chosen).sentence
        if is_known
        else None,
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if both else None,
        **(held_out(before, after) if both else {"held_out": [], "counts": {}}),
        **_read_completions(folder, config),
    }


def best_sentence(best: dict[str, Any]) -> str:
    """Say which checkpoint was chosen and on what; the final figures are of other rows."""
    value = f"{best['value']:.3g} over {best['rows']} validation rows"
    return f"The model is that of step {best['step']}, the best by {best['metric']}: {value}."


def voided_sentence(log: list[dict[str, Any]], config: dict[str, Any]) -> str | None:
    """Count the completions that taught nothing because a reward could not score them; None without any."""
    shares = [entry["completions/voided"] for entry in log if "completions/voided" in entry]
    if not any(shares):
        return None
    batch = (
        config["per_device_train_batch_size"]
        * config["world_size"]
        * config["gradient_accumulation_steps"]
    )
    completions = max(entry["step"] for entry in log) * batch // config["num_iterations"]
    failures = {
        key for entry in log for key, value in entry.items() if key.startswith(FAILURES) and value
    }
    names = ", ".join(sorted({key.partition("/")[2] for key in failures}))
    voided = round(sum(shares) / len(shares) * completions)
    return f"{voided} of {completions} completions were voided and taught nothing: {names} could not score them."


def config_rows(
    configs: list[dict[str, Any]], differing: bool = False
) -> list[tuple[str, list[Any]]]:
    """Each setting with its value in every run; only those that are not the same everywhere if `differing`.

    Example: `config_rows([{"a": 1, "seed": 0}, {"a": 1, "seed": 1}], differing=True) == [("seed", [0, 1])]`
    """
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [(name, [config.get(name) for config in configs]) for name in names]
    return [
        (name, values)
        for name, values in rows
        if not differing or any(v != values[0] for v in values)
    ]


def answer_parts(text: str) -> list[str]:
    r"""Cut a completion in three, the answer in the middle; it stays whole where no answer is found.

    The answer is the last `<answer>`, else the last `\boxed{}`, else what follows the last `####`, else the program.

    Example: `answer_parts("So <answer>4</answer>") == ["So <answer>", "4", "</answer>"]`; `answer_parts("4") == ["4"]`
    """
    hashes = re.findall(r"####[ \t]*(\S[^\n]*)", text)
    in_tag = text[: text.rfind("</answer>")].rpartition("<answer>")[2].partition("</answer>")[0]
    candidates = [  # best first: the answer, and what stands right before and after it
        (None if tag_text(text, "answer") is None else in_tag, "<answer>", "</answer>"),
        (last_boxed(text) if "boxed" in text or "fbox" in text else None, "{", "}"),
        (hashes[-1].rstrip() if hashes else None, "", ""),
        (extract_program(text), "", ""),
    ]
    for answer, opening, closing in candidates:
        found = text.rfind(opening + answer + closing) if answer else -1
        if found >= 0:
            start = found + len(opening)
            return [text[:start], answer, text[start + len(answer) :]]
    return [text]


def held_out(before: list[dict], after: list[dict]) -> dict[str, Any]:
    """The held-out rows with both texts, those first of which a metric changed, and a metric's outcomes counted.

    `counts` maps a metric to how many rows it has for each pair (was, is); of the rows that no metric changed at most
    `MAX_UNCHANGED` are kept, at even distances. `metrics` of a row maps to (was, is).
    """
    changed, unchanged, counts = [], [], {}
    for old, new in zip(before, after, strict=True):
        names = [name for name in metric_names([old]) if name in new["metrics"]]
        metrics = {name: (old["metrics"][name], new["metrics"][name]) for name in names}
        for name, pair in metrics.items():
            counts.setdefault(name, Counter())[pair] += 1
        row = {"row": old["row"], "answer": old.get("answer"), "prompt": messages(old["prompt"])}
        for stage, of in (("before", old), ("after", new)):
            rewards = {name: _number(value) for name, value in of["rewards"].items()}
            row[stage] = {
                "parts": answer_parts(_shown(of)),
                "rewards": rewards,
                "truncated": of["truncated"],
            }
        (changed if any(was != now for was, now in metrics.values()) else unchanged).append(
            {**row, "metrics": metrics}
        )
    ways = {
        "won": (False, True),
        "lost": (True, False),
        "kept": (True, True),
        "missed": (False, False),
    }
    counted = {
        name: {way: pairs[pair] for way, pair in ways.items()} for name, pairs in counts.items()
    }
    return {"held_out": [*changed, *evenly(unchanged, MAX_UNCHANGED)], "counts": counted}


def _shown(row: dict[str, Any]) -> str:
    """The text of an evaluated row, with tools the whole conversation."""
    return "\n".join(text for _, text in messages(row.get("messages") or row["completion"]))


def _read_completions(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    generations, logged = _generations(
        sorted((folder / files.COMPLETIONS).glob("completions_*.parquet"))
    )
    # A reward may log a column of its own for the first time in a later generation.
    columns = list(dict.fromkeys(name for table in generations for name in table.column_names))
    lines = read_json(folder / files.PREFLIGHT, {"rewards": []})["rewards"]
    kinds = list({line["reward"]: line["kind"] for line in lines}.values()) or [None] * len(
        config["reward_funcs"]
    )
    weights = zip(config.get("reward_weights") or [1.0] * len(kinds), kinds, strict=True)
    weights = [weight for weight, kind in weights if kind != "step"]  # step rewards have no column
    rewards = dict(zip(columns[len(FIRST_COLUMNS) :], weights, strict=False))
    extras = [name for name in columns if name not in (*FIRST_COLUMNS, *rewards, "advantage")]
    full = {
        line["reward"]: line["full"]
        for line in lines
        if line["kind"] == "verifier" and line["full"] is not None
    }
    rows = [
        _completion(row, rewards, extras, full)
        for table in generations
        for row in table.to_pylist()
    ]
    return {"rewards": list(rewards), "extras": extras, "completions": rows, "logged": logged}


def _completion(
    row: dict[str, Any], weights: dict[str, float], extras: list[str], full: dict[str, float]
) -> dict[str, Any]:
    scores = {name: _number(row.get(name)) for name in weights}
    weighted = [weights[name] * score for name, score in scores.items() if score is not None]
    of_verifiers = [
        scores[name] >= amount for name, amount in full.items() if scores.get(name) is not None
    ]
    more = [row.get(name) for name in extras]
    return {
        "step": row["step"],
        "prompt": messages(row["prompt"]),
        "parts": answer_parts("\n".join(text for _, text in messages(row["completion"]))),
        "rewards": list(scores.values()),
        "total": sum(weighted) if weighted else None,
        "advantage": _number(row.get("advantage")),
        "extras": [
            each if each is None or isinstance(each, str) else json.dumps(each, default=str)
            for each in more
        ],
        "full": all(of_verifiers) if of_verifiers else None,
    }


def _generations(paths: list[Path]) -> tuple[list[pyarrow.Table], int]:
    """The tables to show, and how many completions were generated in all."""
    kept, previous, count, size = [], None, 0, 0
    for path in paths:
        content = _read_table(path).drop_columns(["step"])
        if previous is None or not content.equals(previous):
            kept, count, size = [*kept, path], count + content.num_rows, size + content.nbytes
        previous = content
    share = min(1.0, MAX_COMPLETIONS / max(1, count), MAX_BYTES / max(1, size))
    return [_read_table(path) for path in evenly(kept, max(2, int(share * len(kept))))], count


def _read_table(path: Path) -> pyarrow.Table:
    try:
        return pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        message = (
            f"{path} is cut short: a run is writing it (try again), or was killed then (remove it)."
        )
        raise ValueError(message) from error


def evenly(items: list, count: int) -> list:
    """At most `count` (two or more) of the items at even distances, first and last included."""
    places = [round(i * (len(items) - 1) / (count - 1)) for i in range(count)]
    return [items[place] for place in places] if len(items) > count else items


def _number(value: Any) -> float | None:
    """JSON knows no NaN: without a score the value is None."""
    return None if value is None or not math.isfinite(value) else float(value)
