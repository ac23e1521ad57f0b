"""Reading LaTeX answers and comparing them strictly: numbers with units, intervals, sets, lists, equations, words.

    from rewards.latex_answers import compare, read_answer
    compare(read_answer(r"\\frac{1}{2}, 3"), read_answer("0.5, 3"))     # (True, [])

Expressions are compared by `rewards.latex_values`; a pair that it cannot decide is handed back as pending, to be
asked of somebody who can.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from rewards.latex_values import (
    Exact,
    Malformed,
    Polynomial,
    Tree,
    Unreadable,
    constant,
    exact,
    letters,
    parse,
    rational,
    same_value,
)

# A decimal counts as the rounded form of an exact value from here on: 0.333333 is 1/3, 0.3333 is not.
ROUNDED_PLACES = 6

# --------------------------------------------------------------------------- the text

_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "∞": r"\infty ",
        "°": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ",
        "≈": r"\approx ", "∅": r"\emptyset ", "²": "^2 ", "³": "^3 ", "½": r"\frac{1}{2}", "√": r"\sqrt ",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    }
)  # fmt: skip
_SAME = [  # different ways to write the same thing, in this order
    (r"(?<=\d)\s*m²", r" \\text{m}^2"),
    (r"\\\\(?=(?:[dtc]?frac|sqrt|pi|left|right|boxed|text|mbox|infty|cup|circ|cdot|times|le|ge|in|pm)\b)", r"\\"),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])\s?", ""),
    (r"\\(?:[dtc]frac)(?![A-Za-z])", r"\\frac"),
    (r"\\(?:text(?:bf|it|rm|normal|up)?|mbox|math(?:rm|bf|it|sf)|operatorname)\*?\s*\{", r"\\text{"),
    (r"(?<=\d)(?:\s*\{\s*,\s*\}\s*|\s?,\s?\\!\s*|\\[,!;:]\s?)(?=\d{3}(?!\d))", ""),
    (r"(?<!\\)\\(?:[,;:!> ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " "),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])|\*\*?", lambda match: "^" if match[0] == "**" else "*"),
    (r"\\div(?![A-Za-z])", "/"),
    (r"\\(?:lbrace)(?![A-Za-z])", r"\\{"),
    (r"\\(?:rbrace)(?![A-Za-z])", r"\\}"),
    (r"\\leq?(?:slant)?(?![A-Za-z])|<=", r"\\le "),
    (r"\\geq?(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq?(?![A-Za-z])|!=|\\not\s*=", r"\\ne "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:varnothing|empty)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])", r"\\degree "),
    (r"\\%", "%"),
    (r"\\(?:l?dots|cdots|dotsc)(?![A-Za-z])", "..."),
    (r"\\(?:lvert|rvert|vert)(?![A-Za-z])", "|"),
    (r"\\(?:colon)(?![A-Za-z])", ":"),
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
    for pattern, replacement in _SAME[2 if r"\begin" in text else 1 :]:  # in a matrix, \\ ends a row
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
    ends = re.search(r"(?<![.\\])[.,;:]\s*$", text)  # an ellipsis is no full stop
    return text[: ends.start()].strip() if ends else text


# --------------------------------------------------------------------------- answers: what an expression stands in


class Answer(NamedTuple):
    """An answer as read.

    kind: quantity, group (brackets kept), set, list, union, named (`x = 5`), equation, relation, matrix,
        text, opaque (mathematics that is not understood here) or bad (nothing that can be an answer).
    source: the tidy text.
    """

    kind: str
    source: str
    items: tuple["Answer", ...] = ()
    tree: Tree | None = None  # of a quantity
    unit: str = ""  # of a quantity
    places: int | None = None  # decimal places of a quantity that is one decimal number
    label: str = ""  # brackets of a group, name of a named value, signs of a relation, or of a list:
    # "any" where its order is free, "pm" where it is the two values of one expression, "names" where all have a name


Pending = list[tuple[str, str]]

_LIST_WORDS = re.compile(r"\\text\{\s*(?:,?\s*(and|or))\s*,?\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])")
_BRACKETS = {"(": ")", "[": "]", "]": "[", "{": "}"}
_NAME = re.compile(
    r"(?:(?:\\(?:angle|triangle|overline|text|vec|mathbb|mathcal)\s*)?\{?(?:\\[A-Za-z]+|[A-Za-z][A-Za-z ]*)\}?"
    r"(?:_(?:\w|\{\w+\}))?(?:\(\s*-?\w+(?:\s*,\s*-?\w+)*\s*\))?|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\)|[A-Z]{2,4}\^2)\s*"
)
_MEMBER = re.compile(r"([A-Za-z])\s*\\in(?![A-Za-z])\s*(.+)", re.DOTALL)
_RELATION = re.compile(r"\\le |\\ge |\\ne |<|>|=")
_MATRIX = re.compile(
    r"\(?\s*(?:\[\s*|\(\s*)?\\begin\{([pbB]?matrix|array)\}(?:\{[lcr|]*\})?(.*?)\\end\{\1\}\s*[\])]?\s*\)?", re.DOTALL
)
_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_LITERAL = re.compile(r"\d+\s*:\s*\d+.*|[0-9A-F]+_\{?\d+\}?|[A-Z][a-z]{2,8}\.? \d{1,2}, \d{4}", re.DOTALL)
_DECIMAL = re.compile(r"[-+]?\s*\d*\.(\d+)")
_DECIMAL_COMMA = re.compile(r"([-+]?\d+),(\d{1,2}|(?<=0,)\d+)")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,])")
_REPEATING = re.compile(r"([0-9]{1,9})\.([0-9]{0,9})\\overline\{([0-9]{1,9})\}")
_UPRIGHT = re.compile(r"(?:\\text\{[^{}]*[A-Za-z][^{}]*\}\s*)+")
_UPRIGHT_LETTER = re.compile(r"\\text\{\s*\(?([A-Za-z])\)?\s*\}")
_NAME_LETTERS = re.compile(r"[A-Za-z][A-Za-z0-9 ,.'\-]*")
_PLAIN_MIXED = re.compile(r"([-+]?)\s*(\d+) (\d+)/(\d+)")


def read_answer(text: str) -> Answer:
    r"""Read one answer, in LaTeX or plain.

    Example: `read_answer(r"(3, \frac12)").kind == "group"`; `read_answer("5 cm").unit == "cm"`
    """
    if len(text) < 20 and _PLAIN.fullmatch(text):
        places = len(text.partition(".")[2]) or None
        return Answer("quantity", text, (), rational(text), "", places)
    return _read(tidy(re.sub(r"(?<=\d)[ \t]*\r?\n\s*(?=\d)", ", ", text)), 0)  # a new line separates two numbers


def _read(text: str, depth: int) -> Answer:
    text = text.strip()
    if not text or depth > 8 or not _balanced(text):
        return Answer("bad", text)
    for reader in (_read_matrix, _read_literal, _read_relation, _read_list, _read_union, _read_group, _read_pair):
        answer = reader(text, depth)
        if answer is not None:
            return answer
    return _read_quantity(text)


def _balanced(text: str) -> bool:
    """Braces pair up; brackets need not, in intervals."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between separators that stand in no bracket; the separators too, in between."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(rf"(?P<open>\\?\{{|[(\[])|(?P<close>\\?\}}|[)\]])|(?P<split>{separator.pattern})", text):
        if match["open"] or match["close"]:
            depth = depth + 1 if match["open"] else max(0, depth - 1)
        elif depth == 0:
            parts += [text[start : match.start()], match["split"].strip()]
            start = match.end()
    return [*parts, text[start:]]


