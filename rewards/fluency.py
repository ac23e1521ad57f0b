"""Does it read like prose? What stands between white space is a word, or it is not."""

import re

from rewards.parsing import completion_text

_WORD = re.compile(r"[^\w\s]*[^\W\d_]+(?:['’-][^\W\d_]+)*[^\w\s]*")


def word_share(text: str) -> float:
    """The share of what stands between white space that is a word: letters, with punctuation around or inside.

    Returns:
        0.0 to 1.0; 0.0 for a text without any.

    Example: `word_share("Don't go, 2013-07-25: (well)") == 0.75`
    """
    pieces = text.split()
    return sum(_WORD.fullmatch(piece) is not None for piece in pieces) / len(pieces) if pieces else 0.0


class WordShare:
    """Shaping reward: 1.0 where at least `target` of a text are words, proportionally less below; 0.0 to 1.0."""

    __name__ = "word_share"
    kind = "shaping"
    farmable = "any words will do, in any order: it needs a KL term or another reward beside it"

    def __init__(self, target: float = 0.85):
        self.target = target

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [min(1.0, word_share(completion_text(completion)) / self.target) for completion in completions]
