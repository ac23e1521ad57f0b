"""The part of a completion that is read: its answer to the first problem, in plain characters, without programs."""

import re

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
