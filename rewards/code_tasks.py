"""Tasks whose answer is a program: how a file holds them, and what a task must show before a run may pay for it.

    row = {"name": "twice", "prompt": "Write double(x).", "tests": ["assert double(2) == 4"]}
    task = complete_row(row | {"solution": "def double(x): return 2 * x"})
    with Sandbox() as sandbox:
        kept, dropped = least_flags([task], sandbox.run_batch)      # the reference passes: kept == [task]
        kept, dropped = drop_trivial(kept, sandbox.run_batch)       # no trivial solution does: kept == [task]

Promises: a task is kept only if its own reference passes all its tests, under the strictest rules it can and in half
the time that a program has, and none of the trivial solutions passes all the visible ones. A failure of the sandbox
drops nothing: it stops.

What is not covered: tests that a wrong but less trivial program passes, a reference that is wrong as its tests are,
and a prompt that does not say what the tests want.
"""

import ast
import builtins
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rewards.code_tests import job_of, parse_cases, program_of
from rewards.sandbox import Asserts, Outcome, SandboxError, Stdio
from rewards.sandbox.names import names_of

Task = dict[str, Any]
Run = Callable[[Sequence[Asserts | Stdio]], list[Outcome]]

KEYS = {  # in the order of a file, with what an absent one means; None: it is required
    "name": "",
    "prompt": None,
    "tests": None,
    "hidden_tests": [],
    "setup": "",
    "preamble": "",
    "entry_point": "",
    "inplace": False,
    "objects": False,
    "solution": "",
}
TYPES = {"tests": list, "hidden_tests": list, "inplace": bool, "objects": bool}  # the others: str
PYTHON_ONLY = ("setup", "entry_point", "inplace", "objects")  # say nothing where tests are stdin and stdout
FLAGS = ((False, False), (True, False), (False, True), (True, True))  # inplace, objects: the strictest first
TIMEOUT_S = 5.0  # that of the reward
REFERENCE_SHARE = 0.5  # of it, so that a busy machine does not judge a right program wrong
SHOWN_PROBLEMS = 10

# --------------------------------------------------------------------------- rows


def read_tasks(path: str | Path, split: str) -> list[Task]:
    """The tasks of `<path>/<split>.jsonl`, or of `path` itself where it is a file; every key is there.

    Raises:
        ValueError: no such file, none in it, or what is wrong with which line.
    """
    file = Path(path, f"{split}.jsonl") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"no file {file}. Give a folder that scripts/prepare_code.py wrote, or a JSON Lines file.")
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}") from None
    tasks, problems = {}, []
    for number, line in enumerate(lines, 1):
        try:
            task = complete_row(json.loads(line), f"{file.stem}/{number}") if line.strip() else None
            if task and tasks.setdefault(task["name"], task) is not task:
                raise ValueError(f"a second task is called {task['name']!r}; names must differ.")
        except ValueError as problem:  # JSON errors are such, too
            problems.append(f"{file}, line {number}: {problem}")
    if problems:
        more = [f"... and {len(problems) - SHOWN_PROBLEMS} more"] if len(problems) > SHOWN_PROBLEMS else []
        raise ValueError("\n".join(problems[:SHOWN_PROBLEMS] + more))
    if not tasks:
        raise ValueError(f"{file} holds no task.")
    return list(tasks.values())


def complete_row(row: Any, name: str = "") -> Task:
    """The row with every key, in order; `name` is for one that has none.

    Raises:
        ValueError: a key is missing, unknown or of the wrong type, or the tests cannot be used.

    Example: `complete_row({"prompt": "p", "tests": ["assert f(1) == 2"]}, "mine/1")["name"] == "mine/1"`
    """
    if not isinstance(row, dict):
        raise ValueError(f"a task is a JSON object, not {row!r}"[:200])
    if missing := [key for key, default in KEYS.items() if default is None and key not in row]:
        raise ValueError(f"{' and '.join(missing)} missing; a task needs prompt and tests.")
    if unknown := sorted(row.keys() - KEYS.keys()):
        raise ValueError(f"unknown key {', '.join(unknown)}; allowed: {', '.join(KEYS)}.")
    task = {key: row.get(key, default) for key, default in KEYS.items()} | {"name": row.get("name") or name}
    for key, value in task.items():
        if type(value) is not (wanted := TYPES.get(key, str)):
            raise ValueError(f"{key} must be of type {wanted.__name__}, not {value!r}"[:200])
    _check_tests(task)
    return task


def _check_tests(task: Task) -> None:
    tests = [*task["tests"], *task["hidden_tests"]]
    if not task["prompt"].strip() or not task["tests"]:
        raise ValueError(f"{'tests' if task['prompt'].strip() else 'prompt'} must not be empty.")
    if not all(isinstance(test, str) and test.strip() for test in tests):
        raise ValueError("tests and hidden_tests must be lists of strings, none of them blank.")
    if parse_cases(tests) is None:
        _names(task, tests)
    elif useless := [key for key in PYTHON_ONLY if task[key]]:
        raise ValueError(f"{', '.join(useless)} must not be set: the tests are stdin and stdout.")


def _names(task: Task, tests: Sequence[str]) -> tuple[str, ...]:
    """The functions that the tests ask of the program."""
    try:
        return names_of(tests, task["setup"], task["entry_point"] or None).program
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"tests or setup are no Python: {error}") from None


# --------------------------------------------------------------------------- judging


