"""JSON Lines: the one reader of such files, which names the line of each object that is no use."""

import contextlib
import gzip
import json
import zlib
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
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{file} cannot be unpacked: {error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        wrong = f"it is not UTF-8 ({error.reason}). Save the file as UTF-8."
        raise ValueError(f"{file}, line {line}: {wrong}") from error
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            items = enumerate(json.loads(text), start=1)
            return ((f"{file}, item {number}", json.dumps(item)) for number, item in items)
    lines = enumerate(text.split("\n"), start=1)  # splitlines would cut at U+2028 in a string
    return ((f"{file}, line {number}", line) for number, line in lines if line.strip())


def parse_line(line: str) -> Any:
    """The value of one line; ValueError where it is not JSON."""
    needed = "one line of a .jsonl file is one JSON object."
    try:
        return json.loads(line, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {needed}") from error
    except json.JSONDecodeError as error:
        wrong = f"it is not JSON ({error.msg}, column {error.colno})"
        if "\t" in line.strip() and not line.lstrip().startswith("{"):
            wrong = "it is a line of a table with tabs, not JSON"
        raise ValueError(f"{wrong}: {needed}") from error


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
    places: dict[str, list[str]] = {}
    for place, message in problems:
        places.setdefault(message, []).append(place)
    lines = []
    for message, where in places.items():
        more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
        lines.append(f"{where[0]}{more}: {message}")
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and {len(lines) - SHOWN} other problems"]
    return "\n".join(lines)


def with_keys(keys: dict[str, tuple[type, ...]]) -> Callable[[Any], dict[str, Any]]:
    """Make an `accept`: objects that have `keys` of these types, and none of them empty."""

    def accept(item: Any) -> dict[str, Any]:
        if not isinstance(item, dict):
            raise ValueError(
                f"it must be a JSON object with {', '.join(keys)}, not {str(item)[:80]!r}"
            )
        if missing := [name for name in keys if name not in item]:
            has = f"its keys: {', '.join(item)}; wanted: {', '.join(keys)}"
            raise ValueError(f"{', '.join(missing)} missing ({has})")
        for name, kinds in keys.items():
            if not isinstance(item[name], kinds) or not item[name]:
                wanted = " or ".join(
                    {str: "text", list: "a list", int: "a number"}[kind] for kind in kinds
                )
                given = json.dumps(item[name])[:80]
                raise ValueError(f"{name} is {given}; it must be {wanted} that is not empty")
        return item

    return accept
