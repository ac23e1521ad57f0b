r"""Reads the number that a free text offers as its final answer.

1. The last marked place counts: `<answer>18</answer>`, `\boxed{18}`, `#### 18`, "The answer is 18".
2. Where nothing is marked, the last sentence with a number counts.
3. In a sentence the right side of the last equation counts. Without an equation the last number
   counts that is not a detail ("in 3 days", "at $2 each"). Numbers in parentheses count only where
   the rest of the sentence has none.
4. `number_of` reads the number. The answer is None where an operation is left to do (`9 * 2`),
   where several numbers are offered ("17 or 18"), and where words deny the number ("not 18").
5. A later statement wins: after "The answer is 18. Actually, it is 20." the answer is 20, and after
   "Answer: unknown" it is None.

Every pattern takes linear time: each repetition is bounded, or can match in one way only.
"""

import itertools
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from rewards.latex.number import CURRENCIES, HEDGES, QUALIFIERS, SCALE, UNIT_NAMES, number_of
from rewards.latex.parse import NUMBER_WORDS, tidy
from rewards.text import (
    ASIDE,
    Place,
    answer_part,
    before_next_problem,
    boxed_answer,
    end_of_denial,
    find_boxes,
    find_tag,
    gives_up,
    inside_of,
    is_denied,
    is_one_of_several,
    start_of_correction,
    without_dollars,
    without_programs,
)

MAX_CHARS = 20_000  # only the end of a longer text is read: the answer stands there
MAX_SENTENCE_CHARS = 400  # the most that is read of one sentence
MAX_MARKERS = 50  # only the last ones are read
_DIGIT = re.compile("[0-9¼½¾]")
# A letter or digit. Chinese, Japanese and Korean have no spaces between words: these end one.
_LETTER = r"[^\W\u3041-\ud7a3]"
_NUMBER = re.compile(
    # "-5", "is - 5" and "is minus 5" have a sign; "20 - 5" has an operator.
    rf"(?:(?:\A|(?<=[=:#])|(?<=\bis))\s*-\s?|(?<!{_LETTER})(?<![).])-"
    r"|(?:\b[Nn]egative|(?:\A|(?<=is )|(?<=: )|(?<== ))[Mm]inus)\s)?"
    # It does not start inside a word, an index, a power or 5:30, or after the comma of "17,18".
    rf"(?<!{_LETTER})(?<![\^\\{{])(?<![0-9][.,:'’_])"
    # A fraction, a mixed number, a decimal or a quotient.
    r"(?P<digits>(?:[0-9]{1,9}\s?)?\\frac\s?(?:\{[^{}]{1,20}\}|[0-9]){2}"
    r"|[0-9]{1,9}\s[0-9]{1,4}/[0-9]{1,4}"
    r"|(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?|(?<!\.)\.[0-9]+)"
    # No digit of any script follows.
    r"(?!\d|[,.'’_][0-9]|:(?!00)[0-9])"
    # A suffix may follow ("5th", "5:00 pm", "5 million", "5cm^2"), but not a factor ("5 pi").
    r"(?P<ordinal>(?:st|nd|rd|th)\b)?(?::00)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
    rf"(?:(?P<scale>\s?{SCALE})|(?P<unit>[A-Za-z]+)(?:\^\{{?[23]\}}?)?)?(?![A-Za-z0-9万萬亿億만억])"
    r"(?!\s?(?:\\[a-z]|(?:[nyz]|pi|[ei](?!\.)|x(?!\s*[($]*[0-9]))\b))"
)
_COUNT = "|".join(NUMBER_WORDS)
_PART = r"(?:hal(?:f|ves)|thirds?|quarters?|(?:four|fif|six|seven|eigh|nin|ten)ths?)"
# An operation after a number: "9 * 2", "18 less two", "18 and a third", "18 degrees below zero".
_OPERATION = re.compile(
    rf"[\s*)}}]{{0,4}}(?:[A-Za-z]+\s){{0,2}}\s?(?:and (?:an?|{_COUNT}) {_PART}\b"
    r"|(?:raised to|to the power|below zero|in base|doubled|tripled|halved)\b"
    r"|(?:%|percent) of \$?[0-9]|[∗∕⋅∙✕✖＋]\s?[0-9]"
    r"|(?:[-+/^*x]|plus|minus|less|(?:less|more|fewer) than|times|point|mod|divided by"
    r"|multiplied by)"
    rf"(?=[\s({{]*(?:[0-9.]|\\|(?:{_COUNT})\b)))"
)
# An operation, a bound or two signs before a number: "twice 18", "under 18", "\pm 18".
_SCALED = re.compile(
    r"(?:\\(?:pm|[gl]e)|(?:(?<=is\s)|(?<=:\s))[<>]|\b(?:twice|thrice|double|triple|half|close to"
    rf"|under|below|above|(?:{_COUNT}) times"
    rf"|(?:{_PART}|root|square|cube|multiples?|powers?|percent) of))\s\Z",
    re.IGNORECASE,
)
_VAGUE = re.compile(r"\s?(?:[A-Za-z]+\s){0,2}or (?:more|less|fewer|so)\b")  # "18 or more"
# What stands between the numbers of a list: "17 or 18", "17 boys and 18", "17 hours 18 minutes".
_LISTED = re.compile(
    r"\s*(?:(?:[,;/&|~-]|to|through)?\s*(?:or|and)?|(?:[A-Za-z]+\s+){0,2}(?:or|and)"
    rf"|(?:{'|'.join(name for name in UNIT_NAMES if len(name) > 2)})s?)\s*"
    r"(?:(?:maybe|perhaps|possibly|even)\s+)?"
)


