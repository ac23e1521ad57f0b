"""Programming tasks that a run can trust: read from MBPP, HumanEval or a file, and kept by what the sandbox shows.

Promises: a task is kept only if its own reference passes all its tests, under the strictest rules possible and in half
the time that a program has, and none of the trivial solutions passes all the visible tests. A failure of the sandbox
drops no task: it stops the preparation.

Not covered: tests that a wrong but less trivial program passes, a reference that is wrong in the same way as its tests,
and a prompt that does not say what the tests want.
"""

import ast
import builtins
import contextlib
import gzip
import json
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from recipes.code.one_liners import one_liner_tasks
from recipes.code.tasks import Task, called_names, complete_row, read_tasks
from rewards.code_tests import job_of, parse_cases, program_of
from rewards.sandbox import Asserts, Outcome, Sandbox, SandboxError, Stdio
from rewards.sandbox.checker import NEVER_CALLED

Run = Callable[[Sequence[Asserts | Stdio]], list[Outcome]]
Dropped = list[dict[str, str]]  # the task's name and the reason

MBPP_SPLITS = {"train": range(601, 975), "test": range(11, 511)}
FILES = ("train.jsonl", "test.jsonl", "dropped.jsonl")
TIMEOUT_S = 5.0  # the reward's
REFERENCE_SHARE = 0.5  # of it, so that a busy machine does not fail a right program in training


def prepare(data: str, out: Path, path: Path | None = None, *, hide: int = 0, timeout_s: float = TIMEOUT_S,
            isolation: str | None = None, packages: Sequence[str] = (), **source) -> int:  # fmt: skip
    """Load the tasks, run them in the sandbox, write those that are kept, and return the exit status.

    0: tasks were kept; 1: none was, or no isolation works here; 2: the input cannot be used.
    """
    started = time.monotonic()
    try:
        if taken := [name for name in FILES if (out / name).exists()]:
            raise ValueError(
                f"{out} already holds {', '.join(taken)}. Remove them or give another --out."
            )
        splits = load_tasks(data, path, hide=hide, **source)
        tasks = [task for of in splits.values() for task in of]
        if twice := [
            name for name, count in Counter(task["name"] for task in tasks).items() if count > 1
        ]:
            raise ValueError(
                f"each task must be there once; more than once: {', '.join(twice[:10])}."
            )
        out.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
        print(f"{len(tasks)} tasks read", flush=True)
        tasks, dropped = hide_tests(tasks, hide)
        with Sandbox(isolation=isolation, packages=packages) as sandbox:
            print(f"isolation in force: {sandbox.describe()}", flush=True)
            print("[1/2] running each reference against its own tests", flush=True)
            tasks, failed = least_flags(tasks, sandbox.run_batch, timeout_s)
            print("[2/2] running the trivial solutions against each task", flush=True)
            tasks, trivial = drop_trivial(tasks, sandbox.run_batch, timeout_s)
    except (SandboxError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, SandboxError) else 2
    kept = {task["name"]: task for task in tasks}
    splits = {
        split: [kept[task["name"]] for task in of if task["name"] in kept]
        for split, of in splits.items()
    }
    dropped += failed + trivial
    print(summary(splits, dropped))
    files = {out / f"{split}.jsonl": of for split, of in splits.items() if of} | {
        out / FILES[2]: dropped
    }
    for file, rows in files.items():
        partial = file.with_suffix(".partial")  # renamed at the end: a file that exists is whole
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        partial.rename(file)
    print(f"wrote {', '.join(map(str, files))} in {time.monotonic() - started:.0f} s")
    return 0 if kept else 1


def summary(splits: dict[str, list[Task]], dropped: Dropped) -> str:
    """Lines for people: the tasks kept, under which rules, and the tasks dropped, with the reason."""
    tasks = [task for of in splits.values() for task in of]
    inplace = sum(task["inplace"] for task in tasks)
    # References fail in too many ways to list them: dropped.jsonl has each.
    reasons = Counter(
        re.sub("^(the reference fails).*", r"\1", entry["reason"], flags=re.DOTALL)
        for entry in dropped
    )
    lines = [
        f"kept: {len(splits.get('train', []))} for training, {len(splits.get('test', []))} for evaluation",
        f"rules the tests run under: {len(tasks) - inplace} strict, {inplace} inplace",
        f"without a reference, checked with the trivial solutions only: {sum(not t['solution'] for t in tasks)}",
        f"dropped: {len(dropped)}",
    ]
    return "\n".join(lines + [f"  {count:4}  {reason}" for reason, count in reasons.most_common()])


