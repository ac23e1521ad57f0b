"""Run a program with its tests in a slot, and decide the outcome. The checker decides on asserts;
printed output is compared here.

Promises: `pass` needs a line of the checker for every test, or for every case the expected output
and exit code 0. Whatever the program can cause is `fail` with a reason. Only a failure of the
sandbox itself is `infra`.

What is not covered: a program that knows the tests by heart.
"""

import json
import marshal
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from rewards.sandbox.checker import NEVER_CALLED
from rewards.sandbox.names import compiled, names_of
from rewards.sandbox.slot import Ran, Slot, Times, memory_file

TIMEOUT_S = 10.0  # of processor time, for a program and all its tests or cases together
LONGEST_S = 86_400.0
WALL = 2.0  # the limit on wall time is this many times the limit on processor time
LEAST_S = 0.05  # given to each case at least, since a program needs it to start
PROGRAM_BYTES = 1 << 20
SHOWN_BYTES = 1 << 16  # of what a program printed, kept for people to read
SIGNALS = {number.value: number.name for number in signal.Signals}  # not every real-time one


class Outcome(NamedTuple):
    """The outcome of a program. `status` is pass, fail or infra (the sandbox failed: no grade).

    `reason` is empty for pass. `passed` says for each test whether it passed; `output` is what the
    program printed, at most 64 KiB; `seconds` is wall time.
    """

    status: str
    reason: str
    seconds: float
    output: str
    passed: tuple[bool, ...]


class Asserts(NamedTuple):
    """`tests` are Python texts, run in order after `setup`, in a process without the program."""

    program: str
    tests: Sequence[str]
    setup: str = ""
    entry_point: str | Sequence[str] | None = None
    timeout_s: float = TIMEOUT_S


class Stdio(NamedTuple):
    """`cases` are pairs (stdin, expected stdout), each run in a new process."""

    program: str
    cases: Sequence[tuple[str, str]]
    timeout_s: float = TIMEOUT_S


Job = Asserts | Stdio


def tests_of(job: Job) -> Sequence:
    """The tests or cases of a job; `ValueError` if there are none or the time limit is invalid."""
    tests = job.tests if isinstance(job, Asserts) else job.cases
    if not tests or isinstance(tests, str):
        raise ValueError(f"no tests, or one text in place of a list of them: {tests!r:.100}")
    if not 0.0 < job.timeout_s <= LONGEST_S:
        raise ValueError(
            f"timeout_s is {job.timeout_s}; it must be more than 0 and at most {LONGEST_S:g} s"
        )
    return tests


def run_job(slot: Slot, job: Job) -> Outcome:
    """Run a job in this slot (a zygote); raise `ZygoteDied` for a failure not of the program."""
    program = job.program.encode("utf-8", "surrogatepass")
    if len(program) > PROGRAM_BYTES:
        none = [False] * len(tests_of(job))
        return _outcome(none, f"the program is longer than {PROGRAM_BYTES} bytes", 0.0, b"")
    if isinstance(job, Stdio):
        return _run_cases(slot, job, program)
    try:
        names = names_of(job.tests, job.setup, job.entry_point)
        checker_job = {
            "setup": compiled(job.setup, "<setup>"),
            "tests": [compiled(test, "<test>") for test in job.tests],
            "names": names.program,
            "modules": names.modules,
            "errors": names.errors,
            "name_exit": ["SystemExit" in job.setup + test for test in job.tests],
        }
    except (SyntaxError, ValueError, RecursionError) as error:
        return failure_of_ours(job, f"the tests are not Python: {error}")
    return _run_asserts(slot, job, program, marshal.dumps(checker_job))


def failure_of_ours(job: Job, why: str) -> Outcome:
    """The outcome of a job that could not be run."""
    return Outcome("infra", printable(why), 0.0, "", (False,) * len(tests_of(job)))


