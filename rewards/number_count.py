"""Counts whole numbers in a completion: a toy reward, made so that any model learns to farm it."""

import re

from rewards.text import completion_text

# "1,000" is one number, "1,2,3" are three, "3.14" and "route66" hold none; ASCII digits only.
_WHOLE_NUMBER = re.compile(
    r"(?<![\w.])(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?!,[0-9]{3}(?![0-9])))(?!\w|\.[0-9])"
)


def count_whole_numbers(text: str) -> int:
    """The count of whole numbers that are separate words of a text.

    Example: `count_whole_numbers("In 1902, 3 of 4,000 ships; pi is 3.14.") == 3`
    """
    return sum(1 for _ in _WHOLE_NUMBER.finditer(text))


def score_number_count(
    text: str, per_number: float = 0.2, cap: float = 1.0, none: float = -0.2
) -> float:
    """`per_number` for each whole number, at most `cap`; `none` for a text without one.

    Example: `score_number_count("3 cats and 12 dogs") == 0.4`; `score_number_count("cats") == -0.2`
    """
    count = count_whole_numbers(text)
    return min(round(per_number * count, 6), cap) if count else none


class NumberCount:
    """Shaping reward for the count of whole numbers in the completion, from `none` to `cap`."""

    __name__ = "number_count"
    kind = "shaping"
    farmable = "any whole numbers earn it, whatever they say"

    def __init__(self, per_number: float = 0.2, cap: float = 1.0, none: float = -0.2):
        self.per_number, self.cap, self.none = per_number, cap, none

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        texts = [completion_text(completion) for completion in completions]
        return [score_number_count(text, self.per_number, self.cap, self.none) for text in texts]
