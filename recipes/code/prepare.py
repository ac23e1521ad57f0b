"""Programming tasks that a run can trust: read from MBPP, HumanEval or a file, and checked in the
sandbox.

Promises: a task is kept only if its own reference passes all its tests, in half the time that a
program has, and none of the trivial solutions passes all the tests that the reward sees (of a task
for evaluation: all). A failure of the sandbox drops no task: it stops the preparation.

Not covered: tests that a wrong but less trivial program passes, a reference that is wrong in the
same way as its tests, and a prompt that does not say what the tests want.
"""

import ast
import builtins
import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from recipes.code.one_liners import one_liner_tasks
from recipes.code.tasks import Task, complete_row, read_tasks
from rewards.code_tests import called_names, job_of, parse_cases
from rewards.jsonl import read_jsonl, with_keys
from rewards.sandbox import Asserts, Outcome, Sandbox, SandboxError, Stdio
from rewards.sandbox.checker import NEVER_CALLED

Run = Callable[[Sequence[Asserts | Stdio]], list[Outcome]]
Dropped = dict[str, str]  # the task's name and the reason
Trial = tuple[Task, str, list[str]]  # a program for a task, and the tests that it is run against

MBPP_SPLITS = {"train": range(601, 975), "test": range(11, 511)}
DROPPED_FILE = "dropped.jsonl"
TIMEOUT_S = 5.0  # the reward's
REFERENCE_SHARE = 0.5  # of it, so that a busy machine does not fail a right program in training


def prepare(
    data: str,
    out: Path,
    path: Path | None = None,
    *,
    hide: int | None = None,
    timeout_s: float = TIMEOUT_S,
    isolation: str | None = None,
    packages: Sequence[str] = (),
    **source,
) -> int:
    """Load the tasks, run them in the sandbox, write those that are kept; the exit status.

    0: tasks were kept; 1: none was, or no isolation works here; 2: the input cannot be used.
    """
    started = time.monotonic()
    try:
        files = ("train.jsonl", "test.jsonl", DROPPED_FILE)
        if taken := [name for name in files if (out / name).exists()]:
            there = f"{out} already holds {', '.join(taken)}"
            raise ValueError(f"{there}. Remove them or give another --out.")
        splits = load_tasks(data, path, hide, **source)
        split_of = {task["name"]: split for split, tasks in splits.items() for task in tasks}
        tasks = [task for of_split in splits.values() for task in of_split]
        if len(tasks) > len(split_of):
            counts = Counter(task["name"] for task in tasks).most_common(10)
            twice = ", ".join(name for name, count in counts if count > 1)
            raise ValueError(f"each task must be there once; more than once: {twice}.")
        out.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
        print(f"{len(tasks)} tasks read", flush=True)
        tasks, few = hide_tests(tasks, hide)
        with Sandbox(isolation=isolation, packages=packages) as sandbox:
            print(f"isolation in force: {sandbox.describe()}", flush=True)
            print("[1/2] running each reference against its own tests", flush=True)
            tasks, failed = check_references(tasks, sandbox.run_batch, timeout_s)
            print("[2/2] running the trivial solutions against each task", flush=True)
            # A reward sees the visible tests; the metric of an evaluation rests on all.
            evaluated = {name for name, split in split_of.items() if split == "test"}
            tasks, trivial = drop_trivial(tasks, sandbox.run_batch, timeout_s, evaluated)
    except (SandboxError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, SandboxError) else 2
    written = {f"{split}.jsonl": [] for split in splits}
    for task in tasks:
        written[f"{split_of[task['name']]}.jsonl"].append(task)
    dropped = few | failed | trivial
    print(f"kept: {', '.join(f'{len(rows)} in {name}' for name, rows in written.items())}")
    print(f"with tests that the reward does not see: {sum(bool(t['hidden_tests']) for t in tasks)}")
    print(f"dropped: {len(dropped)}")
    # References fail in too many ways to list them: dropped.jsonl has each.
    short = [re.sub("(?s)^(the reference fails).*", r"\1", why) for why in dropped.values()]
    for why, count in Counter(short).most_common():
        print(f"  {count:4}  {why}")
    written = {name: rows for name, rows in written.items() if rows}
    written[DROPPED_FILE] = [{"task": name, "reason": why} for name, why in dropped.items()]
    for name, rows in written.items():
        partial = out / f"{name}.partial"  # renamed at the end: a file that exists is whole
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        partial.rename(out / name)
    files = ", ".join(str(out / name) for name in written)
    print(f"wrote {files} in {time.monotonic() - started:.0f} s")
    return 0 if tasks else 1


# --------------------------------------------------------------------------- data sets


