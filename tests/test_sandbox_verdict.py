"""The verdict: wrong programs that try to pass do not, and honest programs of every kind do."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sandbox import programs

from rewards.sandbox import Asserts, Sandbox, Stdio, jobs, landlock, preload
from rewards.sandbox.checker import NEVER_CALLED
from rewards.sandbox.jobs import lines_of
from rewards.sandbox.slot import Ran

on_linux = sys.platform.startswith("linux")
pytestmark = pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux")
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1.0
LATE_S = 1.0
RIGHT = Asserts("def add(a, b): return a + b", ["assert add(1, 2) == 3"])


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as made:
        yield made


# ------------------------------------------------------------------ cheats

FORMS = [  # of one wish, as tests of data sets put it
    "assert add(2, 3) == 5",
    "assert not (add(2, 3) != 5)",
    "assert [add(2, 3)] == [5] and {5} == set([add(2, 3)])",
    "assert {add(2, 3): 1} == {5: 1}",
    "assert math.isclose(add(2, 3), 5)",
    "assert abs(add(2, 3) - 5) < 1e-6",
    "assert isinstance(add(2, 3), int) and add(2, 3) == 5",
    "assert all(add(n, 1) == n + 1 for n in range(3, 6))",
    "assert list(map(add, [1, 2], [3, 4])) == [4, 6]",
    "assert sorted([add(2, 3), add(0, 1)]) == [1, 5]",
    "assert sum([add(2, 3)] * 2) == 10 and f'{add(2, 4)}' == '6'",
    "def check(candidate):\n    assert candidate(2, 3) == 5\ncheck(add)",
    "import unittest\nresult = unittest.TestResult()\nclass Test(unittest.TestCase):\n"
    "    def test(self): self.assertEqual(add(2, 3), 5)\nTest('test').run(result)\n"
    "assert result.wasSuccessful()",
    "match add(2, 3):\n    case 5: pass\n    case _: raise AssertionError",
]
EQUAL_TO_ALL = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 5
"""
# Before each cheat: a wrong solution, and a way to write to the harness's own descriptor.
WRONG = """
import os, struct
def add(a, b): return 0
def send(text): os.write(3, struct.pack("!I", len(text)) + text)
"""
CHEATS = {name: WRONG + cheat.source for name, cheat in programs("cheats").items()}
IMPORTS = """
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Number
"""
BASES = "int str float list tuple dict frozenset bytes Fraction Decimal timedelta Number"
for base in BASES.split():
    lie = f"{IMPORTS}class A({base}):{EQUAL_TO_ALL}def add(a, b): return A()"
    CHEATS[f"equal to all, a {base}"] = lie
CHEATS["a coding line that makes it other code"] = "# -*- coding: utf-7 -*-\n" + WRONG
CHEATS["a lone surrogate"] = WRONG + "x = '\ud800'"
HANGING = {"the exit function": 0.3}  # which takes all its time


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "form", [*FORMS[:2], *(pytest.param(f, marks=pytest.mark.slow) for f in FORMS[2:])]
)
def test_no_cheat_passes_a_form_of_a_test_nor_harms_who_comes_after_it(form, inplace, sandbox):
    """The right program is behind each, in the same checker where the form lets programs share."""
    cheats = [
        Asserts(cheat, [form], inplace=inplace, timeout_s=HANGING.get(name, TIMEOUT_S))
        for name, cheat in CHEATS.items()
    ]
    outcomes = sandbox.run_batch([job for cheat in cheats for job in (cheat, RIGHT)])
    found = dict(zip(CHEATS, zip(outcomes[::2], outcomes[1::2], strict=True), strict=True))
    passed = [name for name, (cheat, _) in found.items() if cheat.status != "fail"]
    harmful = [name for name, (_, right) in found.items() if right.status != "pass"]
    silent = [name for name, (cheat, _) in found.items() if not cheat.reason]
    late = [name for name, (cheat, _) in found.items() if cheat.seconds > TIMEOUT_S + LATE_S]
    assert (passed, harmful, silent, late) == ([], [], [], [])


