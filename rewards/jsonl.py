"""JSON Lines: the one reader of such files, which names the file and the line of each object that cannot be used."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Problem = tuple[str, str]  # where, and what is wrong there
SHOWN = 5  # problems of one kind count once


def read_jsonl(file: Path, accept: Callable[[Any], T]) -> list[T]:
    """Read a JSON Lines file (UTF-8, with or without a mark at its start): what `accept` makes of each object.

    Raises:
        ValueError: there is no such file, it is empty, or, with file and line, why a line is not JSON or why
            `accept` raised ValueError.
    """
    items, problems = collect(lines_of(file), lambda line: accept(parse_line(line)))
    if problems:
        raise ValueError(shown(problems))
    if not items:
        raise ValueError(f"{file} holds no rows; it needs one JSON object a line.")
    return items


def lines_of(file: Path) -> Iterator[tuple[str, str]]:
    """Each line of a file that is not blank, with its place: the file and its number."""
    if not file.is_file():
        raise ValueError(f"there is no file {file}.")
    try:
        lines = file.read_text(encoding="utf-8-sig").split(
            "\n"
        )  # str.splitlines would cut at U+2028 inside a string
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{file}, line {line}: it is not UTF-8 ({error.reason}). Save the file as UTF-8."
        ) from error
    return (
        (f"{file}, line {number}", line)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )


def parse_line(line: str) -> Any:
    """The value of one line; ValueError where it is not JSON."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"it is not JSON ({error.msg}, column {error.colno}): one line of a .jsonl file is one JSON object."
        ) from error


def collect(
    pairs: Iterable[tuple[str, Any]], accept: Callable[[Any], T]
) -> tuple[list[T], list[Problem]]:
    """Collect the results of `accept` for the values of (place, value), and the places of its ValueErrors.

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

    Example: `shown([("line 1", "no answer"), ("line 4", "no answer")]) == "line 1 (and 1 more): no answer"`
    """
    places: dict[str, list[str]] = {}
    for place, message in problems:
        places.setdefault(message, []).append(place)
    lines = [
        f"{where[0]}{f' (and {len(where) - 1} more)' if len(where) > 1 else ''}: {message}"
        for message, where in places.items()
    ]
    more = [f"... and {len(lines) - SHOWN} other problems"] if len(lines) > SHOWN else []
    return "\n".join(lines[:SHOWN] + more)


def with_keys(keys: dict[str, tuple[type, ...]]) -> Callable[[Any], dict[str, Any]]:
    """Make an `accept`: objects that have `keys` of these types, text or lists, and are not empty."""

    def accept(item: Any) -> dict[str, Any]:
        if not isinstance(item, dict):
            raise ValueError(
                f"it must be a JSON object with {', '.join(keys)}, not {str(item)[:80]!r}"
            )
        if missing := [name for name in keys if name not in item]:
            raise ValueError(
                f"{', '.join(missing)} missing (its keys: {', '.join(item)}; wanted: {', '.join(keys)})"
            )
        for name, kinds in keys.items():
            if not isinstance(item[name], kinds) or not item[name]:
                wanted = " or ".join({str: "text", list: "a list"}[kind] for kind in kinds)
                raise ValueError(
                    f"{name} is {json.dumps(item[name])[:80]}; it must be {wanted} that is not empty"
                )
        return item

    return accept
