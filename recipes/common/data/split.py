"""Choose the rows of a run: training, held-out and validation rows."""

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
from datasets import Dataset, IterableDataset

from recipes.common.settings import Arguments
from rewards.rows import read_jsonl, with_keys

Rows = Dataset | IterableDataset
MOST_REPEATS = 100_000  # items in a row of which no one is a new question
STREAMED_ROWS = 1000  # so many rows of a stream are checked


def is_held_out(text: str, one_in: int) -> bool:
    """Whether a text is held out: about one in `one_in` is, by its hash, whatever the seed."""
    return hashlib.sha256(text.encode()).digest()[0] % one_in == 0


def split_distinct(
    items: Iterable[dict], train: int, held_out: int
) -> tuple[list[dict], list[dict]]:
    """Take the first `train` training items and `held_out` held-out items, without repeats.

    `is_held_out` of the `question` decides the side; a repeated `question` is skipped. ValueError
    if `MOST_REPEATS` of endless items in a row are skipped: the task has too few questions.
    """
    skipped = 0
    training: dict[str, dict] = {}  # question -> item
    testing: dict[str, dict] = {}
    for item in items:
        is_test = is_held_out(item["question"], one_in=8)
        side, wanted = (testing, held_out) if is_test else (training, train)
        is_new = len(side) < wanted and item["question"] not in side
        if is_new:
            side[item["question"]] = item
        skipped = 0 if is_new else skipped + 1
        if skipped > MOST_REPEATS and not hasattr(items, "__len__"):
            raise ValueError(
                f"only {len(training)} training and {len(testing)} test questions differ among the "
                f"items, and {train} and {held_out} are wanted: ask for fewer."
            )
        if len(training) == train and len(testing) == held_out:
            break
    return list(training.values()), list(testing.values())


def draw(rows: Dataset, count: int | None, seed: int) -> Dataset:
    """Draw `count` rows by `seed`; None keeps all rows in their order."""
    if count is None:
        return rows
    return rows.shuffle(seed=seed).select(range(min(count, len(rows))))


def first_rows(rows: Rows | None) -> list[dict]:
    """All rows, or the first 1,000 of a stream."""
    if isinstance(rows, IterableDataset):
        return list(itertools.islice(rows, STREAMED_ROWS))
    return rows.to_list() if rows is not None else []


def load_split(
    args: Arguments, load_rows: Callable[[Any, int], tuple[Any, Any]]
) -> tuple[Rows, Dataset | None, Dataset | None]:
    """Load training, held-out and validation rows; validation is None without `eval_strategy`.

    With `num_train_rows`, the validation rows are the rows that follow the training rows, so a run
    trains on the same rows with and without validation. Otherwise the seed draws them; from a
    stream they are the first rows. Their questions are removed from the training rows, also from
    `only_rows`. Questions of the model's warm start are removed from training and validation rows.
    """
    # Imported here, so that importing a recipe stays light.
    from recipes.common.data.overlap import question_digest, warm_start_questions

    recipe, seed = args.recipe, args.training["seed"]
    count = recipe.num_validation_rows if args.validates else 0
    wanted = recipe.num_train_rows
    arguments = replace(recipe, num_train_rows=wanted + count) if wanted and count else recipe
    train, held_out = load_rows(arguments, seed)
    validation = None
    used = warm_start_questions(args.model["model_name_or_path"])
    if used:
        args.notes.append(
            f"the {len(used)} questions of the model's warm start are left out of training"
        )
    if count:
        train = without(train, used)
        train, validation = take_validation(train, count, seed=None if wanted else seed)
        used = used | {question_digest(prompt) for prompt in validation["prompt"]}
    if recipe.only_rows is not None:
        train = use_only_rows(recipe.only_rows, wanted)
    return without(train, used), held_out, validation


def use_only_rows(file: str, count: int | None) -> Dataset:
    """Load the first `count` rows of a file, to train on in place of the recipe's own rows.

    The prompts stay as they are in the file: the run's system prompt and worked example do not
    apply. ValueError if the file is missing or empty, or if a row lacks its prompt or task.
    """
    if not Path(file).is_file():
        raise ValueError(f"only_rows: there is no file {file}; scripts/probe.py --keep writes one.")
    rows = read_jsonl(Path(file), with_keys({"prompt": (str, list), "task": (str,)}))[:count]
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):  # a later row may have more
        try:
            columns[name] = pyarrow.array([row.get(name) for row in rows])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"only_rows: {file}: {name} is of several kinds ({error}): give all rows one."
            ) from error
    return Dataset(pyarrow.table(columns))


def take_validation(rows: Rows, count: int, seed: int | None) -> tuple[Rows, Dataset]:
    """Return the other rows, and `count` rows for the validation curve.

    These are the first of a stream; else they are drawn by `seed`, or the last ones if it is None.
    """
    if isinstance(rows, IterableDataset):
        return rows.skip(count), Dataset.from_list(list(rows.take(count)))
    if len(rows) <= count:
        raise ValueError(
            f"num_validation_rows is {count}, and there are {len(rows)} training rows: give fewer, "
            "or eval_strategy: no."
        )
    numbers = range(len(rows))
    taken = set(numbers[-count:] if seed is None else random.Random(seed).sample(numbers, count))
    return rows.select([i for i in numbers if i not in taken]), rows.select(sorted(taken))


def without(rows: Rows, questions: set[str]) -> Rows:
    """The rows without those whose question digest is in `questions`."""
    from recipes.common.data.overlap import question_digest

    if not questions:
        return rows
    if isinstance(rows, IterableDataset):
        return rows.filter(lambda row: question_digest(row["prompt"]) not in questions)
    digests = map(question_digest, rows["prompt"])
    return rows.select([i for i, digest in enumerate(digests) if digest not in questions])
