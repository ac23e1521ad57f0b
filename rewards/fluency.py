"""Prose: the share of words among the pieces between white space."""

import re

from rewards.text import completion_text

_WORD = re.compile(r"[^\w\s]*[^\W\d_]+(?:['’-][^\W\d_]+)*[^\w\s]*")


def word_share(text: str) -> float:
    """The share of the pieces between white space that are words: letters, with punctuation around or inside.

    Returns:
        0.0 to 1.0; 0.0 for a text without any.

    Example: `word_share("Don't go, 2013-07-25: (well)") == 0.75`
    """
    pieces = text.split()
    return (
        sum(_WORD.fullmatch(piece) is not None for piece in pieces) / len(pieces) if pieces else 0.0
    )


class Prose:
    """Format reward: `full` for a text of which at least `min_words` is words (see `word_share`), else 0.0."""

    __name__ = "prose"
    kind = "format"
    farmable = "any words will do, in any order: it needs a KL term next to it"

    def __init__(self, min_words: float = 0.75, full: float = 1.0):
        self.min_words, self.full = min_words, full

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        shares = [word_share(completion_text(completion)) for completion in completions]
        return [self.full if share >= self.min_words else 0.0 for share in shares]
