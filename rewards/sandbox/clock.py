"""Seconds that count towards a limit: those in which this process could run.

    clock = Clock()
    clock.seconds()         # called at least every half second while somebody waits

Promises: where the whole job is stopped (a suspended batch job, a frozen container), a program has
the time that it had left when it goes on: a stop counts as `STILL_S` at the most.

What is not covered: a machine that is merely slow.
"""

import time

STILL_S = 1.0


class Clock:
    def __init__(self) -> None:
        self._counted, self._read = 0.0, time.monotonic()

    def seconds(self) -> float:
        """How many have counted so far."""
        now = time.monotonic()
        self._counted += min(now - self._read, STILL_S)
        self._read = now
        return self._counted
