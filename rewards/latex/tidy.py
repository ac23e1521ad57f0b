"""One spelling for what LaTeX spells in several ways."""

import re

_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
        "°": r"^\circ ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
        "∪": r"\cup ", "∈": r"\in ", "≈": r"\approx ", "∅": r"\emptyset ", "²": "^2 ", "³": "^3 ",
        "√": r"\sqrt ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "\uff0d": "-", "\u2010": "-", "\u2011": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    }
)  # fmt: skip
_SPELLINGS = {
    "*": "cdot times ast", "/": "div", "=": "equiv", "(": "langle", ")": "rangle",
    r"\{": "lbrace", r"\}": "rbrace", "<": "lt", ">": "gt", "|": "vert lvert rvert", ":": "colon",
    r"\le ": "le leq leqslant", r"\ge ": "ge geq geqslant", r"\ne ": "ne neq", " ": "quad qquad",
    r"\emptyset": "varnothing", "...": "dots ldots cdots", r"\frac": "dfrac tfrac cfrac",
    r"\binom": "dbinom tbinom",
}  # fmt: skip
_COMMANDS = {name: sign for sign, names in _SPELLINGS.items() for name in names.split()}
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
NUMBER_WORDS = {word: i for i, word in enumerate(_ONES.split())}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
for _i, _ten in enumerate(_TENS.split(), start=2):
    NUMBER_WORDS[_ten] = 10 * _i
    NUMBER_WORDS |= {f"{_ten}-{one}": 10 * _i + j for j, one in enumerate(_ONES.split()[:10])}
_SAME = [  # different ways to write the same thing, in this order
    # Size, colour and type say nothing.
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits)(?![A-Za-z])\s?", ""),
    (r"\\(?:mbox|operatorname|text(?:bf|it|rm|normal)|math(?:rm|bf|it|sf))\*?\s*\{", r"\\text{"),
    (r"\\text(?=\{[^{}A-Za-z]*(?:\\[A-Za-z]|\^))", ""),
    (r"\\(?:text)?color\s*\{[^{}]*\}|\\underline(?=\s*\{)", ""),
    # Words for numbers, and numbers among words.
    (rf"\\text\{{\s*({'|'.join(NUMBER_WORDS)})\s*\}}", lambda word: str(NUMBER_WORDS[word[1]])),
    (r"(?<=\d)\s*(?:\\text\{\s*out of\s*\}|out of)\s*(?=\d)", "/"),
    (r"\\text\{\s*(?:negative|minus)\s*\}", "-"),
    (r"(?<![A-Za-z\\])(?:[Nn]egative|[Mm]inus)\s(?=[\d.\\])", "-"),
    (r"\\text\{\s*([-+]?[\d.,/]*\d)\s*\}", r"\1"),
    (r"\\text\{\s*([-+]?[\d.,/]*\d)\s+([A-Za-z][A-Za-z ]*)\}", r"\1 \\text{\2}"),
    (r"\\text\{\s*([A-F](?:\s*,\s*[A-F])+)\s*\}", r"\1"),
    # As programs write: sqrt(3) and pi, but no part of a word.
    (
        r"\\text\{[^{}]*\}|(?<![A-Za-z\\])(?:sqrt(?=\s*[({\d])|pi(?![A-Za-z])"
        r"|(?:(?:a(?:rc)?)?(?:sin|cos|tan)h?|cot|sec|csc|ln|exp)(?=\s*\())",
        lambda call: call[0] if call[0][0] == "\\" else f"\\{call[0]} ",
    ),
    (r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?|\.\d+)[eE]([-+]?\d{1,4})(?![\w.])", r"\1*10^{\2}"),
    (r"\*\*", "^"),
    (r"<=", r"\\le "),
    (r">=", r"\\ge "),
    (r"!=|\\not\s*=", r"\\ne "),
    # Thousands, and white space.
    (r"(?<=\d)(?:\s*\{\s*,\s*\}\s*|\s?,\s?\\!\s*|\\[,!;:]\s?)(?=\d{3}(?!\d))", ""),
    (r"(?<!\\)\\[,;:!> ]|~", " "),
    # One command for several.
    (r"\\([A-Za-z]+)", lambda match: _COMMANDS.get(match[1], match[0])),
    (r"\\frac\s*(\d)\s*(\d)(?!\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}", r"\\text{\1/\2}"),
    (r"(?:\{\s*\}|(?<![\w}]))_\{?(\d+)\}?\s*C_\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"\\\{\s*\\\}", r"\\emptyset"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])", r"\\degree "),
    (r"\\%", "%"),
    (r"\s+", " "),
]
_SAME = [(re.compile(pattern), replacement) for pattern, replacement in _SAME]
_DELIMITERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]


def tidy(text: str) -> str:
    r"""One spelling for what LaTeX spells in several ways, without delimiters and a full stop.

    Example: `tidy(r"$\dfrac{1}{2}\,\mbox{cm}.$") == r"\frac{1}{2} \text{cm}"`
    """
    text = _without_delimiters(text).translate(_SIGNS)
    for pattern, replacement in _SAME:
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