def _read_matrix(text: str, depth: int) -> Answer | None:
    if r"\begin" not in text:
        return None
    match = _MATRIX.fullmatch(text)
    if match is None or r"\begin" in match[2]:
        return Answer("opaque", text)
    rows = [row.split("&") for row in re.split(r"\\\\", match[2]) if row.strip()]
    items = tuple(Answer("list", "", tuple(_read(cell, depth + 1) for cell in row)) for row in rows)
    return Answer("matrix", text, items)


def _read_literal(text: str, depth: int) -> Answer | None:
    """Times, ratios, dates and numbers in another base are compared as they stand."""
    return _text(text) if _LITERAL.fullmatch(text) else None


def _text(text: str) -> Answer:
    words = re.sub(r"\\text|[{}()]", "", text)
    return Answer("text", re.sub(r"\s*([:,])\s*|\s+", r"\1 ", words).strip(" .,").casefold())


def _read_relation(text: str, depth: int) -> Answer | None:
    """`x = 5` is a named value, `2x + y = 5` an equation, `x < 5` a relation; what follows an \\approx is dropped."""
    member = _MEMBER.fullmatch(text)
    if member:
        return Answer("named", text, (_read(member[2], depth + 1),), label=member[1])
    equals, _, about = text.partition(r"\approx")
    if about:
        text = equals if "=" in equals else f"{equals}={about}"
    parts = _split(text, _RELATION)
    if len(parts) == 1:
        return None
    sides, signs = parts[::2], parts[1::2]
    if not sides[-1].strip() or any(_several(side) for side in sides[:-1]):
        return None if sides[-1].strip() else Answer("bad", text)
    if set(signs) == {"="}:
        return _read_equation(text, sides, depth)
    return _read_inequality(text, sides, signs, depth)


