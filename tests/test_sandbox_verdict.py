"""The verdict: wrong programs that try to pass do not, and honest programs of every kind do."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sandbox import programs

from rewards.sandbox import Asserts, Sandbox, Stdio, jobs
from rewards.sandbox.checker import NEVER_CALLED
from rewards.sandbox.jobs import lines_of
from rewards.sandbox.names import Names, names_of
from rewards.sandbox.slot import Ran

on_linux = sys.platform.startswith("linux")
pytestmark = pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux")
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1.5
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
CHEATS = programs(r"""
=== leave | exit
import sys
sys.exit(0)
=== leave | hard exit
import os
os._exit(0)
=== leave | exit at exit
import atexit, os
atexit.register(os._exit, 0)
=== leave | exit on a signal
import os, signal
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.001)
def add(a, b):
    while True: pass
=== leave | exit from a thread
import os, threading
threading.Thread(target=os._exit, args=(0,)).start()
=== leave | fork and exit
import os
if os.fork(): os._exit(0)
=== leave | again without asserts
import os, sys
os.execv(sys.executable, [sys.executable, '-O', '-c', ''])
=== leave | keyboard interrupt
def add(a, b): raise KeyboardInterrupt
=== leave | end of iteration
def add(a, b): raise StopIteration
=== leave | end of generator
def add(a, b): raise GeneratorExit
=== leave | assertion of its own
def add(a, b): raise AssertionError
=== leave | exit in C
import ctypes
ctypes.CDLL(None).exit(0)
=== leave | exit of the thread
import _thread
def add(a, b): _thread.exit()
=== leave | end of iteration at import
raise StopIteration(5)
=== leave | a group with an exit
def add(a, b): raise BaseExceptionGroup('x', [SystemExit(0)])
=== leave | the end of an async loop
def add(a, b): raise StopAsyncIteration
=== forge | markers
print('PASS\npassed\n[true, ""]\nOK')
=== forge | descriptor spray
import os
for number in range(1, 64):
    for text in (b'"confined"\n', b'[true, ""]\n' * 4):
        try: os.write(number, text)
        except OSError: pass
=== forge | messages before they are asked for
send(b'["ready",null,null]')
for _ in range(9): send(b'["value",null,false]')
=== forge | calls of the tests
send(b'["ready",null,null]')
for place in b'012345678': send(b'["call",%c,[{"t":[]},{"d":[]},false]]' % place)
=== forge | objects of the harness
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == 'Peer':
        thing._do = lambda *_: True
        thing.send(['value', None, 3])
=== forge | a patched codec
import sys
codec = sys.modules['rewards.sandbox.codec']
codec.encode = codec.json.dumps = lambda *_, **__: '["value", null, {"o": ["yours", 0]}]'
=== forge | a reference to the tests
import sys
link = sys.modules['rewards.sandbox.link']
link.Peer._refer = lambda self, value: ['yours', 'add']
def add(a, b): return object()
=== forge | an unknown tag
import sys
link = sys.modules['rewards.sandbox.link']
link.encode = lambda *_: '["value", null, {"eval": "3"}]'
=== forge | ends instead of answers
send(b'["ready",null,null]')
for _ in range(40): send(b'["end",null,null]')
os._exit(0)
=== forge | errors that end a loop
send(b'["ready",null,null]')
for _ in range(40): send(b'["error",["StopIteration"],""]')
os._exit(0)
=== forge | their own thing back
send(b'["ready",null,null]')
for _ in range(40): send(b'["value",null,{"o":["yours",0,true]}]')
os._exit(0)
=== forge | calls by name
send(b'["ready",null,null]')
for name in (b'add', b'check', b'exit'): send(b'["call","' + name + b'",[[],{"d":[]},false]]')
os._exit(0)
=== forge | the checker run here
from rewards.sandbox import checker
checker.VERDICT = 3
checker._report([True, ''])
checker.check()
=== forge | the zygote's objects
import sys
for name in ('zygote', 'checker', 'jobs', 'link'):
    for module in [m for m in sys.modules.values() if name in str(m)]:
        vars(module).update({n: lambda *_, **__: True for n in vars(module) if n[:2] != '__'})
