"""The verdict: wrong programs that try to pass do not, and honest programs of every kind do."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rewards.sandbox import Asserts, Sandbox
from rewards.sandbox.checker import NEVER_CALLED
from rewards.sandbox.jobs import lines_of
from rewards.sandbox.names import Names, names_of

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as made:
        yield made


TESTS = [
    "assert add(1, 2) == 3",
    "assert add(5, 5) == 10",
    "assert not add(1, 2) != 3",
    "assert add(0, 1) in [1]",
]
READY = """import json, os, struct
def send(message):
    data = json.dumps(message).encode()
    os.write(3, struct.pack('!I', len(data)) + data)
send(['ready', None, None])
"""
ZERO = "\ndef add(a, b): return 0"
# Wrong solutions of add(a, b), by what they try.
CHEATS = {
    # leaving early
    "exit": "import sys\nsys.exit(0)",
    "exit in the function": "import sys\ndef add(a, b): sys.exit(0)",
    "hard exit": "import os\nos._exit(0)",
    "hard exit in the function": "import os\ndef add(a, b): os._exit(0)",
    "quit": "quit()",
    "raise SystemExit": "def add(a, b): raise SystemExit",
    "exit at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
    "exit on a signal": """
import os, signal
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.001)
def add(a, b):
    while True: pass""",
    "exit from a thread": "import os, threading\nthreading.Thread(target=os._exit, args=(0,)).start()",
    "fork and exit": "import os\nif os.fork(): os._exit(0)",
    "again without asserts": "import os, sys\nos.execv(sys.executable, [sys.executable, '-O', '-c', ''])",
    "keyboard interrupt": "def add(a, b): raise KeyboardInterrupt",
    "end of iteration": "def add(a, b): raise StopIteration",
    "end of generator": "def add(a, b): raise GeneratorExit",
    "assertion of its own": "def add(a, b): raise AssertionError",
    # forging the verdict
    "markers": "print('PASS\\npassed\\n[true, \"\"]\\nOK')\ndef add(a, b): return 0",
    "descriptor spray": """
import os
for number in range(1, 64):
    for text in (b'"confined"\\n', b'[true, ""]\\n' * 4):
        try: os.write(number, text)
        except OSError: pass
def add(a, b): return 0""",
    "messages before they are asked for": READY
    + "for _ in range(9): send(['value', None, False])"
    + ZERO,
    "calls of the tests": (
        READY + "for place in range(9): send(['call', place, [{'t': []}, {'d': []}, False]])" + ZERO
    ),
    "objects of the harness": """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == 'Peer':
        thing._do = lambda *_: True
        thing.send(['value', None, 3])
def add(a, b): return 0""",
    "a patched codec": """
import sys
codec = sys.modules['rewards.sandbox.codec']
codec.encode = codec.json.dumps = lambda *_, **__: '["value", null, {"o": ["yours", 0]}]'
def add(a, b): return 0""",
    "a reference to the tests": """
import sys
link = sys.modules['rewards.sandbox.link']
link.Peer._refer = lambda self, value: ['yours', 'add']
def add(a, b): return object()""",
    "an unknown tag": """
import sys
link = sys.modules['rewards.sandbox.link']
link.encode = lambda *_: '["value", null, {"eval": "3"}]'
def add(a, b): return 0""",
    # lying values
    "always equal": """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 3
def add(a, b): return Equal()""",
    "always equal int": """
class Equal(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b): return Equal(0)""",
    "always equal text": """
