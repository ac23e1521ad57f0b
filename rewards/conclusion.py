"""The number that sentences come to, where no marker says which is the answer.

One number as written is `NUMBER`; a sentence concludes with the right side of its last equation, its bold number, or
its last number that is not a detail such as "in 3 days" or "at $2 each".
"""

import re
from fractions import Fraction

from rewards.parsing import DENIALS, FILLERS, SCALE, UNTRUE, WHOLE, parse_number
from rewards.plain_text import DIGIT

# One number as written: not part of a word, of a time like 5:30 (5:00 is 5), of "17,18" or of "1e9".
NUMBER = re.compile(
    r"(?:(?<![\w).])-)?(?:\$\s?-?)?(?<!\w)(?<![0-9][.,:])"
    r"(?:(?P<whole>[0-9]{1,9})\s(?P<part>[0-9]{1,9}/[0-9]{1,9})"
    rf"|{WHOLE}(?:\.[0-9]+|:00|/[0-9]+)?|(?<!\.)\.[0-9]+)"
    r"(?![0-9]|[,:.][0-9]|[eE][-+]?[0-9]|[^\D0-9]|[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215f])"
    rf"(?P<ordinal>(?:st|nd|rd|th)\b)?(?P<scale>\s?{SCALE})?"
)


def value_of(number: re.Match) -> Fraction | None:
    if number["scale"]:
        return None
    if number["whole"] is None:
        return parse_number(number[0].replace(":00", ""))
    part = parse_number(number["part"])
    return None if part is None else int(number["whole"]) + part


# --- A number that is named only to say that it is not the answer

_DENIES = re.compile(
    rf"(?:(?<![A-Za-z])(?:{DENIALS}|maybe|perhaps|possibly|(?:rather|less|more|greater|fewer|smaller|larger|other) than"
    r"|different from|instead of|except(?: for)?|unlike|at (?:least|most)|up to)(?![A-Za-z])"
    rf"|(?:(?<![A-Za-z])[A-Za-z]|[0-9])\s?[<>]|≠|!=|\\(?:n?[gl]?eq?|[gl]t)\b){FILLERS}",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:</answer>)?(?:[ \t*$)}\]\"'%]{0,6}(?:[a-z]+\s){0,2}?[ \t,;]{0,3}"
    r"(?:(?:which|that|this|it|but|and)\s){0,3}(?:[a-z]{2,7}n['’]t\b"
    r"|cannot\b|(?:is|was|are|seems|looks|would be|will be|must be|has to be|turned out to be)\s(?:[a-z]+\s){0,2}?"
    r"(?:not?|never|wrong|incorrect|false|impossible|mistaken|invalid)\b)"
    rf"|[\s.*$)}}\]]{{0,8}}(?:that|this|it|which)(?: is|'s| was) (?:[a-z]+ ){{0,2}}{UNTRUE}\b"
    r"|[^.!?\n0-9]{0,60}\bbut (?:it|that|this)(?: is|'s| was) (?:wrong|incorrect|false|not)\b"
    r"|\W{0,3}\?\s*(?:no|nope|wrong|never)\b|\W{0,3}(?:just kidding|not!)"
    # Doubt: no answer is "18 or so", "18, I guess" or "18 or more".
    r"|[ \t*$)}\]\"'%,(]{0,6}(?:[a-z]+\s){0,2}?[,(]?\s?(?:or (?:so|thereabouts|more|less|fewer|maybe|perhaps)"
    r"|give or take|perhaps|maybe|probably|possibly|i (?:guess|think|suppose|believe)|roughly|approximately"
    r"|at (?:least|most))\b)",
    re.IGNORECASE,
)
# A text with none of these denies nothing: most are recognised without a pattern.
_HINTS = (
    "not", "n't", "n’t", "nor", "nobody", "no one", "no longer", "by no", "in no", "under no", "?", "never", "neither",
    "doubt", "but ", "refuse", "hardly", "far from", " than", "different", "instead", "except", "unlike", "at least",
    "at most", "up to", "possib", "wrong", "incorrect", "false", "mistaken", "invalid", "kidding", "opposite", " or ",
    "perhaps", "maybe", "probab", " i ", "give or", "roughly", "approx", "<", ">", "≠", "!=", "\\n", "\\l", "\\g",
)  # fmt: skip


