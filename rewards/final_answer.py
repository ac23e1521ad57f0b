r"""The number a free-form completion offers as its final answer, in grade-school maths as language models write it.

How it reads, in this order:

1. What follows the first problem (the next `Question:`, `Human:`, `<|im_end|>`, ...) is not read.
2. Of the explicit markers (`#### 18`, `\boxed{18}`, `<answer>18</answer>`, `The answer is 18`, `Answer: 18`, `A: 18`)
   the last one counts, unless the text takes it back ("Wait, I forgot ...") and goes on to another number.
3. Where nothing is marked, the last sentence that concludes counts: the right side of its last equation, its bold
   number, or its last number that is not a detail such as "in 3 days" or "at $2 each".

A marker that holds several numbers ("17 or 18", `\boxed{17, 18}`) offers none of them: listing candidates earns
nothing. Only ASCII digits are digits, and "18 thousand" is not a number, as in `rewards.parsing.parse_number`.
The patterns bound what they repeat, or repeat what cannot match two ways: each takes linear time on any text.
"""

import re
from fractions import Fraction

from rewards.boxes import find_boxes
from rewards.conclusion import (
    CALCULATION,
    NUMBER,
    conclusion,
    is_denied,
    number_at,
    result_of,
    sentence_value,
    value_of,
)
from rewards.parsing import after_thinking, parse_number, tag_span
from rewards.plain_text import DIGIT, first_problem, plain, takes_back, without_code

MAX_CHARS = (
    20_000  # an answer stands at the end: of a longer text, only this much of its end is read
)
_SEVERAL = re.compile(
    r"[ \t$*]{0,4}(?:[,;/|&]|or\b|and\b|to\b|through\b)?[ \t$£€]*[0-9]"
    r"|[ \t$*]{0,4}(?:[A-Za-z]+[ \t]+){0,2}(?:or|and)[ \t]+[$£€*]*[0-9]"
    r"|[ \t$*(/]{0,4}(?:or|versus|vs\.?)[ \t]+(?:maybe|perhaps|possibly|even|else|is it)?[ \t]*[$£€*]*[0-9]"
)
_NUMBERING = re.compile(r"[0-9]{1,2}[.):]\s+[A-Za-z*]")


def _one(text: str, number: re.Match) -> Fraction | None:
    """The value offered by a number and the rest of its line: None for one of several, the result for a calculation."""
    if CALCULATION.match(text, number.end()):
        line = text[number.start() : number.start() + 400].partition("\n")[0]
        return result_of(re.split(r"[.!?;](?:\s|\Z)", line, maxsplit=1)[0])
    return None if _SEVERAL.match(text, number.end()) else value_of(number)


# --- The markers: each finder gives (position, value) of the last one, value None where it holds no single number
Marker = tuple[int, Fraction | None]
_NONE: Marker = (-1, None)
_ANSWERS = (
    r"(?:\*\*)?(?:\s(?:to|for)\b[^.:\n=]{0,120}?)?(?:[ \t]+(?:here|then|should|would|will|must))?"
    r"[ \t]*(is\b|be\b|equals\b|comes (?:out )?to\b|=|:|\*\*|\n|-|→)"
)
# Each way to match starts with a letter of its own: the rest of a text is then passed over quickly.
_MARKER = re.compile(rf"####(?!#)|A:(?<![^\n*]A:)|nswer{_ANSWERS}|NSWER{_ANSWERS}")
# An intermediate answer, or what the answer would be if things were different.
_SUPPOSED = re.compile(
    r"\b(?:(?:intermediate|first|second|third|other|previous) answer|(?:if|had)\b[^.!?\n]*nswer would)[^.!?\n]*\n?\Z",
    re.I,
)
_ALONE = re.compile(r"[$*%)}\]\\. \t]*(?:[A-Za-z/]+(?:[ \t.*$]+|(?=\n|\Z))){0,3}(?:\n|\Z)")


def _marked(text: str) -> Marker:
    """`#### 18`, a line "A: 18", "The answer is 18", "Answer: 18", "**Final Answer**\\n18"."""
    found = _NONE
    for cue in _MARKER.finditer(text):
        number = number_at(text, cue.end())
        if number and _counts(text, cue, number):
            found = (cue.start(), _one(text, number))
    return found


def _counts(text: str, cue: re.Match, number: re.Match) -> bool:
    """A heading "Answer:" may open the working instead: then no number stands before it and more than one behind."""
    how = cue[1] or cue[2]
    if how is None:
        is_hashes = cue[0] == "####"
        return (
            not _NUMBERING.match(text, number.start())
            if is_hashes
            else bool(_ALONE.match(text, number.end()))
        )
    if _SUPPOSED.search(text, max(cue.start() - 80, 0), cue.end()):
        return False
    if "\n" in text[cue.end() - 1 : number.start()] and _NUMBERING.match(text, number.start()):
        return False
    if how[0] not in ":*\n-=→" or _ALONE.match(text, number.end()):
        return True
    return DIGIT.search(text, 0, cue.start()) is not None


