"""What is wrong with a run: one list of messages, which everything that is checked adds to."""

import traceback
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
def collected(problems: list[str], source: str | None = None) -> Iterator[None]:
    """Let whatever is raised end the block and join the problems, whoever raised it.

    A ValueError is a message as it stands, anything else is named by its type; `source` says what
    was being checked. Without one an error that is no message gets its place in the code.

    >>> problems = []
    >>> with collected(problems, "optim"):
    ...     raise KeyError("speed")
    >>> problems
    ["optim: KeyError: 'speed'"]
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error)
        if not isinstance(error, ValueError):
            text = f"{type(error).__name__}: {text}"
            source = source or f"{place.filename}, line {place.lineno}"
        if source:  # of another library: one line, and no report of pages
            text = f"{source}: {' '.join(text.split())[:500]}"
        problems.append(text)
