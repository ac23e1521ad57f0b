"""Read programming tasks from MBPP, HumanEval or a file, and check them in the sandbox.

A task is kept only if its reference solution passes all its tests in half the time limit, and no
trivial solution passes all the tests that the reward sees (for an evaluation task: all tests). A
failure of the sandbox does not drop a task: it stops the preparation.

Not covered: tests that a wrong but less trivial program passes, a reference that is wrong in the
same way as its tests, and a prompt that does not say what the tests want.
"""

import ast
import builtins
import contextlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from recipes.code.one_liners import one_liner_tasks
from recipes.code.tasks import COMPLETE_STUB, Task, complete_row, read_tasks
from rewards.code_tests import TIMEOUT_S, called_names, job_of, parse_cases
from rewards.rows import read_jsonl, with_keys
from rewards.sandbox import Asserts, Outcome, Sandbox, SandboxError, Stdio
from rewards.sandbox.checker import NEVER_CALLED

Run = Callable[[Sequence[Asserts | Stdio]], list[Outcome]]
Dropped = dict[str, str]  # the task's name and the reason
Trial = tuple[Task, str, list[str]]  # a program for a task, and the tests that it is run against

MBPP_SPLITS = {"train": range(601, 975), "test": range(11, 511)}
MBPP_KEYS = {"task_id": (int,), "text": (str,), "code": (str,), "test_list": (list,)}
HUMANEVAL_KEYS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
DROPPED_FILE = "dropped.jsonl"
REFERENCE_SHARE = 0.5  # share of TIMEOUT_S: a right program passes in training on a busy machine


def prepare(
    data: str,
    out: Path,
    path: Path | None = None,
    hide: int | None = None,
    held_out: int = 0,
    packages: Sequence[str] = (),
    task_ids: Path | None = None,
) -> int:
    """Load the tasks, check them in the sandbox, write the kept ones; return how many are kept.

    The parameters are the options of scripts/prepare_code.py.

    Raises:
        ValueError, OSError: the input cannot be used, or the folder cannot be written.
        SandboxError: the sandbox fails, or no isolation holds on this machine.
    """
    files = ("train.jsonl", "test.jsonl", DROPPED_FILE)
    if taken := [name for name in files if (out / name).exists()]:
        raise ValueError(
            f"{out} already holds {', '.join(taken)}. Remove them or give another --out."
        )
    splits = load_tasks(data, path, held_out, task_ids)
    evaluated = {task["name"] for task in splits["test"]}
    out.mkdir(parents=True, exist_ok=True)  # a failure shows now, not after minutes of checks
    print(f"{len(splits['train'])} + {len(evaluated)} tasks read", flush=True)
    tasks, dropped = hide_tests([*splits["train"], *splits["test"]], hide)
    with Sandbox(packages=packages) as sandbox:
        print(f"isolation in force: {sandbox.describe()}", flush=True)
        print("[1/2] running each reference against its own tests", flush=True)
        tasks, failed = check_references(tasks, sandbox.run_batch)
        print("[2/2] running the trivial solutions against each task", flush=True)
        # Training tasks by what the reward sees, test tasks by all tests.
        tasks, trivial = drop_trivial(tasks, sandbox.run_batch, evaluated)
    dropped |= failed | trivial
    rows = {
        "train.jsonl": [task for task in tasks if task["name"] not in evaluated],
        "test.jsonl": [task for task in tasks if task["name"] in evaluated],
        DROPPED_FILE: [{"task": name, "reason": why} for name, why in dropped.items()],
    }
    for name, kept in rows.items():
        if kept or name == DROPPED_FILE:
            text = "".join(json.dumps(row) + "\n" for row in kept)
            (out / name).write_text(text, encoding="utf-8")
        print(f"{len(kept):6} in {name}")
    hidden = sum(bool(task["hidden_tests"]) for task in tasks)
    print(f"{hidden:6} have tests that the reward does not see\nwrote {out}")
    return len(tasks)


# --- Data sets


