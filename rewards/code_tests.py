"""Score programs by running their tests in the sandbox.

A row has `tests`: assert statements, or JSON texts {"stdin": ..., "stdout": ...}, never both. It
may also have `setup` (code that the tests need), `preamble` (code put before the program),
`entry_point`, and `hidden_tests`, which are run and logged but not scored.

Not covered: a program that returns memorized answers passes its visible tests. The gap between the
visible and the hidden share shows such weak tests.
"""

import contextlib
import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rewards.code_blocks import extract_program, join_sources
from rewards.rows import LogExtra, LogMetric, as_rows, check_penalty
from rewards.sandbox import Asserts, Outcome, Sandbox, SandboxError, Stdio, shared_sandbox
from rewards.sandbox.confinement import OUTPUT_BYTES
from rewards.sandbox.jobs import WALL, Job
from rewards.sandbox.names import names_of
from rewards.text import after_thinking, completion_text

TIMEOUT_S = 5.0  # by default; data sets are prepared for this limit


class Result(NamedTuple):
    """The outcome of a row, and the number of its visible tests, which come before the hidden.

    `outcome.status` is that of the sandbox, or `unparsed` if the row's tests cannot be used.
    """

    outcome: Outcome
    visible: int

    def share(self) -> float | None:
        """The share of visible tests that passed; None if the sandbox failed or tests are bad."""
        is_graded = self.outcome.status in ("pass", "fail")
        return fmean(self.outcome.passed[: self.visible]) if is_graded else None

    def hidden_share(self) -> float | None:
        """The share of hidden tests that passed; None if there are none, or `share` is None."""
        hidden = self.outcome.passed[self.visible :]
        return None if self.share() is None or not hidden else fmean(hidden)

    def label(self) -> str:
        """The label of the row in the logged column `outcome/code_tests` (see `rewards.rows`)."""
        status, reason = self.outcome.status, self.outcome.reason
        if status == "infra":
            return f"error: {reason}"
        if status == "unparsed":
            return f"unparsed: {reason}"
        return "timeout" if reason.startswith("timeout: more than") else "graded"


def parse_cases(tests: Sequence[str]) -> list[tuple[str, str]] | None:
    """Return the (stdin, stdout) pairs of JSON tests; None if the tests are assert statements.

    Raises:
        ValueError: there are no tests, they are not a list of texts, both kinds are mixed, or a
            JSON object lacks stdin or stdout.

    Example: `parse_cases(['{"stdin": "2", "stdout": "4"}']) == [("2", "4")]`;
    `parse_cases(["assert f(2) == 4"]) is None`
    """
    if not tests:
        raise ValueError("no tests: any program would pass")
    if isinstance(tests, str) or not all(isinstance(test, str) for test in tests):
        raise ValueError(f"the tests of a row are a list of texts, not {tests!r:.100}")
    cases = []
    for test in tests:
        with contextlib.suppress(json.JSONDecodeError, RecursionError):
            if test.lstrip().startswith("{"):
                cases.append(json.loads(test))
    if cases and len(cases) < len(tests):
        raise ValueError("tests of two kinds in one row: statements, and JSON texts")
    for case in cases:
        if not all(isinstance(case.get(name), str) for name in ("stdin", "stdout")):
            raise ValueError(f"a JSON test has the texts stdin and stdout, not {case!r:.100}")
        if len(case["stdout"].encode()) >= OUTPUT_BYTES:
            raise ValueError(f"a stdout of {OUTPUT_BYTES:,} bytes or more: no program may write it")
    return [(case["stdin"], case["stdout"]) for case in cases] or None


def called_names(row: dict[str, Any], tests: Sequence[str]) -> tuple[str, ...]:
    """The functions that a row's tests call; ValueError if tests or setup are not valid Python."""
    try:
        return names_of(tests, row.get("setup") or "", row.get("entry_point") or None).program
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"tests or setup are not valid Python: {error}") from None


def job_of(code: str, row: dict[str, Any], tests: Sequence[str], timeout_s: float) -> Job:
    """The sandbox job of preamble, code and tests; ValueError if `parse_cases` refuses these."""
    preamble, cases = row.get("preamble"), parse_cases(tests)
    program = join_sources([preamble, code]) if preamble else code
    if cases is not None:
        return Stdio(program, tuple(cases), timeout_s)
    setup, entry_point = row.get("setup") or "", row.get("entry_point") or None
    return Asserts(program, tuple(tests), setup, entry_point, timeout_s)