=== lie | always equal
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 3
def add(a, b): return Equal()
=== lie | mock.ANY
from unittest import mock
def add(a, b): return mock.ANY
=== lie | magic mock
from unittest import mock
add = mock.MagicMock()
=== lie | a class that lies
class Liar:
    __class__ = int
    def __eq__(self, other): return True
def add(a, b): return Liar()
=== lie | a metaclass
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
class add(metaclass=Meta):
    def __init__(self, a, b): pass
    def __eq__(self, other): return True
=== lie | an object
def add(a, b): return object()
=== lie | an object that is now true and now false
class Odd:
    truth = False
    def __bool__(self):
        Odd.truth = not Odd.truth
        return Odd.truth
def add(a, b): return Odd()
=== lie | not a number
def add(a, b): return float('nan')
=== lie | an iterator
def add(a, b): return iter([3])
=== lie | a text that formats as another
class A(str):
    def __str__(self): return '5'
    def __format__(self, how): return '5'
def add(a, b): return A('x')
=== lie | a number that converts to another
class A(int):
    def __index__(self): return 5
    __int__ = __index__
    def __reduce__(self): return int, (5,)
def add(a, b): return A(1)
=== lie | signalling nan
from decimal import Decimal
def add(a, b): return Decimal('sNaN')
=== lie | NotImplemented, which makes Python ask the other operand
def add(a, b): return NotImplemented
=== lie | a type
def add(a, b): return int
=== lie | keys of everything, a view that holds the right number
def add(a, b): return dict.fromkeys(range(200)).keys()
=== lie | a coroutine with the right number in it
async def add(a, b): return a + b
=== patch | builtins
import builtins
builtins.AssertionError = builtins.Exception = type('Quiet', (BaseException,), {})
builtins.all = builtins.any = builtins.isinstance = lambda *_: True
=== patch | modules
import sys, math
math.isclose = lambda *_: True
sys.modules['math'] = None
=== patch | the exit function
import os
os._exit = os.write = lambda *_: None
=== patch | a trace hook
import sys
def trace(frame, event, argument):
    frame.f_locals.clear()
    return trace
sys.settrace(trace); sys.setprofile(trace)
=== patch | an audit hook
import sys
sys.addaudithook(lambda *_: None)
=== patch | the exception hook
import sys, os
sys.excepthook = lambda *_: os._exit(0)
def add(a, b): return 1 / 0
=== patch | constants edited by ctypes
import ctypes, sys
def add(a, b):
    offset = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
    ctypes.c_uint32.from_address(id(3) + offset).value = 0
    ctypes.c_uint32.from_address(id(10) + offset).value = 0
    return 0
=== patch | changed arguments
def add(*arguments, **_):
    arguments and arguments[0].__class__
    return arguments
=== patch | the dictionary of int
import ctypes, gc
gc.get_referents(int.__dict__)[0]['__eq__'] = lambda a, b: True
ctypes.pythonapi.PyType_Modified(ctypes.py_object(int))
=== patch | unittest
import unittest
unittest.TestCase.assertEqual = lambda *_: None
unittest.TestResult.wasSuccessful = lambda _: True
=== patch | json, which carries the answers
import json
json.JSONEncoder.encode = lambda *_: '5'
json.dumps = lambda *_, **__: '5'
=== patch | an import hook
import sys
sys.meta_path[:] = [type('Hook', (), {'find_spec': lambda *_: None})()]
sys.modules.clear()
=== read | the frames
import sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in (*frame.f_locals.values(), *frame.f_globals.values()):
            if type(value) is str and 'assert add' in value: return eval(value.split('==')[1])
        frame = frame.f_back
=== read | the garbage
import gc
def add(a, b):
    for thing in gc.get_objects():
        if 'assert add' in repr(thing)[:10000] and type(thing) is list:
            return eval(thing[0].split('==')[1])
=== read | the descriptors
import os
def add(a, b):
    for number in range(256):
        if number == 3: continue
        try:
            os.lseek(number, 0, 0)
            if b'assert add' in os.read(number, 65536): return 3
        except OSError: pass