def _several(text: str) -> bool:
    return len(_split(text, re.compile(f",|;|{_LIST_WORDS.pattern}"))) > 1


def _read_equation(text: str, sides: list[str], depth: int) -> Answer | None:
    first, last = sides[0].strip(), sides[-1].strip()
    if len(sides) > 2 and _NAME.fullmatch(sides[-2].strip()):
        first = sides[-2].strip()
    if not first:
        return _read(last, depth + 1)
    if _NAME.fullmatch(last) and not _NAME.fullmatch(first):
        first, last = last, first  # 5 = x
    if _NAME.fullmatch(first):
        return Answer("named", text, (_read(last, depth + 1), _read(first, depth + 1)), label=_bare(first))
    items = tuple(_read(side, depth + 1) for side in sides)
    if all(item.kind == "quantity" and constant(item.tree) is not None for item in items):  # 3 + 4 = 7
        same = all(same_value(item.tree, items[-1].tree) for item in items)
        return items[-1] if same else Answer("bad", text)
    return Answer("equation" if len(items) == 2 else "opaque", text, items)


def _bare(name: str) -> str:
    return re.sub(r"\\text|[\s{}]", "", name)


def _read_inequality(text: str, sides: list[str], signs: list[str], depth: int) -> Answer | None:
    if any(_several(side) for side in sides):
        return None
    if all(sign in (">", r"\ge") for sign in signs):
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    items = tuple(_read(side, depth + 1) for side in sides)
    return Answer("relation", text, items, label=" ".join(signs))


def _read_list(text: str, depth: int) -> Answer | None:
    text = _THOUSANDS.sub(lambda match: re.sub("[ ,]", "", match[0]), text) if _outside(text) else text
    parts = _split(text, re.compile(rf",|;|{_LIST_WORDS.pattern}"))
    if len(parts) == 1:
        return None
    items = [part for part in parts[::2] if part.strip()]  # "1, 2, and 3"
    if len(items) == 1 or len(items) < len(parts[::2]) - any(_LIST_WORDS.fullmatch(word) for word in parts[1::2]):
        return Answer("bad", text)
    read = [_read(item, depth + 1) for item in items]
    if read[0].kind == "named" and all(item.kind != "named" for item in read[1:]):  # n = 1, 2, 3
        values = (read[0].items[0], *read[1:])
        return Answer("named", text, (_spliced(text, values, ""),), label=read[0].label)
    names = [item.label for item in read if item.kind == "named"]
    named = "names" if len(set(names)) == len(read) else ""
    in_any_order = any("or" in re.sub(r"\\text", "", word) for word in parts[1::2])
    return _spliced(text, read, "any" if in_any_order else named)


def _outside(text: str) -> bool:
    return not re.search(r"[(\[]|\\\{", text)


