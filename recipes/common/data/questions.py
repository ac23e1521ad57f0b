"""Load questions and their answers from the Hub or from files, by the names of two columns."""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from datasets import Dataset

from recipes.common.data.split import draw, is_held_out
from recipes.common.settings import RecipeArguments, setting
from rewards.answer import final_answer, stated_text
from rewards.latex.number import HEDGES, number_of
from rewards.rows import collect, parse_line, shown
from rewards.text import boxed_answer, last_boxed, question_of

Item = dict[str, str]  # keys `question` and `answer`: the gold, or a solution that ends in it
Check = Callable[[str], str | None]  # gold -> why it cannot be used, or None
NO_ANSWER = {  # written for a missing answer, or dashes
    "n/a", "", "todo", "tbd", "null", "nan", "proof", "notfound", "not found", "unknown",
    "no answer",
}  # fmt: skip
ONE_IN = 8  # without a test split, one question in so many is held out


@dataclass
class QuestionArguments(RecipeArguments):
    """Settings of a recipe whose rows are questions with one answer each."""

    dataset_config: str | None = setting(None, "Configuration of a Hub data set.")
    dataset_train_split: str = setting("train", "The split of the training rows.")
    dataset_test_split: str | None = setting(
        "test", "The split of the test questions; null: one training row in 8."
    )
    question_column: str = setting(
        "question", "The column of the question, or a path to it: data.question."
    )
    answer_column: str = setting(
        "answer", "That of the answer, or of a solution that ends in #### ANSWER or a box."
    )
    max_bad_rows: int = setting(
        0, "Leave out so many rows of a split that cannot be used; more stop the run."
    )
    system_prompt: str | None = setting(None, "In place of the recipe's own; '' for none.")


def worked_example(example: list[str]) -> list[dict[str, str]]:
    """The messages of worked examples [question, completion, question, ...]; empty for none."""
    turns = zip(cycle(("user", "assistant")), example, strict=False)
    return [{"role": role, "content": text} for role, text in turns]


def gold_of(answer: str) -> str:
    r"""The final answer of a solution: after `####`, else in its last box, else what it states.

    A text of less than three words is the answer itself. ValueError for a guess, and for a sentence
    with numbers of which none is stated as the answer.

    Example: `gold_of("3 + 4 = 7\n#### 7") == gold_of(r"So \boxed{7}.") == gold_of(" 7 ") == "7"`;
    `gold_of("The answer is 7.") == gold_of("She has 7 pens left.") == "7"`;
    `gold_of(r"\boxed{-2} or \boxed{1}") == "-2 or 1"`
    """
    _, mark, tail = answer.rpartition("####")
    is_heading = "\n" in tail.strip() and last_boxed(tail) is not None
    if mark and not is_heading:
        first = tail.strip().partition("\n")[0].strip()  # MetaMathQA: "#### 18\nThe answer is: 18"
        return tail.strip() if number_of(first) is None else first
    boxed, last = boxed_answer(answer), last_boxed(answer)
    if boxed != last:  # several boxes that are one answer
        return boxed
    text = (last or answer).strip()
    words = re.findall(r"(?<![A-Za-z\\])[A-Za-z]{2,}", text)  # no names of LaTeX commands
    is_marked = re.search(r"\b(?:answer|result)\b", text, re.IGNORECASE)
    # A few words are the answer itself: "7 pens", but not "probably 7".
    is_short = len(words) < 3 and not is_marked and HEDGES.isdisjoint(map(str.lower, words))
    if is_short or number_of(text) is not None:
        return text
    problem = f"{text[:80]!r} states no single answer: end it in #### and the answer, or in a box"
    # Several sentences of mathematics are a proof, whose numbers are no answer.
    if "\\" in text and not is_marked and len(re.findall(r"[.!?](?:\s+(?=[A-Z$\\])|$)", text)) > 1:
        raise ValueError(problem)
    # A sentence: the words that state its answer, and the number that a reader takes from it.
    stated, value = stated_text(text), final_answer(text)
    if stated and re.search(r"[=\\^<>]", stated):  # an expression: a number would be part of it
        return stated
    # The number counts where it is the one that is stated, or stands behind "=" or "answer".
    has_number = stated and re.search(r"\d", stated)
    is_result = number_of(stated) == value if has_number else "=" in text
    if value is not None and (is_result or is_marked):
        decimal = repr(float(value)).removesuffix(".0")
        return decimal if number_of(decimal) == value else str(value)
    if stated and is_marked:  # a name: "The answer is Paris."
        return stated
    if re.search(r"\d", text):
        raise ValueError(problem)
    return text


