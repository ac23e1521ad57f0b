"""The self-test: before any model's program runs, a confined one must be refused all of this.

    failed_probes(run)         # [] if all is well, else the probes that went wrong, in words

The probes are functions of one program. Each is harmless if it succeeds. The checker calls them one
by one, so their results come back in the same way as those of a model's program.

What is not covered: a probe shows that one way out is closed, not that there is no other.
"""

import os
import re
from collections.abc import Callable

from rewards.sandbox.jobs import Asserts, Outcome
from rewards.sandbox.slot import ZygoteDied

PROBES = """
import ctypes, os, socket, time

def attempt(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return "refused"
    except OSError as error:
        return f"refused by {type(error).__name__} {error.errno} only"
    return "came through"

def trace(pid):
    number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*map(ctypes.c_long, (number, 16, pid, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "system call")

def fork():
    if not os.fork():
        os._exit(0)

def reads_passwd(): return attempt(open, "/etc/passwd")
def reads_the_environment_of_its_parent(): return attempt(open, f"/proc/{os.getppid()}/environ")
def reads_the_environment_of_the_trainer(pid): return attempt(open, f"/proc/{pid}/environ")
def reads_the_clock_of_its_parent(): return attempt(time.clock_gettime, (~os.getppid() << 3) | 2)
def writes_a_file(): return attempt(os.open, "/tmp", os.O_WRONLY | os.O_TMPFILE)
def forks(): return attempt(fork)
def runs_a_program(): return attempt(os.execv, "/nonexistent-program", ["x"])
def opens_a_socket(): return attempt(socket.socket)
def signals_its_parent(): return attempt(os.kill, os.getppid(), 0)
def traces_its_parent(): return attempt(trace, os.getppid())
def right(x): return 2 * x
def wrong(x): return x
"""
REFUSED = re.findall(r"def (\w+)\(.*return attempt", PROBES)
TIMEOUT_S = 30.0
Run = Callable[[Asserts], Outcome]


def probe(run: Run) -> dict[str, str]:
    """The result of each probe: `ok`, or the failure."""
    tests = {"a right program passes": ("assert right(2) == 4", "pass")}
    tests["a wrong program fails"] = ("assert wrong(2) == 4", "fail")
    for name in REFUSED:
        argument = os.getpid() if "trainer" in name else ""  # this process is the trainer
        tests[name] = (f"assert (was := {name}({argument})) == 'refused', was", "pass")
    results = {}
    for name, (test, expected) in tests.items():
        outcome = run(Asserts(PROBES, [test], timeout_s=TIMEOUT_S))
        is_ok = outcome.status == expected
        results[name] = "ok" if is_ok else f"{outcome.status}: {outcome.reason}"
    return results


def failed_probes(run: Run) -> list[str]:
    """The probes that went wrong, in words."""
    try:
        return [f"{name}: {result}" for name, result in probe(run).items() if result != "ok"]
    except ZygoteDied as error:
        return [str(error)]