def _may_deny(text: str) -> bool:
    text = text.lower()
    for hint in _HINTS:  # noqa: SIM110 `any` takes half as long again
        if hint in text:
            return True
    return False


def is_denied(text: str, start: int, value: Fraction) -> bool:
    """Whether the last mention of `value` in the text around and behind `start` says that it is not the answer.

    Example: `is_denied("Wrong answer: 42", 6, Fraction(42))`; `not is_denied("It is 18, not 42.", 0, Fraction(18))`
    """
    text = text[max(start - 80, 0) : start + 1000]
    if not _may_deny(text):
        return False
    numbers = reversed([*NUMBER.finditer(text)])
    last = next((number for number in numbers if value_of(number) == value), None)
    return last is not None and (
        _is_ruled_out(text, last.start()) or _DENIED.match(text, last.end()) is not None
    )


def _is_ruled_out(text: str, start: int) -> bool:
    return _DENIES.search(text[max(start - 70, 0) : start]) is not None


# --- One number where a marker stands
_LEAD = re.compile(
    r"(?:[\s*_:=£€\"'`(\[~{]|\\boxed|\$(?![0-9.-])|[%<](?=[$0-9]))*"
    r"(?:(?:about|approximately|exactly|only|just|that|[a-zA-Z]\s?=)\s?)?[£€*]*"
)
CALCULATION = re.compile(
    r"[\s$*)}]{0,4}(?:[A-Za-z]+\s){0,2}\s?(?:[-+/^=]|[*x](?=[\s$(]*[0-9]))\s*[-$£€(0-9]"
)


def number_at(text: str, position: int) -> re.Match | None:
    """The number that a marker ending at `position` points to, with nothing but signs between."""
    return NUMBER.match(text, _LEAD.match(text, position).end())


def result_of(calculation: str) -> Fraction | None:
    """The right side of the last equation; the left one where only that is worked out ("18 = 9 * 2", "18 = x")."""
    left, _, right = calculation.rpartition("=")
    number = number_at(right, 0)
    if number and not CALCULATION.match(right, number.end()):
        return value_of(number)
    left = left[-80:].rstrip(" $*") if right.strip() else ""
    numbers = list(NUMBER.finditer(left))
    return (
        _alone(left, numbers, len(numbers) - 1)
        if numbers and numbers[-1].end() == len(left)
        else None
    )


# --- Where nothing is marked
_SENTENCES = re.compile(r"(?<=[.!?])[*_)]{0,3}\s+")
_LABEL = re.compile(
    r"\s*(?:[-*•]\s+|#+\s+)?(?:\**(?:Step|Part)\s[0-9]{1,2}[:.]?|\**[0-9]{1,2}[.)](?=\s))?"
)
_ASIDE = re.compile(
    r"\s*[(*_]{0,4}(?:Note|N\.B\.|Remember|This is (?:because|since)|For example|Here's why"
    r"|The (?:question|problem) (?:says|asks)|If (?=[^=]{0,300}\bwould\b)[^=]{0,200}\bhad\b)\b"
    r"|\s*(?:Since|Because)\b[^,=]*(?:,[^0-9=]*)?\Z"
)
_PARENTHESES = re.compile(r"\([^()]*\)")
_BOLD = re.compile(r"(?<![0-9)])\*\*([^*\n]+)\*\*(?![0-9(])")
_CLAUSE = re.compile(
    r"[,;:]\s*(?:which|meaning|making|giving|leaving|that is)\b"
    r"|\s(?:so|therefore|thus|hence|which (?:means|makes|gives|is))\b"
    r"|[,;]\s*(?:and\s+)?(?:he|she|it|they|we|there|then)\b"
)
# Before a number, with at most three words between: a detail and not the result.
_DETAIL = re.compile(
    r"\b(?:in|for|over|after|within|during|per|every|at|with|from|by|than|on|until|before|between|since|when|because"
    r"|each [a-z]+ing|out of|of (?:the|her|his|their|its|those|these|all)"
    r"|(?<!has )(?<!have )(?<!had )(?<!needs )(?<!need )to (?!(?:be|find|get|make|give|equal)\b)[a-z]+)"
    r"(?:\s+(?!(?:is|are|was|were|makes|has|have)\b)[a-zA-Z']+){0,3}\s*[$£€]*\Z"
)
_JOINED = re.compile(r"[\s,;$]{0,6}(?:or|and|to|-)?[\s$]{0,6}")
_COORDINATE = re.compile(r"\s*(?:[a-zA-Z]+\s+)?(?:,|and|or|to|-)\s+[$£€]?")