def _spliced(text: str, items: list[Answer] | tuple[Answer, ...], order: str, kind: str = "list") -> Answer:
    """A list in which `1 \\pm 2` has become its two values, in no order any more."""
    flat = []
    for item in items:
        flat += item.items if item.label == "pm" else [item]
    return Answer(kind, text, tuple(flat), label=order if len(flat) == len(items) else "any")


def _read_union(text: str, depth: int) -> Answer | None:
    parts = _split(text, re.compile(r"\\cup(?![A-Za-z])"))
    if len(parts) == 1:
        return None
    return Answer("union", text, tuple(_read(part, depth + 1) for part in parts[::2]), label="any")


def _read_group(text: str, depth: int) -> Answer | None:
    r"""`(a, b]` and `\{a, b\}`: brackets around the whole that hold at least one comma, or braces of a set."""
    is_set = text.startswith(r"\{") and text.endswith(r"\}")
    start, end = (2, -2) if is_set else (1, -1)
    if not is_set and not (text[0] in "([{" and text[-1] in ")]}" and len(text) > 2):
        return None
    inside = text[start:end]
    if not _encloses(inside):
        return None
    parts = _split(inside, re.compile(",|;"))
    if not is_set and text[0] != "[" and (len(parts) == 1 or text[0] == "{"):  # (x + 1): an expression
        return _read(inside, depth + 1) if text[0] == "{" or _LIST_WORDS.search(inside) is None else None
    read = [_read(part, depth + 1) for part in parts[::2]]
    if is_set:
        return _spliced(text, read, "any", "set")
    return Answer("group", text, tuple(read), label=text[0] + text[-1])


def _encloses(inside: str) -> bool:
    """Whether the bracket before `inside` is closed by the one after it, not earlier."""
    depth = 0
    for match in re.finditer(r"\\?[{}]|[()\[\]]", inside):
        depth += 1 if match[0][-1] in "{([" else -1
        if depth < 0:
            return False
    return True


def _read_pair(text: str, depth: int) -> Answer | None:
    r"""`a \pm b` is two values."""
    if text.count(r"\pm") != 1:
        return None if r"\pm" not in text else Answer("opaque", text)
    values = tuple(_read(text.replace(r"\pm", sign), depth + 1) for sign in "+-")
    return Answer("set", text, values, label="pm")


# --------------------------------------------------------------------------- answers: one quantity and its unit

_UNITS = {
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km", "millimeter": "mm",
    "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "dollar": "$", "usd": "$",
    "hour": "h", "hr": "h", "minute": "min", "second": "s", "sec": "s", "degree": "deg", "percent": "%", "pct": "%",
    "percentage": "%", "unit": "", "gram": "g", "kilogram": "kg", "pound": "lb", "lb": "lb", "liter": "l",
    "mph": "mi/h", "km/hr": "km/h", "cent": "cent", "¢": "cent",
}  # fmt: skip
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
# After a number these are no unit: they change the value, or add another.
_NO_UNITS = {
    "and", "or", "to", "of", "times", "plus", "minus", "over", "squared", "cubed", "factorial", "mod", "modulo",
    "root", "pi", "sqrt", "choose", "less", "more", "than", "at", "least", "most", "about", "approximately", "not",
    "point", "half", "halves", "thirds", "third", "quarters", "quarter", "e", "i", "sin", "cos", "tan", "log", "ln",
    "k", "by", "such", "that", "is", "are", "the", "with", "from", "through", "base", "below", "above", "each",
}  # fmt: skip
_WORDS = r"[A-Za-z¢][A-Za-z.]*(?:[ /][A-Za-z]+\.?)*"
_UNIT = re.compile(
    rf"(?P<value>.*?[\d)}}.])\s*(?:\\text\{{\s*(?P<upright>{_WORDS})\s*\}}|(?P<plain>{_WORDS})|(?P<sign>%|\\degree))"
    r"\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?\s*",
    re.DOTALL,
)
_CURRENCY = re.compile(r"(?P<minus>-?)\s*(?:\\\$|[$€£¥])\s*(?P<before>.+)|(?P<after>.+?)\s*(?:\\\$|[$€£¥])", re.DOTALL)


