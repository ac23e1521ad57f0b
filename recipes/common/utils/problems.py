"""Problems of a run: one list of messages, to which every check adds."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collect_errors(problems: list[str], source: str | None = None) -> Iterator[None]:
    """Run the block; if it raises, add the error to `problems` and go on after the block.

    `source` names what is checked, and begins the message. A ValueError is meant for the user: only
    its message is taken. Another error gets its type, and without `source` its line of code.

    >>> problems = []
    >>> with collect_errors(problems, "optim"):
    ...     raise KeyError("speed")
    >>> problems
    ["optim: KeyError: 'speed'"]
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        try:
            text = str(error)
        except Exception:  # an exception of a user's code may have no text
            text = ""
        if not isinstance(error, ValueError):
            text = f"{type(error).__name__}: {text}"
            source = source or f"{place.filename}, line {place.lineno}"
        if source:  # a library may raise pages of text: keep one line
            text = f"{source}: {' '.join(text.split())[:500]}"
        problems.append(text)
