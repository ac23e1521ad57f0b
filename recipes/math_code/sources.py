"""The data sets that the recipe mixes: each yields its items with their task, and whether an item is held out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reasoning_gym
from datasets import load_dataset

from recipes.code.tasks import read_tasks
from recipes.common.data.questions import gold_of, read_questions
from recipes.common.data.split import is_held_out
from rewards.jsonl import read_jsonl, with_keys

INSTRUCTION = "Continue this passage in English, with names, dates and figures:"
TASKS = "data/mbpp"
PASSAGES = Path(__file__).parent.with_name("number_count") / "passages.jsonl"

Item = dict[str, Any]  # `task`, `question`, and the columns that the rewards of the task need


def sums(path: None, seed: int) -> Iterator[tuple[Item, bool]]:
    """Sums and differences of two numbers."""
    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    for item in reasoning_gym.create_dataset("chain_sum", **settings, seed=seed * 5000, size=5000):
        question = item["question"].rpartition(": ")[2]
        yield (
            {"task": "math", "question": question, "answer": item["answer"]},
            is_held_out(question, one_in=8),
        )


def gsm8k(path: str | None, seed: int) -> Iterator[tuple[Item, bool]]:
    """GSM8K from a folder with train.jsonl and test.jsonl, or from the Hub; its test rows are held out."""
    for split in ("train", "test"):
        items = (
            read_questions(path, split)
            if path
            else load_dataset("openai/gsm8k", "main", split=split)
        )
        for item in items:
            yield (
                {"task": "math", "question": item["question"], "answer": gold_of(item["answer"])},
                split == "test",
            )


def programs(path: str | None, seed: int) -> Iterator[tuple[Item, bool]]:
    """Programming tasks from a folder that scripts/prepare_code.py wrote; its test rows are held out."""
    for split in ("train", "test"):
        for task in read_tasks(path or TASKS, split):
            yield {"task": "code", "question": task.pop("prompt"), **task}, split == "test"


def passages(path: str | None, seed: int) -> Iterator[tuple[Item, bool]]:
    """The first words of English passages, to be continued: a JSON Lines file with a `text` a line."""
    for item in read_jsonl(Path(path or PASSAGES), with_keys({"text": (str,)})):
        text = item["text"]
        question = f"{INSTRUCTION}\n\n{' '.join(text.split()[:25])}"
        yield {"task": "number_count", "question": question}, is_held_out(text, one_in=4)


OPTIONS = {"weight", "path"}
SOURCES = {"sums": sums, "gsm8k": gsm8k, "passages": passages, "programs": programs}
