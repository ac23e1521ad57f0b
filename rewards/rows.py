"""Score rows one by one (a failure voids one row only), group rows by task, read JSON Lines."""

import gzip
import json
import logging
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
Problem = tuple[str, str]  # the place (file and line) and the message
logger = logging.getLogger(__name__)
SHOWN = 5  # distinct messages that an error lists


def as_rows(**columns: Any) -> list[dict[str, Any]]:
    """Turn the columns of a reward call into rows; arguments that are not lists are left out.

    Example: `as_rows(answer=["4", "5"], log_extra=None) == [{"answer": "4"}, {"answer": "5"}]`
    """
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def read_each(reader: Callable[[str], T], texts: list[str]) -> list[T | None]:
    """Read an answer from each text; None (no answer) where the text makes the reader fail.

    Example: `read_each(float, ["1.5", "one"]) == [1.5, None]`
    """
    answers: list[T | None] = []
    for text in texts:
        try:
            answers.append(reader(text))
        except Exception as error:
            logger.warning(f"an answer cannot be read ({type(error).__name__}: {error}): {text!r}")
            answers.append(None)
    return answers


def score_rows(
    name: str,
    scorer: Callable[..., float | None],
    answers: list,
    *columns: list,
    log_extra: LogExtra | None = None,
) -> list[float | None]:
    """Return `scorer(answer, *row)` for every row; `answers` were read from the completions.

    Where the scorer fails on an answer, the row scores what an empty answer does: wrong. Where it
    fails on an empty answer too, the row or the scorer is at fault, and the score is None.

    Logs the column `outcome/<name>`: `graded`; `unparsed` if the scorer returns None (the gold is
    unusable); `wrong: ...` if it fails on this answer; `error: ...` if it fails on any. From this
    column the trainer computes the metrics `unparsed/<name>` and `errors/<name>`.

    Example: `score_rows("inverse", lambda n, m: m / int(n or 1), ["2", "0"], [1, 1]) == [0.5, 1.0]`
    """

    def score_row(answer: Any, row: tuple) -> tuple[float | None, str]:
        score = scorer(answer, *row)
        if score is not None and not math.isfinite(score):
            raise ValueError(f"it returned {score}")
        return score, "unparsed" if score is None else "graded"

    scored = []
    for answer, *row in zip(answers, *columns, strict=True):
        try:
            scored.append(score_row(answer, row))
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            try:
                score, outcome = score_row("", row)
                scored.append((score, f"wrong: {failure}" if outcome == "graded" else outcome))
            except Exception:
                scored.append((None, f"error: {failure}"))
    if log_extra is not None:
        log_extra(f"outcome/{name}", [outcome for _, outcome in scored])
    return [score for score, _ in scored]


def check_penalty(name: str, wrong: float) -> None:
    """Raise ValueError if the score of a wrong answer is above 0 (0.0 or less means wrong)."""
    if not -math.inf < wrong <= 0.0:
        raise ValueError(
            f"{name}: wrong is {wrong}; it must be 0, or below as a penalty for a wrong answer."
        )


def log_answers(name: str, golds: list, parsed: list, log_extra: LogExtra | None) -> None:
    """Log the columns `gold/<name>` (the right answer) and `parsed/<name>` (the parsed answer).

    The reward's name is part of the column name, since TRL merges columns with equal names. Values
    are logged as text, so that a column has one type in TRL's parquet file.

    Example: `log_answers("mine", ["18"], [None], columns.__setitem__)` sets `gold/mine` to `["18"]`
    and `parsed/mine` to `[None]`.
    """
    for column, values in (("gold", golds), ("parsed", parsed)) if log_extra else ():
        log_extra(f"{column}/{name}", [None if value is None else str(value) for value in values])


def rows_by_task(rows: list[dict]) -> dict[str | None, list[NumberedRow]]:
    """Group rows by task, in alphabetical order; rows without a task form the task None.

    Example: `rows_by_task([{"task": "b"}, {}]) == {None: [(1, {})], "b": [(0, {"task": "b"})]}`
    """
    tasks: dict[str | None, list[NumberedRow]] = {}
    for number, row in enumerate(rows):
        tasks.setdefault(row.get("task") or None, []).append((number, row))
    return dict(sorted(tasks.items(), key=lambda item: item[0] or ""))


