"""The answer that a sentence states, and the one in a gold."""

import re

from rewards.latex.units import HEDGES, SCALE
from rewards.text import boxed_answer

MAX_SENTENCE_CHARS = 300
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z<])|\n\s*\n|\n(?=Answer:)")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf)\s*\{([^{}]*)\}|\\[][()]")
_STATES_VALUE = re.compile(r"(?:\b(?:is|are|be|equals|costs?|makes?|gives?)\b|:)")
_PROSE = re.compile(
    r"(?<![A-Za-z\\])(?:answer|is|are|therefore|thus|hence|so|we)(?![A-Za-z])", re.I
)
_NUMBER = re.compile(
    r"(?<![\w.,])[-+]?[$€£]?(?:\d+ \d+/\d+|\d[\d,]*(?:\.\d+)?(?:/\d+)?|\.\d+)"
    r"\s*(?:%|percent)?(?!\d)",
    re.ASCII,
)
_UNCLEAR = re.compile(rf"n['’]t\b|[0-9]\s*{SCALE}|\?|\\n?[lg]?eq?\b|[<>≠]")


def is_prose(text: str) -> bool:
    return _PROSE.search(text) is not None


def sentence_answer(text: str) -> str | None:
    r"""The answer that the last sentence with mathematics states; None where it hedges.

    It is the text after its verb, else its only number.

    Example: `sentence_answer(r"\text{The answer is } 18") == "18"`;
    `sentence_answer("It is not 18") is None`
    """
    sentences = [part for part in _SENTENCE_END.split(text) if re.search(r"[\d$\\]", part)]
    words = _TEXT.sub(r" \1 ", without_dollars(sentences[-1] if sentences else text)).strip(" .")
    has_words = re.search(r"(?<![A-Za-z\\])[A-Za-z]{2,}", words) is not None
    if len(words) > MAX_SENTENCE_CHARS or not has_words or _UNCLEAR.search(words):
        return None
    if HEDGES.intersection(re.findall("[a-z]+", words.casefold())):
        return None
    *_, verb = (None, *_STATES_VALUE.finditer(words))
    rest = words[verb.end() :].strip() if verb else ""
    if rest:
        return rest
    numbers = _NUMBER.findall(words) if re.match(r"[A-Za-z][^\\^]*$", words) else []
    return numbers[0].strip() if len(numbers) == 1 else None


def gold_answer(gold: str) -> str:
    r"""The answer in a gold that is bare, in dollars, in a box, or a solution that ends in one.

    Example: `gold_answer(r"So $x = \boxed{3}$.") == "3"`; `gold_answer("$5$ miles") == "5 miles"`
    """
    boxed = boxed_answer(gold, adjacent=True)
    return without_dollars(gold if boxed is None else boxed)


def without_dollars(text: str) -> str:
    """Without the signs that open and close mathematics; an odd one is money."""
    signs = re.findall(r"(?<!\\)\$", text)
    return re.sub(r"(?<!\\)\$", "", text) if len(signs) % 2 == 0 else text