def load_tasks(
    data: str,
    path: Path | None,
    hide: int | None = None,
    sanitized: bool = False,
    held_out: Callable[[str], bool] = lambda prompt: False,
    **drawn: int,
) -> dict[str, list[Task]]:
    """The complete tasks of each split of `mbpp`, `humaneval`, `one_liners` or `jsonl`.

    Args:
        held_out: which prompts of `jsonl`, or expressions of `one_liners`, are for evaluation
            alone.
        drawn: `train`, `test` and `seed` of `one_liner_tasks`.
    """
    if data == "jsonl":
        if not path.is_file():
            raise ValueError(f"there is no file {path}: --path is a JSON Lines file of your rows.")
        splits: dict[str, list[Task]] = {"train": [], "test": []}
        for task in read_tasks(path, "train"):
            splits["test" if held_out(task["prompt"]) else "train"].append(task)
        return splits
    if data == "one_liners":
        splits = one_liner_tasks(held_out=held_out, **drawn)
    elif data == "humaneval":
        keys = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
        accept = with_keys(dict.fromkeys(keys, (str,)))
        rows = read_rows(path, accept, "openai/openai_humaneval")
        splits = {"test": [humaneval_task(row) for row in rows]}
    else:
        if path and path.is_dir():
            path = path / ("sanitized-mbpp.json" if sanitized else "mbpp.jsonl")
        question = "prompt" if sanitized else "text"
        keys = {"task_id": (int,), "code": (str,), "test_list": (list,), question: (str,)}
        subset = "sanitized" if sanitized else "full"
        rows = read_rows(path, with_keys(keys), "google-research-datasets/mbpp", subset)
        splits = {
            split: [mbpp_task(row) for row in rows if row["task_id"] in ids]
            for split, ids in MBPP_SPLITS.items()
        }
    return {split: [complete_row(task) for task in tasks] for split, tasks in splits.items()}


def mbpp_task(row: dict) -> Task:
    """A row of MBPP, full or sanitized, as a task; its prompt shows the first test.

    Example: the prompt of task 603 ends in
    "Your code should pass this test:\\nassert get_ludic(10) == [1, 2, 3, 5, 7]"
    """
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports", []))
    question = (row["prompt"] if "prompt" in row else row["text"]).strip()
    # Some tests use what the setup makes.
    example = f"{setup.strip()}\n{row['test_list'][0]}".strip()
    prompt = f"{question}\nYour code should pass this test:\n{example}"
    return {
        "name": f"mbpp/{row['task_id']}",
        "prompt": prompt.replace("\r\n", "\n"),
        "tests": row["test_list"],
        "hidden_tests": row.get("challenge_test_list", []),
        "setup": setup.replace("\r\n", "\n"),
        "solution": row["code"].replace("\r\n", "\n"),
    }


def humaneval_task(row: dict) -> Task:
    """A row of HumanEval as a task: what its prompt defines before the stub is the preamble, its
    check is one test.

    Where the test calls a helper of the prompt, the preamble is the setup too: the test uses the
    data set's helper, never the program's.
    """
    parsed = ast.parse(row["prompt"]).body
    stub = next(node for node in parsed if getattr(node, "name", "") == row["entry_point"])
    lines = row["prompt"].splitlines(keepends=True)
    preamble = "".join(lines[: stub.lineno - 1]).strip()
    defined = {node.name for node in parsed if isinstance(node, ast.FunctionDef)}
    helpers = defined - {row["entry_point"]}
    used = {node.id for node in ast.walk(ast.parse(row["test"])) if isinstance(node, ast.Name)}
    return {
        "name": row["task_id"].replace("HumanEval", "humaneval"),
        "prompt": f"Complete this Python function:\n\n{row['prompt'].strip()}",
        "tests": [f"{row['test'].strip()}\n\ncheck({row['entry_point']})"],
        "setup": preamble if helpers & used else "",
        "preamble": preamble,
        "entry_point": row["entry_point"],
        "solution": "".join(lines[stub.lineno - 1 :]) + row["canonical_solution"],
    }


def read_rows(file: Path | None, accept: Callable[[Any], dict], *hub: str) -> list[dict]:
    """The rows of a file, or without one of all splits on the Hub, as `accept` takes them."""
    if file:
        return read_jsonl(file, accept)
    from datasets import load_dataset

    try:
        return [accept(row) for split in load_dataset(*hub).values() for row in split]
    except (ValueError, OSError) as error:
        remedy = "Give a file of it as --path; --help says which."
        raise ValueError(f"{hub[0]} cannot be read from the Hub: {error}. {remedy}") from error


# --------------------------------------------------------------------------- checks


