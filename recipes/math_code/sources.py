"""The data sets that the recipe mixes; each yields pairs (item, whether it is held out)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reasoning_gym
from datasets import Dataset, interleave_datasets, load_dataset

from recipes.code.tasks import read_tasks
from recipes.common.data.questions import gold_of, read_questions
from recipes.common.data.split import is_held_out
from rewards.rows import read_jsonl, with_keys

INSTRUCTION = "Continue this passage in English, with names, dates and figures:"
PASSAGES = Path(__file__).parent.with_name("number_count") / "passages.jsonl"

# (item, is held out); an item has `task`, `question` and the columns that the task's rewards need
Items = Iterator[tuple[dict[str, Any], bool]]


def sums(path: None, seed: int) -> Items:
    """Yield sums and differences of two numbers, each with whether it is held out."""
    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    for item in reasoning_gym.create_dataset("chain_sum", **settings, seed=seed * 5000, size=5000):
        question = item["question"].rpartition(": ")[2]
        row = {"task": "math", "question": question, "answer": item["answer"]}
        yield row, is_held_out(question, one_in=8)


def gsm8k(path: str | None, seed: int) -> Items:
    """Yield GSM8K from a folder (train.jsonl, test.jsonl) or the Hub; test rows are held out."""
    for split in ("train", "test"):
        hub = None if path else load_dataset("openai/gsm8k", "main", split=split)
        for row in hub or read_questions(path, split):
            item = {"question": row["question"], "answer": gold_of(row["answer"])}
            yield {"task": "math", **item}, split == "test"


def programs(path: str | None, seed: int) -> Items:
    """Programming tasks that scripts/prepare_code.py wrote; the test split is held out."""
    for split in ("train", "test"):
        for task in read_tasks(path or "data/mbpp", split):
            yield {"task": "code", "question": task.pop("prompt"), **task}, split == "test"


def passages(path: str | None, seed: int) -> Items:
    """Yield the first 25 words of English passages (JSON Lines with `text`), a quarter held out."""
    for item in read_jsonl(Path(path or PASSAGES), with_keys({"text": (str,)})):
        words = " ".join(item["text"].split()[:25])
        row = {"task": "number_count", "question": f"{INSTRUCTION}\n\n{words}"}
        yield row, is_held_out(item["text"], one_in=4)


SOURCES = {"sums": sums, "gsm8k": gsm8k, "passages": passages, "programs": programs}


def check_sources(sources: Any) -> None:
    """Raise ValueError if the `sources` of a YAML are not {known name: {weight, path}}."""

    def is_valid(name: str, source: Any) -> bool:
        """Whether the name is known, and the source has a weight above 0 and a path at most."""
        if name not in SOURCES or not isinstance(source, dict):
            return False
        return source.keys() <= {"weight", "path"} and source.get("weight", 1.0) > 0

    given = sources if isinstance(sources, dict) else {}
    if not given or not all(is_valid(name, source) for name, source in given.items()):
        raise ValueError(
            f"sources is {sources!r}; give {{name: {{weight: 1.0, path: FILE}}}} "
            f"with names of {', '.join(SOURCES)}."
        )


def mix(parts: list[Dataset], weights: list[float], count: int | None, seed: int) -> Dataset:
    """Draw `count` rows from the parts by weight; None draws until one part is exhausted.

    Raises:
        ValueError: one part is exhausted before `count` rows are drawn.
    """
    shares = [weight / sum(weights) for weight in weights]
    rows = interleave_datasets(
        parts, probabilities=shares, seed=seed, stopping_strategy="first_exhausted"
    )
    if count is not None and len(rows) < count:
        raise ValueError(
            f"the sources hold {len(rows)} rows at these weights, and {count} were asked for."
        )
    return rows if count is None else rows.select(range(count))
