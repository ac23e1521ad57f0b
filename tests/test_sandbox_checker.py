"""One checker serves several programs: what a test leaves behind in it reaches no other program."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from rewards.sandbox import Asserts, Sandbox
from rewards.sandbox.names import are_plain

on_linux = sys.platform.startswith("linux")
pytestmark = pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux")
RIGHT, WRONG = "def f(x): return x", "def f(x): return x + 1"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as made:
        yield made


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
    jobs = [leaving, Asserts(RIGHT, [notices]), leaving, Asserts(WRONG, [notices])]
    assert [one.status for one in sandbox.run_batch(jobs)] == ["fail", "pass", "fail", "fail"]


@pytest.mark.parametrize(
    ("test", "plain"),
    [
        ("assert f(1) == 1", True),
        ("METADATA = {'a': 1}\n\ndef check(g):\n    assert g(2)[0] == 3\ncheck(f)", True),
        ("import math, copy\nfrom collections import Counter\nassert Counter(f('aab'))", True),
        ("assert math.isclose(f(1), 1.0)", True),
        ("x = [1]\nx[0] = 2\nx.append(f(3))", True),
        ("try:\n    f(0)\nexcept ValueError as error:\n    assert str(error)", True),
        ("import sys\nassert f(sys.maxsize)", False),
        ("import calendar\ncalendar.setfirstweekday(f(6))", False),
        ("from decimal import getcontext\ngetcontext().prec = f(4)", False),
        ("assert sys.maxsize == f(1)", False),  # of a module without an import
        ("import numpy\nassert f(1)", False),
        ("from os.path import join\nassert f(join('a'))", False),
        ("math.pi = f(1)", False),
        ("vars(math)['pi'] = f(1)", False),
        ("del math.pi", False),
        ("math.pi: float = f(1)", False),
        ("for math.pi in f(1): pass", False),
        ("string.table[0] = f(1)", False),
        ("math.__dict__.update(pi=f(1))", False),
        ("getattr(math, name)[0] = f(1)", False),
        ("exec('import sys')", False),
        ("__builtins__['len'] = f", False),
        ("import numbers\nnumbers.Integral.register(str)", False),
    ],
)
def test_a_test_is_plain_where_it_can_leave_nothing_behind(test, plain):
    assert are_plain([test], "") is are_plain(["assert f(1)"], test) is plain


def test_a_program_whose_checker_dies_of_another_is_run_on_a_fresh_one(sandbox):
    slow = Asserts("import time\ndef f(x): time.sleep(x); return x", ["assert f(0.4) == 0.4"])

    def kill_the_checker():
        zygote = sandbox._all[0].process.pid
        children = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGALRM)

    killer = threading.Timer(0.3, kill_the_checker)
    killer.start()
    jobs = [Asserts(RIGHT, ["assert f(1) == 1"]), slow]
    assert [outcome.status for outcome in sandbox.run_batch(jobs)] == ["pass", "pass"]
    killer.join()