class Stated(NamedTuple):
    """What a place of a text states: a number or, where it states no single number, None."""

    value: Fraction | None
    end: int = 0  # of the place in the text, where that matters


def _value_of_match(number: re.Match) -> Fraction | None:
    """The value of a match of `_NUMBER`: 18 of "18m", read as "18 m", else m would be a factor."""
    sign_and_digits = number[0][: number.end("digits") - number.start()]
    unit_or_scale = f" {number['unit']}" if number["unit"] else (number["scale"] or "").strip()
    return number_of(sign_and_digits + unit_or_scale)


def _value(text: str, numbers: list[re.Match], i: int) -> Fraction | None:
    """The value of number `i` of a text; None where it is listed, vague or left to calculate.

    `numbers` are the matches of `_NUMBER`. Example: 18 of "It is 18"; None of "17 or 18", "9 * 2",
    "twice 18" and "18 or more".
    """
    # An operation may stand behind the number or behind the one before it: "9 * 2".
    if any(_OPERATION.match(text, number.end()) for number in numbers[max(i - 1, 0) : i + 1]):
        return None
    start, end = numbers[i].span()
    if _SCALED.search(text, max(start - 20, 0), start) or _VAGUE.match(text, end):
        return None
    for left, right in itertools.pairwise(numbers[max(i - 1, 0) : i + 2]):  # its neighbours
        is_listed = _LISTED.fullmatch(text, left.end(), right.start())
        if is_listed and _value_of_match(left) != _value_of_match(right):
            return None
    return _value_of_match(numbers[i])


# --- A sentence

