"""Load questions and their answers from the Hub or from files, by the names of two columns."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetsError

from recipes.common.data.split import draw, is_held_out
from recipes.common.settings import RecipeArguments, setting
from rewards.rows import collect, lines_of, parse_line, shown
from rewards.text import last_boxed

Item = dict[str, str]  # keys `question` and `answer`: the gold, or a solution that ends in it
Values = Iterable[tuple[str, Any]]  # (place to name in messages, row or line)
KINDS = (".jsonl", ".json", ".csv", ".parquet")
PART = re.compile(r"(.+)-\d{5}-of-\d{5}")  # a split in several files, as the Hub names them
NO_ANSWER = {"n/a", "-", "--", "?", "todo", "tbd", "null", "nan"}  # written for a missing answer
ONE_IN = 8  # without a test split, one question in so many is held out


@dataclass
class QuestionArguments(RecipeArguments):
    """Settings of a recipe whose rows are questions with one answer each."""

    dataset_config: str | None = setting(None, "Configuration of a Hub data set.")
    dataset_train_split: str = setting("train", "The split of the training rows.")
    dataset_test_split: str | None = setting(
        "test", f"The split of the held-out rows; null: one training row in {ONE_IN}."
    )
    question_column: str = setting("question", "The column that holds the question.")
    answer_column: str = setting(
        "answer", "That of the answer, or of a solution that ends in #### ANSWER or a box."
    )
    max_bad_rows: int = setting(
        0, "Leave out so many rows of a split that cannot be used; more stop the run."
    )
    system_prompt: str | None = setting(None, "In place of the recipe's own; '' for none.")


def worked_example(example: list[str]) -> list[dict[str, str]]:
    """The two messages of a worked example [question, completion]; empty for an empty list."""
    pairs = zip(("user", "assistant"), example, strict=False)
    return [{"role": role, "content": text} for role, text in pairs]


def gold_of(answer: str) -> str:
    r"""The final answer of a solution: after `####`, else in its last box, else the whole text.

    Example: `gold_of("3 + 4 = 7\n#### 7") == gold_of(r"So \boxed{7}.") == gold_of(" 7 ") == "7"`
    """
    marked = answer.rpartition("####")[2] if "####" in answer else last_boxed(answer) or answer
    return marked.strip()


def load_questions(
    args: QuestionArguments,
    seed: int,
    check: Callable[[str], str | None],
    hub: tuple[str, str] | None = None,
) -> tuple[Dataset, Dataset]:
    """Draw training and held-out items from the source in `args`, else from `hub` (id, config).

    Without a test split, one question in `ONE_IN` is held out by its hash, so the seed does not
    change which. `check` returns why a gold answer cannot be used, or None.

    Raises:
        ValueError: with what is wrong in the settings, or in the rows by file and line.
    """
    from recipes.common.data.overlap import question_of  # importing a recipe stays light

    if args.dataset_name and args.dataset_path:
        raise ValueError("dataset_name and dataset_path are both given: give one.")
    if not (args.dataset_name or args.dataset_path or hub):
        raise ValueError(
            "dataset_path (a file or a folder) or dataset_name (a Hub id) is missing: give one."
        )
    columns = (args.question_column, args.answer_column)
    if columns[0] == columns[1]:
        raise ValueError(
            f"question_column and answer_column are both {columns[0]!r}: the question would be its "
            "own answer. Name two columns."
        )
    if args.dataset_path:
        source, splits = args.dataset_path, splits_of_path(Path(args.dataset_path), columns)
    else:
        source, config = (args.dataset_name, None) if args.dataset_name else hub
        splits = splits_of_hub(source, args.dataset_config or config)
    train, test = args.dataset_train_split, args.dataset_test_split
    if len(splits) == 1 and test not in splits:  # a single split is for training
        splits, test = {train: next(iter(splits.values()))}, None
    for split, remedy in (
        (train, "set dataset_train_split"),
        (test, f"set dataset_test_split, or null: one row in {ONE_IN} is held out"),
    ):
        if split is not None and split not in splits:
            has = ", ".join(splits)
            raise ValueError(f"{source} has no split {split!r} (it has: {has}): {remedy}.")
    items = usable_items(source, splits[train], columns, check, args.max_bad_rows)
    if test is not None:
        held_out = usable_items(source, splits[test], columns, check, args.max_bad_rows)
    else:
        hidden = [is_held_out(question_of(item["question"]), ONE_IN) for item in items]
        held_out = [item for item, is_hidden in zip(items, hidden, strict=True) if is_hidden]
        items = [item for item, is_hidden in zip(items, hidden, strict=True) if not is_hidden]
    if args.num_eval_rows and not held_out:
        raise ValueError(
            f"{source} has {len(items)} rows, and none of them is held out (one in {ONE_IN} is, by "
            "its question): give more rows, a folder with train and test files, or num_eval_rows: "
            "0."
        )
    return (
        draw(Dataset.from_list(items), args.num_train_rows, seed),
        draw(Dataset.from_list(held_out), args.num_eval_rows, seed),
    )


def read_questions(folder: str, split: str) -> list[Item]:
    """Read the items of one split of a folder in GSM8K's columns."""
    columns = ("question", "answer")
    splits = splits_of_path(Path(folder), columns)
    if split not in splits:
        raise ValueError(f"{folder} has no file {split} (it has: {', '.join(splits)}).")
    return usable_items(folder, splits[split], columns, lambda gold: None, 0)