_MAX_BOX_CHARS = 200  # what is read of a box, its end
_FUNCTION = re.compile(r"[\^!]|\\(?:sqrt|pi|pm|log|ln|sin|cos|tan|infty|[lg]eq?|neq|binom|sum)\b")


def _boxed(text: str) -> Marker:
    """The last complete box that holds a digit."""
    for _, start, end, _ in reversed(find_boxes(text)):
        if DIGIT.search(text, max(start, end - _MAX_BOX_CHARS), end):
            content = text[max(start, end - _MAX_BOX_CHARS) : end].rpartition("=")[2]
            numbers = list(NUMBER.finditer(content))
            return end, value_of(numbers[0]) if len(numbers) == 1 and not _FUNCTION.search(
                content
            ) else None
    return _NONE


def _tag(text: str) -> Marker:
    inside = tag_span(text, "answer")
    if inside is None:
        return _NONE
    content = text[slice(*inside)].strip().replace("\n", ", ")  # numbers on two lines are two
    number = number_at(content, 0)
    return inside[1], _one(content, number) if number else sentence_value(content[-400:])


_THE_ANSWER = re.compile(r"answer\b")
_IS_THE = re.compile(r"[$*%]{0,4}(?:\s[A-Za-z]+)*\s(?:is|as) (?:the|my|our) (?:final |correct )?")


def _is_the_answer(text: str) -> Marker:
    """ "18 eggs is the answer"."""
    found = _NONE
    for match in _THE_ANSWER.finditer(text):
        if not re.search(" [ia]s ", text[max(match.start() - 24, 0) : match.start()]):
            continue
        for number in NUMBER.finditer(text, max(match.start() - 60, 0), match.start()):
            if _IS_THE.fullmatch(text, number.end(), match.start()):
                found = (match.start(), value_of(number))
    return found


# --- Taken together
_CHECKS = re.compile(
    r"(?:^|\n|[.!?:] )[#*\s]{0,6}(?:[0-9]{1,2}[.)] )?"
    r"(?:(?:Now,? )?(?:[Ll]et(?:'s|’s| me| us)|[Ww]e can|To) (?:double[- ]?)?(?:check|verify)"
    r"|Verification|Check|Explanation|Double[- ]check)\b(?! how| what)"
)
_CONFIRMS = re.compile(
    r"\b(?:is|are|was|'s) (?:indeed )?(?:correct|right|fine)\b|\b(?:[Yy]es|matches|confirm|checks out)\b"
)


def final_answer(text: str, thoughts: bool = False) -> Fraction | None:
    r"""The number that `text` offers as its final answer, as an exact value; None where it offers no single number.

    Args:
        thoughts: whether an answer counts that stands in `<think>` alone.

    Example: `final_answer("2 * 9 = 18 dollars. #### 18\n\nQuestion: 3 + 4?") == 18`;
    `final_answer("The answer is 17 or 18.") is None`
    """
    text = first_problem(text)[-MAX_CHARS:]
    answer = after_thinking(text)
    text = plain(answer if DIGIT.search(answer) or not thoughts else text)
    text = without_code(text) if "```" in text else text
    position, value = max(
        (find(text) for find in (_marked, _boxed, _tag, _is_the_answer)), key=lambda m: m[0]
    )
    if position < 0:
        position, value = len(text) - 900, conclusion(_before_check(text))
    else:
        taken_back = _taken_back(text, position)
        value = value if taken_back is None else taken_back
    return None if value is None or is_denied(text, max(position, 0), value) else value


def _taken_back(text: str, position: int) -> Fraction | None:
    """The value a text arrives at when it takes back what it marked at `position`; None when it does not."""
    match = takes_back(text, position)
    if match is None or _CONFIRMS.search(text, match.end()):
        return None
    return conclusion(text[match.end() :])


def _before_check(text: str) -> str:
    """The text before it checks or explains its result, unless the check finds a mistake."""
    digit = (
        DIGIT.search(text)
        if any(word in text for word in ("heck", "erif", "Explanation"))
        else None
    )
    match = _CHECKS.search(text, digit.end()) if digit else None
    if match is None or takes_back(text, match.end()):
        return text
    return text[: match.start() + 1]


def is_final_answer(text: str, gold: str) -> bool:
    """True when the final answer of `text` has the value of `gold`; False when either is not a number.

    Example: `is_final_answer("So she has $1,080 left.", "1080") is True`
    """
    value = final_answer(text)
    return value is not None and value == parse_number(gold)
