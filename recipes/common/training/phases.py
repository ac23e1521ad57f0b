"""Where the time of a run goes."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Seconds of wall time by phase, without those of the phases inside it; on a GPU work may still be queued."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inside: list[float] = []  # of each open phase: the seconds of the phases inside it

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            taken = time.perf_counter() - started
            self.seconds[name] += taken - self._inside.pop()
            if self._inside:
                self._inside[-1] += taken
