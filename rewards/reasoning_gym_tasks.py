"""Tasks of reasoning-gym, each scored by the verifier it ships with."""

import functools
import json

import reasoning_gym

from rewards.parsing import completion_text, tag_text


@functools.cache
def _verifier(source_dataset: str, parameters: str):
    """The reasoning-gym data set whose `score_answer` judges; `parameters` is JSON text."""
    return reasoning_gym.create_dataset(source_dataset, **{**json.loads(parameters), "size": 1, "seed": 0})


def score_reasoning_gym(answer: str | None, entry: str) -> float:
    """What the task's own verifier pays for an answer, clipped to 0.0-1.0.

    `entry` is JSON text: `{"dataset": name, "parameters": {...}, "question": ..., "answer": ..., "metadata": {...}}`.
    Partial credit that some verifiers give for a wrong answer is not paid: less than 1.0 is 0.0.
    """
    row = json.loads(entry)
    verifier = _verifier(row["dataset"], json.dumps(row["parameters"], sort_keys=True))
    if answer is None:
        return 0.0
    try:
        return 1.0 if verifier.score_answer(answer, row) >= 1.0 else 0.0
    except Exception:  # a hundred verifiers, written by others: text that one of them trips over is no right answer
        return 0.0


class ReasoningGym:
    """Verifier for rows with an `entry` column: pays `correct` when the task's own verifier accepts the answer tag."""

    __name__ = "reasoning_gym"
    kind = "verifier"

    def __init__(self, correct: float = 2.0):
        self.correct = correct
        self.full = correct

    def __call__(self, prompts: list, completions: list, entry: list[str], **kwargs) -> list[float]:
        return [
            self.correct * score_reasoning_gym(tag_text(completion_text(completion), "answer"), row)
            for completion, row in zip(completions, entry, strict=True)
        ]