def test_every_form_of_a_test_passes_the_right_program(sandbox):
    assert sandbox.run_asserts(RIGHT.program, FORMS).passed == (True,) * len(FORMS)


TRICKS = programs("tricks")


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_does_not_pass(name, sandbox):
    rule, program, tests = TRICKS[name]
    started = time.monotonic()
    options = {"inplace": rule == "inplace", "entry_point": "sum" if rule == "sum" else None}
    outcome = sandbox.run_asserts(program, tests, timeout_s=TIMEOUT_S, **options)
    assert outcome.status == "fail" and not any(outcome.passed), outcome
    assert time.monotonic() - started < TIMEOUT_S + LATE_S


SCRIPTS = programs("cheating_scripts")  # the right one doubles a number


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_cheats_does_not_pass(name, sandbox):
    started = time.monotonic()
    cases = [("2", "4"), ("5", "10")]
    outcome = sandbox.run_stdio(SCRIPTS[name].source, cases, timeout_s=TIMEOUT_S)
    assert outcome.status == "fail" and not any(outcome.passed), outcome
    assert time.monotonic() - started < 2 * (TIMEOUT_S + LATE_S)


ANY = "try:\n    f(-1)\nexcept Exception: pass\nelse: raise AssertionError"
ENDS = ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), 15)", "os.close(3)"]
ENDS += ["raise KeyboardInterrupt", "time.sleep(30)"]


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_or_hangs_has_raised_no_exception(end, sandbox):
    program = f"import os, sys, time\ndef f(x): {end}"
    jobs = [Asserts(program, [ANY], timeout_s=0.3)] * 3
    assert {outcome.status for outcome in sandbox.run_batch(jobs)} == {"fail"}


# ------------------------------------------------------------------ honest programs

HONEST = programs("honest")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name, sandbox):
    _, program, tests = HONEST[name]
    outcome = sandbox.run_asserts(program, tests)
    assert outcome[:2] == ("pass", "") and outcome.passed == (True,) * len(tests)


@pytest.mark.skipif(not landlock.abi(), reason="without a file system there are no zones")
@pytest.mark.skipif(not os.path.exists(preload.ZONES), reason="no time zones are installed")
def test_a_program_knows_time_zones(sandbox):
    program = "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
    program += "def f(): return datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('Europe/Paris'))"
    test = "from datetime import datetime, timezone\n"
    test += "assert f() == datetime(2024, 7, 1, 10, tzinfo=timezone.utc)"
    assert sandbox.run_asserts(program, [test])[:2] == ("pass", "")


def test_each_test_counts_and_the_first_reason_is_given(sandbox):
    tests = [
        "assert f(1) == 1",
        "assert f(2) == 3, 'two'",
        "assert f(0) == 0",
        "assert f('a') == 'b'",
    ]
    outcome = sandbox.run_asserts("def f(x): return x", tests)
    assert outcome.passed == (True, False, True, False)
    assert outcome[:2] == ("fail", "AssertionError: two")


def test_tests_before_a_hang_still_count(sandbox):
    program = "def f(x):\n    while x: pass\n    return x"
    outcome = sandbox.run_asserts(
        program, ["assert f(0) == 0", "assert f(1) == 1", "assert f(0) == 0"], timeout_s=1.0
    )
    assert outcome.passed == (True, False, False) and outcome.reason == "timeout: more than 1 s"