class Equal(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def add(a, b): return Equal('3')""",
    "mock.ANY": "from unittest import mock\ndef add(a, b): return mock.ANY",
    "magic mock": "from unittest import mock\nadd = mock.MagicMock()",
    "a class that lies": """
class Liar:
    __class__ = int
    def __eq__(self, other): return True
def add(a, b): return Liar()""",
    "a metaclass": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
class add(metaclass=Meta):
    def __init__(self, a, b): pass
    def __eq__(self, other): return True""",
    "an object": "def add(a, b): return object()",
    "an object that is now true and now false": """
class Odd:
    truth = False
    def __bool__(self):
        Odd.truth = not Odd.truth
        return Odd.truth
def add(a, b): return Odd()""",
    "not a number": "def add(a, b): return float('nan')",
    "an iterator": "def add(a, b): return iter([3])",
    "a class that is equal": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
class Equal(metaclass=Meta): pass
def add(a, b): return Equal""",
    # patching
    "builtins": """
import builtins
builtins.AssertionError = builtins.Exception = type('Quiet', (BaseException,), {})
builtins.all = builtins.any = builtins.isinstance = lambda *_: True
def add(a, b): return 0""",
    "modules": "import sys, math\nmath.isclose = lambda *_: True\nsys.modules['math'] = None\ndef add(a, b): return 0",
    "the exit function": "import os\nos._exit = os.write = lambda *_: None\ndef add(a, b): return 0",
    "a trace hook": """
import sys
def trace(frame, event, argument):
    frame.f_locals.clear()
    return trace
sys.settrace(trace); sys.setprofile(trace)
def add(a, b): return 0""",
    "an audit hook": "import sys\nsys.addaudithook(lambda *_: None)\ndef add(a, b): return 0",
    "the exception hook": "import sys, os\nsys.excepthook = lambda *_: os._exit(0)\ndef add(a, b): return 1 / 0",
    "constants edited by ctypes": """
import ctypes, sys
def add(a, b):
    offset = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
    ctypes.c_uint32.from_address(id(3) + offset).value = 0
    ctypes.c_uint32.from_address(id(10) + offset).value = 0
    return 0""",
    "changed arguments": "def add(*arguments, **_):\n    arguments and arguments[0].__class__\n    return arguments",
    # reading the tests
    "the frames": """
import sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in (*frame.f_locals.values(), *frame.f_globals.values()):
            if type(value) is str and 'assert add' in value: return eval(value.split('==')[1])
        frame = frame.f_back""",
    "the garbage": """
import gc
def add(a, b):
    for thing in gc.get_objects():
        if 'assert add' in repr(thing)[:10000] and type(thing) is list: return eval(thing[0].split('==')[1])""",
    "the descriptors": """
import os
def add(a, b):
    for number in range(256):
        if number == 3: continue
        try:
            os.lseek(number, 0, 0)
            if b'assert add' in os.read(number, 65536): return 3
        except OSError: pass""",
    "the command line": "import sys\ndef add(a, b): return 3 if 'add' in ' '.join(sys.argv) else 0",
    # names that the tests use, and the harness
    "its own names": """
add = None
def __eq__(a, b): return True
globals()['__builtins__'] = {}""",
    "no function": "x = 1",
    "a constant": "add = 3",
    "a silent harness": "import os\ndef add(a, b):\n    os.close(3)\n    return 3",
    "a full link": "import os\ndef add(a, b):\n    os.write(3, b'\\0' * 4096)\n    return 3",
    "endless nesting": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "a value too large": "def add(a, b): return 'x' * (1 << 26)",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_does_not_pass_alone_or_in_a_group_nor_harm_who_comes_after_it(name, sandbox):
    cheat = Asserts(CHEATS[name], TESTS, timeout_s=2.0)
    outcomes = [
        *sandbox.run_batch([cheat, Asserts(HONEST["plain"][0], TESTS)]),
        *sandbox.run_batch([cheat]),
    ]
    assert [any(outcome.passed) for outcome in outcomes] == [False, True, False]
    assert [outcome.status for outcome in outcomes] == ["fail", "pass", "fail"] and outcomes[
        0
    ].reason


HONEST = {
    "plain": ("def add(a, b): return a + b", TESTS),
    "prints": ("print('x')\ndef add(a, b):\n    print(a)\n    return a + b", TESTS),
    "a lambda": ("add = lambda a, b: a + b", TESTS),
    "a subclass": ("class Number(int): pass\ndef add(a, b): return Number(a + b)", TESTS),
    "a generator": (
        "def f(n):\n    for i in range(n): yield i",
        ["assert list(f(3)) == [0, 1, 2]", "assert sum(f(4)) == 6"],
    ),
    "a closure": ("def adder(a): return lambda b: a + b", ["assert adder(1)(2) == 3"]),
    "an exception": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        [
            "try:\n    f(-1)\nexcept ValueError as error:\n    assert str(error) == 'negative'\nelse:\n    assert False"
        ],
    ),
    "an exception of its own": (
        "class Bad(KeyError): pass\ndef f(x): raise Bad('k')",
        ["try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False"],
    ),
    "a callback": (
        "def f(g, xs): return [g(x) for x in xs]",
        ["assert f(lambda x: x * 2, [1, 2]) == [2, 4]"],
    ),
    "a sort key": (
        "def f(xs, key): return sorted(xs, key=key)",
        ["assert f(['bb', 'a'], len) == ['a', 'bb']"],
    ),
    "types": ("def f(x): return type(x)", ["assert f(1) is int", "assert f([]) == list"]),
    "an iterator given": (
        "def f(xs): return sum(xs)",
        ["assert f(iter([1, 2])) == 3", "assert f(x for x in [4]) == 4"],
    ),
    "sets and tuples": (
        "def f(x): return {x}, (x,), {x: x}",
        ["assert f(1) == ({1}, (1,), {1: 1})"],
    ),
    "state": (
        "n = 0\ndef f():\n    global n\n    n += 1\n    return n",
        ["assert f() == 1", "assert f() == 2"],
    ),
    "a name of a built-in": ("def sum(a, b): return a - b", ["assert sum(3, 1) == 2"]),
    "keywords": (
        "def f(*, a, b=2): return a * b",
        ["assert f(a=3) == 6", "assert f(a=1, b=1) == 1"],
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(xs):\n    with ThreadPoolExecutor(2) as pool: return list(pool.map(abs, xs))",
        ["assert f([-1, 2]) == [1, 2]"],
    ),
    "an event loop": (
        "import asyncio\nasync def g(): return 3\ndef f(): return asyncio.run(g())",
        ["assert f() == 3"],
    ),
    "data classes": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(x).x",
        ["assert f(4) == 4"],
    ),
    "a main part": (
        "def f(): return 1\nif __name__ == '__main__':\n    f(1, 2, 3)",
        ["assert f() == 1"],
    ),
    "bytes and floats": (
        "def f(x): return x.encode(), 0.1 + 0.2",
        ["assert f('é') == ('é'.encode(), 0.1 + 0.2)"],
    ),
    "a module the tests use": (
        "def f(x): return x / 3",
        ["assert math.isclose(f(1), 0.3333333333333333)"],
    ),
    "a match": (
        "import re\ndef f(x): return re.match('a', x)",
        ["assert f('ab')", "assert not f('b')"],
    ),
    "a queue": (
        "from collections import deque\ndef f(x): return deque(x)",
        ["assert list(f('ab')) == ['a', 'b']"],
    ),
    "deep recursion": ("def f(n): return n and 1 + f(n - 1)", ["assert f(980) == 980"]),
    "surrogates": ("def f(): return '\\ud800'", ["assert f() == '\\ud800'"]),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name, sandbox):
    program, tests = HONEST[name]
    outcome = sandbox.run_asserts(program, tests)
    assert outcome[:2] == ("pass", "") and outcome.passed == (True,) * len(tests)


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


VACUOUS = ["pass", "", "def test_f():\n    assert f(1) == 2", "if __name__ == '__main__':\n    assert f(1) == 2",
           "assert callable(f)", "class T:\n    def test(self): assert f(1) == 2"]  # fmt: skip


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


@pytest.mark.parametrize(
    "test",
    [
        "assert sorted(f(1)) == [2, 3]",
        "assert abs(f(1)[0] - 2) < 1e-6",
        "assert math.isclose(f(1)[0], 2)",
        "assert len(f(1)) == 3",
        "assert all(x > 5 for x in f(1))",
        "assert isinstance(f(1), dict)",
        "import math\nassert math.floor(f(1)[0]) == 2",
    ],
)
def test_names_of_the_tests_are_never_the_programs(test, sandbox):
    program = """
class always:
    def __call__(self, *_, **__): return True
    def __getattr__(self, name): return self
    def __eq__(self, other): return True
    def __lt__(self, other): return True
sorted = abs = math = len = all = isinstance = floor = always()
def f(x): return [0, 1]
"""
    assert sandbox.run_asserts(program, [test]).status == "fail"


def test_a_program_that_will_not_end_after_its_tests_is_ended(sandbox):
    program = """
import sys, time
sys.modules['rewards.sandbox.worker']._end = lambda code: time.sleep(60)
def f(): return 1
"""
    started = time.monotonic()
    assert sandbox.run_asserts(program, ["assert f() == 1"], timeout_s=30.0).status == "pass"
    assert time.monotonic() - started < 5


def test_no_tests_are_an_error(sandbox):
    with pytest.raises(ValueError, match="no tests"):
        sandbox.run_asserts("def f(): return 1", [])


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        (["assert f(1) == 1"], Names(("f",), ())),
        (["assert f(1) == math.pi", "assert g() == len([])"], Names(("f", "g"), ("math",))),
        (["assert sum(10, 15) == 6"], Names(("sum",), ())),
        (["assert copy([1]) == [1]"], Names(("copy",), ())),
        (["import math\nassert math.isclose(f(1), [x for x in range(3)][0])"], Names(("f",), ())),
        (["def check(g):\n    assert g(1) == 1\ncheck(f)"], Names(("f",), ())),
    ],
)
def test_the_names_that_the_program_must_define(tests, names):
    assert names_of(tests) == names


def test_an_entry_point_names_them():
    assert names_of(["assert len(x) == 2"], entry_point="len") == Names(("len",), ())


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
SCRIPTS = {
    "input": ("a, b = map(int, input().split())\nprint(a + b)", (True, True)),
    "sys.stdin": ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", (True, True)),
    "a main function": (
        "def main(): print(sum(map(int, input().split())))\nif __name__ == '__main__': main()",
        (True, True),
    ),
    "a thread": (
        "import threading\nthreading.Thread(target=lambda: print(sum(map(int, input().split())))).start()",
        (True,) * 2,
    ),
    "exit": ("import sys\nprint(sum(map(int, input().split())))\nsys.exit()", (True, True)),
    "quit": ("print(sum(map(int, input().split())))\nexit()", (True, True)),
    "trailing space": ("print(sum(map(int, input().split())), end='  \\n\\n')", (True, True)),
    "one right": ("print(3)", (True, False)),
    "exit with a truth": (
        "import sys\nsys.exit(print(sum(map(int, input().split()))) is not None)",
        (True, True),
    ),
    "exit code": ("import sys\nprint(sum(map(int, input().split())))\nsys.exit(1)", (False, False)),
    "exit message": (
        "import sys\nprint(sum(map(int, input().split())))\nsys.exit('no')",
        (False, False),
    ),
    "an error after": ("print(sum(map(int, input().split())))\n1 / 0", (False, False)),
    "a signal after": (
        "import os\nprint(sum(map(int, input().split())), flush=True)\nos.abort()",
        (False, False),
    ),
    "more lines": ("print(sum(map(int, input().split())))\nprint(1)", (False, False)),
    "fewer lines": ("pass", (False, False)),
    "on stderr": (
        "import sys\nprint(sum(map(int, input().split())), file=sys.stderr)",
        (False, False),
    ),
    "every number": ("for i in range(100): print(i)", (False, False)),
    "the descriptors": (
        "import os\nfor n in range(3, 64):\n    try: print(os.read(n, 99).decode())\n    except OSError: pass",
        (False, False),
    ),
    "hard exit": ("import os\nos._exit(0)", (False, False)),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_scored_by_what_it_prints(name, sandbox):
    program, passed = SCRIPTS[name]
    outcome = sandbox.run_stdio(program, CASES)
    assert outcome.passed == passed and outcome.status == ("pass" if all(passed) else "fail")


STREAMS = """
import os, sys
print([stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdout.seekable(), sys.stdout.isatty())
print([stream is original for stream, original in ((sys.stdin, sys.__stdin__), (sys.stdout, sys.__stdout__))])
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