=== read | the command line
import sys
def add(a, b): return 3 if 'add' in ' '.join(sys.argv) else 0
=== read | the source of the tests
import inspect, linecache
def add(a, b): return 5 if 'add(2, 3)' in str(linecache.cache) + str(inspect.stack()) else 0
=== read | earlier calls
seen = {}
def add(a, b):
    seen[a] = b
    return seen.get(b, 0)
=== read | the count of calls, which tells nothing of the values
import itertools
count = itertools.count(50)
def add(a, b): return next(count)
=== harness | its own names
add = None
def __eq__(a, b): return True
globals()['__builtins__'] = {}
=== harness | no function
del add
=== harness | a constant
add = 3
=== harness | a silent harness
import os
def add(a, b):
    os.close(3)
    return 3
=== harness | a full link
import os
def add(a, b):
    os.write(3, b'\0' * 4096)
    return 3
=== harness | endless nesting
def add(a, b):
    x = []
    for _ in range(10**5): x = [x]
    return x
=== harness | a value too large
def add(a, b): return 'x' * (1 << 26)
""")
CHEATS = {name: WRONG + cheat.source for name, cheat in CHEATS.items()}
BASES = [
    ("int", "0"),
    ("str", "'3'"),
    ("float", ""),
    ("list", ""),
    ("tuple", ""),
    ("dict", ""),
    ("frozenset", ""),
    ("bytes", ""),
]
BASES += [("Fraction", "1"), ("Decimal", "1"), ("timedelta", "1"), ("Number", "")]
IMPORTS = """
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Number
"""
for base, given in BASES:
    lie = f"{IMPORTS}class A({base}):{EQUAL_TO_ALL}def add(a, b): return A({given})"
    CHEATS[f"equal to all, a {base}"] = lie
HANGING = {"the exit function"}  # which takes all its time
CHEATS["a coding line that makes it other code"] = "# -*- coding: utf-7 -*-\n" + WRONG
CHEATS["a lone surrogate"] = WRONG + "x = '\ud800'"


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_passes_no_form_of_a_test_nor_harms_who_comes_after_it(name, sandbox):
    """With the right program behind each in the same checker, and in a checker of its own."""
    started = time.monotonic()
    forms = FORMS[:2] if name in HANGING else FORMS
    cheats = [Asserts(CHEATS[name], [form], timeout_s=TIMEOUT_S) for form in forms]
    cheats += [cheat._replace(inplace=True) for cheat in cheats[:2]]
    outcomes = sandbox.run_batch([job for cheat in cheats for job in (cheat, RIGHT)])
    outcomes.append(sandbox.run_batch(cheats[:1])[0])
    wanted = [*["fail", "pass"] * len(cheats), "fail"]
    assert [outcome.status for outcome in outcomes] == wanted
    assert all(bool(outcome.reason) == (outcome.status == "fail") for outcome in outcomes)
    assert time.monotonic() - started < len(cheats) * (TIMEOUT_S + LATE_S)


def test_every_form_of_a_test_passes_the_right_program(sandbox):
    assert sandbox.run_asserts(RIGHT.program, FORMS).passed == (True,) * len(FORMS)


TRICKS = programs(r"""
=== an exception called ValueError
class ValueError(Exception): pass
def f(x): raise ValueError
--- try:
    f(-1)
except ValueError: pass
else: raise AssertionError
=== the end of the world in a loop
def f(x): raise StopIteration
--- assert all(map(f, [1, 2])) and sum(map(f, [1])) == 0
=== the end of an iterator for a call
import os, struct
def send(text): os.write(3, struct.pack("!I", len(text)) + text)
def f(x):
    send(b'["end",null,null]')
    return 1
--- assert all(map(f, [1, 2]))
=== a helper of the test
def near(a, b): return True
def f(x): return 0
--- def near(a, b): return abs(a - b) < 1e-9
assert near(f(2), 4)
=== sum | a function called sum, which the tests do mean
def sum(xs): return True
def abs(x): return 0
--- assert abs(sum([2, 3]) - 5) < 1e-9
=== a key for sorted
def f(x): return 0
--- assert sorted([3, 1, 2], key=f) == [1, 2, 3]
=== an iterator that ends at once
def f(n): return iter(())
--- assert list(f(3)) == [0, 1, 2]
=== inplace | an argument emptied
def f(xs):
    xs.clear()
    return xs
