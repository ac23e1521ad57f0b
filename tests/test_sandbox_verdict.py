"""The verdict: wrong programs that try to pass do not, and honest programs of every kind do."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.sandbox import on_linux, programs

from rewards.sandbox import Asserts, Outcome, Sandbox
from rewards.sandbox.checker import NEVER_CALLED

pytestmark = on_linux
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1.0
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


def jobs_of(form: str) -> list[Asserts]:
    return [
        Asserts(cheat, [form], timeout_s=HANGING.get(name, TIMEOUT_S))
        for name, cheat in CHEATS.items()
    ]


def assert_all_fail(outcomes: list[Outcome]) -> None:
    named = dict(zip(CHEATS, outcomes, strict=True))
    passed = [name for name, outcome in named.items() if outcome.status != "fail"]
    silent = [name for name, outcome in named.items() if not outcome.reason]
    assert (passed, silent) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS[1:])
def test_no_cheat_passes_a_form_of_a_test(form, sandbox):
    assert_all_fail(sandbox.run_batch(jobs_of(form)))


def test_no_cheat_passes_or_harms_who_comes_after_it(sandbox):
    """The right program is behind each, in the same slot."""
    outcomes = sandbox.run_batch([job for cheat in jobs_of(FORMS[0]) for job in (cheat, RIGHT)])
    assert_all_fail(outcomes[::2])
    behind = dict(zip(CHEATS, outcomes[1::2], strict=True))
    assert [name for name, outcome in behind.items() if outcome.status != "pass"] == []


def test_every_form_of_a_test_passes_the_right_program(sandbox):
    assert sandbox.run_asserts(RIGHT.program, FORMS).passed == (True,) * len(FORMS)


TRICKS = programs("tricks")


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_does_not_pass(name, sandbox):
    entry_point, program, tests = TRICKS[name]
    outcome = sandbox.run_asserts(
        program, tests, timeout_s=TIMEOUT_S, entry_point=entry_point or None
    )
    assert outcome.status == "fail" and not any(outcome.passed), outcome


SCRIPTS = programs("cheating_scripts")  # the right one doubles a number


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_cheats_does_not_pass(name, sandbox):
    cases = [("2", "4"), ("5", "10")]
    outcome = sandbox.run_stdio(SCRIPTS[name].source, cases, timeout_s=TIMEOUT_S)
    assert outcome.status == "fail" and not any(outcome.passed), outcome


LINES = [b"rubbish", b"[1]", b"7", b"[false, 5]", b"{}", b"\xff", b'[true, ""]\n[true, ""]']


@pytest.mark.parametrize("line", LINES)
def test_a_program_that_a_test_lets_into_the_checker_fails_and_does_no_more(line, sandbox):
    """Else it could have its row left out. A single well-formed line passes: not covered."""
    text = f"__import__('os').write(5, {line!r} + b'\\n') and __import__('os')._exit(0)"
    jobs = [Asserts(f"def f(): return {text!r}", ["assert eval(f()) == 42"]), RIGHT]
    assert [outcome.status for outcome in sandbox.run_batch(jobs)] == ["fail", "pass"]


ANY = "try:\n    f(-1)\nexcept Exception: pass\nelse: raise AssertionError"
ENDS = ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), 15)", "os.close(3)"]
ENDS += ["raise KeyboardInterrupt", "time.sleep(30)"]


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_or_hangs_has_raised_no_exception(end, sandbox):
    program = f"import os, sys, time\ndef f(x): {end}"
    jobs = [Asserts(program, [ANY], timeout_s=0.3)] * 3
    assert {outcome.status for outcome in sandbox.run_batch(jobs)} == {"fail"}


# What a test sets before it calls a program that raises, and a test that would notice it.
LEFT_BEHIND = {
    "an alarm": (
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.2)",
        "import time\ntime.sleep(0.4)\nassert f(1) == 1",
    ),
    "a built-in function": (
        "import builtins\nbuiltins.len = lambda _: 9",
        "assert len([f(1)]) == 1 and f(1) == 1",
    ),
    "a module": (
        "import sys\nsys.modules['math'] = None",
        "import math\nassert math.sqrt(f(4)) == 2",
    ),
    "a constant of a module": ("math.pi = 3", "assert math.pi > 3 and f(1) == 1"),
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_what_a_test_left_behind_decides_about_no_other_program(name, sandbox):
    leaves, notices = LEFT_BEHIND[name]
    leaving = Asserts("def f(x): raise ValueError", [f"{leaves}\nassert f(1) == 1"])
    right, wrong = (Asserts(f"def f(x): return x + {n}", [notices]) for n in (0, 1))
    outcomes = sandbox.run_batch([leaving, right, leaving, wrong])
    assert [one.status for one in outcomes] == ["fail", "pass", "fail", "fail"]


# ------------------------------------------------------------------ honest programs

HONEST = programs("honest")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name, sandbox):
    _, program, tests = HONEST[name]
    outcome = sandbox.run_asserts(program, tests)
    assert outcome[:2] == ("pass", "") and outcome.passed == (True,) * len(tests)


AS_PLAIN = programs("as_plain")


@pytest.mark.parametrize("name", AS_PLAIN)
def test_plain_python_and_the_sandbox_agree(name, sandbox, monkeypatch):
    kind, program, tests = AS_PLAIN[name]
    monkeypatch.setattr(sys, "stdin", sys.stdin)  # put back what a test replaces
    outcome = sandbox.run_asserts(program, tests, timeout_s=5.0)
    assert outcome.status == {"right": "pass", "wrong": "fail"}[kind], outcome.reason
    fails = False
    try:
        exec("\n".join([program, *tests]), {})
    except (Exception, GeneratorExit):
        fails = True
    assert fails == (kind == "wrong")


OF_THE_PROGRAM = "NotPlain: {} stays where it was made: it is no plain value"
OF_THE_TESTS = f"ProgramEnded: the program raised {OF_THE_PROGRAM}"


@pytest.mark.parametrize(
    ("program", "test", "reason"),
    [
        (
            "class N:\n    x = 1\ndef f(): return N()",
            "assert f().x == 1",
            OF_THE_PROGRAM.format("x of a N"),
        ),
        (
            "def f(): return lambda: 1",
            "assert f()() == 1",
            OF_THE_PROGRAM.format("__call__ of a function"),
        ),
        (
            "def f(g): return g(1)",
            "assert f(lambda x: x) == 1",
            OF_THE_TESTS.format("__call__ of a function"),
        ),
    ],
    ids=["an object", "a function", "a function of the tests"],
)
def test_what_is_no_plain_value_fails_and_says_so(program, test, reason, sandbox):
    outcome = sandbox.run_asserts(program, [test])
    assert outcome[:2] == ("fail", reason)


def test_each_test_counts_and_the_first_reason_is_given(sandbox):
    tests = ["assert f(1) == 1", "assert f(2) == 3, 'two'", "assert f(0) == 0", "assert f(5) == 4"]
    outcome = sandbox.run_asserts("def f(x):\n    print(x)\n    return x", tests)
    assert outcome.passed == (True, False, True, False)
    assert outcome[:2] == ("fail", "AssertionError: two") and outcome.output == "1\n2\n0\n5\n"


def test_tests_before_a_hang_still_count(sandbox):
    program = "def f(x):\n    while x: pass\n    return x"
    tests = ["assert f(0) == 0", "assert f(1) == 1", "assert f(0) == 0"]
    outcome = sandbox.run_asserts(program, tests, timeout_s=0.5)
    assert outcome.passed == (True, False, False)


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
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        *((f"import os; os.kill(os.getpid(), {n})", f"killed by signal {n}") for n in (35, 40, 63)),
        (
            "raise ValueError('\\ud800 \\x1b[2J\\r\\n\\u202e\\x00é')",
            r"ValueError: \ud800 \x1b[2J\r\n\u202e\x00é",
        ),
        ("while True: print('x' * 1000000, flush=True)", "output: more than 1 MiB"),
        ("while True: pass", "timeout: more than 0.5 s"),
        ("import time\ntime.sleep(60)", "timeout: more than 0.5 s"),
        ("import nothing_like_it", "ModuleNotFoundError"),
    ],
)
def test_the_reason_says_what_happened(program, reason, sandbox):
    outcome = sandbox.run_asserts(program, ["assert f() == 1"], timeout_s=0.5)
    assert outcome.status == "fail" and outcome.reason.startswith(reason)


VACUOUS = ["pass", "", "assert callable(f)", "def test_f():\n    assert f(1) == 2"]
VACUOUS += ["if __name__ == '__main__':\n    assert f(1) == 2"]
VACUOUS += ["class T:\n    def test(self): assert f(1) == 2"]


@pytest.mark.parametrize("test", VACUOUS)
def test_a_test_that_never_calls_the_program_is_not_passed(test, sandbox):
    program, tests = "def f(x): return 2 * x", ["assert f(1) == 2", test]
    outcome = sandbox.run_asserts(program, tests, entry_point="f")
    assert outcome == ("fail", NEVER_CALLED, outcome.seconds, "", (True, False))


def test_the_setup_belongs_to_the_tests(sandbox):
    program = "def close(a, b): return True\ndef f(): return 2"
    setup = "def close(a, b): return abs(a - b) < 1e-6"
    assert sandbox.run_asserts(program, ["assert close(f(), 1)"], setup=setup).status == "fail"
    assert sandbox.run_asserts(program, ["assert close(f(), 2)"], setup=setup).status == "pass"


def test_a_program_that_will_not_end_after_its_tests_has_passed_them(sandbox):
    program = """
import sys, time
sys.modules['rewards.sandbox.worker']._end = lambda code: time.sleep(600)
def f(): return 1
"""
    assert sandbox.run_asserts(program, ["assert f() == 1"], timeout_s=300.0).status == "pass"


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
        ("print('\\n1 \\r\\n 2\\n\\n')", [("", "\n1\r\n 2")]),
    ],
    ids=["the streams are what they seem", "each case is run afresh", "a large input", "line ends"],
)
def test_a_script_runs_as_by_itself(program, cases, sandbox):
    assert sandbox.run_stdio(program, cases)[:2] == ("pass", "")


@pytest.mark.parametrize("wait", ["while time.process_time() < 0.4: pass", "time.sleep(0.8)"])
def test_the_limit_is_for_all_cases_together_and_after_it_none_is_run(wait, sandbox):
    program = f"import time\nprint(input(), flush=True)\n{wait}"
    outcome = sandbox.run_stdio(program, [(str(i), str(i)) for i in range(50)], timeout_s=1.0)
    assert outcome[:2] == ("fail", "timeout: more than 1 s")
    assert outcome.passed[0] and not any(outcome.passed[3:])