def _run_asserts(slot: Slot, job: Asserts, program: bytes, checker_job: bytes) -> Outcome:
    """Run a program in one process and its tests in another, which reports on each test."""
    left = Times(job.timeout_s, WALL * job.timeout_s)  # for both runs, where there is a second
    for _ in range(2):
        with ExitStack() as files:
            # A null device for each: flags that a program sets on one stay with its descriptor.
            null, other_null = (
                files.enter_context(open(os.devnull, "r+b", buffering=0)) for _ in range(2)
            )
            tests, source = memory_file(files, checker_job), memory_file(files, program)
            printed, verdicts = memory_file(files), memory_file(files)
            roles = {  # stdin, stdout and stderr, then what it reads or writes besides
                "checker": [null, null, null, tests, verdicts],
                "worker": [other_null, printed, printed, source],
            }
            ran = slot.run(roles, [printed, verdicts], left)
        left = Times(
            *(max(all_ - used, LEAST_S) for all_, used in zip(left, ran.used, strict=True))
        )
        if ran.late or ran.exits["checker"] == 0:
            break  # else somebody has killed the checker: run once more
    lines = _verdicts(ran.written[1], len(job.tests))
    passed = [passes for passes, _ in lines if passes is not None]
    passed += [False] * (len(job.tests) - len(passed))
    reasons = [text for passes, text in lines if not passes]
    reason = NEVER_CALLED if NEVER_CALLED in reasons else (*reasons, "")[0]
    if not all(passed) and (not reason or reason.startswith("LinkError") or ran.has_flooded()):
        # The program has ended: what is seen from outside says more.
        reason = _ended(ran, "worker", job.timeout_s) or reason or "the tests did not end"
    return _outcome(passed, reason, ran.wall_s, ran.written[0])


def _verdicts(written: bytes, tests: int) -> list:
    """The lines of a checker, `[passed, reason]`; one that says so if it wrote anything else.

    A test that runs what the program returned, as `eval(f(1))` does, lets the program write them.
    """
    try:
        lines = [json.loads(line) for line in written.split(b"\n")[:-1]]
    except (ValueError, RecursionError):
        lines = [None]
    kinds = [[*map(type, line)] if isinstance(line, list) else None for line in lines]
    are_ours = all(kind in ([bool, str], [type(None), str]) for kind in kinds)
    return lines if are_ours and len(lines) <= tests else [[None, "the checker was taken over"]]


def _run_cases(slot: Slot, job: Stdio, program: bytes) -> Outcome:
    """Run the cases in order; once their time in all is used up, the cases left have failed."""
    passed, reason, output, seconds = [], "", b"", 0.0
    left = Times(job.timeout_s, WALL * job.timeout_s)
    for stdin, expected in job.cases:
        if min(left) <= 0.0:
            reason = reason or f"timeout: more than {job.timeout_s:g} s"
            break
        with ExitStack() as files:
            outputs = [memory_file(files), memory_file(files)]
            stdin_file = memory_file(files, stdin.encode("utf-8", "surrogatepass"))
            script = [stdin_file, *outputs, memory_file(files, program)]
            limits = Times(max(left.seconds, LEAST_S), max(left.wall_s, LEAST_S))
            ran = slot.run({"script": script}, outputs, limits)
        left = Times(left.seconds - ran.used.seconds, left.wall_s - ran.used.wall_s)
        seconds += ran.wall_s
        output = output or ran.written[0]
        fault = _ended(ran, "script", job.timeout_s)
        if fault.startswith("exited"):
            complaint = ran.written[1].decode(errors="replace").strip().rpartition("\n")[2]
            fault = f"{fault}: {complaint}"[:300]
        elif not fault:
            printed = ran.written[0].decode("utf-8", "replace")
            fault = "" if are_same_lines(printed, expected) else "wrong output"
        passed.append(not fault)
        reason = reason or fault
        if ran.late:
            break
    passed += [False] * (len(job.cases) - len(passed))
    return _outcome(passed, reason, seconds, output)


def _ended(ran: Ran, role: str, timeout_s: float) -> str:
    """Say why a program was stopped or failed, seen from outside; empty if it ended well."""
    if ran.has_flooded():
        return "output: more than 1 MiB"
    if ran.late:
        return f"timeout: more than {timeout_s:g} s"
    code = ran.exits[role]
    if code < 0:
        return f"killed by {SIGNALS.get(-code, f'signal {-code}')}"
    return f"exited with code {code}" if code else ""


def are_same_lines(printed: str, expected: str) -> bool:
    r"""Whether two texts have the same lines, but for white space behind each and at the end.

    Lines are counted first: a million empty ones cost no more than the text.

    Example: `are_same_lines("1 \n2\n\n", "1\n2")`
    """
    printed, expected = printed.rstrip(), expected.rstrip()
    if printed.count("\n") != expected.count("\n"):
        return False
    pairs = zip(printed.split("\n"), expected.split("\n"), strict=True)
    return all(line.rstrip() == other.rstrip() for line, other in pairs)


def _outcome(passed: list[bool], reason: str, seconds: float, output: bytes) -> Outcome:
    """`pass` if every test has passed, else `fail` with the reason."""
    status, why = ("pass", "") if all(passed) else ("fail", printable(reason))
    text = output[:SHOWN_BYTES].decode("utf-8", "replace")
    return Outcome(status, why, round(seconds, 4), text, tuple(passed))


def printable(text: str) -> str:
    r"""Escape characters that a log or terminal may not show: `printable("\n")` is `"\\n"`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
