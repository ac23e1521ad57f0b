r"""The number a free-form completion offers as its final answer, in grade-school maths as language models write it.

How it reads, in this order:

1. What follows the first problem (the next `Question:`, `Human:`, `<|im_end|>`, ...) is not read.
2. Of the explicit markers (`#### 18`, `\boxed{18}`, `<answer>18</answer>`, `The answer is 18`, `Answer: 18`, `A: 18`)
   the last one counts, unless the text takes it back ("Wait, I forgot ...") and goes on to another number.
3. Where nothing is marked, the last sentence that concludes counts: the right side of its last equation, its bold
   number, or its last number that is not a detail such as "in 3 days" or "at $2 each".

A marker that holds several numbers ("17 or 18", `\boxed{17, 18}`) offers none of them: listing candidates earns
nothing. Only ASCII digits are digits, and "18 thousand" is no number, as in `rewards.parsing.parse_number`.
The patterns bound what they repeat, or repeat what cannot match two ways: each takes linear time on any text.
"""

import re
from fractions import Fraction

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
from rewards.parsing import after_thinking, parse_number
from rewards.plain_text import DIGIT, TAKES_BACK, first_problem, plain, without_code

MAX_CHARS = 20_000  # an answer stands at the end: of a longer text, only this much of its end is read
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
_HASHES = re.compile(r"####(?!#)")
_BRACES = re.compile(r"\\(?:boxed|fbox)\s?(?:\{|(?=[0-9$]))|\\?[{}]")
_ANSWER = re.compile(
    r"nswer(?:\*\*)?(?:\s(?:to|for)\b[^.:\n=]{0,120}?)?(?:[ \t]+(?:here|then|should|would|will|must))?"
    r"[ \t]*(?P<how>is\b|be\b|equals\b|comes (?:out )?to\b|=|:|\*\*|\n|-|→)"
)
_THE_ANSWER = re.compile(r"answer\b")
_IS_THE = re.compile(r"\b(?:is|as) (?:the|my|our) (?:final |correct )?\Z")
_UNITS = re.compile(r"[$*%]{0,4}(?:\s[A-Za-z]+)*\s")


def _hashes(text: str) -> Marker:
    found = _NONE
    for match in _HASHES.finditer(text):
        number = number_at(text, match.end())
        if number and not _NUMBERING.match(text, number.start()):
            found = (match.start(), _one(text, number))
    return found


def _boxed(text: str) -> Marker:
    """The last complete box that holds a digit; one stack, because models leave braces open."""
    found, stack = _NONE, []
    if "\\boxed" not in text and "\\fbox" not in text:
        return found
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "}" and stack:
            start = stack.pop()
            start = start if start < 0 else max(start, match.start() - _MAX_BOX_CHARS)
            if start >= 0 and DIGIT.search(text, start, match.start()):
                found = (match.start(), _box_value(text[start : match.start()]))
        elif token[0] == "\\" and token[-1] == "{" and len(token) > 2:
            stack.append(match.end())
        elif token == "{":
            stack.append(-1)
        elif token[-1] not in "{}" and (number := NUMBER.match(text, match.end())):
            found = (match.end(), value_of(number))
    return found


_MAX_BOX_CHARS = 200  # what is read of a box, its end
_FUNCTION = re.compile(r"[\^!]|\\(?:sqrt|pi|pm|log|ln|sin|cos|tan|infty|[lg]eq?|neq|binom|sum)\b")


def _box_value(content: str) -> Fraction | None:
    content = content.rpartition("=")[2]
    numbers = list(NUMBER.finditer(content))
    return value_of(numbers[0]) if len(numbers) == 1 and not _FUNCTION.search(content) else None


_NUMBER_ON_NEXT_LINE = re.compile(r"\n[ \t]*[$£€]?[0-9]")


def _tag(text: str) -> Marker:
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if end < 0 or start < 0:
        return _NONE
    if not DIGIT.search(text, start, end):  # a tag without a number offers none, whatever stands before it
        return end, None
    content = text[start + len("<answer>") : end].strip()
    number = number_at(content, 0)
    if number and _NUMBER_ON_NEXT_LINE.search(content, number.end()):
        return end, None
    return end, _one(content, number) if number else sentence_value(content[-400:])


def _answer(text: str) -> Marker:
    """ "The answer is 18", "Answer: 18", "**Final Answer**\n18", "18 is the answer"."""
    found = _NONE
    for match in _ANSWER.finditer(text if "NSWER" not in text else text.replace("NSWER", "nswer")):
        before = text[max(match.start() - 80, 0) : match.start()]
        number = None if _supposed(before, match[0]) else number_at(text, match.end())
        if number and _counts(text, match, number):
            found = (match.start(), _one(text, number))
    return found