def load_questions(
    args: QuestionArguments, seed: int, check: Check, hub: tuple[str, str] | None = None
) -> tuple[Dataset, Dataset]:
    """Draw training rows and test questions from the source in `args`, else `hub` (id, config).

    Without a test split, one question in `ONE_IN` is held out by its hash, so the seed does not
    change which.

    Raises:
        ValueError: with what is wrong in the settings, or in the rows by file and line.
    """
    # Imported here, so that importing a recipe stays light.
    from recipes.common.data.files import splits_of_hub, splits_of_path
    from recipes.common.data.overlap import question_digest

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
        source = args.dataset_path
        splits = splits_of_path(Path(source), args.dataset_config)
    else:
        source, config = (args.dataset_name, None) if args.dataset_name else hub
        splits = splits_of_hub(source, args.dataset_config or config)
    train, test = args.dataset_train_split, args.dataset_test_split
    if train == test:
        raise ValueError(
            f"dataset_train_split and dataset_test_split are both {train!r}: name two, or set "
            f"dataset_test_split: null, which holds out one row in {ONE_IN}."
        )
    if list(splits) == ["train"] and test == "test":  # a single split is for training
        test = None
    if absent := [name for name in (train, test) if name is not None and name not in splits]:
        raise ValueError(
            f"{source} has no split {absent[0]!r} (it has: {', '.join(splits)}): set "
            f"dataset_{'train' if absent[0] == train else 'test'}_split; with test null one row in "
            f"{ONE_IN} is held out."
        )
    items = usable_items(source, splits[train], columns, check, args.max_bad_rows)
    if test is not None:
        held_out = usable_items(source, splits[test], columns, check, args.max_bad_rows)
    else:
        sides = {True: [], False: []}
        for item in items:
            sides[is_held_out(question_digest(item["question"]), ONE_IN)].append(item)
        held_out, items = sides[True], sides[False]
    if args.num_eval_rows and not held_out:
        if len({item["question"] for item in items}) == 1:
            raise ValueError(
                f"the {len(items)} rows of {source} ask the same question, "
                f"{items[0]['question'][:80]!r}: set question_column to that of the questions."
            )
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
    """Read one split of a folder with GSM8K's columns; ValueError if any row is unusable."""
    from recipes.common.data.files import splits_of_path

    values = splits_of_path(Path(folder)).get(split, [])
    columns = ("question", "answer")
    return usable_items(f"{split} of {folder}", values, columns, lambda gold: None, max_bad_rows=0)


def usable_items(
    source: str,
    values: Iterable[tuple[str, Any]],
    columns: tuple[str, str],
    check: Check,
    max_bad_rows: int,
) -> list[Item]:
    """The usable items; ValueError if more than `max_bad_rows` rows are unusable, or all are.

    `values` are rows or lines of JSON, each with its place for messages. `columns` are those of the
    question and of the answer.
    """
    from recipes.common.utils.screen import announce

    items, problems = collect(values, partial(item_of, columns=columns, check=check))
    if len(problems) > max_bad_rows:
        count = f"{len(problems)} rows of {source} cannot be used; max_bad_rows is {max_bad_rows}."
        raise ValueError(f"{shown(problems)}\n{count}")
    if not items:
        raise ValueError(f"{source} holds no rows; it needs one question and one answer a row.")
    if problems:
        announce(f"Rows left out (max_bad_rows): {len(problems)}\n{shown(problems)}")
    unique = list({(item["question"], item["answer"]): item for item in items}.values())
    if len(unique) < len(items):
        announce(f"{len(items) - len(unique)} rows of {source} repeat another: each is kept once.")
    return unique


