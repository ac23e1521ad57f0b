"""What a run prints: what it waits for, and why it ends."""

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from typing import NoReturn

from tqdm import tqdm

from recipes.common.utils.secrets import hide_secrets

# Control characters except tab and new line, characters that change the text direction, and halves
# of characters, which no screen takes.
CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # besides WORLD_SIZE
THREADS_WAIT_S = 5
OTHERS_WAIT_S = 60  # a launcher ends all processes when one ends: let the main one print first


def is_main() -> bool:
    """Whether this process prints for all; so does one to which no launcher gave all variables."""
    is_launched = all(name in os.environ for name in ("WORLD_SIZE", *OF_A_LAUNCHER))
    return not is_launched or os.environ["RANK"] == "0"


def announce(message: str) -> None:
    """Print a message on the main process only."""
    if is_main():
        print(shown(message), flush=True)


def shown(message: str) -> str:
    r"""The message without secrets; control characters, and letters unknown to the screen, escaped.

    >>> shown("a key of the file: \x1b[2J")
    'a key of the file: \\x1b[2J'
    """
    text = CONTROL.sub(lambda match: repr(match[0])[1:-1], hide_secrets(message))
    encoding = sys.stdout.encoding or "utf-8"  # that of a terminal may have no Greek letters
    return text.encode(encoding, "backslashreplace").decode(encoding)


def bar(items: Sequence, title: str) -> Iterable:
    """Iterate over the items; after three seconds the main process shows a progress bar."""
    return tqdm(items, title, unit="batch", delay=3, leave=False, disable=not is_main())


def refuse(message: str) -> NoReturn:
    """Exit with status 2 and this message; the main process prints first, then one on each node."""
    if not is_main():
        time.sleep(OTHERS_WAIT_S + 2 * THREADS_WAIT_S * int(os.environ["LOCAL_RANK"]))
    print(shown(message), flush=True)
    end(2)


def end(status: int) -> NoReturn:
    """Exit with this status, even if a thread that a reward has started never ends."""

    def end_soon() -> None:
        """Wait for the main thread, and a little for the others, before the process ends."""
        threading.main_thread().join()
        time.sleep(THREADS_WAIT_S)
        os._exit(status)

    threading.Thread(target=end_soon, daemon=True).start()
    sys.exit(status)


def explain_endings() -> None:
    """Print one line instead of a traceback at Ctrl-C, and keep secrets out of tracebacks."""

    def explain(kind: type[BaseException], error: BaseException, trace: object) -> None:
        """Print what ends the process, in place of Python's own `sys.excepthook`."""
        if issubclass(kind, KeyboardInterrupt):  # also in the code of a reward
            announce(
                "\nInterrupted. Run the same command again to go on from the last checkpoint "
                "(without --fresh)."
            )
        else:
            text = "".join(traceback.format_exception(kind, error, trace))
            print(hide_secrets(text), file=sys.stderr)

    sys.excepthook = explain