_BOLD = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(])")  # but `2**3` is a power
_WRAPPING = re.compile(
    r"\\(?:text|boxed|fbox)\s?\{([^{}]*)\}|\\[()\[\]$%]"
    r"|\\(?:begin|end)\{[a-z*]{1,12}\}|\\degree\s?(?:[CF]\b)?"
)
_CURRENCY = re.compile(rf"(?<![A-Za-z])[A-Z]{{1,3}}(?=\$)|[{CURRENCIES}]")
# A number is a detail, not the result, if one of these stands at most three words before it. What
# somebody needs or is able to do is the result: "She needs to save $18 in 3 weeks".
_MODALS = "need needs needed has have had want wants able going required".split()
_IS_ASKED = "".join(rf"(?<!\b{word} )" for word in _MODALS)
_DETAIL = re.compile(
    r"\b(?:in|for|over|after|within|during|per|every|at|with|from|by|on|until|before|between|when"
    r"|out of|of (?:the|her|his|their|its|those|these|all|which)"
    # But what is needed, an "if" and a "to be able" have a purpose behind them.
    r"|(?:(?:is|are|was|were|be)(?: [a-z]+)? (?:needed|required)|if [a-z]+ [a-z]+|to be able)"
    r" to [a-z]+"
    rf"|{_IS_ASKED}to (?!(?:be|find|get)\b)[a-z]+)"
    r"(?:\s+(?!(?:is|are|was|were|makes|has|have|total|sum)\b)[a-zA-Z']+){0,3}\s*\Z",
    re.IGNORECASE,
)
_WITH = re.compile(r"\s*(?:[a-zA-Z]+\s+)?(?:and|or|to|-)\s+")  # joins two details: "in 3 or 4 days"
# A number before these words is a detail too: "3 times", "3 more than", "a 3-page letter".
_COMPARES = re.compile(r"-[a-z]|\s(?:[a-z]+\s)?(?:times|(?:more|fewer|less)\s(?:[a-z]+\s)?than)\b")
# Not the result: "Since 16 - 7 = 9 are left, she makes $18", "She has 15 left, as she gave 5 away".
_FIRST = re.compile(
    r"\A\W*(?:so,?\s)?(?:since|as|because|if|when|with|after|given)\b(?:[^,]|,(?=[0-9]))*,\s", re.I
)
_LAST = re.compile(r"(?:[\s,](?:because|since)|,\sas\b(?!\s(?:well|many|much)\b))\b.*", re.DOTALL)
# What may stand between a marker or an equals sign and its number.
_LEAD = re.compile(r"[\s*_:=\"'`(\[~{]*(?:[a-zA-Z]\s?=\s?)?[{(*]*")


def stated(sentence: str) -> Fraction | None:
    """The number that a sentence states; None for none, several, or a sum that is not worked out.

    Example: `stated("2 * 9 = 18 dollars in 3 days") == 18`; `stated("17 or 18") is None`
    """
    text = _plain(sentence[-MAX_SENTENCE_CHARS:]).rstrip(" .!")
    for reason in (_FIRST, _LAST):
        result = reason.sub("", text)
        text = result if _DIGIT.search(result) else text
        if "=" in text:
            return _result(text.rpartition("=")[2])
    return _last_number(text)


def _plain(text: str) -> str:
    r"""The text without bold, LaTeX delimiters and currency: "18 eggs" of `**\text{18} eggs**`."""
    text = _BOLD.sub("", text)
    if "\\" in text or "{,}" in text or not text.isascii():
        text = _WRAPPING.sub(r"\1", tidy(text)).replace("\\approx", "=")
    return _CURRENCY.sub("", text)


def _result(side: str) -> Fraction | None:
    """The value of the right side of an equation: 18 of " 18 eggs in 3 days", None of " 9 * 2"."""
    side = side[_LEAD.match(side).end() :]  # without an opening bracket or "x = "
    if number := _NUMBER.match(side):
        return None if _OPERATION.match(side, number.end()) else _value_of_match(number)
    return _last_number(side)  # "= size 18"


def _last_number(text: str) -> Fraction | None:
    """The last number of a sentence that is not a detail; if all are details, the last one.

    Example: 18 of "She keeps 18 eggs in 3 days", where "in" makes 3 a detail. Numbers that words
    deny ("not 17") are passed over.
    """
    numbers = list(_NUMBER.finditer(text))
    results = []  # the indices of the numbers that are not details
    end, is_detail = 0, False  # of the number before
    for i, number in enumerate(numbers):
        before = text[max(end, number.start() - 60) : number.start()]
        end = number.end()
        # Led by "in", or joined to a detail: both numbers of "in 3 or 4 days".
        is_led = _DETAIL.search(before) or (is_detail and _WITH.fullmatch(before))
        is_detail = is_led or number["ordinal"] or _COMPARES.match(text, end)
        if not is_detail:
            results.append(i)
    for i in [*reversed(results), *reversed(range(len(numbers)))]:
        if not is_denied(text, *numbers[i].span()):
            return _value(text, numbers, i)
    return None


# What may lead a number that stands alone: "= 18", "USD 18".
_LEADING = re.compile(r"\s*=?\s*(?:USD|EUR|GBP)?\s*")


