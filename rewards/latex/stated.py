r"""The answer that a free text comes to, and the one in a gold: for texts that nobody asked for a box."""

import re

from rewards.text import SCALE, boxed_answer

MAX_STATEMENT_CHARS = 4000  # where `stated_answer` looks: the end of a longer text
MAX_SENTENCE_CHARS = 300
_PROSE = re.compile(
    r"(?<![A-Za-z\\])(?:answer|is|are|therefore|thus|hence|so|we)(?![A-Za-z])", re.I
)
_FINAL = re.compile(r"the final answer is(?=:? *\$)", re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z<])|\n\s*\n|\n(?=Answer:)")
_LAST_NUMBER = re.compile(
    r"(?<![\w.,])[-+]?[$€£]?(?:\d+ \d+/\d+|\d[\d,]*(?:\.\d+)?(?:/\d+)?|\.\d+)\s*(?:%|percent)?(?!\d)",
    re.ASCII,
)


def stated_answer(text: str) -> str:
    """The answer that a text comes to: its last box, else what its last sentence with a number states, else itself.

    For texts that were not asked for a box, in evaluations and benchmarks; the reward wants the box.

    Example: `stated_answer("The final answer is $(0, 1)$. I hope it is correct.") == "(0, 1)"`
    """
    final = _FINAL.search(text, text.rfind("boxed"))  # a box before it was a step
    if ("boxed" in text or "fbox" in text) and final is None:
        return boxed_answer(text) or ""
    if final is None and not _PROSE.search(text):
        return text
    text = text[final.start() if final else 0 :][-MAX_STATEMENT_CHARS:].partition("<|im_start|>")[0]
    sentences = [part for part in _SENTENCE_END.split(text) if re.search(r"\d|[$\\]", part)]
    stated = sentence_answer(re.sub(r"\\[\[\]()]", " ", sentences[-1])) if sentences else None
    return text if stated is None else stated


_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf)\s*\{([^{}]*)\}")
_STATES_VALUE = re.compile(r"(?:\b(?:is|are|be|equals|costs?|makes?|gives?)\b|:)")
# Words that take back, bound or multiply what they stand by: then nobody knows what the sentence states.
_HEDGES = re.compile(
    r"(?i:\b(?:not?|never|neither|nor|or|and|between|less|more|fewer|greater|least|most|about|approximately|around|nearly|almost"
    r"|wrong|incorrect|false|but|except|other|either|unlike|maybe|perhaps|possibly|might|could|doubt|cannot|if|to|by|mod)\b"
    rf"|n['’]t\b)|[0-9]\s*{SCALE}|"
    r"\?|\\n?[lg]?eq?\b|[<>≠]"
)


def sentence_answer(text: str) -> str | None:
    r"""The answer that a sentence states: the text after its verb, else its only number; None where it hedges.

    Example: `sentence_answer(r"\text{The answer is } 18") == "18"`; `sentence_answer("It is not 18") is None`
    """
    words = _TEXT.sub(r" \1 ", without_dollars(text)).strip(" .")
    has_words = re.search(r"(?<![A-Za-z\\])[A-Za-z]{2,}", words) is not None
    if len(words) > MAX_SENTENCE_CHARS or not has_words or _HEDGES.search(words):
        return None
    *_, verb = (None, *_STATES_VALUE.finditer(words))
    rest = words[verb.end() :].strip() if verb else ""
    if rest:
        return rest
    numbers = (
        _LAST_NUMBER.findall(words) if words[0].isalpha() and not re.search(r"[\\^]", words) else []
    )
    return numbers[0].strip() if len(numbers) == 1 else None


def gold_answer(gold: str) -> str:
    r"""The answer in a gold that is bare LaTeX, in dollars, in a box, or a solution that ends in one.

    Example: `gold_answer(r"Hence $x = \boxed{3}$.") == "3"`; `gold_answer("$125$ miles") == "125 miles"`
    """
    boxed = boxed_answer(gold, adjacent=True)
    if boxed is None:
        boxed = stated_answer(gold) if _FINAL.search(gold) else gold
    return without_dollars(boxed)


_NUMBER_WORDS = re.compile(
    r"(?:(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|[mb]illion|and)[\s-]*)+"
)


def is_number_in_words(text: str) -> bool:
    """Whether a text is a number such as "forty two": no answer in digits equals it here."""
    return _NUMBER_WORDS.fullmatch(text.strip().casefold()) is not None


def without_dollars(text: str) -> str:
    """Without the signs that open and close mathematics; an odd one is money."""
    signs = re.findall(r"(?<!\\)\$", text)
    return re.sub(r"(?<!\\)\$", "", text) if len(signs) % 2 == 0 else text