def load_tasks(
    data: str, path: Path | None, held_out: int = 0, task_ids: Path | None = None
) -> dict[str, list[Task]]:
    """Load the tasks of each split of `mbpp`, `humaneval`, `one_liners` or `jsonl`.

    For `jsonl` about one task in `held_out` goes to the test split, chosen by its prompt; 0: none.
    With `task_ids`, the tasks of MBPP or HumanEval that this file names are the test split, and no
    other task is loaded.
    """
    # Here, since these imports load torch.
    from recipes.common.data.overlap import question_digest
    from recipes.common.data.split import is_held_out

    splits: dict[str, list[Task]] = {"train": [], "test": [], "neither": []}
    if data == "jsonl":
        for task in read_tasks(path, "train"):
            is_test = held_out and is_held_out(question_digest(task["prompt"]), held_out)
            splits["test" if is_test else "train"].append(task)
    elif data == "one_liners":
        splits = one_liner_tasks(600, 128, seed=0, held_out=lambda s: is_held_out(s, one_in=8))
    elif data == "humaneval":
        rows = read_rows(path, dict.fromkeys(HUMANEVAL_KEYS, (str,)), "openai/openai_humaneval")
        splits["test"] = [humaneval_task(row) for row in rows]
    else:
        file = path / "mbpp.jsonl" if path and path.is_dir() else path
        split_of = {number: split for split, ids in MBPP_SPLITS.items() for number in ids}
        for row in read_rows(file, MBPP_KEYS, "google-research-datasets/mbpp", "full"):
            splits[split_of.get(row["task_id"], "neither")].append(mbpp_task(row))
    if task_ids:
        splits = {"train": [], "test": select_tasks(task_ids, [*chain(*splits.values())])}
    return {split: [complete_row(task) for task in splits[split]] for split in ("train", "test")}


def select_tasks(file: Path, tasks: list[Task]) -> list[Task]:
    """Select the tasks that a file names, one id a line: `2`, `Mbpp/2` or `HumanEval/2`.

    ValueError if no task has one of the ids.
    """
    ids = [line.rpartition("/")[2] for line in file.read_text().split()]
    by_id = {task["name"].rpartition("/")[2]: task for task in tasks}
    if missing := sorted(set(ids) - by_id.keys()):
        raise ValueError(
            f"{file} names {', '.join(missing)}, which the data set does not have: give one id of "
            "a task a line, such as 2 or Mbpp/2."
        )
    return [by_id[number] for number in dict.fromkeys(ids)]


def read_rows(file: Path | None, keys: dict[str, tuple[type, ...]], *hub: str) -> list[dict]:
    """Read rows that have `keys` (name -> types) from a file, else from a data set on the Hub."""
    check_row = with_keys(keys)
    if file:
        return read_jsonl(file, check_row)
    from datasets import load_dataset

    return [check_row(row) for split in load_dataset(*hub).values() for row in split]


def mbpp_task(row: dict[str, Any]) -> Task:
    """Convert a row of MBPP to a task; the prompt shows the setup and the first test.

    Example: the prompt of task 603 ends in
    "Your code should pass this test:\\nassert get_ludic(10) == [1, 2, 3, 5, 7]"

    The reward does not see `hidden_tests`: MBPP's harder ones. Some rows have Windows line ends.
    """
    setup = row.get("test_setup_code", "").replace("\r\n", "\n")
    example = f"{setup.strip()}\n{row['test_list'][0]}".strip()
    prompt = f"{row['text'].strip()}\nYour code should pass this test:\n{example}"
    return {
        "name": f"mbpp/{row['task_id']}",
        "prompt": prompt.replace("\r\n", "\n"),
        "tests": in_order(row["test_list"]),
        "hidden_tests": row.get("challenge_test_list", []),
        "setup": setup,
        "solution": row["code"].replace("\r\n", "\n"),
    }


def in_order(tests: list[str]) -> list[str]:
    """Each test once, and in second place the first that expects another value than the first one.

    So the visible ones are seldom all passed by a program that returns one value.

    Example: `in_order(["assert f(1) == 1", "assert f(2) == 1", "assert f(3) == 2"])[1]` ends in 2.
    """
    tests = list(dict.fromkeys(tests))
    expected = [expected_constant(test) for test in tests]
    other = next((i for i, value in enumerate(expected) if value != expected[0]), None)
    if other is None:
        return tests
    return [tests[0], tests[other], *tests[1:other], *tests[other + 1 :]]


