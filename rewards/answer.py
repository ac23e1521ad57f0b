r"""The number a free-form completion offers as its final answer, in grade-school maths as language models write it.

How it reads, in this order:

1. What follows the first problem (the next `Question:`, `Human:`, `<|im_end|>`, ...) is not read.
2. Of the explicit markers (`#### 18`, `\boxed{18}`, `<answer>18</answer>`, `The answer is 18`, `Answer: 18`, `A: 18`)
   the last one counts, unless the text takes it back ("Wait, I forgot ...") and goes on to another number.
3. Where nothing is marked, the last sentence that concludes counts: the right side of its last equation, its bold
   number, or its last number that is not a detail such as "in 3 days" or "at $2 each".

A marker that holds several numbers ("17 or 18", `\boxed{17, 18}`) offers none of them: listing candidates earns
nothing. Only ASCII digits are digits, and "18 thousand" is not a number, as in `parse_number`.
The patterns bound what they repeat, or repeat what cannot match two ways: each takes linear time on any text.
"""

import re
from fractions import Fraction

from rewards.text import (
    DENIALS,
    FILLERS,
    SCALE,
    UNTRUE,
    WHOLE,
    after_thinking,
    find_boxes,
    tag_span,
)

# A longer text is not a number that anybody meant, and int() of thousands of digits is slow or raises.
MAX_NUMBER_CHARS = 64

_DIGITS = rf"{WHOLE}(?:\.[0-9]+)?|\.[0-9]+"
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


DIGIT = re.compile(r"[0-9]")
# --- What is not read
_SPECIALS = re.compile(r"<\|[a-z_]+\|>|</s>|<eos>|<end_of_turn>|\[/?INST\]")
_NEXT_PROBLEM = re.compile(
    r"(?:Question|QUESTION|Problem|Exercise|Example|Human|User|Instruction|Input|Q)\b"
    r"[ \t]{0,3}[0-9]{0,4}[ \t]{0,3}[\]*]{0,3}[ \t]{0,3}(?::|\n)"
)
_SENTENCE_ENDS = tuple("\n.!?}>$)]`0123456789")
_PARAGRAPH_ASKS = re.compile(r"\n[ \t]*\n[^\n?]{0,900}\?")
_ASKS_FOR = re.compile(r"\b(?:[Hh]ow (?:many|much|long|far|old|tall|fast)|[Ww]hat)\b")
_MARKED = re.compile(r"(?:\\boxed\{|####|nswer(?: is|:))[ :$*\\(]{0,6}[0-9-]")


def first_problem(text: str) -> str:
    """The text up to where it goes on to another problem; a question repeated before the first number is none."""
    text = _before_unlabelled_problem(text) if "?" in text else text
    digit = DIGIT.search(text)
    if digit is None:
        return text
    special = _SPECIALS.search(text, digit.end()) if "<" in text or "[" in text else None
    end = special.start() if special else len(text)
    for match in _NEXT_PROBLEM.finditer(text, digit.end(), end):
        before = text[max(match.start() - 8, 0) : match.start()].rstrip(" \t*#[")
        if before.endswith(
            "\n" if match[0][-1] == "\n" else _SENTENCE_ENDS
        ):  # "P and Q" may end a line of the working
            return text[: match.start()]
    return text[:end]


def _before_unlabelled_problem(text: str) -> str:
    """The text up to a new paragraph that, behind a marked answer, asks for another number."""
    marked = _MARKED.search(text)
    for match in _PARAGRAPH_ASKS.finditer(text, marked.end()) if marked else ():
        if DIGIT.search(match[0]) and _ASKS_FOR.search(match[0]) and not takes_back(match[0], 0):
            return text[: match.start()]
    return text


_CODE = re.compile(
    r"\s*(?:python|py|javascript|tool_code|c|cpp|java|bash|sql)\b|.*\b(?:print\(|def |import )",
    re.DOTALL,
)


def without_code(text: str) -> str:
    """The text without the blocks that hold a program: its numbers are not answers, those of its output block are."""
    parts = text.split("```")
    parts[1::2] = ["" if _CODE.match(part) else part.removeprefix("output") for part in parts[1::2]]
    return "\n".join(parts)


