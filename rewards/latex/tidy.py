"""One spelling for what LaTeX spells in several ways."""

import re

_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "∞": r"\infty ",
        "°": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ",
        "≈": r"\approx ", "∅": r"\emptyset ", "²": "^2 ", "³": "^3 ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "√": r"\sqrt ",
        "\uff0d": "-", "\u2010": "-", "\u2011": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    }
)  # fmt: skip
# A function as a program writes it, sqrt(3) or pi, and not inside words.
_CALL = (
    r"\\text\{[^{}]*\}|(?<![A-Za-z\\])(?:(?:a(?:rc)?)?(?:sin|cos|tan)h?|cot|sec|csc|ln|exp)(?=\s*\()"
    r"|(?<![A-Za-z\\])(?:sqrt(?=\s*[({\d])|pi(?![A-Za-z]))"
)
_SIGNS = {
    r"\div": "/", r"\equiv": "=", r"\langle": "(", r"\rangle": ")", r"\lbrace": r"\{", r"\rbrace": r"\}",
    r"\lt": "<", r"\gt": ">", r"\colon": ":", r"\vert": "|", r"\lvert": "|", r"\rvert": "|",
}  # fmt: skip
_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
_ONES += [f"{name}teen" for name in ("thir", "four", "fif", "six", "seven", "eigh", "nine")]
_TENS = [f"{name}ty" for name in ("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine")]
NUMBER_WORDS = {
    f"{ten}-{one}": 20 + 10 * i + j
    for i, ten in enumerate(_TENS)
    for j, one in enumerate(_ONES[:10])
}
NUMBER_WORDS |= {word: i for i, word in enumerate(_ONES)} | {
    word: 20 + 10 * i for i, word in enumerate(_TENS)
}
_SAME = [  # different ways to write the same thing, in this order
    (r"(?<=\d)\s*m²", r" \\text{m}^2"),
    (r"\\\\(?=(?:[dtc]?frac|sqrt|pi|left|right|boxed|text|mbox|infty|cup|circ|cdot|times|le|ge|in|pm)\b)", r"\\"),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])\s?", ""),
    (r"\\(?:[dtc]frac)(?![A-Za-z])", r"\\frac"),
    (r"\\(?:text(?:bf|it|rm|normal|up)?|mbox|math(?:rm|bf|it|sf)|operatorname)\*?\s*\{", r"\\text{"),
    (r"\\text(?=\{[^{}A-Za-z]*(?:\\[A-Za-z]|\^))|\\(?:text)?color\s*\{[^{}]*\}|\\underline(?=\s*\{)", ""),
    (rf"\\text\{{\s*({'|'.join(NUMBER_WORDS)})\s*\}}", lambda match: str(NUMBER_WORDS[match[1]])),
    (r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}", r"\\text{\1/\2}"),
    (r"(?<=\d)\s*(?:\\text\{\s*out of\s*\}|out of)\s*(?=\d)", "/"),
    (r"\\text\{\s*([-+]?[\d.,/]*\d)\s*\}", r"\1"),
    (r"\\text\{\s*(?:negative|minus)\s*\}|(?<![A-Za-z\\])(?:[Nn]egative|[Mm]inus)\s(?=[\d.\\])", "-"),
    (r"(?:\{\s*\}|(?<![\w}]))_\{?(\d+)\}?\s*C_\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"\\text\{\s*([-+]?[\d.,/]*\d)\s+([A-Za-z][A-Za-z ]*)\}", r"\1 \\text{\2}"),
    (r"\\text\{\s*([A-F](?:\s*,\s*[A-F])+)\s*\}", r"\1"),
    (_CALL, lambda match: match[0] if match[0][0] == "\\" else f"\\{match[0]} "),
    (r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?|\.\d+)[eE]([-+]?\d{1,4})(?![\w.])", r"\1*10^{\2}"),
    (r"(?<=\d)(?:\s*\{\s*,\s*\}\s*|\s?,\s?\\!\s*|\\[,!;:]\s?)(?=\d{3}(?!\d))", ""),
    (r"(?<!\\)\\(?:[,;:!> ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " "),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])|\*\*?", lambda match: "^" if match[0] == "**" else "*"),
    (r"\\(?:div|equiv|[lr]angle|[lr]brace|[lg]t|colon|[lr]?vert)(?![A-Za-z])", lambda match: _SIGNS[match[0]]),
    (r"\\leq?(?:slant)?(?![A-Za-z])|<=", r"\\le "),
    (r"\\geq?(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq?(?![A-Za-z])|!=|\\not\s*=", r"\\ne "),
    (r"\\(?:varnothing|empty)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])", r"\\degree "),
    (r"\\%", "%"),
    (r"\\(?:l?dots|cdots|dotsc)(?![A-Za-z])", "..."),
    (r"\s+", " "),
]  # fmt: skip
_SAME = [(re.compile(pattern), replacement) for pattern, replacement in _SAME]
_DELIMITERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]


def tidy(text: str) -> str:
    r"""One spelling for what LaTeX spells in several ways; the delimiters of mathematics and a full stop are dropped.

    Example: `tidy(r"$\dfrac{1}{2}\,\mbox{cm}.$") == r"\frac{1}{2} \text{cm}"`
    """
    text = _without_delimiters(text)
    if "²" in text and r"\begin" not in text:
        text = _SAME[0][0].sub(_SAME[0][1], text)
    text = text.translate(_UNICODE)
    for pattern, replacement in _SAME[
        2 if r"\begin" in text else 1 :
    ]:  # in a matrix, \\ ends a row
        text = pattern.sub(replacement, text)
    return _without_delimiters(text)


def _without_delimiters(text: str) -> str:
    text = text.strip()
    for start, end in _DELIMITERS:
        inside = text.rstrip(".,;: ")
        if len(inside) >= len(start + end) and inside.startswith(start) and inside.endswith(end):
            inside = inside[len(start) : len(inside) - len(end)].strip()
            if start not in inside and not inside.endswith("\\"):
                text = inside
    ends = re.search(r"(?<![.\\])[.,;:]\s*$", text)  # an ellipsis is not a full stop
    return text[: ends.start()].strip() if ends else text