def read_one_number(text: str) -> Fraction | None:
    """Read a text that is one number; None for any other text.

    It reads what `number_of` reads, and also `**18 m**`, `"18"`, `18m`, `18:00` and `= 18`.

    Example: `read_one_number("**18**") == 18`; `read_one_number("She keeps 18 eggs") is None`
    """
    text = text[_LEADING.match(text).end() :]
    if text.startswith("~"):  # "~18" is about 18, although TeX writes a space so
        return None
    if (value := number_of(text)) is not None or len(text) > MAX_SENTENCE_CHARS:
        return value
    text = _plain(text).strip(" *_`\"'")
    number = _NUMBER.fullmatch(text)
    return _value_of_match(number) if number else number_of(text)


# --- The last sentence

_SENTENCE_END = re.compile(
    # "36 sq. ft. for 3 rooms" and "(15 vs. 6)" go on behind the full stop.
    r"(?<=[.!?])[*_)]{0,3}\s+(?![a-z]|[^()\n]{0,40}\))|[,;]\s*(?:and\s)?so\b"
    r"|\b(?:therefore|thus|hence|making|leaving|which (?:means|makes|gives|rounds))\b"
)
# Of a line: a bullet, "Step 1:" or "1.".
_LABEL = re.compile(
    r"\s*(?:[-*•#]+\s+)?(?:\**(?:(?:Step|Part)\s[0-9]{1,2}[:.]?|[0-9]{1,2}[.)](?=\s)))?"
)


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a text, last first. A line break ends one; a label ("Step 1:") is cut."""
    for line in reversed(text.split("\n")):
        yield from reversed(_SENTENCE_END.split(line.rstrip()[_LABEL.match(line).end() :]))


_TEXT = re.compile(r"\\(?:text[a-z]*|mbox|math(?:rm|bf))\s*\{([^{}]*)\}|\\[][()]")
_VERB = re.compile(r"(?:\b(?:is|are|be|equals|costs|makes?|gives?)\b|:)")


def stated_text(text: str) -> str | None:
    r"""The answer that the last sentence with mathematics states, as text; None if it states none.

    The answer is the text after the last verb, else the number. Denials and questions state none,
    nor does mathematics without words, such as "x + 1".

    Example: `stated_text(r"\text{The answer is } \sqrt{2}") == r"\sqrt{2}"`;
    `stated_text("Is it 18?") is None`
    """
    sentence = next((part for part in _sentences(text) if re.search(r"[\d$\\]", part)), text)
    words = " ".join(_TEXT.sub(r" \1 ", without_dollars(sentence)).split()).strip(" .")
    may_state = re.search(r"(?<![A-Za-z\\])[A-Za-z]{2,}", words) or number_of(words) is not None
    if len(words) > MAX_SENTENCE_CHARS or not may_state or "?" in words:
        return None
    verbs = list(_VERB.finditer(words))
    start, end = verbs[-1].span() if verbs else (0, 0)
    if is_denied(words, end, len(words)):
        return None
    if verbs and (answer := words[end:].strip()):
        subject = None if re.search("[A-Za-z]", words[:start]) else number_of(words[:start])
        is_false = subject is not None and number_of(answer) not in (None, subject)
        return None if is_false else answer  # "20 is 18" states no answer
    is_guess = (HEDGES | QUALIFIERS).intersection(words.casefold().split())
    is_formula = re.search(r"[=\\^]", words)
    value = None if is_guess or is_formula else stated(words)
    return None if value is None else str(value)


_PARENTHESES = re.compile(r"\([^()]*\)")
# Ends with a whole sentence, and perhaps a part of a tag: "It is 12%.</reas".
_WHOLE = re.compile(r"[.!][*\s]*(?:</?\w*>?\s*)?\Z")


def _last_stated(text: str, cut_off: bool = False) -> Stated | None:
    """What the last sentence with a number states; None for a text without such a sentence.

    Questions and asides ("Note that ...", "Check: ...") are left out. The value is None where a
    later sentence denies it and states no other ("That is wrong.") or gives up ("I cannot solve
    this."). A text that was cut off within a sentence was still on its way: there only the result
    of an equation counts.
    """
    if gives_up(text):
        return Stated(None)
    for part in _sentences(text):
        if (denial := end_of_denial(part)) is not None:  # "That is wrong, it is 20." states 20
            verbs = [*_VERB.finditer(part, denial)]
            return Stated(stated(part[verbs[-1].end() :]) if verbs else None)
        outside = _PARENTHESES.sub(" ", part)
        is_question = "=" not in part and part.rstrip(" *_)").endswith("?")
        is_empty = not _DIGIT.search(part) or not outside.strip(" .*")
        if not (is_empty or is_question or ASIDE.match(part)):
            if cut_off and "=" not in part and not _WHOLE.search(text):
                return Stated(None)
            return Stated(stated(outside if _DIGIT.search(outside) else part))
    return None


def _corrected(text: str) -> Stated | None:
    """What a text states behind words that take back what was before it; None without them.

    Example: `_corrected(". Actually, it is 20.").value == 20`; `_corrected(". It is 20.") is None`;
    `_corrected(". However, 2 more came, so it is 20.").value == 20`
    """
    start = start_of_correction(text)
    return None if start is None else _last_stated(text[start:])


def last_tag(text: str) -> str | None:
    """The text of the last answer tag or of a box in it; None if there is none or it is taken back.

    Example: `last_tag("<answer>18</answer>") == "18"`;
    `last_tag("<answer>18</answer> Actually, it is 20.") is None`
    """
    if (first := text.find("</answer>")) >= 0:
        text = before_next_problem(text, first)
    place = find_tag(text, "answer")
    return inside_of(text, place) if place and not _is_taken_back(text, place) else None


def last_box(text: str) -> str | None:
    r"""The answer in the last box (see `boxed_answer`); None if there is none or it is taken back.

    Example: `last_box(r"\boxed{18}. Wait, I forgot 2, so it is 20.") is None`
    """
    if boxes := find_boxes(text):
        text = before_next_problem(text, boxes[0].end)
        boxes = find_boxes(text)
    return boxed_answer(text) if boxes and not _is_taken_back(text, boxes[-1]) else None


def _is_taken_back(text: str, place: Place) -> bool:
    """Whether words deny the answer in a tag or box, add another, or state another number later.

    Such as "wrong: \\boxed{18}", "\\boxed{18} or 20" and "\\boxed{18}. Actually, it is 20.".
    """
    answer = inside_of(text, place)
    value = read_one_number(answer)
    span = text, place.start, place.end
    if is_denied(*span, answer) or is_one_of_several(*span, value):
        return True
    behind = text[place.end :][-MAX_CHARS:]
    later = _corrected(behind) or _after_marker(behind)
    return later is not None and None not in (later.value, value) and later.value != value


# --- The marked places

# Each alternative starts with a fixed character, so the search skips other text quickly.
_MARKER = re.compile(
    r"####(?!#)|A:(?<![^\n*]A:)|n(?:swer|SWER)(?:\*\*)?(?:\s(?:to|for)\b[^.:\n=]{0,120}?)?"
    r"(?:[ \t]+(?:should|will|must))?[ \t]*(?:is\b|be\b|equals\b|=|:|\*\*|\n)"
)
# Before a marker that names the answer, and gives none: "Let me check the answer: 18 / 2 = 9".
_CHECKING = re.compile(r"\b(?:check|verify|confirm)(?:ing)?\s(?:[a-z]{2,8}\s){0,3}a\Z", re.I)
_STEP = re.compile(r"[0-9]{1,2}[.):]\s+[A-Za-z*]")  # "#### 1. Count" is a heading
_SENTENCE = re.compile(r"(?:\\(?:text|mathrm)\s?\{\s*)?[A-Za-z]{2,}|[^=]*=")


def _after_marker(text: str, cut_off: bool = False) -> Stated | None:
    """What stands behind the last marker of a number; None without one.

    Markers: `#### 18`, a line "A: 18", "The answer is 18", "**Final Answer**\\n18".
    """
    for marker in reversed([*_MARKER.finditer(text)][-MAX_MARKERS:]):
        behind = text[marker.end() :]
        if _CHECKING.search(text, max(marker.start() - 50, 0), marker.start()):
            continue
        if not _DIGIT.search(behind) and re.search("[A-Za-z]", behind):  # "Answer: unknown"
            return Stated(None, marker.end())
        line = behind[:MAX_SENTENCE_CHARS].lstrip().partition("\n")[0]
        if marker[0] == "####" and _STEP.match(line):
            continue  # "#### 1. Count" is a heading
        line = _plain(_SENTENCE_END.split(line, maxsplit=1)[0])
        line = line[_LEAD.match(line).end() :]
        numbers = [*itertools.islice(_NUMBER.finditer(line), 2)]
        if not numbers or numbers[0].start() > 0:  # no number stands right behind the marker
            continue
        # The same number in the text itself, which `_plain` may have shortened.
        number = _NUMBER.search(text, marker.end())
        start, end = number.span() if number else (marker.end(), marker.end())
        value = _value_of_match(numbers[0])
        if is_denied(text, start, end) or is_one_of_several(text, start, end, value):
            return Stated(None, end)
        value = _value(line, numbers, 0)
        is_sum = value is None and "=" in line  # "9 * 2 = 18", "36/2 = 18"
        is_list = re.match(r"[\s*]*\n(?:1[.)]|[-*•]) ", behind)
        if is_list or (is_sum and marker[0][-1] in ":*\n"):  # "Answer: 16 - 7 = 9. 9 * 2 = 18"
            to_last_equation = re.match(r"(?s:.*=)[^\n]*?(?=\Z|\n|[.!] )", behind)
            last = _last_stated(to_last_equation[0] if to_last_equation else behind, cut_off)
            return Stated(last.value if last else None, end)
        return Stated(stated(line) if is_sum else value, end)
    return None


def _enclosed(text: str, place: Place) -> Stated:
    """The number in a tag or a box, alone or in a sentence; None if denied or one of several.

    Example: 18 of "<answer>She keeps 18 eggs</answer>"; None of "<answer>18</answer> or 20".
    """
    inside = inside_of(text, place)
    value = read_one_number(inside)
    if value is None and _SENTENCE.match(inside):
        value = stated(inside)
    span = text, place.start, place.end
    boxed = boxed_answer(text[: place.end]) if text[place.start] == "\\" else ""
    is_doubted = is_denied(*span, inside) or is_one_of_several(*span, value) or " or " in boxed
    return Stated(None if is_doubted else value, place.inside_end)


def final_answer(text: str, thoughts: bool = False, cut_off: bool = False) -> Fraction | None:
    r"""The number that `text` offers as its final answer; None where it offers no single number.

    Args:
        thoughts: whether an answer inside `<think>` counts where no number stands outside.
        cut_off: whether the text reached its length limit: if it ends within a sentence, a number
            counts only in a box or tag, behind a marker, or as the result of an equation.

    Example: `final_answer("2 * 9 = 18 dollars. #### 18\n\nQuestion: 3 + 4?") == 18`;
    `final_answer("The answer is 17 or 18.") is None`
    """
    text = before_next_problem(text)[-MAX_CHARS:]
    answer = answer_part(text)
    text = without_programs(answer if _DIGIT.search(answer) or not thoughts else text)
    found = [*find_boxes(text), find_tag(text, "answer")]
    places = [place for place in found if place and text[place.inside : place.inside_end].strip()]
    marked = [marker] if (marker := _after_marker(text, cut_off)) else []
    if places:
        marked.append(_enclosed(text, max(places, key=lambda place: place.inside_end)))
    if marked:
        last = max(marked, key=lambda place: place.end)
        last = _corrected(text[last.end :]) or last  # "Actually, it is 20."
    else:
        last = _last_stated(text, cut_off)
    return last.value if last else None


def is_final_answer(text: str, gold: str, cut_off: bool = False) -> bool:
    """Whether the final answer of `text` has the value of `gold`; False if either is no number.

    Example: `is_final_answer("So she has $1,080 left.", "1080") is True`
    """
    value = final_answer(text, cut_off=cut_off)
    return value is not None and value == number_of(gold)
