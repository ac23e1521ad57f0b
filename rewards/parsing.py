"""Reading the text of a completion: pure functions, linear in its length, that never raise on any string."""

import re
from fractions import Fraction

# A longer text is not a number that anybody meant, and int() of thousands of digits is slow or raises.
MAX_NUMBER_CHARS = 64

# How numbers are written, for all modules. Only ASCII digits are digits.
WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DIGITS = rf"{WHOLE}(?:\.[0-9]+)?|\.[0-9]+"
# The same where a text of any length is searched: bounded, so that a long row of digits is read once.
SIZED = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,15})?|(?<![\w.])\.[0-9]{1,15}"
# Words and letters right behind a number that change its value: "18 thousand", "18 lakh", "18M" are not 18. A fourth
# or a fifth may count grades or coins ("18 third graders", "18 quarters"), so of those only the plural is here.
SCALE = (
    r"(?:[kKMB]|bn|mn|tn|mln|(?i:hundred|thousand|(?:[mbt]|quadr|quint|sext)[a-z]{0,4}illion|lakh|lac|crore|dozen|myriad"
    r"|grand|squared|cubed|factorial|hal(?:f|ves)|(?:hundred|thousand|[a-z]{1,6}illion)ths?"
    r"|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|[a-z]{3,6}teen|[a-z]{3,6}tie)th)s)s?)(?![A-Za-z0-9])"
)
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*[$£€]?\s*(?P<sign2>-?)(?P<value>{_DIGITS})"
    r"(?:\s*/\s*(?P<denominator>[0-9]+))?"
    r"\.?(?:\s*(?:%|[A-Za-z][A-Za-z %'/.-]*))?"  # a unit: "18 eggs", "18.", "5%", "3 dollars/hour"
)
# A scale, a variable or a constant is not a unit, and no unit has these words: they change the number or take it back.
_NO_UNIT = re.compile(
    rf"[0-9]\s*(?:{SCALE}|(?i:[einxyz]|pi)\b)"
    r"|[0-9].*\b(?i:(?:and|or|not|minus|plus|times|to|over|wrong|incorrect|false|never)\b|[a-z]+n't)"
)

# Words that deny what stands right behind them, and what may stand between.
DENIALS = (
    r"not|never|neither|nor|nobody|no one|hardly|doubt|refuse|impossible|opposite of|by no means|in no way"
    r"|under no circumstances|cannot|[a-z]{2,7}n['’]t|anything but|far from|no longer|wrong|incorrect|false"
)
FILLERS = (
    r"(?:[\s:*$({\"'~=]|<answer>|\\boxed|(?:an?|the|my|our|this|it|that|to|is|was|be|as|have|has|had|equals?|think|believe|say|final|correct|right"
    r"|answer|result|value|number|total|exactly|actually|really|necessarily|simply|would|will|could|should|must)"
    r"(?![A-Za-z]))*\Z"
)
UNTRUE = r"(?:wrong|incorrect|false|not (?:correct|right|true|(?:the|my|our) (?:[a-z]+ )?answer))"
_DENIES = re.compile(
    rf"(?:(?<![A-Za-z])(?:{DENIALS})(?![A-Za-z])|≠|!=|\\neq?(?![a-z])){FILLERS}", re.IGNORECASE
)
_DENIED = re.compile(
    r"\W{0,3}\?\s*(?:no|nope|wrong|never)\b"
    rf"|[ \t*$)}}\]\"'.,]{{0,6}}(?:(?:which|that|this|it|but)\s){{0,2}}(?:is|was)\s(?:[a-z]+\s)?{UNTRUE}\b",
    re.IGNORECASE,
)


def completion_text(completion: str | list[dict]) -> str:
    """The text of a completion in either of TRL's forms: a plain string, or a list of chat messages.

    Only what the assistant says is an answer: a tool may say anything.

    Example: `completion_text([{"role": "tool", "content": "5"}, {"role": "assistant", "content": "hi"}]) == "hi"`
    """
    if isinstance(completion, str):
        return completion
    return "".join(
        message.get("content") or ""
        for message in completion
        if message.get("role") in ("assistant", None)
    )


def after_thinking(text: str) -> str:
    """The text without its thoughts in `<think>`: what follows the last `</think>`, or precedes a `<think>` left open.

    Example: `after_thinking("<think>17?</think>It is 18.") == "It is 18."`; `after_thinking("<think>It is 18.") == ""`
    """
    if "think>" not in text:
        return text
    return text.rpartition("</think>")[2].partition("<think>")[0]


def tag_text(text: str, tag: str) -> str | None:
    """The text inside the last complete `<tag>...</tag>`, stripped, or None where there is none.

    Example: `tag_text("<answer>4</answer> <answer> 5 </answer>", "answer") == "5"`
    """
    inside = tag_span(text, tag)
    return None if inside is None else text[slice(*inside)].strip()


def tagged_answer(text: str) -> str | None:
    """The text inside the last complete `<answer>` tag, or None where there is none or the words around it deny it.

    Example: `tagged_answer("So <answer> 5 </answer>") == "5"`; `tagged_answer("Not <answer>5</answer>") is None`
    """
    inside = tag_span(text, "answer")
    if inside is None or is_denied_around(
        text, inside[0] - len("<answer>"), inside[1] + len("</answer>")
    ):
        return None
    return text[slice(*inside)].strip()


def is_denied_around(text: str, start: int, end: int) -> bool:
    """Whether the words right before `start` or right behind `end` say that what stands between is not the answer.

    Example: `is_denied_around("It is not 5", 10, 11)`; `is_denied_around("5 is wrong", 0, 1)`
    """
    before = text[max(start - 70, 0) : start]
    return _DENIES.search(before) is not None or _DENIED.match(text, end) is not None


def tag_span(text: str, tag: str) -> tuple[int, int] | None:
    """Start and end of what stands inside the last complete `<tag>...</tag>`, or None where there is none.

    Example: `tag_span("<answer>4</answer>", "answer") == (8, 9)`
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    if end < 0 or start < 0:
        return None
    return start + len(tag) + 2, text.find(f"</{tag}>", start)


def parse_number(text: str) -> Fraction | None:
    """The exact value of a text that is one number and nothing else but a currency sign or a unit.

    Understands `18`, `1,000`, `$18`, `-3`, `18.0`, `1/2`, `50%` (as 50) and `18 eggs`; ASCII digits only. Anything
    else, two numbers or an expression among them, is None; `36/2` is a division that was not done. A percent sign is a
    unit like any other: GSM8K writes the 82 of its 8 792 golds that are percentages as plain numbers.

    Example: `parse_number("$1,080.50 dollars") == Fraction(2161, 2)`; `parse_number("1e999") is None`
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS:
        return None
    bare = text[1:] if text[:1] in ("$", "£", "€") else text
    if bare.isascii() and bare.isdigit():  # most numbers
        return Fraction(int(bare))
    text = text.replace("\u2212", "-")
    match = _NUMBER.fullmatch(text)
    if match is None or _NO_UNIT.search(text) or (match["sign"] and match["sign2"]):
        return None
    return _value(
        match["value"], match["denominator"], negative="-" in match["sign"] + match["sign2"]
    )


def _value(value: str, denominator: str | None, negative: bool) -> Fraction | None:
    if denominator is not None and int(denominator) == 0:
        return None
    whole, _, part = value.replace(",", "").partition(
        "."
    )  # Fraction reads a text far more slowly than int
    number = Fraction(int(whole + part), 10 ** len(part) * int(denominator or 1))
    if denominator is not None and number.denominator == 1:  # a division that was not done
        return None
    return -number if negative else number
