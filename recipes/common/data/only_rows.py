"""The rows of a file that a run names in place of its recipe's own (`only_rows`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset

from recipes.common.checks.rewards_on_rows import with_keys
from rewards.jsonl import read_jsonl


def use_only_rows(train_rows: Any, file: str | None, count: int | None) -> Any:
    """Replace a recipe's training rows by the first `count` rows of a file, in their order; None keeps them.

    The prompts are those of the file, whatever system prompt and worked example the run has. ValueError without the
    file, without rows, or for one without prompt or task.
    """
    if file is None:
        return train_rows
    if not Path(file).is_file():
        raise ValueError(
            f"only_rows: there is no file {file}; scripts/filter_by_pass_rate.py writes one."
        )
    rows = read_jsonl(Path(file), with_keys({"prompt": (str, list), "task": (str,)}))[:count]
    names = dict.fromkeys(
        name for row in rows for name in row
    )  # from_list would take those of the first row
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})


def only_rows_notes(rows: list[dict[str, Any]], eval_rows: Iterable[dict[str, Any]]) -> list[str]:
    """Say where the first training row and the first held-out row of its task differ before the last message."""
    first = rows[0] if rows else {}
    held_out = next((row for row in eval_rows if row.get("task") == first.get("task")), first)
    if _before_question(first) == _before_question(held_out):
        return []
    return [
        "only_rows: the messages before the question are not those of the held-out rows: the file keeps the system "
        "prompt and the worked example of its probe. Probe again with those of this run"
    ]


def _before_question(row: dict[str, Any]) -> list[Any]:
    """The messages before the last, without the empty keys that a Dataset adds to messages that differ in theirs."""
    prompt = row.get("prompt")
    messages = prompt[:-1] if isinstance(prompt, list) else []
    return [
        {name: value for name, value in message.items() if value is not None}
        for message in messages
    ]
