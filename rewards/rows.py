"""Rows: scored one by one, so that one that cannot be graded costs that row alone; and by task."""

import math
from collections.abc import Callable
from typing import Any

from rewards.contract import Reward

LogExtra = Callable[[str, list], None]
LogMetric = Callable[[str, float], None]
NumberedRow = tuple[int, dict]  # a row and its place among all rows, for messages


def as_rows(**columns: Any) -> list[dict[str, Any]]:
    """The rows of a call of a reward, by its arguments: what is no list is not of a row.

    Example: `as_rows(answer=["4", "5"], log_extra=None) == [{"answer": "4"}, {"answer": "5"}]`
    """
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def score_rows(
    name: str,
    scorer: Callable[..., float | None],
    *columns: list,
    log_extra: LogExtra | None = None,
) -> list[float | None]:
    """`scorer(*row)` of every row; None where it raises, or returns what is not finite.

    Logs the column `outcome/<name>`: `graded`; `unparsed` where the scorer returns None (its gold
    is unusable); `error: ...` where it failed. The trainer counts `unparsed/<name>` and
    `errors/<name>` from it.

    Example: `score_rows("inverse", lambda n: 1 / n, [2, 0]) == [0.5, None]`
    """
    scored = [_score(scorer, row) for row in zip(*columns, strict=True)]
    if log_extra is not None:
        log_extra(f"outcome/{name}", [outcome for _, outcome in scored])
    return [score for score, _ in scored]


def _score(scorer: Callable[..., float | None], row: tuple) -> tuple[float | None, str]:
    try:
        score = scorer(*row)
        if score is not None and not math.isfinite(score):
            raise ValueError(f"it returned {score}")
    except Exception as error:  # our bug or a broken row, never the model's fault
        return None, f"error: {type(error).__name__}: {error}"
    return score, "unparsed" if score is None else "graded"


def check_penalty(name: str, wrong: float) -> None:
    """Refuse, by ValueError, a score for wrong answers above 0: what is right must earn more."""
    if not -math.inf < wrong <= 0.0:
        needed = "it must be 0, or below as a penalty for a wrong answer."
        raise ValueError(f"{name}: wrong is {wrong}; {needed}")


def log_answers(name: str, golds: list, parsed: list, log_extra: LogExtra | None) -> None:
    """Log the columns `gold/<name>` and `parsed/<name>`: the right answer, and what was read.

    One column for each reward, since TRL would join what two log under one name; as text, so that a
    column has one type in TRL's parquet file.

    Example: `log_answers("mine", ["18"], [None], columns.__setitem__)` sets `gold/mine` to `["18"]`
    and `parsed/mine` to `[None]`.
    """
    for column, values in (("gold", golds), ("parsed", parsed)) if log_extra else ():
        log_extra(f"{column}/{name}", [None if value is None else str(value) for value in values])


def rows_by_task(rows: list[dict]) -> dict[str | None, list[NumberedRow]]:
    """The rows of each task, tasks in alphabetical order; rows without a task are one task, None.

    Example: `rows_by_task([{"task": "b"}, {}]) == {None: [(1, {})], "b": [(0, {"task": "b"})]}`
    """
    tasks: dict[str | None, list[NumberedRow]] = {}
    for number, row in enumerate(rows):
        tasks.setdefault(row.get("task") or None, []).append((number, row))
    return dict(sorted(tasks.items(), key=lambda item: item[0] or ""))


def unusable_rows(rows: list[dict], rewards: list[Reward]) -> list[str]:
    """Say what keeps rows from being scored: no prompt, no row of a task, no column."""
    if not rows:
        return ["there are no rows."]
    lacking = [place for place, row in enumerate(rows) if not row.get("prompt")]
    problems = [f"row {i} lacks a prompt (its columns: {sorted(rows[i])})." for i in lacking[:1]]
    for reward in rewards:
        mine = [row for row in rows if reward.scores(row.get("task"))]
        present = {column for row in mine for column, value in row.items() if value is not None}
        missing = [column for column in reward.columns if column not in present]
        name = f"reward {reward.name!r}"
        if not mine:
            problems.append(f"{name} is for {reward.tasks}; no row is of these tasks.")
        elif missing:
            problems.append(f"{name} needs the column {', '.join(missing)}; no row has it.")
    return problems