def humaneval_task(row: dict[str, Any]) -> Task:
    """Convert a row of HumanEval to a task: its `check` function becomes one test.

    The code of the prompt before the stub (the function to complete) becomes the preamble, which
    runs before the program. If the test calls a helper function of the prompt, the preamble is also
    the setup, which runs with the test, so that the test never uses the program's helper.
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
        "prompt": COMPLETE_STUB + row["prompt"].strip(),
        "tests": [f"{row['test'].strip()}\n\ncheck({row['entry_point']})"],
        "setup": preamble if helpers & used else "",
        "preamble": preamble,
        "entry_point": row["entry_point"],
        "solution": "".join(lines[stub.lineno - 1 :]) + row["canonical_solution"],
    }


# --- Checks


def hide_tests(tasks: Sequence[Task], hide: int | None) -> tuple[list[Task], Dropped]:
    """Hide the last `hide` tests of each task from the reward; the metric uses them.

    If `hide` is None, a third is hidden of each task that has two or more tests and none hidden. A
    task is dropped if no visible test would be left.
    """
    kept, dropped = [], {}
    for task in tasks:
        tests, hidden = task["tests"], task["hidden_tests"]
        by_default = 0 if hidden or len(tests) < 2 else max(1, len(tests) // 3)
        visible = len(tests) - (by_default if hide is None else hide)
        if visible < 1:
            dropped[task["name"]] = f"too few tests to hide {hide}"
            continue
        kept.append(task | {"tests": tests[:visible], "hidden_tests": tests[visible:] + hidden})
    return kept, dropped


def check_references(
    tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S * REFERENCE_SHARE
) -> tuple[list[Task], Dropped]:
    """Keep tasks whose reference solution passes all tests in time (`run`: in the sandbox), or that
    have none; return them and the dropped ones (name -> reason).
    """
    trials = [
        (task, task["solution"], task["tests"] + task["hidden_tests"])
        for task in tasks
        if task["solution"]
    ]
    dropped = {
        name: f"the reference fails: {outcome.reason}"
        for name, outcome in run_programs(trials, run, timeout_s)
        if outcome.status != "pass"
    }
    return [task for task in tasks if task["name"] not in dropped], dropped


def drop_trivial(
    tasks: Sequence[Task], run: Run, evaluated: Collection[str] = ()
) -> tuple[list[Task], Dropped]:
    """Keep the tasks whose tests all call the program and that no trivial solution passes.

    Trivial solutions run against the visible tests; for tasks named in `evaluated`, against all.
    """
    kinds: list[str] = []
    trials: list[Trial] = []
    for task in tasks:
        hidden = task["hidden_tests"] if task["name"] in evaluated else []
        for kind, program in trivial_solutions(task).items():
            kinds.append(kind)
            trials.append((task, program, task["tests"] + hidden))
    dropped: Dropped = {}
    for kind, (name, outcome) in zip(kinds, run_programs(trials, run, TIMEOUT_S), strict=True):
        if outcome.status == "pass":
            dropped.setdefault(name, f"a trivial solution passes: {kind}")
        elif kind == NOTHING and outcome.reason == NEVER_CALLED:  # a test ignores the program
            dropped.setdefault(name, outcome.reason)
    return [task for task in tasks if task["name"] not in dropped], dropped


def run_programs(trials: Sequence[Trial], run: Run, timeout_s: float) -> list[tuple[str, Outcome]]:
    """Return (task name, outcome) for each program; SandboxError if the sandbox itself fails."""
    outcomes = run([job_of(program, task, tests, timeout_s) for task, program, tests in trials])
    results = list(zip([task["name"] for task, _, _ in trials], outcomes, strict=True))
    for name, outcome in results:
        if outcome.status == "infra":
            raise SandboxError(
                f"the sandbox failed twice on {name}, not the task: {outcome.reason}"
            )
    return results


PRINTED = ("", "0", "1", "-1", "YES", "NO", "Yes", "No", "True", "False")
RETURNED = ("None", "True", "0", "''", "[]", "float('inf')", "float('nan')")
NOTHING = "define nothing"
FUNCTION = "def {}(*arguments, **keywords):\n    given = [*arguments, *keywords.values()]\n    {}"


def trivial_solutions(task: Task) -> dict[str, str]:
    """Make programs that solve nothing: description -> code, such as a function that returns None.

    If the task has several tests, one of the programs answers the first test by heart.
    """
    cases = parse_cases(task["tests"])  # pairs (stdin, stdout); None for assert statements
    if cases is not None:
        programs = {f"print {text!r}": f"print({text!r})" for text in PRINTED}
        if len(cases) > 1:
            programs["print what the first test expects"] = f"print({cases[0][1]!r})"
        return programs | {"print the input": "import sys\nprint(sys.stdin.read())"}
    # description -> body of a function whose arguments are the list `given`
    bodies = {f"return {value}": f"return {value}" for value in RETURNED}
    bodies["return the argument"] = "return given[0]"
    bodies["clear the argument and return it"] = "given[0].clear(); return given[0]"
    for word in ("ValueError", *re.findall(r"[A-Z]\w+", "\n".join(task["tests"]))):
        kind = getattr(builtins, word, None)  # built-in exceptions whose names the tests mention
        if isinstance(kind, type) and issubclass(kind, Exception):
            bodies[f"raise {word}"] = f"raise {word}"
    if len(task["tests"]) > 1 and (value := expected_constant(task["tests"][0])):
        bodies["return what the first test expects"] = f"return {value}"
    programs, names = {NOTHING: ""}, called_names(task, task["tests"])
    for kind, body in bodies.items():  # each function that the tests call gets this body
        programs[kind] = "\n".join(FUNCTION.format(name, body) for name in names)
    return programs


def expected_constant(test: str) -> str:
    """The source of the constant in `assert ... == constant`; empty for any other test."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(ops=[*_, ast.Eq() | ast.Is()], comparators=[*_, value]))]:
            with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError):
                ast.literal_eval(value)
                return ast.unparse(value)
    return ""
