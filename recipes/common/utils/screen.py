"""The screen of a run: what it waits for, and how it ends, in our words as its last lines.

torchrun shows the file that it names in TORCHELASTIC_ERROR_FILE as the root cause, at the end of
its own report.
"""

import contextlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from recipes.common.utils.secrets import blank

# All but tab and new line, and what turns the direction of a text.
CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]")
OTHERS_WAIT_S = 60  # a launcher ends all processes when one ends: the main one is to be heard first


def is_main() -> bool:
    """Tell whether this is the process that speaks for all.

    One whose rank nobody has, left in the environment, does: it is to say so.
    """
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    is_read = rank.isdecimal() and world.isdecimal()  # else preflight says so
    return not is_read or int(rank) == 0 or int(rank) >= int(world)


def announce(message: str) -> None:
    """Print on the main process what is waited for."""
    if is_main():
        print(shown(message), flush=True)


def shown(message: str) -> str:
    r"""A message for a terminal: without secrets, and without characters that would steer it.

    >>> shown("a key of the file: \x1b[2J")
    'a key of the file: \\x1b[2J'
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], blank(message))


def bar(items: Sequence, title: str) -> Iterable:
    """Go through the items; after three seconds the main process shows how far it is."""
    return tqdm(items, title, unit="batch", delay=3, leave=False, disable=not is_main())


def refuse(message: str) -> NoReturn:
    """End with status 2 and this message, which the main process prints for all."""
    if not is_main():
        time.sleep(OTHERS_WAIT_S)
    print(shown(message), flush=True)
    _tell_launcher(shown(message).rpartition("\n\n")[2])  # of preflight's report the problems
    sys.exit(2)


def explain_endings() -> None:
    """Let Ctrl-C end the process in one line, and keep secrets out of tracebacks."""

    def explain(kind: type[BaseException], error: BaseException, trace: object) -> None:
        if kind is KeyboardInterrupt:
            announce(
                "\nInterrupted. Run the same command again to go on from the last checkpoint "
                "(without --fresh)."
            )
        else:
            print(blank("".join(traceback.format_exception(kind, error, trace))), file=sys.stderr)
            _tell_launcher(shown(f"{kind.__name__}: {error}"))

    sys.excepthook = explain


def _tell_launcher(message: str) -> None:
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with contextlib.suppress(OSError):  # its disk may be full
            Path(file).write_text(json.dumps({"message": message, "timestamp": int(time.time())}))