def _read_quantity(text: str) -> Answer:
    if text in (r"\emptyset", r"\infty", r"+\infty", r"-\infty"):
        return Answer("text", text.lstrip("+"))
    value, unit, scale = _unit_of(_THOUSANDS.sub(lambda m: re.sub("[ ,]", "", m[0]), text) if _outside(text) else text)
    if _is_words(value):
        return _text(text)
    try:
        tree = parse(_with_mixed(value))
    except Malformed:
        return Answer("bad", text)
    except Unreadable:
        if re.search(r"\\text\{|\.\.\.|[^ -~]", text):
            return _text(text)
        torn = text.count("(") != text.count(")") or text.count("[") != text.count("]")
        return Answer("bad" if torn or re.search(r"\{\s*,?\s*\}|\?|__", text) else "opaque", value)
    decimal = _DECIMAL.fullmatch(value)
    if scale != 1:
        tree = ("*", tree, ("number", Fraction(scale)))
    return Answer("quantity", value, (), tree, unit, len(decimal[1]) if decimal else None)


def _is_words(text: str) -> bool:
    """Letters of a name rather than a product: any in upright type, three together, or two capitals."""
    if text.startswith(r"\text"):
        return bool(_UPRIGHT.fullmatch(text)) and not _UPRIGHT_LETTER.fullmatch(text)
    return bool(_NAME_LETTERS.fullmatch(text) and re.search(r"[A-Za-z]{3}|[A-Z]{2}", text))


def _with_mixed(text: str) -> str:
    text = _UPRIGHT_LETTER.sub(r"\1", text)
    text = _REPEATING.sub(_repeating, text)
    match = _PLAIN_MIXED.fullmatch(text)
    return rf"{match[1]}{match[2]}\frac{{{match[3]}}}{{{match[4]}}}" if match else text


