"""The screen of a run: what it waits for, and how it ends, in our words as its last lines.

torchrun shows the file that it names in TORCHELASTIC_ERROR_FILE as the root cause, at the end of
its own report.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from recipes.common.utils.secrets import blank

DELAY_S = 3  # a bar that is gone sooner tells nothing
FULL_BYTES = 16 << 20  # less is not enough for the checkpoint of any model
# All but tab and new line, and what turns the direction of a text.
CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]")
OTHERS_WAIT_S = 60  # a launcher ends all processes when one ends: the main one is to be heard first


def is_main() -> bool:
    """Tell whether this is the process that speaks for all.

    One whose rank nobody has, left in the environment, does: it is to say so.
    """
    rank = int(os.environ.get("RANK", 0))
    return rank == 0 or rank >= int(os.environ.get("WORLD_SIZE", 1))


def announce(message: str) -> None:
    """Print on the main process what is waited for."""
    if is_main():
        print(shown(message), flush=True)


def shown(message: str) -> str:
    r"""A message for a terminal: without secrets, and without characters that would steer it.

    >>> shown("a key of the file: \x1b[2J")
    'a key of the file: \\x1b[2J'
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], blank(message))


def bar(items: Sequence, title: str) -> Iterable:
    """Go through the items; after some seconds the main process shows how far it is."""
    return tqdm(
        items,
        desc=title,
        unit="batch",
        delay=DELAY_S,
        mininterval=1,
        leave=False,
        disable=not is_main(),
    )


def refuse(message: str) -> NoReturn:
    """End with status 2 and this message, which the main process prints for all."""
    if not is_main():
        time.sleep(OTHERS_WAIT_S)
    _end_with(message)
    sys.exit(2)


def explain_endings(folder: Path) -> None:
    """Let Ctrl-C end the process in one line, and a full disk in what to do."""

    def explain(kind: type[BaseException], error: BaseException, trace: object) -> None:
        if kind is KeyboardInterrupt:
            again = (
                "Run the same command again to go on from the last checkpoint (without --fresh)."
            )
            return _end_with(f"\nInterrupted. {again}") if is_main() else None
        print(blank("".join(traceback.format_exception(kind, error, trace))), file=sys.stderr)
        if folder.is_dir() and shutil.disk_usage(folder).free < FULL_BYTES:
            again = "Make room and run the same command again to resume from the checkpoint before."
            full = f"error: the disk of {folder} is full, and a file was cut short."
            return _end_with(f"{full}\n{again}")
        return _record(shown(f"{kind.__name__}: {error}"))

    sys.excepthook = explain


def _end_with(message: str) -> None:
    message = shown(message)
    print(message, flush=True)
    _record(message.rpartition("\n\n")[2])  # of preflight's report the problems


def _record(message: str) -> None:
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with contextlib.suppress(OSError):  # its disk may be the full one
            Path(file).write_text(json.dumps({"message": message, "timestamp": int(time.time())}))
