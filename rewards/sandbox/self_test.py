"""The self-test: nothing is run for a reward before every probe below was refused to a confined program.

    misses(run)         # [] where all is well, else what came through, in words

The probes are functions of one program, each harmless where it succeeds; the checker asks for them one by one, so a
refusal is a value that came back over the same way as any result of a model's program.

What is not covered: a probe shows that one door is shut, not that there is no other.
"""

import os
from collections.abc import Callable

from rewards.sandbox.jobs import Asserts, Outcome
from rewards.sandbox.slot import ZygoteDied

PROBES = """
import ctypes, os, socket

def attempt(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return "refused"
    except OSError as error:
        return f"refused by {type(error).__name__} {error.errno} only"
    return "came through"

def system_call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "system call")

def fork():
    if not os.fork():
        os._exit(0)

def reads_passwd(): return attempt(open, "/etc/passwd")
def reads_the_environment_of_its_parent(): return attempt(open, f"/proc/{os.getppid()}/environ")
def reads_the_environment_of_the_trainer(pid): return attempt(open, f"/proc/{pid}/environ")
def writes_a_file(): return attempt(os.open, "/tmp", os.O_WRONLY | os.O_TMPFILE)
def forks(): return attempt(fork)
def runs_a_program(): return attempt(os.execv, "/nonexistent-program", ["x"])
def opens_a_socket(): return attempt(socket.socket)
def signals_its_parent(): return attempt(os.kill, os.getppid(), 0)
def traces_its_parent(): return attempt(system_call, {"x86_64": 101, "aarch64": 117}[os.uname().machine], 16, os.getppid(), 0, 0)
def right(x): return 2 * x
def wrong(x): return x
"""  # noqa: E501
TIMEOUT_S = 30.0
REFUSED = (
    "reads_passwd",
    "reads_the_environment_of_its_parent",
    "reads_the_environment_of_the_trainer",
    "writes_a_file",
    "forks",
    "runs_a_program",
    "opens_a_socket",
    "signals_its_parent",
    "traces_its_parent",
)


def probe(run: Callable[[Asserts], Outcome]) -> dict[str, str]:
    """The result of each probe: `ok`, or the failure."""
    pids = {name: os.getpid() if "trainer" in name else "" for name in REFUSED}
    tests = {name: f"assert (was := {name}({pid})) == 'refused', was" for name, pid in pids.items()}
    together = run(Asserts(PROBES, list(tests.values()), timeout_s=TIMEOUT_S)).passed
    results = {
        name: "ok"
        if passed
        else _result(run, test, "pass")  # those that missed, again and alone, for the reason
        for (name, test), passed in zip(tests.items(), together, strict=True)
    }
    results["a right program passes"] = _result(run, "assert right(2) == 4", "pass")
    results["a wrong program fails"] = _result(run, "assert wrong(2) == 4", "fail")
    return results


def misses(run: Callable[[Asserts], Outcome]) -> list[str]:
    """The probes that went wrong, in words."""
    try:
        return [f"{name}: {result}" for name, result in probe(run).items() if result != "ok"]
    except ZygoteDied as error:
        return [str(error)]


def _result(run: Callable[[Asserts], Outcome], test: str, expected: str) -> str:
    outcome = run(Asserts(PROBES, [test], timeout_s=TIMEOUT_S))
    return "ok" if outcome.status == expected else f"{outcome.status}: {outcome.reason}"