def _is_the_answer(text: str) -> Marker:
    """ "18 is the answer"."""
    found = _NONE
    for match in _THE_ANSWER.finditer(text):
        start = max(match.start() - 60, 0)
        verb = _IS_THE.search(text[start : match.start()])
        *_, number = (None, *NUMBER.finditer(text, start, start + verb.start())) if verb else (None,)
        if number and _UNITS.fullmatch(text, number.end(), start + verb.start()):
            found = (match.start(), value_of(number))
    return found


_OTHER_ANSWER = re.compile(r"\b(?:[Ii]ntermediate|[Ff]irst|[Ss]econd|[Tt]hird|[Oo]ther|[Pp]revious|[Ww]rong) [Aa]\Z")


def _supposed(before: str, cue: str) -> bool:
    """An intermediate answer, or what the answer would be if things were different."""
    sentence = re.split(r"[.!?\n]", before)[-1]
    return _OTHER_ANSWER.search(sentence) is not None or (
        "would" in cue and re.search(r"\b(?:[Ii]f|[Hh]ad)\b", sentence) is not None
    )


_ALONE = re.compile(r"[$*%)}\]\\. \t]*(?:[A-Za-z/]+(?:[ \t.*$]+|(?=\n|\Z))){0,3}(?:\n|\Z)")


def _counts(text: str, cue: re.Match, number: re.Match) -> bool:
    """A heading "Answer:" may open the working instead: then no number stands before it and more than one behind."""
    if "\n" in text[cue.end() - 1 : number.start()] and _NUMBERING.match(text, number.start()):
        return False
    if cue["how"][0] not in ":*\n-=→" or _ALONE.match(text, number.end()):
        return True
    return DIGIT.search(text, 0, cue.start()) is not None


_LINE_A = re.compile(r"(?:^|\n)\**A:")


def _line_a(text: str) -> Marker:
    found = _NONE
    for match in _LINE_A.finditer(text) if "A:" in text else ():
        number = number_at(text, match.end())
        if number and _ALONE.match(text, number.end()):
            found = (match.end(), value_of(number))
    return found


# --- Taken together
_CHECKS = re.compile(
    r"(?:^|\n|[.!?:] )[#*\s]{0,6}"
    r"(?:(?:Now,? )?(?:[Ll]et(?:'s|’s| me| us)|[Ww]e can|To) (?:double[- ]?)?(?:check|verify)"
    r"|Verification|Check|Explanation|Double[- ]check)\b(?! how| what)"
)
_DANGLING_LABEL = re.compile(r"\n[#*\s]{0,8}[0-9]{1,2}[.)]\Z")
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
        (find(text) for find in (_hashes, _boxed, _tag, _answer, _is_the_answer, _line_a)), key=lambda m: m[0]
    )
    if position < 0:
        position, value = len(text) - 900, conclusion(_final_passage(_before_check(text)))
    else:
        taken_back = _taken_back(text, position)
        value = value if taken_back is None else taken_back
    return None if value is None or is_denied(text, max(position, 0), value) else value


def _taken_back(text: str, position: int) -> Fraction | None:
    """The value a text arrives at when it takes back what it marked at `position`; None when it does not."""
    match = TAKES_BACK.search(text, position)
    if match is None or _CONFIRMS.search(text, match.end()):
        return None
    return conclusion(text[match.end() :])


def _before_check(text: str) -> str:
    """The text before it checks or explains its result, unless the check finds a mistake."""
    digit = DIGIT.search(text) if any(word in text for word in ("heck", "erif", "Explanation")) else None
    match = _CHECKS.search(text, digit.end()) if digit else None
    if match is None or TAKES_BACK.search(text, match.end()):
        return text
    return _DANGLING_LABEL.sub("", text[: match.start() + 1])


_FINAL = re.compile(r"(?:inal [aA]|\*\*A|#[ \t]A)nswer\b")
_PARAGRAPH = re.compile(r"[^0-9]*[0-9](?:[^\n]|\n(?!\s*\n))*")


def _final_passage(text: str) -> str:
    """The paragraph that a "Final answer" behind the working opens in words, or the whole text."""
    *_, heading = (None, *_FINAL.finditer(text)) if "nswer" in text else (None,)
    if heading is None or not DIGIT.search(text, 0, heading.start()):
        return text
    passage = _PARAGRAPH.match(text, heading.end())
    return passage[0] if passage else text


def is_final_answer(text: str, gold: str, thoughts: bool = False) -> bool:
    """True when the final answer of `text` has the value of `gold`; False when either is no number.

    Example: `is_final_answer("So she has $1,080 left.", "1080") is True`
    """
    value = final_answer(text, thoughts)
    return value is not None and value == parse_number(gold)