def load_tasks(data: str, path: Path | None, *, hide: int = 0, sanitized: bool = False, show_tests: int = 1,
               held_out: Callable[[str], bool] = lambda prompt: False,
               train: int = 0, test: int = 0, seed: int = 0) -> dict[str, list[Task]]:  # fmt: skip
    """The complete tasks of each split of `mbpp`, `humaneval`, `one_liners` or `jsonl` (held out by their prompt)."""
    if data == "jsonl":
        tasks = read_tasks(path, "train")
        return {
            split: [t for t in tasks if held_out(t["prompt"]) == (split == "test")]
            for split in ("train", "test")
        }
    if data == "one_liners":
        drawn = one_liner_tasks(train, test, seed, held_out)
        return {split: [complete_row(task) for task in tasks] for split, tasks in drawn.items()}
    if data == "humaneval":
        keys = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
        rows = _rows_of(path, keys, "openai/openai_humaneval")
        return {"test": [complete_row(humaneval_task(row)) for row in rows]}
    file = (
        path / ("sanitized-mbpp.json" if sanitized else "mbpp.jsonl")
        if path and path.is_dir()
        else path
    )
    keys = ("task_id", "code", "test_list", "prompt" if sanitized else "text")
    rows = _rows_of(
        file, keys, "google-research-datasets/mbpp", "sanitized" if sanitized else "full"
    )
    return {
        split: [
            complete_row(mbpp_task(row, show_tests, hide)) for row in rows if row["task_id"] in ids
        ]
        for split, ids in MBPP_SPLITS.items()
    }


def mbpp_task(row: dict, show_tests: int, hide: int) -> Task:
    """A row of MBPP, full or sanitized, as a task; its prompt shows `show_tests` of the tests that stay visible.

    Example: the prompt of task 603 ends in "Your code should pass this test:\\nassert get_ludic(10) == [1, 2, 3, 5, 7]"
    """
    setup = (row.get("test_setup_code") or "\n".join(row.get("test_imports", []))).replace(
        "\r\n", "\n"
    )
    shown = row["test_list"][: max(1, min(show_tests, len(row["test_list"]) - hide))]
    example = "\n".join(
        [setup.strip(), *shown]
    ).strip()  # some tests use objects that the setup makes
    question = (row["prompt"] if "prompt" in row else row["text"]).strip()
    prompt = f"{question}\nYour code should pass {'this test' if len(shown) == 1 else 'these tests'}:\n{example}"
    return {
        "name": f"mbpp/{row['task_id']}",
        "prompt": prompt.replace("\r\n", "\n"),
        "tests": row["test_list"],
        "hidden_tests": row.get("challenge_test_list", []),
        "setup": setup,
        "solution": row["code"].replace("\r\n", "\n"),
    }


def humaneval_task(row: dict) -> Task:
    """A row of HumanEval as a task: what its prompt defines before the stub is the preamble, its check is one test.

    Where the test calls a helper of the prompt, the preamble is the setup too: the test uses the data set's helper,
    never the program's.
    """
    parsed = ast.parse(row["prompt"]).body
    stub = next(node for node in parsed if getattr(node, "name", "") == row["entry_point"])
    lines = row["prompt"].splitlines(keepends=True)
    preamble = "".join(lines[: stub.lineno - 1]).strip()
    helpers = {
        node.name for node in parsed if isinstance(node, ast.FunctionDef) and node is not stub
    }
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


def hide_tests(tasks: Sequence[Task], count: int) -> tuple[list[Task], Dropped]:
    """Hide the last `count` visible tests of each task; drop a task that would have no visible test left."""
    few = [
        {"task": t["name"], "reason": f"too few tests to hide {count}"}
        for t in tasks
        if len(t["tests"]) <= count
    ]
    cut = [
        (t, len(t["tests"]) - count, t["tests"], t["hidden_tests"])
        for t in tasks
        if len(t["tests"]) > count
    ]
    return [
        task | {"tests": tests[:at], "hidden_tests": tests[at:] + hidden}
        for task, at, tests, hidden in cut
    ], few


def _rows_of(file: Path | None, keys: Sequence[str], *hub: str) -> list[dict]:
    """Rows with these keys: a JSON list or JSON Lines, gzipped or not; without a file, all splits on the Hub."""
    try:
        if file is None:
            from datasets import load_dataset

            rows = [row for split in load_dataset(*hub).values() for row in split]
        else:
            text = (
                gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            ).decode("utf-8")
            lines = [line for line in text.split("\n") if line.strip()]
            rows = json.loads(text) if file.suffix == ".json" else list(map(json.loads, lines))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        remedy = "Give as --path a JSON list (.json) or JSON Lines (any other name); --help says what it must hold."
        raise ValueError(
            f"{file or f'{hub[0]} on the Hub'} cannot be read: {error}. {remedy}"
        ) from error
    for number, row in enumerate(rows, 1):
        if missing := [key for key in keys if not isinstance(row, dict) or key not in row]:
            raise ValueError(
                f"{file}, row {number} has no {', '.join(missing)}; --help says what the file must be."
            )
    return rows


