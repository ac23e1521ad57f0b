"""Rows: scored one by one, so that a failure costs its own row alone; by task; read from files."""

import contextlib
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

LogExtra = Callable[[str, list], None]
LogMetric = Callable[[str, float], None]
NumberedRow = tuple[int, dict]  # a row and its place among all rows, for messages
T = TypeVar("T")
Problem = tuple[str, str]  # where, and what is wrong there
SHOWN = 5  # problems of one kind count once


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


# --- JSON Lines: the one reader of such files


def read_jsonl(file: Path, accept: Callable[[Any], T]) -> list[T]:
    """What `accept` makes of each object of a JSON Lines file (UTF-8, a mark at its start or none).

    Raises:
        ValueError: there is no such file, it is empty, or, with file and line, why a line is not
            JSON or why `accept` raised ValueError.
    """
    items, problems = collect(lines_of(file), lambda line: accept(parse_line(line)))
    if problems:
        raise ValueError(shown(problems))
    if not items:
        raise ValueError(f"{file} holds no rows; it needs one JSON object a line.")
    return items


def lines_of(file: Path) -> Iterator[tuple[str, str]]:
    """Each line of a file that is not blank, with its place: the file and its number.

    A file of the name `.gz` is unpacked; of a JSON list each item is a line.
    """
    if not file.is_file():
        raise ValueError(f"there is no file {file}.")
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{file} cannot be unpacked: {error}") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{file}, line {line}: it is not UTF-8 ({error.reason}). Save the file as UTF-8."
        ) from error
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            items = enumerate(json.loads(text), start=1)
            return ((f"{file}, item {number}", json.dumps(item)) for number, item in items)
    lines = enumerate(text.split("\n"), start=1)  # splitlines would cut at U+2028 in a string
    return ((f"{file}, line {number}", line) for number, line in lines if line.strip())


def parse_line(line: str) -> Any:
    """The value of one line; ValueError where it is not JSON."""
    try:
        return json.loads(line, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ValueError("it is nested too deeply for JSON.") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"it is not JSON ({error.msg}, column {error.colno}): one line of a .jsonl file is one "
            "JSON object."
        ) from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; `json` alone would keep the last value of a name."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double!r} stands twice in one object: keep one.")
    return made


def collect(
    pairs: Iterable[tuple[str, Any]], accept: Callable[[Any], T]
) -> tuple[list[T], list[Problem]]:
    """The results of `accept` for the values of (place, value), and the places of its ValueErrors.

    Example: `collect([("line 1", "5"), ("line 2", "x")], int)[0] == [5]`
    """
    items, problems = [], []
    for place, value in pairs:
        try:
            items.append(accept(value))
        except ValueError as problem:
            problems.append((place, str(problem)))
    return items, problems


def shown(problems: list[Problem]) -> str:
    """The first problems, one a line: those that are equal once, with the first place.

    Example: `shown([("line 1", "none"), ("line 4", "none")]) == "line 1 (and 1 more): none"`
    """
    first = {message: place for place, message in reversed(problems)}
    counts = Counter(message for _, message in problems)
    lines = [
        f"{first[message]} (and {count - 1} more): {message}".replace(" (and 0 more)", "")
        for message, count in counts.items()
    ]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and {len(lines) - SHOWN} other problems"]
    return "\n".join(lines)


def with_keys(keys: dict[str, tuple[type, ...]]) -> Callable[[Any], dict[str, Any]]:
    """Make an `accept`: objects that have `keys` of these types, and none of them empty."""
    words = {str: "text", list: "a list", int: "a number"}

    def accept(item: Any) -> dict[str, Any]:
        if not isinstance(item, dict):
            raise ValueError(
                f"it must be a JSON object with {', '.join(keys)}, not {str(item)[:80]!r}"
            )
        if missing := [name for name in keys if name not in item]:
            raise ValueError(
                f"{', '.join(missing)} missing (its keys: {', '.join(item)}; wanted: "
                f"{', '.join(keys)})"
            )
        for name, kinds in keys.items():
            if not isinstance(item[name], kinds) or not item[name]:
                wanted, value = " or ".join(map(words.get, kinds)), json.dumps(item[name])[:80]
                raise ValueError(f"{name} is {value}; it must be {wanted} that is not empty")
        return item

    return accept