def splits_of_path(path: Path, columns: tuple[str, str]) -> dict[str, Values]:
    """The splits of a file or a folder, named by its files; the parts of a split are joined."""
    if not path.exists():
        raise ValueError(f"dataset_path: there is no file or folder {path}.")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    splits: dict[str, list[Path]] = {}
    for file in files:
        if file.suffix in KINDS:
            part = PART.fullmatch(file.stem)
            splits.setdefault(part[1] if part else file.stem, []).append(file)
    if not splits:
        kinds = ", ".join(KINDS)
        raise ValueError(
            f"dataset_path: {path} is not a {kinds} file, nor a folder that holds some."
        )
    return {
        name: chain.from_iterable(values_of(file, columns) for file in parts)
        for name, parts in splits.items()
    }


def splits_of_hub(name: str, config: str | None) -> dict[str, Values]:
    """The splits of a data set on the Hub, by name."""
    return {
        split: ((f"{name}, {split}, row {number}", row) for number, row in enumerate(rows, start=1))
        for split, rows in load_dataset(name, config).items()
    }


def values_of(file: Path, columns: tuple[str, str]) -> Iterator[tuple[str, Any]]:
    """The rows of a file with their places; a JSON row is a line of text."""
    kind = file.suffix[1:]
    if kind in ("jsonl", "json"):
        yield from lines_of(file)
        return
    # In CSV, pandas would read 007 as 7 and NA as missing.
    as_text = {"converters": dict.fromkeys(columns, str), "keep_default_na": False}
    options = as_text if kind == "csv" else {}
    try:  # a stream writes no cache
        rows = load_dataset(kind, data_files=str(file), split="train", streaming=True, **options)
        for number, row in enumerate(rows, start=1):
            yield f"{file}, row {number}", row
    except (ValueError, OSError, DatasetsError) as error:
        raise ValueError(f"{file} cannot be read as {kind}: {error}") from error


def usable_items(
    source: str,
    values: Values,
    columns: tuple[str, str],
    check: Callable[[str], str | None],
    max_bad_rows: int,
) -> list[Item]:
    """The usable items; ValueError if more than `max_bad_rows` rows are unusable, or all are."""
    from recipes.common.utils.screen import announce

    items, problems = collect(values, partial(item_of, columns=columns, check=check))
    if len(problems) > max_bad_rows:
        raise ValueError(shown(problems))
    if not items:
        raise ValueError(f"{source} holds no rows; it needs one question and one answer a row.")
    if problems:
        announce(f"Rows left out (max_bad_rows): {len(problems)}\n{shown(problems)}")
    return items


def item_of(value: Any, columns: tuple[str, str], check: Callable[[str], str | None]) -> Item:
    """The item of a row or of a line of JSON; ValueError if it cannot be used."""
    row, wanted = parse_line(value) if isinstance(value, str) else value, ", ".join(columns)
    if not isinstance(row, dict):
        raise ValueError(f"it must be a JSON object with {wanted}, not {str(row)[:80]!r}")
    options = {columns[0]: "--question_column", columns[1]: "--answer_column"}
    if missing := [column for column in columns if column not in row]:
        raise ValueError(
            f"{', '.join(missing)} missing (its keys: {', '.join(map(str, row))}; wanted: "
            f"{wanted}): name the key that holds it by "
            f"{' and '.join(options[column] for column in missing)}"
        )
    question, answer = row[columns[0]], row[columns[1]]
    if isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
        answer = repr(int(answer) if answer == int(answer) else answer)  # 42.0 is written 42
    kinds = ("text", "text or a number")
    for column, text, kind in zip(columns, (question, answer), kinds, strict=True):
        if not isinstance(text, str) or not text.strip():
            value = json.dumps(row[column], default=str, ensure_ascii=False)[:80]
            raise ValueError(f"{column} is {value}; it must be {kind} that is not empty")
    gold = gold_of(answer)
    if not gold:
        raise ValueError(f"{columns[1]} has no final answer behind ####")
    if gold.lower() in NO_ANSWER:
        raise ValueError(f"the answer is {gold!r}, which stands for none")
    if problem := check(gold):
        raise ValueError(problem)
    return {"question": question, "answer": answer}