def test_what_is_printed_comes_back(sandbox):
    outcome = sandbox.run_asserts(
        "print('before')\ndef f(): print('in'); return 1", ["assert f() == 1"]
    )
    assert outcome.output == "before\nin\n"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(:", "SyntaxError"),
        ("def f(): return g()", "NameError: name 'g' is not defined"),
        ("x = 1", "NameError: name 'f' is not defined"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "ProgramEnded: the program raised SystemExit: 3"),
        ("import os; os._exit(3)", "exited with code 3"),
        ("import os; os.abort()", "killed by SIGABRT"),
        *((f"import os; os.kill(os.getpid(), {n})", f"killed by signal {n}") for n in (35, 40, 63)),
        (
            "raise ValueError('\\ud800 \\x1b[2J\\r\\n\\u202e\\x00é')",
            r"ValueError: \ud800 \x1b[2J\r\n\u202e\x00é",
        ),
        ("while True: print('x' * 1000000, flush=True)", "output: more than 1 MiB"),
        ("while True: pass", "timeout: more than 1 s"),
        ("import nothing_like_it", "ModuleNotFoundError"),
        (
            "def f(): return object()",
            "TypeError: the program returned an object, not a plain value",
        ),
    ],
)
def test_the_reason_says_what_happened(program, reason, sandbox):
    assert sandbox.run_asserts(program, ["assert f() == 1"], timeout_s=1.0).reason.startswith(
        reason
    )


@pytest.mark.parametrize("number", [32, 33])
def test_a_signal_of_the_c_library_fails_the_program_alone_whether_it_kills_or_not(number, sandbox):
    outcome = sandbox.run_asserts(
        f"import os; os.kill(os.getpid(), {number})", ["assert f() == 1"], timeout_s=1.0
    )
    assert outcome.status == "fail"


VACUOUS = ["pass", "", "assert callable(f)", "def test_f():\n    assert f(1) == 2"]
VACUOUS += ["if __name__ == '__main__':\n    assert f(1) == 2"]
VACUOUS += ["class T:\n    def test(self): assert f(1) == 2"]


@pytest.mark.parametrize("test", VACUOUS)
def test_a_test_that_never_calls_the_program_is_not_passed(test, sandbox):
    outcome = sandbox.run_asserts(
        "def f(x): return 2 * x", ["assert f(1) == 2", test], entry_point="f"
    )
    assert outcome == ("fail", NEVER_CALLED, outcome.seconds, "", (True, False))


@pytest.mark.parametrize(
    "test", ["assert (f(1) == 3, 'wrong')", "def g():\n    assert (f(1), 'x')\ng()"]
)
def test_an_assert_of_a_tuple_is_an_error_of_the_tests(test, sandbox):
    outcome = sandbox.run_asserts("def f(x): return 2 * x", [test])
    assert outcome.status == "infra" and "line" in outcome.reason
    assert "an assert of a tuple is always true" in outcome.reason


def test_arguments_are_changed_only_where_the_task_says_so(sandbox):
    program, test = "def f(x): x.append(1)", "x = [0]\nf(x)\nassert x == [0, 1]"
    assert sandbox.run_asserts(program, [test]).status == "fail"
    assert sandbox.run_asserts(program, [test], inplace=True).status == "pass"


def test_tests_that_are_no_python_are_not_the_programs_fault(sandbox):
    outcome = sandbox.run_asserts("def f(): return 1", ["assert f( == 1"])
    assert outcome.status == "infra" and outcome.reason.startswith("the tests are not Python")


def test_the_setup_belongs_to_the_tests(sandbox):
    program = "def close(a, b): return True\ndef f(): return 2"
    setup = "def close(a, b): return abs(a - b) < 1e-6"
    assert sandbox.run_asserts(program, ["assert close(f(), 1)"], setup=setup).status == "fail"
    assert sandbox.run_asserts(program, ["assert close(f(), 2)"], setup=setup).status == "pass"


def test_a_program_that_will_not_end_after_its_tests_is_ended(sandbox):
    program = """
import sys, time
sys.modules['rewards.sandbox.worker']._end = lambda code: time.sleep(60)
def f(): return 1
"""
    started = time.monotonic()
    assert sandbox.run_asserts(program, ["assert f() == 1"], timeout_s=30.0).status == "pass"
    assert time.monotonic() - started < 5


