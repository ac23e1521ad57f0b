"""What a report shows of a run, read from its folder into plain data; no code of the run is loaded or executed.

Promised: figures are computed from the files of the run alone; a generation that TRL logged again (it is logged at each
optimizer step that uses it) is kept once; of a run with more completions than `MAX_COMPLETIONS` or `MAX_BYTES`, whole
generations are kept at even distances, the first and the last among them, and `logged` says how many there were.

Not covered: images, what a run did not log (with `log_completions: false` there is nothing to
browse, with `logging_steps` > 1 the generations between are lost), and right or wrong where no verifier says what the
full reward is. The marked answer is where answers usually stand; the reward of the run may read it elsewhere.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from recipes.common.evaluation.scores import compare, metric_names, summarize
from recipes.common.tools.folder import read_log, read_rows
from rewards.boxed_math import last_boxed
from rewards.code_blocks import extract_program
from rewards.parsing import tag_text

MAX_COMPLETIONS = 5_000
MAX_BYTES = 30_000_000
FIRST_COLUMNS = ("step", "prompt", "completion")  # TRL's order: these, the rewards, what they log besides, advantage

_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")


def read_run(folder: Path) -> dict[str, Any]:
    """Everything that a report shows of one run; what the run has not come to yet is None or empty.

    Raises:
        FileNotFoundError: the folder is not one that a run wrote.
        ValueError: a file of completions is not whole.
    """
    if not (folder / "run_config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no run_config.json: give the output_dir of a run that was started.")
    config = json.loads((folder / "run_config.json").read_text(encoding="utf-8"))
    summary = _json(folder / "summary.json", {})
    return {
        "name": folder.resolve().name,
        "config": config,
        "starts": _json(folder / "versions.json", []),
        "outcome": {name: summary.get(name) for name in ("steps", "minutes", "engine")},
        "log": read_log(folder) if _has_log(folder) else [],
        **_read_evaluation(folder / "evaluation"),
        **_read_completions(folder, config),
    }


def config_rows(configs: list[dict[str, Any]], differing: bool = False) -> list[tuple[str, list[Any]]]:
    """Each setting with its value in every run; only those that are not the same everywhere if `differing`.

    Example: `config_rows([{"a": 1, "seed": 0}, {"a": 1, "seed": 1}], differing=True) == [("seed", [0, 1])]`
    """
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [(name, [config.get(name) for config in configs]) for name in names]
    return [(name, values) for name, values in rows if not differing or any(v != values[0] for v in values)]


def answer_parts(text: str) -> list[str]:
    r"""A completion cut in three, the answer in the middle; whole where none can be told.

    The answer is the last `<answer>`, else the last `\boxed{}`, else what follows the last `####`, else the program.

    Example: `answer_parts("So <answer>4</answer>") == ["So <answer>", "4", "</answer>"]`; `answer_parts("4") == ["4"]`
    """
    for answer, opening, closing in _answers(text):
        start = text.rfind(opening + answer + closing) if answer else -1
        if start >= 0:
            start += len(opening)
            return [text[:start], answer, text[start + len(answer) :]]
    return [text]


def _answers(text: str) -> list[tuple[str | None, str, str]]:
    """Candidates, best first: the answer, and what stands right before and behind it."""
    hashes = _HASHES.findall(text)
    tag = None if tag_text(text, "answer") is None else _inside_last_tag(text)
    box = last_boxed(text) if "boxed" in text or "fbox" in text else None
    return [
        (tag, "<answer>", "</answer>"),
        (box, "{", "}"),
        (hashes[-1].rstrip() if hashes else None, "", ""),
        (extract_program(text), "", ""),
    ]


def _inside_last_tag(text: str) -> str:
    """What `tag_text` reads, not stripped."""
    return text[: text.rfind("</answer>")].rpartition("<answer>")[2].partition("</answer>")[0]


def messages(prompt: str | list[dict] | None) -> list[tuple[str, str]]:
    """Role and text of each message; a plain text has no role.

    Example: `messages([{"role": "user", "content": "hi"}]) == [("user", "hi")]`; `messages("hi") == [("", "hi")]`
    """
    if not isinstance(prompt, list):
        return [("", prompt or "")]
    return [(message.get("role") or "", _text(message.get("content"))) for message in prompt]


def _read_evaluation(folder: Path) -> dict[str, Any]:
    before, after = (_rows(folder / name) for name in ("before.jsonl", "after.jsonl"))
    both = before and after
    return {
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if both else None,
        "flipped": flipped(before, after) if both else [],
    }


def flipped(before: list[dict], after: list[dict]) -> list[dict[str, Any]]:
    """The rows that any metric judges otherwise after training, with both texts; `metrics` maps to (was, is)."""
    found = []
    for old, new in zip(before, after, strict=True):
        names = [name for name in metric_names([old]) if name in new["metrics"]]
        judged = {name: (old["metrics"][name], new["metrics"][name]) for name in names}
        if any(was != now for was, now in judged.values()):
            found.append({"row": old["row"], "answer": old.get("answer"), "metrics": judged, **_sides(old, new)})
    return found


def _sides(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    sides = {"prompt": messages(old["prompt"])}
    for name, row in (("before", old), ("after", new)):
        paid = {reward: _number(value) for reward, value in row["rewards"].items()}
        sides[name] = {"parts": answer_parts(row["completion"]), "rewards": paid, "truncated": row["truncated"]}
    return sides


def _read_completions(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    generations, logged = _generations(sorted((folder / "completions").glob("completions_*.parquet")))
    # A reward may log a column besides for the first time in a later generation.
    columns = list(dict.fromkeys(name for table in generations for name in table.column_names))
    rewards = columns[len(FIRST_COLUMNS) :][: len(config["reward_funcs"])]
    extras = [name for name in columns if name not in (*FIRST_COLUMNS, *rewards, "advantage")]
    weights = config.get("reward_weights") or [1.0] * len(rewards)
    full = verifiers(folder / "preflight.txt")
    completions = [
        _completion(row, rewards, weights, extras, full) for table in generations for row in table.to_pylist()
    ]
    return {"rewards": rewards, "extras": extras, "completions": completions, "logged": logged}


def _completion(
    row: dict[str, Any], rewards: list[str], weights: list[float], extras: list[str], full: dict[str, float]
) -> dict[str, Any]:
    paid = [_number(row.get(name)) for name in rewards]
    scored = [weight * amount for weight, amount in zip(weights, paid, strict=True) if amount is not None]
    return {
        "step": row["step"],
        "prompt": messages(row["prompt"]),
        "parts": answer_parts("\n".join(text for _, text in messages(row["completion"]))),
        "rewards": paid,
        "total": sum(scored) if scored else None,
        "advantage": _number(row.get("advantage")),
        "extras": [None if row.get(name) is None else _text(row[name]) for name in extras],
        "right": _is_right(dict(zip(rewards, paid, strict=True)), full),
    }


def _is_right(paid: dict[str, float | None], full: dict[str, float]) -> bool | None:
    """Whether every verifier that scored the completion paid in full; None where none did."""
    verdicts = [paid[name] >= amount for name, amount in full.items() if paid.get(name) is not None]
    return all(verdicts) if verdicts else None


def verifiers(preflight: Path) -> dict[str, float]:
    """Each verifier of a run and what it pays in full, from the table that preflight left; empty without one.

    It is the one record of what the rewards were that needs none of them loaded.
    """
    lines = preflight.read_text(encoding="utf-8").splitlines() if preflight.is_file() else []
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
    table = [dict(zip(cells[0], line, strict=True)) for line in cells[1:] if len(line) == len(cells[0])]
    found = [line for line in table if line.get("kind") == "verifier" and line["full"] != "-"]
    return {line["reward"]: float(line["full"]) for line in found}


def _generations(files: list[Path]) -> tuple[list[pyarrow.Table], int]:
    """The tables to show, and how many completions were generated in all."""
    kept, previous, count, size = [], None, 0, 0
    for file in files:
        table = _read_table(file)
        content = table.drop_columns(["step"])
        if previous is None or not content.equals(previous):
            kept.append(file)
            count, size = count + table.num_rows, size + table.nbytes
        previous = content
    share = min(1.0, MAX_COMPLETIONS / max(1, count), MAX_BYTES / max(1, size))
    return [_read_table(file) for file in evenly(kept, max(2, int(share * len(kept))))], count


def _read_table(file: Path) -> pyarrow.Table:
    try:
        return pyarrow.parquet.read_table(file)
    except pyarrow.ArrowInvalid as error:
        message = f"{file} is cut short: a run is writing it (try again), or was killed then (remove it)."
        raise ValueError(message) from error


def evenly(items: list, count: int) -> list:
    """At most `count` (two or more) of the items at even distances, first and last included.

    Example: `evenly([1, 2, 3, 4, 5], 3) == [1, 3, 5]`
    """
    if len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _has_log(folder: Path) -> bool:
    return (folder / "trainer_state.json").is_file() or any(folder.glob("checkpoint-*/trainer_state.json"))


def _rows(path: Path) -> list[dict[str, Any]]:
    return read_rows(path) if path.is_file() else []


def _json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)


def _number(value: Any) -> float | None:
    """JSON knows no NaN: a reward that did not judge is None."""
    return None if value is None or not math.isfinite(value) else float(value)
