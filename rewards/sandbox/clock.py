"""Time that counts towards a limit: of the processor, and on the wall.

    processor_seconds(pid)      # 1.25, of all threads of a process
    clock = Clock()
    clock.seconds()             # called at least every half second while somebody waits

Promises: next to other work on its core a program has no less time than alone, up to the limit on
the wall; where the whole job is stopped (a suspended batch job, a frozen container), it has the
time that it had left when it goes on: a stop counts as `STILL_S` at the most.
"""

import contextlib
import time

STILL_S = 1.0


class Clock:
    """Seconds on the wall in which this process could run."""

    def __init__(self) -> None:
        self._counted, self._read = 0.0, time.monotonic()

    def seconds(self) -> float:
        """How many have counted so far."""
        now = time.monotonic()
        self._counted += min(now - self._read, STILL_S)
        self._read = now
        return self._counted


def processor_seconds(pid: int | None) -> float:
    """What a process has used so far; 0.0 of none, or where the kernel does not say."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2) if pid else 0.0  # the kernel's name of its clock
    return 0.0
