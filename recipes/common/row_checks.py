"""Rows against rewards: the columns are there, the reference answer earns its due, an empty one nothing."""

import json
from collections.abc import Callable
from typing import Any

from datasets import Dataset

from recipes.common.scoring import score
from rewards import full_reward, reward_columns, reward_kind, reward_name

NumberedRow = tuple[int, dict]  # a row and its place in the data set, for messages


def reward_table(
    rows: list[dict],
    rewards: list[Callable],
    weights: list[float] | None,
    reference: Callable[[dict], str],
    problems: list[str],
) -> list[dict[str, Any]]:
    """One line per task and reward: rows scored, what the reference and the empty completion earn."""
    if weights and len(weights) != len(rewards):
        problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards: {_names(rewards)}.")
        weights = None
    table = []
    for task, numbered in _by_task(rows, problems).items():
        lines = [
            {"task": task, "weight": weight, **_line(numbered, rows, reward, reference, problems)}
            for reward, weight in zip(rewards, weights or [1.0] * len(rewards), strict=True)
        ]
        if rewards and not any(line["rows scored"] for line in lines):
            problems.append(f"task {task!r}: none of the rewards {_names(rewards)} scores its {len(numbered)} rows.")
        table += lines
    return table


def check_held_out(train_rows: list[dict], eval_rows: Dataset, problems: list[str]) -> None:
    """No evaluation row may be a training row: what is compared is the prompt."""
    trained = {json.dumps(row["prompt"]) for row in train_rows if row.get("prompt")}
    prompts = eval_rows["prompt"] if "prompt" in eval_rows.column_names else []
    leaked = [i for i, prompt in enumerate(prompts) if json.dumps(prompt) in trained]
    if leaked:
        problems.append(
            f"{len(leaked)} of {len(eval_rows)} evaluation rows are also training rows (the first is row {leaked[0]}): "
            "accuracy on them would measure memory. Give the evaluation rows of its own."
        )


def format_table(table: list[dict[str, Any]]) -> str:
    """Plain text columns, as wide as their widest cell."""
    if not table:
        return "  (no rows or rewards to judge)"
    names = list(table[0])
    cells = [names] + [["-" if row[name] is None else str(row[name]) for name in names] for row in table]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def _by_task(rows: list[dict], problems: list[str]) -> dict[str, list[NumberedRow]]:
    tasks: dict[str, list[NumberedRow]] = {}
    for number, row in enumerate(rows):
        missing = [name for name in ("prompt", "task") if not row.get(name)]
        message = f"rows lack {', '.join(missing)}: every row has a prompt and a task (its columns: {sorted(row)})."
        if missing and message not in problems:
            problems.append(message)
        if not missing:
            tasks.setdefault(row["task"], []).append((number, row))
    return dict(sorted(tasks.items()))


def _line(
    numbered: list[NumberedRow], all_rows: list[dict], reward: Callable, reference: Callable, problems: list[str]
) -> dict[str, Any]:
    """What one reward pays on the rows of one task; a promise of its kind that it breaks is a problem."""
    name, rows = reward_name(reward), [row for _, row in numbered]
    line = {"reward": name, "kind": reward_kind(reward), "rows scored": 0, "reference earns": None}
    line |= {"full": full_reward(reward), "empty earns": None}
    missing = _missing_columns(numbered, reward)
    if missing and not any(row.get(column) is not None for row in all_rows for column in missing):
        problems.append(_lacks(name, missing, numbered))
        return line
    try:
        golds = [reference(row) for row in rows]
        paid, empty = score(reward, rows, golds), score(reward, rows, [""] * len(rows))
    except Exception as error:
        problems.append(_lacks(name, missing, numbered) if missing else _fails(name, error))
        return line
    scored = [amount for amount in paid if amount is not None]
    line["rows scored"], line["reference earns"] = len(scored), min(scored, default=None)
    line["empty earns"] = max((amount for amount in empty if amount is not None), default=None)
    if scored and missing:
        problems.append(_lacks(name, missing, numbered))
    elif scored:  # a reward that pays None to a whole task does not apply to it
        _check_promises(line, numbered, golds, paid, problems)
    return line


def _missing_columns(numbered: list[NumberedRow], reward: Callable) -> list[str]:
    return [name for name in reward_columns(reward) if any(row.get(name) is None for _, row in numbered)]


def _lacks(name: str, missing: list[str], numbered: list[NumberedRow]) -> str:
    number, row = next(item for item in numbered if item[1].get(missing[0]) is None)
    has = sorted(key for key, value in row.items() if value is not None)
    return f"reward {name!r} needs the column {', '.join(missing)}, which row {number} lacks (its columns: {has})."


def _fails(name: str, error: Exception) -> str:
    return f"reward {name!r} fails on the reference answers: {type(error).__name__}: {error}"


def _check_promises(
    line: dict, numbered: list[NumberedRow], golds: list[str], paid: list[float | None], problems: list[str]
) -> None:
    if line["kind"] == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(f"reward {line['reward']!r} is a verifier but pays {line['empty earns']} for an empty answer.")
    if line["kind"] not in ("verifier", "format") or line["full"] is None:
        return
    short = [i for i, amount in enumerate(paid) if amount is None or amount < line["full"]]
    if short:
        (number, row), first = numbered[short[0]], short[0]
        problems.append(
            f"reward {line['reward']!r} pays {paid[first]} instead of {line['full']} for the reference answer of "
            f"{len(short)} of {len(paid)} rows of task {row['task']!r}; the first is row {number}: {golds[first]!r}."
        )


def _names(rewards: list[Callable]) -> str:
    return ", ".join(reward_name(reward) for reward in rewards)
