"""What a sandbox is to a reward, whoever runs the programs: the part that a back end need not write again.

A back end brings `start() -> str` (the isolation in force, `SandboxError` where none holds), `run_batch(jobs)`,
`run_batch_async(jobs)`, `describe()`, `close()`, and the counts `workers`, `runs` and `infra`.
"""

from collections.abc import Sequence
from typing import Any

from rewards.sandbox.jobs import TIMEOUT_S, Asserts, Outcome, Stdio


class SandboxError(RuntimeError):
    """Programs cannot be isolated here: what was tried, and which probes came through."""


class Face:
    """One program at a time, and the life of a `with` block."""

    def start(self) -> str:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def run_batch(self, jobs: Sequence[Asserts | Stdio]) -> list[Outcome]:
        raise NotImplementedError

    def run_asserts(self, program: str, tests: Sequence[str], **options: Any) -> Outcome:
        """One program against tests; options as in `Asserts` (setup, entry_point, inplace, objects, timeout_s)."""
        return self.run_batch([Asserts(program, tests, **options)])[0]

    def run_stdio(self, program: str, cases: Sequence[tuple[str, str]], timeout_s: float = TIMEOUT_S) -> Outcome:
        """One program, started afresh for each pair (stdin, expected stdout)."""
        return self.run_batch([Stdio(program, cases, timeout_s)])[0]

    def __enter__(self) -> "Face":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