def _repeating(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` as a fraction: (16 - 1) / 90."""
    start, period = match[1] + match[2], match[3]
    nines = "9" * len(period) + "0" * len(match[2])
    return rf"\frac{{{int(start + period) - int(start)}}}{{{nines}}}"


def _unit_of(text: str) -> tuple[str, str, int]:
    """The value, its unit, and the scale that a word such as million gives it."""
    currency = _CURRENCY.fullmatch(text)
    if currency:
        value, unit, scale = _unit_of((currency["minus"] or "") + (currency["before"] or currency["after"]))
        return value, unit or "$", scale
    match = _UNIT.fullmatch(text)
    if match is None:
        return text, "", 1
    if match["sign"] == r"\degree" and re.search(r"\\[a-z]{3}", match["value"].replace(r"\frac", "")):
        return text, "", 1  # cos 60°
    if match["sign"]:
        return match["value"], {"%": "%"}.get(match["sign"], "deg"), 1
    words = (match["upright"] or match["plain"]).casefold().replace(".", "").split()
    if _NO_UNITS & set(words) or (not match["upright"] and not _is_unit(words, text[len(match["value"]) :][:1] == " ")):
        return text, "", 1
    scale = _SCALES.get(words[0].removesuffix("s"), 1)
    return match["value"].rstrip(), _unit_name(words[1:] if scale != 1 else words, match["power"]), scale


def _is_unit(words: list[str], apart: bool) -> bool:
    """`5 cm`, `5cm` and `5 eggs` have units; `5 m`, `3ba` and `3 ba` have letters."""
    known = words[0] in _UNITS or words[0].removesuffix("s") in {*_UNITS, *_UNITS.values()} - {"m", "s", "h", "l", ""}
    return known or (apart and len(words[0]) > 2)


def _unit_name(words: list[str], power: str | None) -> str:
    for word, number in (("square", "2"), ("sq", "2"), ("cubic", "3")):
        if word in words:
            words, power = [other for other in words if other != word], number
    names = [_UNITS.get(word, _UNITS.get(word.removesuffix("s"), word.removesuffix("s"))) for word in words]
    name = " ".join(names).replace(" per ", "/")
    return f"{name}^{power}" if power and name else name


# --------------------------------------------------------------------------- answers: are they the same?


def compare(gold: Answer, answer: Answer) -> tuple[bool, Pending]:
    """Whether `answer` is `gold`, provided that each of the pending pairs (gold, answer) turns out to be equal.

    Strict where others are not: brackets and the order of a bare list count, a set is not a tuple, two units
    must agree, one value is not a list of one, an equation is not its right side.
    """
    pending: Pending = []
    return _same(gold, answer, pending), pending


def _same(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if "bad" in (gold.kind, answer.kind):
        return False
    if answer.kind == gold.kind == "named" and gold.label == answer.label:
        return _same(gold.items[0], answer.items[0], pending)
    if {gold.kind, answer.kind} <= {"named", "equation"}:
        return _same_equation(gold, answer, pending)
    if gold.kind == "named" or answer.kind == "named":
        bare = [side.items[0] if side.kind == "named" else side for side in (gold, answer)]
        return _same(*bare, pending)
    if gold.kind == "relation":
        return _same_relation(gold, answer, pending)
    if "text" in (gold.kind, answer.kind):
        return gold.kind == answer.kind and gold.source == answer.source
    if gold.kind == answer.kind == "quantity":
        return _same_quantity(gold, answer, pending)
    if gold.items or answer.items:
        return _same_items(gold, answer, pending)
    return _ask(gold, answer, pending)


def _ask(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if gold.source != answer.source:
        pending.append((gold.source, answer.source))
    return True


_COMPARABLE = {("list", "group"), ("group", "list"), ("set", "list"), ("list", "set")}


def _same_items(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if "opaque" in (gold.kind, answer.kind):
        return {gold.kind, answer.kind} <= {"opaque", "matrix"} and _ask(gold, answer, pending)
    kinds = (gold.kind, answer.kind)
    if (gold.kind != answer.kind and kinds not in _COMPARABLE) or len(gold.items) != len(answer.items):
        return kinds in (("list", "quantity"), ("quantity", "list")) and _same_decimal_comma(gold, answer)
    if gold.kind == answer.kind == "group" and gold.label != answer.label:
        return False
    if "group" in kinds and {gold.label, answer.label} - {"", "()", "names"}:
        return gold.label == answer.label and _in_order(gold, answer, pending)
    any_order = "any" in (gold.label, answer.label) or "set" in kinds or gold.label == answer.label == "names"
    return _in_any_order(gold, answer, pending) if any_order else _in_order(gold, answer, pending)


def _in_order(gold: Answer, answer: Answer, pending: Pending) -> bool:
    return all(_same(g, a, pending) for g, a in zip(gold.items, answer.items, strict=True))


def _in_any_order(gold: Answer, answer: Answer, pending: Pending) -> bool:
    """Each item of gold takes the first item left that is surely the same, else the first that may be."""
    left = list(answer.items)
    for item in gold.items:
        found = []
        for candidate in left:
            asked: Pending = []
            if _same(item, candidate, asked):
                found.append((len(asked), asked, candidate))
        if not found:
            return False
        _, asked, taken = min(found, key=lambda entry: entry[0])
        pending += asked
        left.remove(taken)
    return True


def _same_decimal_comma(gold: Answer, answer: Answer) -> bool:
    """`2,75` and `2.75`, where one of the two is written with a point."""
    comma, point = (gold, answer) if gold.kind == "list" else (answer, gold)
    match = _DECIMAL_COMMA.fullmatch(comma.source)
    return (
        match is not None and bool(point.places) and same_value(rational(f"{match[1]}.{match[2]}"), point.tree) is True
    )


def _same_quantity(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if "%" in (gold.unit, answer.unit) and gold.unit != answer.unit:
        return "" in (gold.unit, answer.unit) and _same_percent(gold, answer, pending)
    if gold.unit != answer.unit and gold.unit and answer.unit:
        return False
    same = same_value(gold.tree, answer.tree)
    if same is None:
        return _ask(gold, answer, pending)
    return same or _is_rounded(gold, answer) or _is_rounded(answer, gold)


def _same_percent(gold: Answer, answer: Answer, pending: Pending) -> bool:
    """One side has a percent sign: 35% is 0.35, and it is 35 where the sign was left out (not a 0.35 or a 40/9)."""
    percent, plain = (gold, answer) if gold.unit == "%" else (answer, gold)
    if same_value(("/", percent.tree, rational(100)), plain.tree):
        return True
    plain_number = re.fullmatch(r"[-+]?\s*\d+(?:\.\d+)?", plain.source)
    value = constant(percent.tree)
    return (
        plain_number is not None
        and value is not None
        and abs(value) >= 1
        and same_value(gold.tree, answer.tree) is True
    )


def _is_rounded(decimal: Answer, other: Answer) -> bool:
    """`decimal` is the other, which is no decimal itself, to at least six places and five digits."""
    if decimal.places is None or decimal.places < ROUNDED_PLACES or other.places is not None:
        return False
    value, true = constant(decimal.tree), constant(other.tree)
    if not value or not true or other.tree[0] == "number" or value.imag or abs(value) < 1e-3:
        return False
    return abs(value - true) <= 0.5000001 * 10 ** -min(decimal.places, 12) * max(1, abs(true))


def _residual(answer: Answer) -> Exact | None:
    """Left side less right side of an equation or of two sides, where both have an exact value."""
    sides = answer.items[::-1] if answer.kind == "named" else answer.items
    if len(sides) != 2 or any(side.kind != "quantity" for side in sides):
        return None
    try:
        return exact(("+", sides[0].tree, ("*", rational(-1), sides[1].tree)))
    except (Unreadable, OverflowError):
        return None


def _same_equation(gold: Answer, answer: Answer, pending: Pending) -> bool:
    """The same zeros: one residual is a multiple of the other."""
    left, right = _residual(gold), _residual(answer)
    if left is None or right is None:
        return gold.kind == answer.kind == "equation" and _ask(gold, answer, pending)
    return bool(letters(left)) and _ratio(left[0], right[0]) is not None


def _ratio(left: Polynomial, right: Polynomial) -> Fraction | None:
    """The constant that `left` is of `right`, None where there is none."""
    if left.keys() != right.keys() or not left:
        return None
    ratios = {left[term] / right[term] for term in left}
    return ratios.pop() if len(ratios) == 1 else None


_AT_LEAST = {"<": "()", r"\le": "[]"}


def _same_relation(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if answer.kind in ("group", "union"):
        return _same_interval(gold, answer, pending)
    if answer.kind != "relation" or len(gold.items) != len(answer.items):
        return answer.kind == "opaque" and _ask(gold, answer, pending)
    if gold.label != answer.label:
        return False
    asked: Pending = []
    if _in_order(gold, answer, asked):
        pending += asked
        return True
    residuals = [_residual(side) for side in (gold, answer)]
    if len(gold.items) > 2:
        return False
    if None in residuals:
        return all(item.kind in ("quantity", "opaque") for item in answer.items) and _ask(gold, answer, pending)
    ratio = _ratio(residuals[0][0], residuals[1][0]) if residuals[0][1] == residuals[1][1] else None
    return ratio is not None and (ratio > 0 or gold.label == r"\ne")


def _same_interval(gold: Answer, answer: Answer, pending: Pending) -> bool:
    """The gold is `a < x < b` or `x < b`, the answer an interval."""
    ends, signs = list(gold.items), gold.label.split()
    if len(ends) == 2:
        has_letter = [end.kind == "quantity" and constant(end.tree) is None for end in ends]
        infinite = Answer("text", r"\infty" if has_letter[0] else r"-\infty")
        ends, signs = (
            ([*ends, infinite], [*signs, "<"]) if has_letter[0] is False else ([infinite, *ends], ["<", *signs])
        )
        if has_letter[0]:
            ends, signs = [Answer("text", r"-\infty"), ends[1], ends[2]], signs
        else:
            ends[-1] = Answer("text", r"\infty")
    if len(ends) != 3 or answer.kind != "group" or any(sign not in _AT_LEAST for sign in signs):
        return False
    brackets = _AT_LEAST[signs[0]][0] + _AT_LEAST[signs[1]][1]
    return _same(Answer("group", gold.source, (ends[0], ends[2]), label=brackets), answer, pending)