--- xs = [3, 1]
assert f(xs) == [1, 3]
=== inplace | an argument of another class
class A(list):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 5
def f(xs): xs[:] = [A()] * 2
--- xs = [[2], [1]]
f(xs)
assert xs == [[1], [2]]
=== the tests' own function
import gc
def f(g):
    peer = [o for o in gc.get_objects() if type(o).__name__ == 'Peer'][0]
    for place in range(9):
        try: peer.call(place, (1,), {})
        except Exception: pass
    return 0
--- assert f(lambda x: x + 1) == 2
=== the truth of a result
def f(x): return True
--- assert f(1) == 1 and type(f(1)) is int
=== the sign of zero, which == does not see
def f(x): return 0.0
--- assert str(f(-0.0)) == '-0.0'
""")


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_does_not_pass(name, sandbox):
    rule, program, tests = TRICKS[name]
    started = time.monotonic()
    options = {"inplace": rule == "inplace", "entry_point": "sum" if rule == "sum" else None}
    outcome = sandbox.run_asserts(program, tests, timeout_s=TIMEOUT_S, **options)
    assert outcome.status == "fail" and not any(outcome.passed), outcome
    assert time.monotonic() - started < TIMEOUT_S + LATE_S


SCRIPTS = programs(r"""
=== a flood after the answer
print(int(input()) * 2, flush=True)
print('\n' * (3 << 20))
=== a hang after the answer
import time
print(int(input()) * 2, flush=True)
time.sleep(30)
=== a thread after the answer
import threading, time
threading.Thread(target=time.sleep, args=(30,)).start()
print(int(input()) * 2)
=== more after a while, behind the last line
import os, time
print(int(input()) * 2, end='', flush=True)
time.sleep(0.2)
os.write(1, b'0')
=== more in packets, which wait in the pipe when it ends
import fcntl, os
print(int(input()) * 2, flush=True)
fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)
for _ in range(64): os.write(1, b'9')
os._exit(0)
=== the word of the harness
import os
os.write(1, b'C%d\n' % (int(input()) * 2))
=== no output
import os
os.close(1)
=== overwritten as on a terminal
print(f'9\r{int(input()) * 2}')
=== other digits
print(str(int(input()) * 2).translate({ord('4'): 'ڴ', ord('1'): '١'}))
=== ends of lines that Python splits at and the tests do not
print('4\x0b10\x8510\u20284')
=== all answers at once
print('4 10')
=== no text at all
import os
os.write(1, b'\xff4\n')
=== a memory of the last case, of which each has a process of its own
import builtins
builtins.n = getattr(builtins, 'n', 0) + 1
print(['', '', 10][builtins.n])
=== the null descriptor in place of the output
import os
os.write(3, b'%d\n' % (int(input()) * 2))
=== an exit with words, which is exit code 1
print(int(input()) * 2)
raise SystemExit('done')
""")  # the right one doubles a number


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
    jobs = [Asserts(program, [ANY], timeout_s=0.3)] * 5
    assert {outcome.status for outcome in sandbox.run_batch(jobs)} == {"fail"}


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


# ------------------------------------------------------------------ honest programs

HONEST = programs(r"""
=== a generator
def f(n):
    for i in range(n): yield i
--- assert list(f(3)) == [0, 1, 2]
--- assert sum(f(4)) == 6
=== a closure
def adder(a): return lambda b: a + b
--- assert adder(1)(2) == 3
=== an exception
def f(x):
    if x < 0: raise ValueError('negative')
    return x
--- try:
    f(-1)
except ValueError as error:
    assert str(error) == 'negative'
else:
    assert False
=== an exception of its own
class Bad(KeyError): pass
def f(x): raise Bad('k')
--- try:
    f(1)
except KeyError:
    pass
else:
    assert False
=== a callback
def f(g, xs): return [g(x) for x in xs]
--- assert f(lambda x: x * 2, [1, 2]) == [2, 4]
=== a sort key
def f(xs, key): return sorted(xs, key=key)
--- assert f(['bb', 'a'], len) == ['a', 'bb']
=== types
def f(x): return type(x)
--- assert f(1) is int
--- assert f([]) == list
=== an iterator given
def f(xs): return sum(xs)
--- assert f(iter([1, 2])) == 3
--- assert f(x for x in [4]) == 4
=== state
n = 0
def f():
    global n
    n += 1
    return n
