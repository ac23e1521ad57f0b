"""Tasks of reasoning-gym, each scored by the verifier it ships with."""

import contextlib
import functools
import json
import re

import reasoning_gym

from rewards.rows import LogExtra, log_answers, score_rows
from rewards.text import after_thinking, completion_text, tagged_answer

# Their verifiers hand the answer to `eval` or to sympy's parser: it could run code here.
RUNS_ANSWERS = {
    "binary_matrix", "countdown", "intermediate_integration", "n_queens",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix",
    "string_insertion",
}  # fmt: skip

# Some verifiers make a Fraction of the answer: "1e999999999" would fill the memory.
HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9]{4,}")

# int() and float(), by which many verifiers read an answer, take the digits of any script.
OTHER_DIGITS = re.compile(r"[^\D0-9]")


@functools.cache
def _verifier(source_dataset: str, parameters: str):
    """The data set whose `score_answer` verifies answers; `parameters` is JSON text.

    Raises:
        ValueError: its verifier would run the model's answer as code.
    """
    if source_dataset in RUNS_ANSWERS or source_dataset == "composite":
        raise ValueError(
            f"the verifier of reasoning-gym's {source_dataset!r} may run an answer as code "
            "(eval or sympy's parser). Refused for that reason: composite, "
            f"{', '.join(sorted(RUNS_ANSWERS))}. Use another data set."
        )
    given = json.loads(parameters)
    return reasoning_gym.create_dataset(source_dataset, **given | {"size": 1, "seed": 0})


def score_reasoning_gym(answer: str | None, entry: str) -> float:
    """1.0 if the task's own verifier accepts the answer wholly, else 0.0.

    `entry` is JSON text: `{"dataset": name, "parameters": {...}, "question": ..., "answer": ...,
    "metadata": {...}}`.
    """
    row = json.loads(entry)
    verifier = _verifier(row["dataset"], json.dumps(row["parameters"], sort_keys=True))
    if answer is None or HUGE_EXPONENT.search(answer) or OTHER_DIGITS.search(answer):
        return 0.0
    try:
        return 1.0 if verifier.score_answer(answer, row) >= 1.0 else 0.0
    except Exception:  # a text that one of a hundred verifiers trips over is not a right answer
        return 0.0


def _gold(entry: str) -> str | None:
    """The answer of an entry, for the log; None where it cannot be read."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return json.loads(entry).get("answer")
    return None


class ReasoningGym:
    """Verifier for rows with an `entry` column: `correct` when the task's own accepts the tag.

    A tag inside `<think>` alone earns nothing. Logs the columns `outcome/`, `gold/` and
    `parsed/reasoning_gym`.
    """

    __name__ = "reasoning_gym"
    kind = "verifier"

    def __init__(self, correct: float = 2.0):
        self.full = correct

    def __call__(
        self,
        prompts: list,
        completions: list,
        entry: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [after_thinking(completion_text(completion)) for completion in completions]
        parsed = [tagged_answer(text) for text in texts]
        log_answers(self.__name__, [_gold(row) for row in entry], parsed, log_extra)
        return score_rows(self.__name__, self._score, parsed, entry, log_extra=log_extra)

    def _score(self, answer: str | None, entry: str) -> float:
        return self.full * score_reasoning_gym(answer, entry)