def hide_tests(tasks: Sequence[Task], hide: int | None) -> tuple[list[Task], Dropped]:
    """Hide the last `hide` tests of each task: the reward does not see them, the metric rests on
    them. By default a third is hidden, where none is hidden yet and one can be.

    A task that has too few to hide `hide` is dropped.
    """
    kept, dropped = [], {}
    for task in tasks:
        tests, hidden = task["tests"], task["hidden_tests"]
        count = 0 if hidden or len(tests) < 2 else max(1, len(tests) // 3)
        visible = len(tests) - (count if hide is None else hide)
        if visible < 1:
            dropped[task["name"]] = f"too few tests to hide {hide}"
            continue
        kept.append(task | {"tests": tests[:visible], "hidden_tests": tests[visible:] + hidden})
    return kept, dropped


def check_references(
    tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S
) -> tuple[list[Task], Dropped]:
    """Keep the tasks whose reference passes all tests; one that passes only so gets `inplace`.

    A task without reference is kept as it is.
    """
    kept, dropped = {task["name"]: task for task in tasks}, {}
    left = [task for task in tasks if task["solution"]]
    while left:
        trials = [(task, task["solution"], task["tests"] + task["hidden_tests"]) for task in left]
        again = []
        for task, outcome in run_codes(trials, run, timeout_s * REFERENCE_SHARE):
            name, why = task["name"], outcome.reason
            if outcome.status == "pass":
                kept[name] = task
                dropped.pop(name, None)
                continue
            dropped[name] = f"the reference fails: {why}"
            # Of a slow one no rule makes a faster one.
            has_rules = parse_cases(task["tests"]) is None and not task["inplace"]
            if has_rules and "timeout" not in why:
                again.append(task | {"inplace": True})
        left = again
    return [task for name, task in kept.items() if name not in dropped], dropped


def drop_trivial(
    tasks: Sequence[Task],
    run: Run,
    timeout_s: float = TIMEOUT_S,
    evaluated: Collection[str] = (),
) -> tuple[list[Task], Dropped]:
    """Keep the tasks whose tests all call the program and no trivial solution passes.

    The tests are those that the reward sees; of the tasks named in `evaluated` all.
    """
    solutions = {task["name"]: trivial_solutions(task) for task in tasks}
    seen = {t["name"]: t["tests"] + t["hidden_tests"] * (t["name"] in evaluated) for t in tasks}
    dropped: Dropped = {}
    for kind in dict.fromkeys(kind for of_task in solutions.values() for kind in of_task):
        tried = [t for t in tasks if kind in solutions[t["name"]] and t["name"] not in dropped]
        trials = [(t, solutions[t["name"]][kind], seen[t["name"]]) for t in tried]
        for task, outcome in run_codes(trials, run, timeout_s):
            if outcome.status == "pass":
                dropped[task["name"]] = f"a trivial solution passes: {kind}"
            elif kind == NOTHING and outcome.reason == NEVER_CALLED:
                dropped[task["name"]] = outcome.reason
    return [task for task in tasks if task["name"] not in dropped], dropped


def run_codes(trials: Sequence[Trial], run: Run, timeout_s: float) -> list[tuple[Task, Outcome]]:
    """Each task with the outcome of its code; `SandboxError` where the sandbox fails."""
    jobs = [job_of(code, task, tests, timeout_s) for task, code, tests in trials]
    outcomes = run(jobs) if jobs else []
    found = [(task, outcome) for (task, _, _), outcome in zip(trials, outcomes, strict=True)]
    for task, outcome in found:
        if outcome.status == "infra":
            failed = f"the sandbox failed twice on {task['name']}, not the task"
            raise SandboxError(f"{failed}: {outcome.reason}")
    return found


PRINTED = ("", "0", "1", "-1", "YES", "NO", "Yes", "No", "True", "False")
RETURNED = ("None", "True", "0", "''", "[]", "float('inf')", "float('nan')")
NOTHING = "define nothing"
BODIES = {f"return {value}": f"return {value}" for value in RETURNED} | {
    "return the argument": "return given[0]",
    "clear the argument and return it": "given[0].clear(); return given[0]",
}
FUNCTION = "def {}(*arguments, **keywords):\n    given = [*arguments, *keywords.values()]\n    {}"


def trivial_solutions(task: Task) -> dict[str, str]:
    """Programs that solve nothing, by what they do; one knows the first of several tests."""
    cases = parse_cases(task["tests"])
    if cases is not None:
        printed = {f"print {text!r}": f"print({text!r})" for text in PRINTED}
        if len(cases) > 1:
            printed["print what the first test expects"] = f"print({cases[0][1]!r})"
        return printed | {"print the input": "import sys\nprint(sys.stdin.read())"}
    bodies = dict(BODIES)
    for word in ("ValueError", *re.findall(r"[A-Z]\w+", "\n".join(task["tests"]))):
        kind = getattr(builtins, word, None)  # of the built-in exceptions those that tests mention
        if isinstance(kind, type) and issubclass(kind, Exception):
            bodies[f"raise {word}"] = f"raise {word}"
    if len(task["tests"]) > 1 and (value := _expected(task["tests"][0])):
        bodies["return what the first test expects"] = f"return {value}"
    names = called_names(task, task["tests"])
    programs = {NOTHING: ""}
    for kind, body in bodies.items():
        programs[kind] = "\n".join(FUNCTION.format(name, body) for name in names)
    return programs


def _expected(test: str) -> str:
    """The source of the constant at the end of `assert ... == constant`; empty for another test."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(ops=[*_, ast.Eq() | ast.Is()], comparators=[*_, value]))]:
            with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError):
                ast.literal_eval(value)
                return ast.unparse(value)
    return ""
