"""Read the rows of programming tasks from a file; fill in and check every key."""

from pathlib import Path
from typing import Any

from rewards.code_tests import called_names, parse_cases
from rewards.rows import read_jsonl, with_keys

Task = dict[str, Any]

KEYS = {
    "name": str,
    "prompt": str,
    "tests": list,
    "hidden_tests": list,
    "setup": str,
    "preamble": str,
    "entry_point": str,
    "solution": str,
}
COMPLETE_STUB = "Complete this Python function:\n\n"  # before the code in a prompt of HumanEval
check_keys = with_keys({"prompt": (str, list), "tests": (list,)})


def read_tasks(path: str | Path | None, split: str) -> list[Task]:
    """Read the tasks of `<path>/<split>.jsonl`, or of the file `path` itself.

    Raises:
        ValueError: no path, no file, or a line is not a task; the message has its number.
    """
    if path is None:
        raise ValueError("dataset_path is missing: give a folder of scripts/prepare_code.py.")
    file = Path(path, f"{split}.jsonl") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        remedy = "Give a folder that scripts/prepare_code.py wrote, or a JSON Lines file."
        if file.with_name("train.jsonl").is_file():
            remedy = "Prepare the tasks with --held_out N for one, or give --num_eval_rows 0."
        raise ValueError(f"no file {file}. {remedy}")
    names: set[str] = set()

    def accept(row: Any) -> Task:
        """The task of a row, with a name that no task before it has; ValueError if it is none."""
        task = complete_row(row, f"{file.stem}/{len(names) + 1}")
        if task["name"] in names:
            raise ValueError(f"a second task has the name {task['name']!r}; names must differ.")
        names.add(task["name"])
        return task

    return read_jsonl(file, accept)


def complete_row(row: Any, name: str = "") -> Task:
    """Fill in a task's missing keys with "" or [], and check all; `name` is the default name."""
    check_keys(row)
    if isinstance(row["prompt"], list):
        raise ValueError("prompt is a chat; give its question as text: the recipe makes the chat.")
    if unknown := sorted(row.keys() - KEYS.keys()):
        raise ValueError(f"unknown key {', '.join(unknown)}; allowed: {', '.join(KEYS)}.")
    task = {key: row.get(key, kind()) for key, kind in KEYS.items()}  # key -> str or list
    task["name"] = task["name"] or name
    for key, kind in KEYS.items():
        if type(task[key]) is not kind:
            raise ValueError(f"{key} must be of type {kind.__name__}, not {task[key]!r}"[:200])
    tests = [*task["tests"], *task["hidden_tests"]]
    if not all(isinstance(text, str) and text.strip() for text in (task["prompt"], *tests)):
        raise ValueError("prompt, tests and hidden_tests hold strings, none of them blank.")
    if parse_cases(tests) is None:
        called_names(task, tests)  # raises ValueError if the tests are not valid Python
    elif task["setup"] or task["entry_point"]:
        raise ValueError("setup and entry_point must be empty: the tests are stdin and stdout.")
    return task


def prompt_of(task: Task, template: str) -> str:
    """The user's message for a task: `template` with the task's text in the place of `{task}`.

    A template with words of its own asks for the solution itself: there a HumanEval task loses the
    words "Complete this Python function:".
    """
    if "{task}" not in template:
        raise ValueError(
            f"user_prompt is {template!r}, without {{task}}: write {{task}} where the text of each "
            "task belongs."
        )
    text = task["prompt"] if template == "{task}" else task["prompt"].removeprefix(COMPLETE_STUB)
    return template.replace("{task}", text)