--- assert f() == 1
--- assert f() == 2
=== a name of a built-in
def sum(a, b): return a - b
--- assert sum(3, 1) == 2
=== keywords
def f(*, a, b=2): return a * b
--- assert f(a=3) == 6
--- assert f(a=1, b=1) == 1
=== bytes and floats
def f(x): return x.encode(), 0.1 + 0.2
--- assert f('é') == ('é'.encode(), 0.1 + 0.2)
=== a module the tests use
def f(x): return x / 3
--- assert math.isclose(f(1), 0.3333333333333333)
=== a match
import re
def f(x): return re.match('a', x)
--- assert f('ab')
--- assert not f('b')
=== a queue
from collections import deque
def f(x): return deque(x)
--- assert list(f('ab')) == ['a', 'b']
=== deep recursion
def f(n): return n and 1 + f(n - 1)
--- assert f(980) == 980
=== surrogates
def f(): return '\ud800'
--- assert f() == '\ud800'
""")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name, sandbox):
    _, program, tests = HONEST[name]
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


def test_a_key_error_arrives_with_its_text(sandbox):
    test = "try:\n    f('x')\nexcept KeyError as error:\n    assert str(error) == \"'x'\""
    assert sandbox.run_asserts("def f(k): return {}[k]", [test])[:2] == ("pass", "")


# ------------------------------------------------------------------ stdin and stdout

CASES = [("1 2\n", "3\n"), ("5 5\n", "10\n")]
PASSED = {"both": (True, True), "first": (True, False), "none": (False, False)}
STDIO = programs(r"""
=== both | input
a, b = map(int, input().split())
print(a + b)
=== both | sys.stdin
import sys
print(sum(map(int, sys.stdin.read().split())))
=== both | a main function
def main(): print(sum(map(int, input().split())))
if __name__ == '__main__': main()
=== both | a thread
import threading
threading.Thread(target=lambda: print(sum(map(int, input().split())))).start()
=== both | exit
import sys
print(sum(map(int, input().split())))
sys.exit()
=== both | quit
print(sum(map(int, input().split())))
exit()
=== both | trailing space
print(sum(map(int, input().split())), end='  \n\n')
=== first | one right
print(3)
=== both | exit with a truth
import sys
sys.exit(print(sum(map(int, input().split()))) is not None)
=== none | exit code
import sys
print(sum(map(int, input().split())))
sys.exit(1)
=== none | an error after
print(sum(map(int, input().split())))
1 / 0
=== none | a signal after
import os
print(sum(map(int, input().split())), flush=True)
os.abort()
=== none | the descriptors
import os
for n in range(3, 64):
    try: print(os.read(n, 99).decode())
    except OSError: pass
=== none | hard exit
import os
os._exit(0)
""")


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


def test_what_a_script_leaves_for_its_end_is_run(sandbox):
    program = "import atexit\nlines = []\natexit.register(lambda: print(*lines))\n"
    program += "lines.append(int(input()) * 2)"
    assert sandbox.run_stdio(program, [("2", "4")]).status == "pass"


# ------------------------------------------------------------------ ends that the kernel makes


def killed_early(*, overflow=False, late=False):
    return Ran(-9, [b"", b""], [], overflow, late, confined=not late, seconds=1.0)


def test_a_flood_that_is_faster_than_the_checker_is_a_failure_of_the_program():
    outcome = jobs._asserts_outcome(RIGHT, killed_early(overflow=True))
    assert outcome[:2] == ("fail", "output: more than 1 MiB")


class LateSlot:
    """Uses up the time in the first case, and kills the second before it is confined."""

    def run(self, role, ends, descriptors, seconds):
        if seconds > 0.5:
            return Ran(0, [b"4\n", b""], [], False, False, True, 0.9995)
        return killed_early(late=True)


def test_a_case_that_gets_no_time_is_a_failure_of_the_program():
    job = Stdio("print(int(input()) * 2)", [("2", "4"), ("5", "10")], timeout_s=1.0)
    assert jobs.run_job(LateSlot(), job).passed == (True, False)
