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

from rewards.parsing import parse_number

# One number as written: not part of a word, of a time like 5:30 (5:00 is 5), of "17,18" or of "1e9".
_NUMBER = re.compile(
    r"(?:(?<![\w).])-)?(?:\$\s?-?)?(?<!\w)(?<![0-9][.,:])"
    r"(?:(?P<whole>[0-9]{1,9})\s(?P<part>[0-9]{1,9}/[0-9]{1,9})"
    r"|(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+|:00|/[0-9]+)?|(?<!\.)\.[0-9]+)"
    r"(?![0-9]|[,:.][0-9]|[eE][-+]?[0-9]|[^\D0-9]|[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215f])"
    r"(?P<ordinal>(?:st|nd|rd|th)\b)?(?P<scale>\s?(?:[kK]|(?:[Hh]undred|[Tt]housand|[MmBb]illion|[Tt]rillion|[Dd]ozen)s?)\b)?"
)
_DIGIT = re.compile(r"[0-9]")
MAX_CHARS = 20_000  # an answer stands at the end: of a longer text, only this much of its end is read

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


def _first_problem(text: str) -> str:
    """The text up to where it goes on to another problem; a question restated before the first number is no other."""
    text = _before_unlabelled_problem(text) if "?" in text else text
    digit = _DIGIT.search(text)
    if digit is None:
        return text
    special = _SPECIALS.search(text, digit.end()) if "<" in text or "[" in text else None
    end = special.start() if special else len(text)
    for match in _NEXT_PROBLEM.finditer(text, digit.end(), end):
        before = text[max(match.start() - 8, 0) : match.start()].rstrip(" \t*#[")
        if before.endswith(_SENTENCE_ENDS):
            return text[: match.start()]
    return text[:end]


def _before_unlabelled_problem(text: str) -> str:
    """The text up to a new paragraph that, behind a marked answer, asks for another number."""
    marked = _MARKED.search(text)
    for match in _PARAGRAPH_ASKS.finditer(text, marked.end()) if marked else ():
        if _DIGIT.search(match[0]) and _ASKS_FOR.search(match[0]) and not _TAKES_BACK.search(match[0]):
            return text[: match.start()]
    return text


_CODE = re.compile(
    r"\s*(?:python|py|javascript|tool_code|c|cpp|java|bash|sql)\b|.*\b(?:print\(|def |import )", re.DOTALL
)


def _without_code(text: str) -> str:
    """The text without the blocks that hold a program: its numbers are no answers, those of its output block are."""
    parts = text.split("```")
    parts[1::2] = ["" if _CODE.match(part) else part.removeprefix("output") for part in parts[1::2]]
    return "\n".join(parts)


# --- How numbers are written

_CALCULATOR = re.compile(r"<<[^<>]*>>(?=[$\s]?[-.0-9])")
_CALCULATOR_ALONE = re.compile(r"<<[^<>=]*=([^<>=]*)>>")
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\[,!;])(?=[0-9]{3})")
_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|boldsymbol)\s?\{([^{}]*)\}")
_POWER_OF_UNIT = re.compile(r"(?<=[a-z])\s?\^\{?[23]\}?|\^\{?\\circ\}?")
_LATEX = (
    *((sign, "*") for sign in ("\\times", "\\cdot")),
    *((sign, "=") for sign in ("\\approx", "&=")),
    *(("\\" + sign, sign) for sign in "$%#"),
    *((sign, " ") for sign in (*(f"\\{sign}" for sign in "[](),;! "), "\\quad")),
    ("\\div", "/"),
)
_TYPOGRAPHY = str.maketrans({"−": "-", "×": "*", "÷": "/", "≈": "=", "\u00a0": " ", "\u202f": " "})


def _plain(text: str) -> str:
    """The text with calculator marks, LaTeX and typographic signs written in plain characters."""
    if "<<" in text:
        text = _CALCULATOR_ALONE.sub(r"\1", _CALCULATOR.sub("", text))
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    return _without_latex(text) if "\\" in text else text


def _without_latex(text: str) -> str:
    if "," in text:
        text = _THOUSANDS.sub(",", text)
    text = _TEXT.sub(r"\1", _FRACTION.sub(r" \1/\2", text))
    if "^" in text:
        text = _POWER_OF_UNIT.sub("", text)
    for sign, plain in _LATEX:
        text = text.replace(sign, plain)
    return text


def _value(number: re.Match) -> Fraction | None:
    if number["scale"]:
        return None
    if number["whole"] is None:
        return parse_number(number[0].replace(":00", ""))
    part = parse_number(number["part"])
    return None if part is None else int(number["whole"]) + part


# --- One number where a marker stands