def conclusion(text: str) -> Fraction | None:
    """The value of the last sentence with a number that is not a label of its line, questions and asides left out."""
    for line in reversed(text.split("\n")):
        if DIGIT.search(line):
            for part in reversed(_SENTENCES.split(line.rstrip()[_LABEL.match(line).end() :])):
                if _concludes(part):
                    return sentence_value(part)
    return None


def _concludes(part: str) -> bool:
    if DIGIT.search(part) is None or _ASIDE.match(part):
        return False
    return "=" in part or not part.rstrip(" *_)").endswith("?")


def sentence_value(sentence: str) -> Fraction | None:
    """The result that one sentence states, or None: no number, several side by side, or a sum not worked out."""
    outside = _PARENTHESES.sub(" ", sentence) if "(" in sentence else sentence
    sentence = outside if DIGIT.search(outside) else sentence
    bold = (
        [part for part in _BOLD.findall(sentence) if DIGIT.search(part)] if "**" in sentence else []
    )
    sentence = bold[-1] if bold else sentence
    left, equals, right = sentence.rpartition("=")
    claim = right.partition(" because ")[0]
    right = claim if DIGIT.search(claim) else right
    *_, clause = (None, *_CLAUSE.finditer(right))
    if clause and NUMBER.search(right, clause.end()):
        return _statement(right[clause.end() :])
    return result_of(left + equals + right) if equals else _statement(right)


def _statement(sentence: str) -> Fraction | None:
    """The last number of a sentence without an equation that is not a detail; the last one where all are."""
    numbers = list(NUMBER.finditer(sentence))
    if not numbers:
        return None
    denies = _may_deny(sentence)
    for i in range(len(numbers) - 1, -1, -1):
        if not _is_detail(sentence, numbers, i, denies):
            return _alone(sentence, numbers, i)
    return _alone(sentence, numbers, len(numbers) - 1)


def _is_detail(sentence: str, numbers: list[re.Match], i: int, denies: bool) -> bool:
    """Whether a preposition leads to it, or to the first of the numbers it is listed with; or it is denied."""
    if numbers[i]["ordinal"] or (denies and _is_ruled_out(sentence, numbers[i].start())):
        return True
    for j in range(i, max(i - 3, -1), -1):
        start = numbers[j - 1].end() if j else 0
        before = sentence[max(start, numbers[j].start() - 60) : numbers[j].start()]
        if not (j and _COORDINATE.fullmatch(before)):
            return _DETAIL.search(before) is not None
    return False


def _alone(sentence: str, numbers: list[re.Match], i: int) -> Fraction | None:
    """The value of a number that stands alone: not in a list ("17 or 18") nor in a sum that is not worked out."""
    operator = [
        CALCULATION.match(sentence, number.end()) for number in numbers[max(i - 2, 0) : i + 1]
    ]
    if operator[-1] or (i and operator[-2]):
        return None
    listed = i and _JOINED.fullmatch(sentence, numbers[i - 1].end(), numbers[i].start())
    return None if listed and not any(operator) else value_of(numbers[i])
