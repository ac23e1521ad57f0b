"""Measure the time that counts towards a limit: processor time and wall time.

    processor_seconds(pid)      # 1.25, summed over the threads of a process
    waiting_seconds(pid)        # 0.5, for which its core was busy with other work
    clock = Clock()
    clock.seconds()             # the caller reads it at least every half second

Promises: other work on its core takes no time from a program. If the whole job is stopped (a
suspended batch job, a frozen container), the stop counts as `STILL_S` at most, so the program keeps
the time that it had left.

What is not covered: where the kernel does not say how long a process waited for its core, that time
counts as wall time. Of a program with several threads only the waiting of the first is known.
"""

import contextlib
import os
import time

STILL_S = 1.0  # a longer gap between two readings means that this process was stopped


class Clock:
    """Wall time without the time in which this process was stopped."""

    def __init__(self) -> None:
        self._counted, self._read = 0.0, time.monotonic()

    def seconds(self) -> float:
        """The seconds counted so far."""
        now = time.monotonic()
        self._counted += min(now - self._read, STILL_S)
        self._read = now
        return self._counted


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used; 0.0 if the kernel refuses."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # the number of its clock in the kernel
    return 0.0


def waiting_seconds(pid: int) -> float:
    """Seconds for which a process could run but its core was busy; 0.0 if that is not known."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        statistics = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)  # faster than `open`
        try:
            return int(os.read(statistics, 100).split()[1]) / 1e9
        finally:
            os.close(statistics)
    return 0.0
