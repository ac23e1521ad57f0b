"""Programs scored by running their tests in the sandbox.

A row brings `tests`: assert statements, or JSON texts {"stdin": ..., "stdout": ...}, one kind in a
row. It also may bring `setup` (code of the data set that the tests stand on), `preamble` (code put
before the program), `entry_point`, and `hidden_tests`, which are run and logged and do not count.
The column `inplace` of older rows is not read: tests always see what a program changes.

What is not covered: a program that computes nothing and answers by heart passes; that the tests are
weak, the gap to the hidden ones shows.
"""

import contextlib
import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rewards.code_blocks import extract_program
from rewards.rows import LogExtra, LogMetric, as_rows, check_penalty
from rewards.sandbox import Asserts, Outcome, Sandbox, SandboxError, Stdio, shared_sandbox
from rewards.sandbox.jobs import WALL, Job
from rewards.sandbox.names import names_of
from rewards.sandbox.slot import GRACE_S
from rewards.text import after_thinking, completion_text

OPTIONAL = ("setup", "preamble", "entry_point", "hidden_tests")


class Result(NamedTuple):
    """The outcome of a row, and how many of its tests are visible.

    `outcome.status` is the sandbox's, or unparsed where a row has no tests that can be used.
    """

    outcome: Outcome
    visible: int

    def share(self) -> float | None:
        """The share of the visible tests that passed; None where the program is not to blame."""
        is_graded = self.outcome.status in ("pass", "fail")
        return fmean(self.outcome.passed[: self.visible]) if is_graded else None

    def hidden_share(self) -> float | None:
        """The share of the hidden tests that passed; None where there are none."""
        hidden = self.outcome.passed[self.visible :]
        return None if self.share() is None or not hidden else fmean(hidden)

    def label(self) -> str:
        """How the row went, in the words of `rewards.rows`."""
        status, reason = self.outcome.status, self.outcome.reason
        if status in ("infra", "unparsed"):
            return f"{status.replace('infra', 'error')}: {reason}"
        return "timeout" if reason.startswith("timeout") else "graded"


def parse_cases(tests: Sequence[str]) -> list[tuple[str, str]] | None:
    """The pairs (stdin, stdout) of tests that are JSON texts; None where they are statements.

    Raises:
        ValueError: no tests, no list of texts, tests of both kinds, or a JSON object that is not a
            pair.

    Example: `parse_cases(['{"stdin": "2", "stdout": "4"}']) == [("2", "4")]`; of `["assert f(2) ==
    4"]` None
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
    return [(case["stdin"], case["stdout"]) for case in cases] or None


def called_names(row: dict[str, Any], tests: Sequence[str]) -> tuple[str, ...]:
    """The functions of the program that the tests of a row call.

    Raises:
        ValueError: the tests or the setup are not valid Python.
    """
    try:
        return names_of(tests, row.get("setup") or "", row.get("entry_point") or None).program
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"tests or setup are not valid Python: {error}") from None


def job_of(code: str, row: dict[str, Any], tests: Sequence[str], timeout_s: float) -> Job:
    """The job for the sandbox: the code after the preamble of its row, and the tests to run.

    Raises:
        ValueError: as `parse_cases`.
    """
    preamble, cases = row.get("preamble"), parse_cases(tests)
    program = f"{preamble}\n\n{code}" if preamble else code
    if cases is not None:
        return Stdio(program, tuple(cases), timeout_s)
    setup, entry_point = row.get("setup") or "", row.get("entry_point") or None
    return Asserts(program, tuple(tests), setup, entry_point, timeout_s)


class CodeTests:
    """Verifier: scores `correct` times the share of a row's tests that the program passes, isolated
    by the sandbox.

    The program is the last complete Python block that defines what the tests call (behind those
    that define what it lacks), else the last complete Python block, else the last block, else (with
    `whole_text`) the completion itself; a completion without a program passes none. What the
    program causes counts as wrong; None is a row without usable tests, or a failure of the sandbox.

    Args:
        all_or_nothing: wrong unless every test passes. A share gives `return True` half of a
            yes-or-no task.
        wrong: the score where it would be 0.0: none of the tests passes, or with `all_or_nothing`
            not all of them.
        timeout_s: seconds of the processor for a program, all its tests together; twice as many on
            the wall.
        isolation: sealed; or unsafe, which isolates nothing.
        packages: installed packages that programs may import next to the standard library.

    Logs the columns `outcome/code_tests` and `code_tests/reason`, and as metrics the visible and
    hidden share of the rows that have hidden tests, and their `gap`.
    """

    __name__ = "code_tests"
    kind = "verifier"
    max_error_rate = 0.001  # of rows that the sandbox itself fails on, above which a run stops

    def __init__(
        self,
        correct: float = 1.0,
        all_or_nothing: bool = False,
        timeout_s: float = 5.0,
        whole_text: bool = True,
        isolation: str = "sealed",
        packages: Sequence[str] = (),
        wrong: float = 0.0,
    ):
        check_penalty(self.__name__, wrong)
        if not timeout_s > 0.0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0 seconds")
        self.correct = self.full = correct
        self.wrong = wrong
        self.all_or_nothing, self.timeout_s, self.whole_text = all_or_nothing, timeout_s, whole_text
        self.isolation, self.packages = isolation, tuple(packages)

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
        """The sandbox of this process for these settings."""
        return shared_sandbox(self.isolation, self.packages)

    def prepare(self, completions: int, limit_s: float) -> str:
        """Before a run: test the isolation, and say which is in force.

        Raises:
            ValueError: it does not hold here, or a call with programs that never end would outlast
                its limit.
        """
        try:
            self.sandbox().start()
        except SandboxError as error:
            raise ValueError(str(error)) from error
        workers = self.sandbox().workers
        longest = -(-completions // workers) * (WALL * self.timeout_s + GRACE_S)
        if longest >= limit_s:
            raise ValueError(
                f"{completions} programs that never end take {workers} workers {longest:g} s at "
                f"timeout_s {self.timeout_s:g}, and reward_timeout_s is {limit_s:g}: "
                "lower the one or raise the other."
            )
        return self.sandbox().describe()

    def _plan(self, text: str, row: dict[str, Any]) -> tuple[Job | Outcome, int]:
        """The job of a row, or its outcome where nothing is to be run; the count of its tests."""
        visible, hidden = row["tests"] or (), row.get("hidden_tests") or ()
        names = ()
        with contextlib.suppress(ValueError):  # of tests that `job_of` or the sandbox will refuse
            names = called_names(row, visible)
        code = extract_program(after_thinking(text), self.whole_text, names) or ""
        failed = (False,) * (len(visible) + len(hidden))
        try:
            parse_cases(visible)
            plan = job_of(code, row, [*visible, *hidden], self.timeout_s)
            if not code.strip():  # a preamble alone is not an answer
                plan = Outcome("fail", "no program in the completion", 0.0, "", failed)
        except ValueError as error:
            plan = Outcome("unparsed", str(error), 0.0, "", failed)
        return plan, len(visible)

    def _score(self, share: float | None) -> float | None:
        if share is None:
            return None
        is_paid = share == 1.0 or (share > 0.0 and not self.all_or_nothing)
        return self.correct * share if is_paid else self.wrong


def _metrics(results: list[Result]) -> dict[str, float]:
    """Means over the rows of this call that have hidden tests; empty where none has."""
    tested = [result for result in results if result.hidden_share() is not None]
    if not tested:
        return {}
    visible = fmean(result.share() for result in tested)
    hidden = fmean(result.hidden_share() for result in tested)
    return {"visible": visible, "hidden": hidden, "gap": visible - hidden}