# --- JSON Lines


def read_jsonl(file: Path, accept: Callable[[Any], T]) -> list[T]:
    """Read a JSON Lines file (UTF-8, with or without BOM); return `accept(object)` of every line.

    `accept` checks or converts one value, and raises ValueError for a bad one.

    Raises:
        ValueError: the file is missing or empty, a line is not JSON, or `accept` raised ValueError.
            The message names the file and the line.
    """
    items, problems = collect(lines_of(file), lambda line: accept(parse_line(line)))
    if problems:
        raise ValueError(shown(problems))
    if not items:
        raise ValueError(f"{file} holds no rows; it needs one JSON object a line.")
    return items


def lines_of(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, line) for each line that is not blank; the place names file and line number.

    A `.gz` file is unpacked. A file that is one JSON list yields one line per item.
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
        try:
            items = enumerate(parse_line(text), start=1)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        return ((f"{file}, item {number}", json.dumps(item)) for number, item in items)
    lines = enumerate(text.split("\n"), start=1)  # splitlines would cut at U+2028 in a string
    return ((f"{file}, line {number}", line) for number, line in lines if line.strip())


def parse_line(line: str) -> Any:
    """Return the JSON value of one line; ValueError if it is not JSON or repeats a key."""

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        if len(counts) < len(pairs):  # `json` would keep the last one
            double = counts.most_common(1)[0][0]
            raise ValueError(f"the key {double!r} stands twice in one object: keep one.")
        return dict(pairs)

    try:
        return json.loads(line, object_pairs_hook=without_doubles)
    except RecursionError as error:
        raise ValueError("it is nested too deeply for JSON.") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"it is not JSON ({error.msg}, {f'line {error.lineno}, ' * (error.lineno > 1)}column "
            f"{error.colno}): one line of a .jsonl file is one JSON object."
        ) from error


def collect(
    pairs: Iterable[tuple[str, Any]], accept: Callable[[Any], T]
) -> tuple[list[T], list[Problem]]:
    """Call `accept` with each value; return the results, and the problems: place and error.

    Example: `collect([("line 1", "5"), ("line 2", "x")], int)[0] == [5]`
    """
    items, problems = [], []
    for place, value in pairs:
        try:
            items.append(accept(value))
        except ValueError as problem:
            problems.append((place, str(problem)))
        except Exception as error:  # a value of a kind that nobody expected
            problems.append((place, f"it cannot be read ({type(error).__name__}: {error})"))
    return items, problems


def shown(problems: list[Problem]) -> str:
    """List the first problems, one per line; an equal message appears once, at its first place.

    Example: `shown([("line 1", "none"), ("line 4", "none")]) == "line 1 (and 1 more): none"`
    """
    places: dict[str, list[str]] = {}
    for place, message in problems:
        places.setdefault(message, []).append(place)
    lines = []
    for message, (first, *others) in places.items():
        more = f" (and {len(others)} more)" if others else ""
        lines.append(f"{first}{more}: {message}")
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and {len(lines) - SHOWN} other problems"]
    return "\n".join(lines)


def with_keys(keys: dict[str, tuple[type, ...]]) -> Callable[[Any], dict[str, Any]]:
    """Return an `accept` for `read_jsonl`: an object must have each key, of its type, not empty.

    Example: `with_keys({"answer": (str,)})({"answer": "4"}) == {"answer": "4"}`
    """
    words = {str: "text", list: "a list", int: "a number"}

    def accept(item: Any) -> dict[str, Any]:
        wanted = ", ".join(keys)
        if not isinstance(item, dict):
            raise ValueError(f"it must be a JSON object with {wanted}, not {str(item)[:80]!r}")
        if missing := ", ".join(name for name in keys if name not in item):
            raise ValueError(f"{missing} missing (its keys: {', '.join(item)}; wanted: {wanted})")
        for name, kinds in keys.items():
            if not isinstance(item[name], kinds) or not item[name]:
                value, kind = json.dumps(item[name])[:80], " or ".join(map(words.get, kinds))
                raise ValueError(f"{name} is {value}; it must be {kind} that is not empty")
        return item

    return accept
