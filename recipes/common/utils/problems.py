"""What is wrong with a run, in its two forms: rows of a table, and what was raised on the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def told(table: dict[str, Any]) -> list[str]:
    """The messages of a table whose condition holds.

    >>> told({"it is too long": 5 > 3, "it is empty": 5 == 0})
    ['it is too long']
    """
    return [message for message, holds in table.items() if holds]


@contextmanager
def collected(problems: list[str]) -> Iterator[None]:
    """Let a ValueError, which is a message to the user, end the block and join the problems."""
    try:
        yield
    except ValueError as problem:
        problems.append(str(problem))
