"""`only_rows`: train on the rows of a file, in any recipe, and judge on the recipe's own held-out rows.

The prompts are those of the file: a system prompt and a worked example are the probe's, whatever the run says of them.
Where the held-out rows have others, preflight notes it; it cannot where a prompt is one text.
"""

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset


def only_rows_if_asked(load_rows: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """A recipe's `load_rows` that gives the rows of `only_rows` for training, in their order, where a run names it.

    `num_train_rows` takes the first of them. The recipe's own training rows are loaded and dropped; the held-out rows
    stay, and preflight says where a row stands among both. A column that some rows lack is None there.
    """

    @functools.wraps(load_rows)
    def loaded(args: Any, seed: int) -> tuple[Any, Any]:
        train_rows, eval_rows = load_rows(args, seed)
        if args.only_rows is None:
            return train_rows, eval_rows
        rows = read_only_rows(Path(args.only_rows))[: args.num_train_rows]
        names = dict.fromkeys(name for row in rows for name in row)  # from_list would take those of the first row
        return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names}), eval_rows

    return loaded


def read_only_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file; each has at least a `prompt` and a `task`.

    Raises:
        ValueError: no such file, no rows in it, or a line that is no row.
    """
    if not file.is_file():
        raise ValueError(f"only_rows: there is no file {file}; scripts/filter_by_pass_rate.py writes one.")
    rows, text = [], file.read_text(encoding="utf-8").rstrip("\n")
    if not text:
        raise ValueError(f"only_rows: {file} holds no rows.")
    # str.splitlines would cut at U+2028 inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"only_rows: line {number} of {file} is no JSON ({error}).") from error
        if not isinstance(row, dict) or not {"prompt", "task"} <= row.keys():
            raise ValueError(f"only_rows: line {number} of {file} is no row: it needs a prompt and a task.")
        rows.append(row)
    return rows


def check_only_rows(file: Path, rows: list[dict[str, Any]], problems: list[str]) -> None:
    """Add to `problems` that the training rows of a recipe do not begin with the first row of the file.

    Raises:
        ValueError: as `read_only_rows`.
    """
    if rows and _bare(rows[0].get("prompt")) != _bare(read_only_rows(file)[0]["prompt"]):
        problems.append("this recipe makes nothing of only_rows: put @only_rows_if_asked over its load_rows")


def only_rows_notes(rows: list[dict[str, Any]], eval_rows: Iterable[dict[str, Any]]) -> list[str]:
    """What to say where the first training row and the first held-out row of its task are asked in two ways.

    Compared are the messages before the question, which is the last message; of prompts that are one text nothing is
    known.
    """
    first = rows[0] if rows else {}
    held_out = next((row for row in eval_rows if row.get("task") == first.get("task")), first)
    if _before_question(first) == _before_question(held_out):
        return []
    return [
        "only_rows: the messages before the question are others than in the held-out rows: the file keeps the system "
        "prompt and the worked example of its probe. Probe again with those of this run"
    ]


def _before_question(row: dict[str, Any]) -> list[Any]:
    prompt = _bare(row.get("prompt"))
    return prompt[:-1] if isinstance(prompt, list) else []


def _bare(prompt: Any) -> Any:
    """A prompt without the empty keys that a Dataset adds to messages that differ in their keys."""
    if not isinstance(prompt, list):
        return prompt
    return [{name: value for name, value in message.items() if value is not None} for message in prompt]