def judge(
    tasks: Sequence[Task], codes: Sequence[str], tests: Sequence[list[str]], run: Run, timeout_s: float
) -> list[Outcome]:
    """The outcome of each code on those tests of its task, under its flags.

    Raises:
        SandboxError: one could not be judged.
    """
    jobs = []
    for task, code, texts in zip(tasks, codes, tests, strict=True):
        settings = (task["setup"], task["entry_point"], task["inplace"], task["objects"], timeout_s)
        jobs.append(job_of(program_of(code, task["preamble"]), texts, *settings))
    outcomes = run(jobs) if jobs else []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.status == "infra":
            raise SandboxError(
                f"the sandbox failed twice on {task['name']}, which is no fault of the task: {outcome.reason}"
            )
    return outcomes


def least_flags(tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S) -> tuple[list[Task], list[dict]]:
    """Tasks with the least flags under which their reference passes all tests, and those it passes under none.

    A flag that a task has set stays set. A task without reference is kept as it is. All are tried strictly first, in
    one batch, then what failed.
    """
    kept = {task["name"]: task for task in tasks if not task["solution"]}
    failed: dict[str, str] = {}
    for inplace, objects in FLAGS:
        left = [task for task in tasks if task["name"] not in kept and _may_be(task, inplace, objects)]
        tried = [task | {"inplace": inplace, "objects": objects} for task in left]
        every_test = [task["tests"] + task["hidden_tests"] for task in tried]
        outcomes = judge(tried, [task["solution"] for task in tried], every_test, run, timeout_s * REFERENCE_SHARE)
        for task, outcome in zip(tried, outcomes, strict=True):
            if outcome.status == "pass":
                kept[task["name"]] = task
            failed[task["name"]] = outcome.reason
    names = [task["name"] for task in tasks]
    dropped = [{"task": name, "reason": f"the reference fails: {failed[name]}"} for name in names if name not in kept]
    return [kept[name] for name in names if name in kept], dropped


def _may_be(task: Task, inplace: bool, objects: bool) -> bool:
    """Are these flags at least those the task has, and do they mean anything for its tests?"""
    stdio = (inplace or objects) and parse_cases(task["tests"]) is not None
    return inplace >= task["inplace"] and objects >= task["objects"] and not stdio


def drop_trivial(tasks: Sequence[Task], run: Run, timeout_s: float = TIMEOUT_S) -> tuple[list[Task], list[dict]]:
    """Tasks none of whose trivial solutions passes all visible tests, and the others with the one that does."""
    solutions = {task["name"]: trivial_solutions(task) for task in tasks}
    left, dropped = list(tasks), []
    for kind in dict.fromkeys(kind for of_task in solutions.values() for kind in of_task):
        tried = [task for task in left if kind in solutions[task["name"]]]
        codes = [solutions[task["name"]][kind] for task in tried]
        outcomes = judge(tried, codes, [task["tests"] for task in tried], run, timeout_s)
        passed = [task["name"] for task, outcome in zip(tried, outcomes, strict=True) if outcome.status == "pass"]
        dropped += [{"task": name, "reason": f"a trivial solution passes: {kind}"} for name in passed]
        left = [task for task in left if task["name"] not in passed]
    return left, dropped


# --------------------------------------------------------------------------- trivial solutions

RETURNED = ("None", "True", "0", "''", "[]")
PRINTED = ("", "0", "1", "-1", "YES", "NO", "Yes", "No", "True", "False")
BODIES = {
    **{f"return {value}": f"return {value}" for value in RETURNED},
    "return the argument": "return given[0]",
    "clear the argument and return it": "given[0].clear(); return given[0]",
}


def trivial_solutions(task: Task) -> dict[str, str]:
    """Programs that solve nothing, by what they do.

    Beside the constants: where there is more than one test, the value that the first one expects.

    Example: `trivial_solutions(stdio_task)["print 'NO'"] == "print('NO')"`
    """
    cases = parse_cases(task["tests"])
    if cases is not None:
        printed = {f"print {text!r}": f"print({text!r})" for text in PRINTED}
        if len(cases) > 1:
            printed["print what the first test expects"] = f"print({cases[0][1]!r})"
        return printed | {"print the input": "import sys\nprint(sys.stdin.read())"}
    names = _names(task, task["tests"])
    bodies = BODIES | {f"raise {error}": f"raise {error}" for error in _errors_named(task)}
    if len(task["tests"]) > 1 and (value := _expected(task["tests"][0])):
        bodies["return what the first test expects"] = f"return {value}"
    return {"define nothing": ""} | {kind: _functions(names, body) for kind, body in bodies.items()}


def _functions(names: Sequence[str], body: str) -> str:
    head = "def {}(*arguments, **keywords):\n    given = [*arguments, *keywords.values()]\n    "
    return "\n".join(head.format(name) + body for name in names)


def _errors_named(task: Task) -> list[str]:
    """The built-in exceptions that the tests mention, and ValueError."""
    words = re.findall(r"[A-Z]\w+", "\n".join(task["tests"]))
    kinds = {word: getattr(builtins, word, None) for word in ["ValueError", *words]}
    return [word for word, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Exception)]


def _expected(test: str) -> str:
    """The source of the constant at the end of `assert ... == constant`; empty for another test."""
    body = ast.parse(test).body
    compared = body[0].test if len(body) == 1 and isinstance(body[0], ast.Assert) else None
    if not isinstance(compared, ast.Compare) or not isinstance(compared.ops[-1], ast.Eq | ast.Is):
        return ""
    source = ast.unparse(compared.comparators[-1])
    try:
        ast.literal_eval(source)
    except (ValueError, SyntaxError, TypeError, RecursionError):
        return ""
    return source