_LEAD = re.compile(
    r"(?:[\s*_:=£€\"'`(\[~{]|\\boxed|\$(?![0-9.-])|[%<](?=[$0-9]))*"
    r"(?:(?:about|approximately|exactly|only|just|that|[a-zA-Z]\s?=)\s?)?[£€*]*"
)
_CALCULATION = re.compile(r"[\s$*)}]{0,4}(?:[A-Za-z]+\s){0,2}\s?(?:[-+/^=]|[*x](?=[\s$(]*[0-9]))\s*[-$£€(0-9]")
_SEVERAL = re.compile(
    r"[ \t$*]{0,4}(?:[,;/|&]|or\b|and\b|to\b|through\b)?[ \t$£€]*[0-9]"
    r"|[ \t$*]{0,4}(?:[A-Za-z]+[ \t]+){0,2}(?:or|and)[ \t]+[$£€*]*[0-9]"
    r"|[ \t$*(/]{0,4}(?:or|versus|vs\.?)[ \t]+(?:maybe|perhaps|possibly|even|else|is it)?[ \t]*[$£€*]*[0-9]"
)
_NUMBERING = re.compile(r"[0-9]{1,2}[.):]\s+[A-Za-z*]")


def _number_at(text: str, position: int) -> re.Match | None:
    """The number that a marker ending at `position` points to, with nothing but signs between."""
    return _NUMBER.match(text, _LEAD.match(text, position).end())


def _one(text: str, number: re.Match) -> Fraction | None:
    """The value offered by a number and the rest of its line: None for one of several, the result for a calculation."""
    if _CALCULATION.match(text, number.end()):
        line = text[number.start() : number.start() + 400].partition("\n")[0]
        return _result(re.split(r"[.!?;](?:\s|\Z)", line, maxsplit=1)[0])
    return None if _SEVERAL.match(text, number.end()) else _value(number)


def _result(calculation: str) -> Fraction | None:
    """The right side of the last equation; the left one where only that is worked out ("18 = 9 * 2", "18 = x")."""
    left, _, right = calculation.rpartition("=")
    number = _number_at(right, 0)
    if number and not _CALCULATION.match(right, number.end()):
        return _value(number)
    left = left[-80:].rstrip(" $*") if right.strip() else ""
    numbers = list(_NUMBER.finditer(left))
    return _alone(left, numbers, len(numbers) - 1) if numbers and numbers[-1].end() == len(left) else None


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
        number = _number_at(text, match.end())
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
            if start >= 0 and _DIGIT.search(text, start, match.start()):
                found = (match.start(), _box_value(text[start : match.start()]))
        elif token[0] == "\\" and token[-1] == "{" and len(token) > 2:
            stack.append(match.end())
        elif token == "{":
            stack.append(-1)
        elif token[-1] not in "{}" and (number := _NUMBER.match(text, match.end())):
            found = (match.end(), _value(number))
    return found


_FUNCTION = re.compile(r"\^|\\(?:sqrt|pi|pm|log|ln|sin|cos|tan|infty|[lg]eq?|neq|binom|sum)\b")


def _box_value(content: str) -> Fraction | None:
    content = content[-200:].rpartition("=")[2]
    numbers = list(_NUMBER.finditer(content))
    return _value(numbers[0]) if len(numbers) == 1 and not _FUNCTION.search(content) else None


_NUMBER_ON_NEXT_LINE = re.compile(r"\n[ \t]*[$£€]?[0-9]")


def _tag(text: str) -> Marker:
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if end < 0 or start < 0:
        return _NONE
    if not _DIGIT.search(text, start, end):  # a tag without a number offers none, whatever stands before it
        return end, None
    content = text[start + len("<answer>") : end].strip()
    number = _number_at(content, 0)
    if number and _NUMBER_ON_NEXT_LINE.search(content, number.end()):
        return end, None
    return end, _one(content, number) if number else _sentence_value(content[-400:])


def _answer(text: str) -> Marker:
    """ "The answer is 18", "Answer: 18", "**Final Answer**\n18", "18 is the answer"."""
    found = _NONE
    for match in _ANSWER.finditer(text if "NSWER" not in text else text.replace("NSWER", "nswer")):
        before = text[max(match.start() - 80, 0) : match.start()]
        number = None if _supposed(before, match[0]) else _number_at(text, match.end())
        if number and _counts(text, match, number):
            found = (match.start(), _one(text, number))
    return found


def _is_the_answer(text: str) -> Marker:
    """ "18 is the answer"."""
    found = _NONE
    for match in _THE_ANSWER.finditer(text):
        start = max(match.start() - 60, 0)
        verb = _IS_THE.search(text[start : match.start()])
        *_, number = (None, *_NUMBER.finditer(text, start, start + verb.start())) if verb else (None,)
        if number and _UNITS.fullmatch(text, number.end(), start + verb.start()):
            found = (match.start(), _value(number))
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
    return _DIGIT.search(text, 0, cue.start()) is not None