def item_of(value: Any, columns: tuple[str, str], check: Check) -> Item:
    """The item of a row or of a line of JSON; ValueError if it cannot be used.

    `columns` are the names of, or paths to, the question and the answer. `check` says why a final
    answer cannot be used, or None.
    """
    if isinstance(value, ValueError):  # of a table
        raise value
    row = parse_line(value) if isinstance(value, str) else value
    if not isinstance(row, dict):
        raise ValueError(
            f"it must be a JSON object with {', '.join(columns)}, not {str(row)[:80]!r}"
        )
    question, answer = (value_at(row, column) for column in columns)  # `...` for one that is absent
    is_named = columns != (QuestionArguments.question_column, QuestionArguments.answer_column)
    if question is ... and answer is ... and not is_named and isinstance(row.get("messages"), list):
        question, answer = read_chat(row["messages"])
    if isinstance(question, list) and all(isinstance(turn, dict) for turn in question):  # a chat
        asked = [turn for turn in question if turn.get("role") == "user"]
        question = question_of(asked) if len(asked) == 1 else question
    missing = [name for name, text in zip(columns, (question, answer), strict=True) if text is ...]
    if missing:
        options = {columns[0]: "--question_column", columns[1]: "--answer_column"}
        raise ValueError(
            f"{', '.join(missing)} missing (its keys: {', '.join(row)}; wanted: "
            f"{', '.join(columns)}): name the key that holds it, or the path to it "
            f"(data.question), by {' and '.join(options[name] for name in missing)}"
        )
    is_number = isinstance(answer, int | float | Decimal) and not isinstance(answer, bool)
    if is_number and math.isfinite(answer):
        answer = str(int(answer) if answer == int(answer) else answer)  # 42.0 is written 42
    for column, text in zip(columns, (question, answer), strict=True):
        if not isinstance(text, str) or not text.strip():
            kind = "text" if column == columns[0] else "text or a number"
            shown_value = json.dumps(text, default=str, ensure_ascii=False)[:80]
            raise ValueError(f"{column} is {shown_value}; it must be {kind} that is not empty")
        if re.search("[\ud800-\udfff]", text):  # JSON allows them; no file and no tokenizer does
            raise ValueError(f"{column} holds half of a character, such as \\ud800: correct it")
    gold = gold_of(answer)
    if not gold:
        raise ValueError(f"{columns[1]} has no final answer behind ####")
    if gold.lower().strip("-–—?.") in NO_ANSWER:  # Excel makes a long dash of --
        raise ValueError(f"the answer is {gold!r}, which stands for none")
    if problem := check(gold):
        raise ValueError(problem)
    return {"question": question, "answer": answer}


def value_at(row: dict, path: str) -> Any:
    """The value of a column, or at a path of keys and places in it; `...` if there is none.

    Example: `value_at({"data": [{"answer": 5}]}, "data.0.answer") == 5`
    """
    value = row
    try:
        for name in [path] if path in row else path.split("."):
            value = value[int(name) if isinstance(value, list) else name]
    except (LookupError, TypeError, ValueError):
        return ...
    return value


def read_chat(messages: list[Any]) -> list[str]:
    """The question and the answer of a chat; ValueError if it has more or less than one of each."""
    texts: dict[str, list[str]] = {"user": [], "assistant": []}
    for message in messages:
        if isinstance(message, dict) and message.get("role") in texts:  # no system message
            texts[message["role"]].append(question_of([message]))
    if (len(texts["user"]), len(texts["assistant"])) != (1, 1):
        raise ValueError(
            f"its messages hold {len(texts['user'])} of a user and {len(texts['assistant'])} of an "
            "assistant; a row needs one question and one answer"
        )
    return texts["user"] + texts["assistant"]
