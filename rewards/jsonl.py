"""JSON Lines: the one reader of such files, which names the line of each object that is no use."""

import contextlib
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Problem = tuple[str, str]  # where, and what is wrong there
SHOWN = 5  # problems of one kind count once


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