_LINE_A = re.compile(r"(?:^|\n)\**A:")


def _line_a(text: str) -> Marker:
    found = _NONE
    for match in _LINE_A.finditer(text) if "A:" in text else ():
        number = _number_at(text, match.end())
        if number and _ALONE.match(text, number.end()):
            found = (match.end(), _value(number))
    return found


# --- Where nothing is marked

_SENTENCES = re.compile(r"(?<=[.!?])[*_)]{0,3}\s+")
_LABEL = re.compile(r"\s*(?:[-*•]\s+|#+\s+)?(?:\**(?:Step|Part)\s[0-9]{1,2}[:.]?|\**[0-9]{1,2}[.)](?=\s))?")
_ASIDE = re.compile(
    r"\s*[(*_]{0,4}(?:Note|N\.B\.|Remember|This is (?:because|since)|For example|Here's why"
    r"|The (?:question|problem) (?:says|asks)|If (?=[^=]{0,300}\bwould\b)[^=]{0,200}\bhad\b)\b"
    r"|\s*(?:Since|Because)\b[^,=]*(?:,[^0-9=]*)?\Z"
)
_CONCLUDES = re.compile(
    r"\s*\**(?:So|Therefore|Thus|Hence|In (?:total|all|conclusion)|Overall|Finally|Altogether)\b|.*\*\*"
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
_LATER = re.compile(r"\s*(?:minutes|hours|days|weeks|months|years)\s(?:from now|later|ago)\b")
_JOINED = re.compile(r"[\s,;$]{0,6}(?:or|and|to|-)?[\s$]{0,6}")
_COORDINATE = re.compile(r"\s*(?:[a-zA-Z]+\s+)?(?:,|and|or|to|-)\s+[$£€]?")


def _unmarked(text: str) -> Fraction | None:
    """The value of the last sentence that concludes; a recap of numbers known before a conclusion is none."""
    *before, last = ("", *_last_sentences(text))
    value = _sentence_value(last)
    if value is None or "=" in last or _CONCLUDES.match(last) or _CLAUSE.search(last):
        return value
    for i in range(max(len(before) - 2, 0), len(before)):
        if _CONCLUDES.match(before[i]) and _is_known(value, before[:i]):
            return _sentence_value(before[i])
    return value


def _last_sentences(text: str, count: int = 6) -> list[str]:
    """The last sentences with a number that is no label of their line, questions and asides left out."""
    found: list[str] = []
    for line in reversed(text.split("\n")):
        if _DIGIT.search(line):
            line = line.rstrip()[_LABEL.match(line).end() :]
            found = [part for part in _SENTENCES.split(line) if _concludes(part)] + found
        if len(found) >= count:
            break
    return found[-count:]


def _concludes(part: str) -> bool:
    if _DIGIT.search(part) is None or _ASIDE.match(part):
        return False
    return "=" in part or not part.rstrip(" *_)").endswith("?")


def _is_known(value: Fraction, sentences: list[str]) -> bool:
    """Whether the sentences name the value; by how it is written, because making Fractions takes most of the time."""
    written = str(abs(value))
    return any(number[0].lstrip("$- ").replace(",", "") == written for number in _NUMBER.finditer("\n".join(sentences)))


def _sentence_value(sentence: str) -> Fraction | None:
    """The result that one sentence states, or None: no number, several side by side, or a sum not worked out."""
    outside = _PARENTHESES.sub(" ", sentence) if "(" in sentence else sentence
    sentence = outside if _DIGIT.search(outside) else sentence
    bold = [part for part in _BOLD.findall(sentence) if _DIGIT.search(part)] if "**" in sentence else []
    sentence = bold[-1] if bold else sentence
    left, equals, right = sentence.rpartition("=")
    claim = right.partition(" because ")[0]
    right = claim if _DIGIT.search(claim) else right
    *_, clause = (None, *_CLAUSE.finditer(right))
    if clause and _NUMBER.search(right, clause.end()):
        return _statement(right[clause.end() :])
    return _result(left + equals + right) if equals else _statement(right)


def _statement(sentence: str) -> Fraction | None:
    """The last number of a sentence without an equation that is no detail; the last one where all are."""
    numbers = list(_NUMBER.finditer(sentence))
    if not numbers:
        return None
    for i in range(len(numbers) - 1, -1, -1):
        if not _is_detail(sentence, numbers, i):
            return _alone(sentence, numbers, i)
    return _alone(sentence, numbers, len(numbers) - 1)


def _is_detail(sentence: str, numbers: list[re.Match], i: int) -> bool:
    """Whether a preposition leads to it, or to the first of the numbers it is listed with."""
    if numbers[i]["ordinal"] or _LATER.match(sentence, numbers[i].end()):
        return True
    for j in range(i, max(i - 3, -1), -1):
        start = numbers[j - 1].end() if j else 0
        before = sentence[max(start, numbers[j].start() - 60) : numbers[j].start()]
        if not (j and _COORDINATE.fullmatch(before)):
            return _DETAIL.search(before) is not None
    return False


def _alone(sentence: str, numbers: list[re.Match], i: int) -> Fraction | None:
    """The value of a number that stands alone: not in a list ("17 or 18") nor in a sum that is not worked out."""
    operator = [_CALCULATION.match(sentence, number.end()) for number in numbers[max(i - 2, 0) : i + 1]]
    if operator[-1] or (i and operator[-2]):
        return None
    listed = i and _JOINED.fullmatch(sentence, numbers[i - 1].end(), numbers[i].start())
    return None if listed and not any(operator) else _value(numbers[i])


# --- Taken together

_CHECKS = re.compile(
    r"(?:^|\n|[.!?:] )[#*\s]{0,6}"
    r"(?:(?:Now,? )?(?:[Ll]et(?:'s|’s| me| us)|[Ww]e can|To) (?:double[- ]?)?(?:check|verify)"
    r"|Verification|Check|Explanation|Double[- ]check)\b(?! how| what)"
)
_DANGLING_LABEL = re.compile(r"\n[#*\s]{0,8}[0-9]{1,2}[.)]\Z")
_TAKES_BACK = re.compile(
    r"\b(?:[Ww]ait|[Aa]ctually|[Oo]ops|[Ss]orry|[Hh]old on|[Oo]n second thought|(?:made|was|is) a mistake|[Cc]orrection"
    r"|(?:is|was|'s) (?:wrong|incorrect|not (?:right|correct))|[Ll]et me (?:re|try again|correct)"
    r"|I (?:forgot|missed|misread))"
)
_CONFIRMS = re.compile(
    r"\b(?:is|are|was|'s) (?:indeed )?(?:correct|right|fine)\b|\b(?:[Yy]es|matches|confirm|checks out)\b"
)


def final_answer(text: str) -> Fraction | None:
    r"""The number that `text` offers as its final answer, as an exact value; None where it offers no single number.

    Example: `final_answer("2 * 9 = 18 dollars. #### 18\n\nQuestion: 3 + 4?") == 18`;
    `final_answer("The answer is 17 or 18.") is None`
    """
    text = _first_problem(text)[-MAX_CHARS:]
    after = text.rpartition("</think>")[2]
    text = _plain(after if _DIGIT.search(after) else text)
    text = _without_code(text) if "```" in text else text
    position, value = max(
        (find(text) for find in (_hashes, _boxed, _tag, _answer, _is_the_answer, _line_a)), key=lambda m: m[0]
    )
    if position < 0:
        return _unmarked(_final_passage(_before_check(text)))
    taken_back = _taken_back(text, position)
    return value if taken_back is None else taken_back


def _taken_back(text: str, position: int) -> Fraction | None:
    """The value a text arrives at when it takes back what it marked at `position`; None when it does not."""
    match = _TAKES_BACK.search(text, position)
    if match is None or _CONFIRMS.search(text, match.end()):
        return None
    return _unmarked(text[match.end() :])


def _before_check(text: str) -> str:
    """The text before it checks or explains its result, unless the check finds a mistake."""
    digit = _DIGIT.search(text) if any(word in text for word in ("heck", "erif", "Explanation")) else None
    match = _CHECKS.search(text, digit.end()) if digit else None
    if match is None or _TAKES_BACK.search(text, match.end()):
        return text
    return _DANGLING_LABEL.sub("", text[: match.start() + 1])


_FINAL = re.compile(r"(?:inal [aA]|\*\*A|#[ \t]A)nswer\b")
_PARAGRAPH = re.compile(r"[^0-9]*[0-9](?:[^\n]|\n(?!\s*\n))*")


def _final_passage(text: str) -> str:
    """The paragraph that a "Final answer" behind the working opens in words, or the whole text."""
    *_, heading = (None, *_FINAL.finditer(text)) if "nswer" in text else (None,)
    if heading is None or not _DIGIT.search(text, 0, heading.start()):
        return text
    passage = _PARAGRAPH.match(text, heading.end())
    return passage[0] if passage else text


def is_final_answer(text: str, gold: str) -> bool:
    """True when the final answer of `text` has the value of `gold`; False when either is no number.

    Example: `is_final_answer("So she has $1,080 left.", "1080") is True`
    """
    value = final_answer(text)
    return value is not None and value == parse_number(gold)