# --- How numbers are written
_CALCULATOR = re.compile(r"<<[^<>]*>>(?=[$\s]?[-.0-9])")
_CALCULATOR_ALONE = re.compile(r"<<[^<>=]*=([^<>=]*)>>")
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\[,!;])(?=[0-9]{3})")
_FRACTION = re.compile(r"\\[dtc]?frac\s?(?:\{([^{}]*)\}|([0-9]))\s?(?:\{([^{}]*)\}|([0-9]))")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|boldsymbol)\s?\{([^{}]*)\}")
_POWER_OF_UNIT = re.compile(r"(?<=[a-z])\s?\^\{?[23]\}?|\^\{?\\circ\}?")
_LATEX = (
    *((sign, "*") for sign in ("\\times", "\\cdot")),
    *((sign, "=") for sign in ("\\approx", "&=")),
    *(("\\" + sign, sign) for sign in "$%#"),
    *((sign, " ") for sign in (*(f"\\{sign}" for sign in "[](),;! "), "\\quad")),
    ("\\div", "/"),
)
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("−\u2010\u2011﹣－", "-"),
        "×": "*",
        "÷": "/",
        "≈": "=",
        "\u00a0": " ",
        "\u202f": " ",
    }
)
_DASH = re.compile(r"–(?=\$?[0-9.])")
# A sign apart from its number, where no operator can stand: "is minus 5", "= - 5". A line that begins so is a bullet.
_SIGN = re.compile(
    r"((?:\b(?:is|are|be|was|equals|of|answer)|[=:#({*>~])[ \t$*({]{0,4})(?:-|[Mm]inus|[Nn]egative)"
    r"[ \t]{1,2}(?=\$?\.?[0-9])"
)


def plain(text: str) -> str:
    """The text with calculator marks, LaTeX and typographic signs written in plain characters."""
    if "<<" in text:
        text = _CALCULATOR_ALONE.sub(r"\1", _CALCULATOR.sub("", text))
    if not text.isascii():
        text = _DASH.sub("-", text.translate(_TYPOGRAPHY))
    text = _without_latex(text) if "\\" in text else text
    return _SIGN.sub(r"\1-", text) if "- " in text or "inus" in text or "egative" in text else text


def _without_latex(text: str) -> str:
    if "," in text:
        text = _THOUSANDS.sub(",", text)
    text = _TEXT.sub(r"\1", _FRACTION.sub(_slashed, text))
    if "^" in text:
        text = _POWER_OF_UNIT.sub("", text)
    for sign, plain in _LATEX:
        text = text.replace(sign, plain)
    return text


def _slashed(fraction: re.Match) -> str:
    r"""`\frac{1}{2}` as 1/2, apart from a whole number before it and not apart from a sign."""
    after_sign = fraction.string[max(fraction.start() - 1, 0)] == "-"
    return f"{'' if after_sign else ' '}{fraction[1] or fraction[2]}/{fraction[3] or fraction[4]}"


_TAKES_BACK = re.compile(
    r"\b(?:[Ww]ait|[Aa]ctually|[Oo]ops|[Ss]orry|[Hh]old on|[Oo]n second thought|(?:made|was|is) a mistake|[Cc]orrection"
    r"|(?:is|was|'s) (?:wrong|incorrect|not (?:right|correct))|[Ll]et me (?:re|try again|correct)"
    r"|I (?:forgot|missed|misread))"
)
_HINTS = (
    "ait",
    "ctually",
    "ops",
    "orry",
    "econd",
    "mistake",
    "orrect",
    "wrong",
    "not",
    "et me",
    "I ",
    "old on",
)


def takes_back(text: str, start: int) -> re.Match | None:
    """The first words behind `start` that take back what was stated; found without the pattern where there are none."""
    return _TAKES_BACK.search(text, start) if any(hint in text for hint in _HINTS) else None


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

_RULES_OUT = re.compile(
    rf"(?:(?<![A-Za-z])(?:{DENIALS}|maybe|perhaps|possibly|(?:rather|less|more|greater|fewer|smaller|larger|other) than"
    r"|different from|instead of|except(?: for)?|unlike|at (?:least|most)|up to)(?![A-Za-z])"
    rf"|(?:(?<![A-Za-z])[A-Za-z]|[0-9])\s?[<>]|≠|!=|\\(?:n?[gl]?eq?|[gl]t)\b){FILLERS}",
    re.IGNORECASE,
)
_RULED_OUT = re.compile(
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
_DENYING = (
    "not", "n't", "n’t", "nor", "nobody", "no one", "no longer", "by no", "in no", "under no", "?", "never", "neither",
    "doubt", "but ", "refuse", "hardly", "far from", " than", "different", "instead", "except", "unlike", "at least",
    "at most", "up to", "possib", "wrong", "incorrect", "false", "mistaken", "invalid", "kidding", "opposite", " or ",
    "perhaps", "maybe", "probab", " i ", "give or", "roughly", "approx", "<", ">", "≠", "!=", "\\n", "\\l", "\\g",
)  # fmt: skip


def _may_deny(text: str) -> bool:
    text = text.lower()
    for hint in _DENYING:  # noqa: SIM110 `any` takes half as long again
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
        _is_ruled_out(text, last.start()) or _RULED_OUT.match(text, last.end()) is not None
    )


def _is_ruled_out(text: str, start: int) -> bool:
    return _RULES_OUT.search(text[max(start - 70, 0) : start]) is not None


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