def test_no_two_programs_draw_the_same_numbers(sandbox):
    program = "import random\nprint(random.random())\ndef f(): return 1"
    first, second = (sandbox.run_asserts(program, ["assert f() == 1"]).output for _ in range(2))
    assert first != second
    tests = ["def fails(x): raise ValueError(x)\nfails(random.random() + f())"]
    first, second = (sandbox.run_asserts(program, tests).reason for _ in range(2))
    assert first.startswith("ValueError: 1.") and first != second


def test_asserts_are_in_force_where_this_python_leaves_them_out():
    work = "from rewards.sandbox.names import compiled; exec(compiled('assert 1 == 2', '<test>'))"
    ran = subprocess.run(
        [sys.executable, "-O", "-c", work], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.stderr.endswith("AssertionError\n")


# ------------------------------------------------------------------ stdin and stdout

CASES = [("1 2\n", "3\n"), ("5 5\n", "10\n")]
PASSED = {"both": (True, True), "first": (True, False), "none": (False, False)}
STDIO = programs("scripts")


@pytest.mark.parametrize("name", STDIO)
def test_a_script_is_scored_by_what_it_prints(name, sandbox):
    which, program, _ = STDIO[name]
    outcome = sandbox.run_stdio(program, CASES)
    assert outcome.passed == PASSED[which]
    assert outcome.status == ("pass" if which == "both" else "fail")


STREAMS = """
import os, sys
out = sys.stdout
print([stream.fileno() for stream in (sys.stdin, out, sys.stderr)], out.seekable(), out.isatty())
print([sys.stdin is sys.__stdin__, out is sys.__stdout__])
print(sys.stdin.buffer.read(), os.read(0, 1))"""
AFRESH = "import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1"


@pytest.mark.parametrize(
    ("program", "cases"),
    [
        (STREAMS, [("x", "[0, 1, 2] False False\n[True, True]\nb'x' b''")]),
        (AFRESH, [("", "0"), ("", "0")]),
        ("print(len(input()))", [("x" * 3_000_000, "3000000")]),
    ],
    ids=[
        "the streams are what they seem",
        "each case is run afresh",
        "a large input arrives whole",
    ],
)
def test_a_script_runs_as_by_itself(program, cases, sandbox):
    assert sandbox.run_stdio(program, cases)[:2] == ("pass", "")


def test_after_a_case_out_of_time_the_others_are_not_run(sandbox):
    outcome = sandbox.run_stdio("while True: pass", [("", "1")] * 50, timeout_s=0.5)
    assert (
        outcome.reason.startswith("timeout")
        and outcome.seconds < 2
        and outcome.passed == (False,) * 50
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [("1 \n\n", ["1"]), ("", []), ("\n1", ["", "1"]), ("a\r\nb", ["a", "b"]), (" a", [" a"])],
)
def test_lines_are_compared_without_the_space_at_their_ends(text, lines):
    assert lines_of(text) == lines


def test_the_limit_is_for_all_stdin_cases_together(sandbox):
    program = "import time\nprint(input())\ntime.sleep(0.4)"
    started = time.monotonic()
    outcome = sandbox.run_stdio(program, [(str(i), str(i)) for i in range(10)], timeout_s=1.0)
    assert time.monotonic() - started < 2.0
    assert (outcome.status, outcome.reason) == ("fail", "timeout: more than 1 s")
    assert outcome.passed == (True, True) + (False,) * 8


# ------------------------------------------------------------------ ends that the kernel makes


class LateSlot:
    """Uses up the time in the first case, and kills the second before it is confined."""

    def run(self, role, ends, descriptors, seconds):
        if seconds > 0.5:
            return Ran(0, [b"4\n", b""], [], False, False, True, 0.9995)
        return Ran(-9, [b"", b""], [], False, True, False, 1.0)


def test_a_case_that_gets_no_time_is_a_failure_of_the_program():
    job = Stdio("print(int(input()) * 2)", [("2", "4"), ("5", "10")], timeout_s=1.0)
    assert jobs.run_job(LateSlot(), job).passed == (True, False)
