"""Steps instead of seconds: the same on any machine."""

import itertools
import sys
from collections.abc import Callable


def calls_of(run: Callable[[], object]) -> int:
    """How many functions a call enters, Python's and C's."""
    count = itertools.count()
    sys.setprofile(lambda frame, event, argument: next(count) if event.endswith("call") else None)
    try:
        run()
    finally:
        sys.setprofile(None)
    return next(count)
