"""Find questions of the held-out rows that the model trains on, and duplicate rows."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from recipes.common.utils.run_files import WARM_START, read_json
from rewards.boxed_math import is_equivalent
from rewards.latex.number import number_of

QUESTIONS = "question_digests"  # a key of warm_start.json


def normal_question(prompt: str | list[dict[str, Any]]) -> str:
    """The last user message of a prompt, or the whole text, in lower case and with single spaces.

    Example: `normal_question([{"role": "user", "content": "How\\nMany?"}]) == "how many?"`
    """
    if not isinstance(prompt, str):
        asked = [message["content"] for message in prompt if message.get("role") == "user"]
        prompt = str(asked[-1] if asked else prompt[-1]["content"])
    return re.sub(r"\s+", " ", prompt).strip().lower()


def question_digest(prompt: str | list[dict[str, Any]]) -> str:
    """A short digest of `normal_question(prompt)`; spaces beside punctuation do not change it.

    Example: `question_digest("2 + 2 =") == question_digest("2+2=")`
    """
    written = re.sub(r"\s*([^\w\s])\s*", r"\1", normal_question(prompt))
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def is_same(one: Any, other: Any) -> bool:
    """Whether two answers are equal or have the same value: 7 and 7.0, `[0,1]` and `[0, 1]`."""
    if not isinstance(one, str) or not isinstance(other, str):
        return one == other
    if number_of(one) is not None:
        return number_of(one) == number_of(other)
    return one == other or is_equivalent(one, other) is True


def warm_start_questions(model: str | None) -> set[str]:
    """The digests of the questions in a local model's warm start; empty if it had none."""
    return set(read_json(Path(model or "", WARM_START), {}).get(QUESTIONS, []))


def check_questions(train_rows: list[dict], eval_rows: list[dict], model: str | None) -> list[str]:
    """Problems: evaluation questions that are trained on, and rows that repeat or contradict one.

    A question is trained on as a training row, or in the warm start that made the local `model`.
    """
    problems = []
    # An environment asks its question itself: its prompts may be empty.
    asked = {i: row["prompt"] for i, row in enumerate(eval_rows) if normal_question(row["prompt"])}
    for seen, where in (
        ({question_digest(row["prompt"]) for row in train_rows}, "are also training rows"),
        (warm_start_questions(model), f"were in the warm start of {model}"),
    ):
        leaked = [i for i, prompt in asked.items() if question_digest(prompt) in seen]
        if leaked:
            first = normal_question(asked[leaked[0]])[:80]
            problems.append(
                f"evaluation rows: {len(leaked)} of {len(eval_rows)} evaluation rows {where} (the "
                f"first: {first!r}). Accuracy on them would measure memory: give evaluation rows "
                "of their own."
            )
    for kind, rows in (("training", train_rows), ("evaluation", eval_rows)):
        places: dict[str, int] = {}  # a question -> the number of its first row
        conflicts, repeated = [], []
        for number, row in enumerate(rows):
            if not (question := normal_question(row["prompt"])):
                continue
            # Two MBPP tasks can have the same prompt and differ only in their tests.
            key = json.dumps([row["task"], row["prompt"], row.get("tests")], default=str)
            # White space does not make it another question, between words or before the "?".
            key = re.sub(r' ?([?.!]?) ?"', r'\1"', re.sub(r"(?:\s|\\n)+", " ", key))
            earlier = places.setdefault(key, number)
            answers = rows[earlier].get("answer"), row.get("answer")
            if earlier != number and not is_same(*answers):
                conflicts.append(f"{question[:80]!r}: {answers[0]!r} and {answers[1]!r}")
            elif earlier != number and kind == "evaluation":
                repeated.append(f"{question[:80]!r}")
        if conflicts:
            problems.append(
                f"{kind} rows: {len(conflicts)} give another answer to the question of an earlier "
                f"row (the first: {conflicts[0]}). Keep the right one."
            )
        if repeated:
            problems.append(
                f"{kind} rows: {len(repeated)} of {len(rows)} stand there twice (the first: "
                f"{repeated[0]}), which makes the intervals too narrow. Keep each once."
            )
    return problems