class CodeTests:
    """Verifier: `correct` times the share of a row's tests that the program passes in the sandbox.

    The program is what `extract_program` reads, with `whole_text`, for the names that the tests
    call. A completion without a program passes no test. Any failure that the program causes counts
    as wrong. The score is None if the row has no usable tests or the sandbox fails.

    Args:
        all_or_nothing: score `wrong` unless every test passes. By shares, `return True` would earn
            half of `correct` on a yes-or-no task.
        wrong: the score if no test passes, or with `all_or_nothing` if any test fails.
        timeout_s: CPU seconds for a program with all its tests; it may take twice as much wall
            time.
        isolation: `sealed`, or `unsafe`, which isolates nothing.
        packages: installed packages that programs may import besides the standard library.

    Logs the columns `outcome/code_tests` and `code_tests/reason`. Logs the metrics `visible`,
    `hidden` and `gap` (mean shares, and their difference) over rows that have hidden tests.
    """

    __name__ = "code_tests"
    kind = "verifier"
    max_error_rate = 0.001  # a run stops when the sandbox itself fails on more rows than this

    def __init__(
        self,
        correct: float = 1.0,
        all_or_nothing: bool = False,
        timeout_s: float = TIMEOUT_S,
        whole_text: bool = True,
        isolation: str = "sealed",
        packages: Sequence[str] = (),
        wrong: float = 0.0,
    ):
        check_penalty(self.__name__, wrong)
        if not timeout_s > 0.0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0 seconds")
        self.full, self.wrong = correct, wrong
        self.all_or_nothing, self.timeout_s, self.whole_text = all_or_nothing, timeout_s, whole_text
        self.isolation, self.packages = isolation, tuple(packages)
        self.sandbox()  # made, not started: the metric's programs run in it, with its packages

    def __call__(
        self,
        prompts: list,
        completions: list,
        tests: list[list[str]],
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        **columns: Any,
    ) -> list[float | None]:
        texts = [completion_text(completion) for completion in completions]
        results = self.run(texts, as_rows(tests=tests, **columns))
        if log_extra is not None:
            log_extra(f"outcome/{self.__name__}", [result.label() for result in results])
            log_extra(f"{self.__name__}/reason", [result.outcome.reason for result in results])
        if log_metric is not None:
            for name, value in _metrics(results).items():
                log_metric(f"{self.__name__}/{name}", value)
        return [self._score(result.share()) for result in results]

    def run(self, texts: list[str], rows: list[dict[str, Any]]) -> list[Result]:
        """Run the program of each text against the tests of its row."""
        plans = [self._plan(text, row) for text, row in zip(texts, rows, strict=True)]
        jobs = [plan for plan, _ in plans if not isinstance(plan, Outcome)]
        outcomes = iter(self.sandbox().run_batch(jobs))
        return [
            Result(plan if isinstance(plan, Outcome) else next(outcomes), visible)
            for plan, visible in plans
        ]

    def sandbox(self) -> Sandbox:
        """Return the sandbox with these settings, which all rewards of this process share."""
        return shared_sandbox(self.isolation, self.packages)

    def prepare(self, completions: int, limit_s: float) -> str:
        """Start the sandbox and test its isolation; return a line that says what is in force.

        The line also says if a call would exceed `limit_s`, and so end the run, where none of its
        programs ended. ValueError if the isolation does not hold on this machine.
        """
        try:
            self.sandbox().start()
        except SandboxError as error:
            raise ValueError(str(error)) from error
        workers = self.sandbox().workers
        rounds = -(-completions // workers)  # rounded up
        longest = rounds * WALL * self.timeout_s  # seconds of wall time
        line = self.sandbox().describe()
        if self.timeout_s > TIMEOUT_S:
            line += f"; `code_metric` gives a program {TIMEOUT_S:g} s all the same"
        if longest >= limit_s:
            line += (
                f"; {completions} programs that all never end would take {workers} "
                f"worker{'s' * (workers != 1)} {longest:g} s at timeout_s {self.timeout_s:g}, and "
                f"after reward_timeout_s, {limit_s:g} s, the run would end: raise it, then or now"
            )
        return line

    def _plan(self, text: str, row: dict[str, Any]) -> tuple[Job | Outcome, int]:
        """Return a row's job (or its outcome, if nothing is run) and its count of visible tests."""
        visible, hidden = row["tests"] or (), row.get("hidden_tests") or ()
        names = ()
        failed = (False,) * (len(visible) + len(hidden))
        try:
            if parse_cases(visible) is None:
                with contextlib.suppress(ValueError):  # bad tests, which the sandbox refuses
                    names = called_names(row, visible)
            code = extract_program(after_thinking(text), self.whole_text, names) or ""
            plan = job_of(code, row, [*visible, *hidden], self.timeout_s)
            if not code.strip():  # a preamble alone is not an answer
                plan = Outcome("fail", "no program in the completion", 0.0, "", failed)
        except ValueError as error:
            plan = Outcome("unparsed", str(error), 0.0, "", failed)
        return plan, len(visible)

    def _score(self, share: float | None) -> float | None:
        """The score for a share of the visible tests; None stays None."""
        if share is None:
            return None
        is_paid = share == 1.0 or (share > 0.0 and not self.all_or_nothing)
        return self.full * share if is_paid else self.wrong


def _metrics(results: list[Result]) -> dict[str, float]:
    """Return mean shares over the rows that have hidden tests; empty if no row has any."""
    tested = [result for result in results if result.hidden_share() is not None]
    if not tested:
        return {}
    visible = fmean(result.share() for result in tested)
    hidden = fmean(result.hidden_share() for result in tested)
    return {"visible": visible, "hidden": hidden, "gap": visible - hidden}
