"""Score answers to reasoning-gym tasks with the verifier of each task."""

import contextlib
import functools
import json
import re

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset

from rewards.answer import last_tag
from rewards.latex.number import number_of
from rewards.rows import LogExtra, log_answers, read_each, score_rows
from rewards.text import answer_part, completion_text

# The verifiers of these data sets pass the answer to `eval` or sympy's parser: it could run code.
RUNS_ANSWERS = set(
    "binary_matrix composite countdown intermediate_integration n_queens polynomial_multiplication "
    "puzzle24 simple_integration spiral_matrix string_insertion".split()
)
# Texts that break a verifier which reads numbers: they are scored as wrong.
NO_ANSWER = re.compile(
    r"[eE][+-]?[0-9]{4,}"  # "1e999999999" as a Fraction would fill the memory
    r"|[^\D0-9]"  # int() and float() accept the digits of any script
    # Every comparison with "nan" is false, so a check for a wrong value would not fail.
    r"|(?i:(?<![a-z])(?:nan|inf(?:inity)?)[ij]?(?![a-z]))"
)
# Wrong answers. A verifier that accepts one of them may test only that the text is not empty, or
# that it begins like the answer.
EMPTY_WORDS = ("?", "0")


@functools.cache
def _verifier(source_dataset: str, parameters: str) -> ProceduralDataset:
    """Create the data set whose `score_answer` verifies answers; `parameters` is JSON text."""
    if source_dataset in RUNS_ANSWERS:
        raise ValueError(
            f"the verifier of reasoning-gym's {source_dataset!r} may run an answer as code (eval "
            f"or sympy's parser). Refused for that reason: {', '.join(sorted(RUNS_ANSWERS))}. Use "
            "another data set."
        )
    settings = json.loads(parameters) | {"size": 1, "seed": 0}
    return reasoning_gym.create_dataset(source_dataset, **settings)


@functools.lru_cache(maxsize=4096)
def _checked_row(entry: str) -> tuple[dict, ProceduralDataset]:
    """Return the row of an entry and its verifier; ValueError if it accepts a wrong answer."""
    row = json.loads(entry)
    verifier = _verifier(row["dataset"], json.dumps(row["parameters"], sort_keys=True))
    gold = str(row["answer"]).strip()
    for text in EMPTY_WORDS:
        is_right = gold == text or (text == "0" and number_of(gold) == 0)
        if not is_right and _accepts(verifier, text, row):
            raise ValueError(
                f"the verifier of reasoning-gym's {row['dataset']!r} accepts {text!r} where the "
                f"answer is {gold[:40]!r}: it pays for wrong answers. Use another data set."
            )
    return row, verifier


def _accepts(verifier: ProceduralDataset, answer: str, row: dict) -> bool:
    """Whether the verifier gives the answer to the row its full score."""
    try:
        return verifier.score_answer(answer, row) >= 1.0
    except Exception:  # verifiers raise whatever they like on a malformed answer: it is wrong
        return False


def score_reasoning_gym(answer: str | None, entry: str) -> float:
    """Return 1.0 if the task's own verifier gives the answer its full score, else 0.0.

    `entry` is JSON text: `{"dataset": name, "parameters": {...}, "question": ..., "answer": ...,
    "metadata": {...}}`. ValueError if the verifier may run answers as code or accepts a wrong one.
    """
    row, verifier = _checked_row(entry)
    if answer is None or (answer != row["answer"] and NO_ANSWER.search(answer)):
        return 0.0
    return 1.0 if _accepts(verifier, answer, row) else 0.0


def _gold(entry: str) -> str | None:
    """The right answer of an entry, for the log; None if it cannot be read."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return json.loads(entry).get("answer")
    return None


class ReasoningGym:
    """Verifier for rows with an `entry` column: `correct` if the task's own verifier accepts.

    Logs the columns `outcome/`, `gold/` and `parsed/reasoning_gym`.
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
        """Score the answer in the last `<answer>` tag; one inside `<think>` does not count.

        None for a row whose `entry` cannot be used.
        """
        texts = [answer_part(completion_text(completion)) for completion in completions]
        parsed = read_each(last_tag, texts)
        log_answers(self.__name__, [_gold(row) for row in entry], parsed, log_extra)
        return score_rows(self.__name__, self._score, parsed, entry, log_extra=log_extra)

    def _score(self, answer: str | None, entry: str) -> float:
        return self.full * score_reasoning_gym(answer, entry)
