"""`only_rows`: train on the rows of a file, in any recipe, and judge on the recipe's own held-out rows."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset


def only_rows_if_asked(load_rows: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """A recipe's `load_rows` that gives the rows of `only_rows` for training, in their order, where a run names it.

    `num_train_rows` takes the first of them. The recipe's own training rows are loaded and dropped; the held-out rows
    stay, and preflight says where a row stands among both.
    """

    @functools.wraps(load_rows)
    def loaded(args: Any, seed: int) -> tuple[Any, Any]:
        train_rows, eval_rows = load_rows(args, seed)
        if args.only_rows is None:
            return train_rows, eval_rows
        return Dataset.from_list(read_only_rows(Path(args.only_rows))[: args.num_train_rows]), eval_rows

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