def run_codes(
    tasks: Sequence[Task],
    codes: Sequence[str],
    tests: Sequence[list[str]],
    run: Run,
    timeout_s: float,
):
    """The outcome of each code on the given tests of its task, under its flags; `SandboxError` where it fails."""
    jobs = [
        job_of(
            program_of(code, t["preamble"]),
            of,
            t["setup"],
            t["entry_point"],
            t["inplace"],
            timeout_s,
        )
        for t, code, of in zip(tasks, codes, tests, strict=True)
    ]
    outcomes = run(jobs) if jobs else []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.status == "infra":
            raise SandboxError(
                f"the sandbox failed twice on {task['name']}, not the task: {outcome.reason}"
            )
    return outcomes


def least_flags(
    tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S
) -> tuple[list[Task], Dropped]:
    """Keep the tasks whose reference passes all tests, each with the least flags that it needs for it.

    A flag that a task has set stays set. A task without reference is kept as it is.
    """
    kept, failed = {task["name"]: task for task in tasks if not task["solution"]}, {}
    for inplace in (False, True):
        left = [t for t in tasks if t["name"] not in kept and inplace >= t["inplace"]]
        if inplace:  # without meaning for stdin and stdout
            left = [task for task in left if parse_cases(task["tests"]) is None]
        tried = [task | {"inplace": inplace} for task in left]
        codes, tests = (
            [t["solution"] for t in tried],
            [t["tests"] + t["hidden_tests"] for t in tried],
        )
        outcomes = run_codes(tried, codes, tests, run, timeout_s * REFERENCE_SHARE)
        for task, outcome in zip(tried, outcomes, strict=True):
            if outcome.status == "pass":
                kept[task["name"]] = task
            failed[task["name"]] = outcome.reason
    dropped = {
        name: f"the reference fails: {reason}"
        for name, reason in failed.items()
        if name not in kept
    }
    names = [task["name"] for task in tasks]
    return [kept[n] for n in names if n in kept], [
        {"task": n, "reason": dropped[n]} for n in names if n in dropped
    ]


def drop_trivial(
    tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S
) -> tuple[list[Task], Dropped]:
    """Keep the tasks whose visible tests all call the program, and which no trivial solution passes."""
    solutions = {task["name"]: trivial_solutions(task) for task in tasks}
    left, dropped = list(tasks), []
    for kind in dict.fromkeys(kind for of_task in solutions.values() for kind in of_task):
        tried = [task for task in left if kind in solutions[task["name"]]]
        codes = [solutions[task["name"]][kind] for task in tried]
        outcomes = run_codes(tried, codes, [task["tests"] for task in tried], run, timeout_s)
        reasons = {}
        for task, outcome in zip(tried, outcomes, strict=True):
            if outcome.status == "pass":
                reasons[task["name"]] = f"a trivial solution passes: {kind}"
            elif kind == NOTHING and outcome.reason == NEVER_CALLED:
                reasons[task["name"]] = outcome.reason
        dropped += [{"task": name, "reason": reason} for name, reason in reasons.items()]
        left = [task for task in left if task["name"] not in reasons]
    return left, dropped


PRINTED = ("", "0", "1", "-1", "YES", "NO", "Yes", "No", "True", "False")
RETURNED = ("None", "True", "0", "''", "[]", "float('inf')", "float('nan')")
NOTHING = "define nothing"
BODIES = {f"return {value}": f"return {value}" for value in RETURNED} | {
    "return the argument": "return given[0]",
    "clear the argument and return it": "given[0].clear(); return given[0]",
}
FUNCTION = "def {}(*arguments, **keywords):\n    given = [*arguments, *keywords.values()]\n    {}"


def trivial_solutions(task: Task) -> dict[str, str]:
    """Programs that solve nothing, by what they do; among them the first test's own answer, if there are more tests."""
    cases = parse_cases(task["tests"])
    if cases is not None:
        printed = {f"print {text!r}": f"print({text!r})" for text in PRINTED}
        if len(cases) > 1:
            printed["print what the first test expects"] = f"print({cases[0][1]!r})"
        return printed | {"print the input": "import sys\nprint(sys.stdin.read())"}
    bodies = dict(BODIES)
    for word in ("ValueError", *re.findall(r"[A-Z]\w+", "\n".join(task["tests"]))):
        kind = getattr(
            builtins, word, None
        )  # of the built-in exceptions those that the tests mention
        if isinstance(kind, type) and issubclass(kind, Exception):
            bodies[f"raise {word}"] = f"raise {word}"
    if len(task["tests"]) > 1 and (value := _expected(task["tests"][0])):
        bodies["return what the first test expects"] = f"return {value}"
    names = called_names(task, task["tests"])
    programs = {
        kind: "\n".join(FUNCTION.format(name, body) for name in names)
        for kind, body in bodies.items()
    }
    return {NOTHING: ""} | programs


def _expected(test: str) -> str:
    """The source of the constant at the end of `assert ... == constant`; empty for another test."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(ops=[*_, ast.Eq() | ast.Is()], comparators=[*_, value]))]:
            with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError):
                ast.literal_eval(value)
                return ast.unparse(value)
    return ""
