"""Reads an answer: numbers with units, intervals, sets, lists, equations, matrices, words."""

import itertools
import re

from rewards.latex.number import Answer, read_quantity, without_separators
from rewards.latex.parse import Unreadable, tidy
from rewards.latex.value import constant, same_value

INFINITY, MINUS_INFINITY = Answer("text", r"\infty"), Answer("text", r"-\infty")
MAX_DEPTH = 8  # levels of answers inside answers
# Times, ratios, ordinals and numbers in another base, as `(101)_2`, are compared as text.
_LITERAL = re.compile(
    r"\d+\s*:\s*\d+.*|\d+\s*\^?\{?(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}*"
    r"|(?:[0-9A-F]+|\([0-9A-F]+\))_\{?\d+\}?",
    re.DOTALL,
)
_INTERVAL = re.compile(
    r"((?:^|\\cup|\\in|=)\s*[(\[\]])([^\[\](),;]+[,;][^\[\](),;]+)([)\[\]])(?=\s*(?:$|\\cup))"
)
_SEPARATOR = r",|;|\\text\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
_RELATION = r"\\le |\\ge |\\ne |<|>|="
_FLIPPED = {">": "<", r"\ge": r"\le"}
_MEMBER = re.compile(r"([A-Za-z])\s*\\in(?![A-Za-z])\s*(.+)", re.DOTALL)
_NAME = re.compile(  # x, f(x), \overline{AB}, x_1, total area
    r"\s*(?:(?:\\(?:angle|triangle|overline|text|vec|bar|hat)\s*)?"
    r"\{?(?:\\[A-Za-z]+|[A-Za-z][A-Za-z ]*)\}?'*(?:_(?:\w|\{\\?(?:text\{)?\w+(?:[+-]\d)?\}+))?"
    r"(?:\(\s*-?\w+(?:\s*,\s*-?\w+)*\s*\))?)\s*"
    # Expressions that can be named as the asked value: |AB|, P(A|B), A : B, dy/dx, a limit, a sum.
    r"|\s*(?:m\\angle\s*[A-Z]{1,3}|[fghpq]\^\{?-1\}?\(\w+\)|[A-Z]\^\{?-1\}?"
    r"|\|\s*[A-Z]{1,4}\s*\||(?:[A-Zfghpq]'*|\\text\{\w+\})\s*[(\[][^()\[\]+]*[)\]]"
    r"|[A-Za-z]+(?:\s*:\s*[A-Za-z]+)+|\\frac\s*\{d[^{}]*\}\s*\{d[^{}]*\}"
    r"|\\begin\{vmatrix\}.*\\end\{vmatrix\}"
    r"|\\(?:lim|int|sum|prod|max|min)(?![A-Za-z]).*|.*\\bmod(?![A-Za-z]).*)\s*",
    re.DOTALL,
)
_REALS = re.compile(r"\\mathbb\s*\{?R\}?(?:\s*(?:\\setminus|-)\s*\\\{(.*)\\\})?", re.DOTALL)
_SUCH_THAT = re.compile(
    r"\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![A-Za-z])|\||:)(.+)", re.DOTALL
)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
# A matrix with its brackets and a factor before it.
_MATRIX = re.compile(
    r"\s*(?P<times>-?[^-+=,;&\[(]*?)\s*(?:\[\s*|\(\s*)?"
    r"\\begin\{(?P<kind>(?:[pbB]|small)?matrix|array)\}(?:\{[lcr|]*\})?(?P<rows>.*?)\\end\{(?P=kind)\}"
    r"\s*[\])]?\s*",
    re.DOTALL,
)
# A choice with its value: `(C) 14`, `C. 14`, and `\text{C} 14` written so.
_CHOICE = re.compile(
    r"(?s)(?:\(([A-J])\)(?!\s*[-(])|([A-J])(?:\.(?!\d)|:|\)(?=\s?\.\s))(?!\s*\.?\s*-))"
    r"\s*(?:\.(?!\d))?\s*(?:[:,]\s*)?(?![A-J]\s*(?:[=:.]|$))([^\s.:,)+*/^_=<>|!].*|\.\d.*)"
)
# Behind a choice: words that take it back, or another choice.
_NOT_ALONE = re.compile(
    r"(?s)(?:[\s,;/&\\{]|text(?![a-z]))*(?:or|and|not|nor|is|isn['’]t|wrong)\b"
    r"|.*(?<![A-Za-z])(?:\([A-J]\)|(?<!\()[A-J][.:)]|(?:\b(?:or|and)\b|[,;/&])[^\w]*[A-J]\b)"
)
_WORD = re.compile(r"[A-Za-z]{3}|[A-Z]{2}|^[A-Z][a-z]$|^no$")


def read_answer(text: str) -> Answer:
    r"""Read one answer, in LaTeX or plain.

    Example: `read_answer(r"(3, \frac12)").kind == "group"`; `read_answer("5 cm").unit == "cm"`
    """
    text = re.sub(r"(?<=\d)[ \t]*\r?\n\s*(?=\d)", ", ", text)  # a new line separates two numbers
    # A bracket that is turned outwards is a round one: ]3, 5] is (3, 5].
    text = _INTERVAL.sub(
        lambda match: match[1].replace("]", "(") + match[2] + match[3].replace("[", ")"), tidy(text)
    )
    # `\text{C} 14` is read as `C. 14`.
    choice = _CHOICE.fullmatch(re.sub(r"^\\text\{\s*([^{}]*?)\s*\}", r"\1. ", text))
    if choice and not _NOT_ALONE.match(choice[3]):
        value = _read_tidy(choice[3].rstrip(" ."), 1)
        return Answer("choice", text, (value, read_quantity(choice[1] or choice[2])))
    return _read_tidy(text, 0)


def is_constant(answer: Answer) -> bool:
    """Whether the answer is an expression without letters that has a value."""
    return answer.kind == "quantity" and constant(answer.tree) is not None


def _read_tidy(text: str, depth: int) -> Answer:
    """Read LaTeX from `tidy`, nested `depth` deep, by the first reader that knows its form."""
    text = text.strip()
    braces = _depths(text, r"(?<!\\)[{}]")  # only braces: intervals have unpaired brackets
    if not text or depth > MAX_DEPTH or min(braces) < 0 or braces[-1]:
        return Answer("bad", text)
    if _LITERAL.fullmatch(text):  # 3:10, 2nd, 1A_{16}: no expression
        return _text(text)
    for reader in _READERS:
        answer = reader(text, depth + 1)
        if answer is not None:
            return answer
    return _read_quantity(text)


def _depths(text: str, brackets: str) -> list[int]:
    """The number of open brackets: 0 at the start, then one number after each bracket."""
    steps = (1 if bracket in "{([" else -1 for bracket in re.findall(brackets, text))
    return list(itertools.accumulate(steps, initial=0))


def _split(text: str, separator: str) -> list[str]:
    """Split a text outside its brackets: [part, separator, part, ..., part]."""
    parts, depth, start = [], 0, 0
    brackets = r"(?P<open>\\begin|\\?\{|[(\[])|(?P<close>\\end|\\?\}|[)\]])"
    for match in re.finditer(rf"{brackets}|{separator}", text):
        if match["open"] or match["close"]:
            depth = depth + 1 if match["open"] else max(0, depth - 1)
        elif depth == 0:
            parts += [text[start : match.start()], match[0].strip()]
            start = match.end()
    return [*parts, text[start:]]


def _text(text: str) -> Answer:
    """An answer in words: without an article, brackets, spaces at commas, and capital letters."""
    words = re.sub(r"\\text|[{}()^]", "", text)
    words = re.sub(r"^\s*(?:an?|the)\s", "", words, flags=re.IGNORECASE)
    words = re.sub(r"\s*([:,])\s*|\s+", r"\1 ", words).strip(" .,").casefold()
    return Answer("text", re.sub(r"\b([ap])\. ?m\b", r"\1m", words))  # p.m. as pm


def _read_relation(text: str, depth: int) -> Answer | None:
    """`x = 5` is a named value, `2x + y = 5` an equation, `x < 5` a relation."""
    if member := _MEMBER.fullmatch(text):
        return Answer("named", text, (_read_tidy(member[2], depth),), label=member[1])
    exact, _, about = text.partition(r"\approx")
    if about:  # 1/3 \approx 0.33 is read as 1/3, and x \approx 0.33 as x = 0.33
        is_value = exact.strip() and not _NAME.fullmatch(exact)
        is_value = is_value or is_constant(_read_tidy(exact, depth))
        return _read_tidy(exact if is_value else f"{exact}={about}", depth)
    parts = _split(text, _RELATION)
    sides, signs = parts[::2], parts[1::2]
    if not signs:
        return None
    several = [len(_split(side, _SEPARATOR)) > 1 for side in sides]
    if any(several[:-1]) or (several[-1] and set(signs) != {"="}):
        return None  # a list of relations: x < 1, x > 3; but x = 1, 2 is one
    if set(signs) == {"="}:
        return _read_equation(text, sides, depth)
    if set(signs) <= _FLIPPED.keys():
        sides, signs = sides[::-1], [_FLIPPED[sign] for sign in signs[::-1]]
    items = tuple(_read_tidy(side, depth) for side in sides)
    return Answer("relation", text, items, label=" ".join(signs))


def _read_equation(text: str, sides: list[str], depth: int) -> Answer:
    """What `=` joins: a named value (`x = 5`), a value (`3 + 4 = 7` is 7) or an equation."""
    first, last = sides[0].strip(), sides[-1].strip()
    if not first:
        return _read_tidy(last, depth)
    if _NAME.fullmatch(last) and not _NAME.fullmatch(first):  # 5 = x
        first, sides = last, sides[::-1]
    items = tuple(_read_tidy(side, depth) for side in sides)
    value, constants = items[-1], [item for item in items if is_constant(item)]
    if value in constants and not all(same_value(item.tree, value.tree) for item in constants):
        return Answer("bad", text)  # a false equation, 3 + 4 = 8
    names = re.findall("[A-Za-z]", first)
    if first.startswith("(") and value.kind == "group" and len(value.items) == len(names):
        pairs = zip(names, value.items, strict=True)  # (x, y) = (1, 2) is x = 1, y = 2
        named = tuple(Answer("named", text, (item,), label=name) for name, item in pairs)
        return Answer("list", text, named, label="names")
    if _NAME.fullmatch(first):
        name = re.sub(r"\\text|[\s{}]", "", first)
        return Answer("named", text, (value, _read_tidy(first, depth)), label=name)
    if len(constants) >= max(2, len(items) - 1) and value in constants:
        return value  # 3 + 4 = 7, a + b = 3 + 4 = 7
    return Answer("equation", text, items)


def _read_list(text: str, depth: int) -> Answer | None:
    """Values joined by commas, semicolons, "and" or "or"; None for one value alone."""
    parts = _split(without_separators(text), _SEPARATOR)
    if len(parts) == 1:
        return None
    words = [re.sub(r"\\text|\W", "", separator) for separator in parts[1::2]]
    texts = [part for part in parts[::2] if part.strip()]  # an empty part: "1, 2, and 3"
    if len(texts) < 2:
        return Answer("bad", text)
    items = [_read_tidy(part, depth) for part in texts]
    if words == ["and"] and items[0].kind == items[1].kind == "relation":  # 1 < x and x < 5
        return _chain(text, *items) or _chain(text, *items[::-1]) or Answer("list", text, (*items,))
    names = {item.label for item in items if item.kind == "named"}
    order = "names" if len(names) == len(items) else ""  # x = 1, y = 2: a name for each
    return _collect_items(text, items, "any" if "or" in words else order)


def _chain(text: str, left: Answer, right: Answer) -> Answer | None:
    """Join `1 < x` and `x < 5` to `1 < x < 5`; None if they do not fit together so."""
    signs = f"{left.label} {right.label}".split()
    if left.items[-1] != right.items[0] or not {"<", r"\le"}.issuperset(signs):
        return None
    return Answer("relation", text, (*left.items, *right.items[1:]), label=" ".join(signs))


def _collect_items(text: str, items: list[Answer], order: str, kind: str = "list") -> Answer:
    r"""Collect items into a list or set, of which `order` is the label (see `Answer`).

    `1 \pm 2` becomes two values; then any order is right.
    """
    values = []
    for item in items:
        values += item.items if item.label == "pm" else [item]
    return Answer(kind, text, tuple(values), label=order if len(values) == len(items) else "any")


def _read_pair(text: str, depth: int) -> Answer | None:
    r"""`a \pm b` as a set of two values; None without `\pm`."""
    if len(_PLUS_MINUS.findall(text)) != 1:
        return None
    values = tuple(_read_tidy(_PLUS_MINUS.sub(sign, text), depth) for sign in "+-")
    return Answer("set", text, values, label="pm")


def _read_reals(text: str, depth: int) -> Answer | None:
    r"""Read `\mathbb{R}` or `\mathbb{R} \setminus \{2, 5\}` as open intervals; None for others."""
    match = _REALS.fullmatch(text)
    if match is None:
        return None
    excluded = _read_tidy(r"\{" + match[1] + r"\}", depth).items if match[1] else ()
    if not all(map(is_constant, excluded)):
        return Answer("opaque", text)  # mathematics that is not understood
    points = sorted(excluded, key=lambda item: constant(item.tree).real)
    pairs = itertools.pairwise([MINUS_INFINITY, *points, INFINITY])
    intervals = tuple(Answer("group", text, pair, label="()") for pair in pairs)
    if len(intervals) == 1:
        return intervals[0]
    return Answer("union", text, intervals, label="any")


def _read_union(text: str, depth: int) -> Answer | None:
    r"""Intervals or sets (`{1, 3}` counts as `\{1, 3\}`) joined by `\cup`; None without one."""
    parts = _split(text, r"\\cup(?![A-Za-z])")
    if len(parts) == 1:
        return None
    texts = [re.sub(r"^\s*\{(.*)\}\s*$", r"\\{\1\\}", part) for part in parts[::2]]
    items = [_read_tidy(part, depth) for part in texts]
    if all(item.kind == "set" for item in items):  # {1, 3} and {2, 3} make {1, 2, 3}
        elements = {}
        for element in itertools.chain.from_iterable(item.items for item in items):
            value = constant(element.tree) if element.kind == "quantity" else None
            elements.setdefault(element.source if value is None else value, element)
        return Answer("set", text, tuple(elements.values()), label="any")
    return Answer("union", text, tuple(items), label="any")


def _read_group(text: str, depth: int) -> Answer | None:
    r"""A group or set: `(a, b]`, `[a]`, `\{a, b\}`; None for others, such as `(x + 1)`."""
    is_set = text.startswith(r"\{") and text.endswith(r"\}")
    inside = text[2:-2] if is_set else text[1:-1]
    is_group = is_set or (len(text) > 2 and text[0] in "([{" and text[-1] in ")]}")
    # In (a)(b) the first bracket is not closed by the last.
    if not is_group or min(_depths(inside, r"[{}()\[\]]")) < 0:
        return None
    if text[0] == "{":  # LaTeX's own braces, which mean nothing
        return _read_tidy(inside, depth)
    parts = _split(inside, ",|;")[::2]
    if text[0] == "(" and len(parts) == 1:
        return None
    condition = _SUCH_THAT.fullmatch(inside) if is_set and len(parts) == 1 else None
    if condition:
        return _read_tidy(condition[1], depth)  # {x | x < 5} is read as x < 5
    items = [_read_tidy(part, depth) for part in parts]
    if is_set:
        return _collect_items(text, items, "any", "set")
    return Answer("group", text, tuple(items), label=text[0] + text[-1])


def _read_matrix(text: str, depth: int) -> Answer | None:
    r"""A matrix, or a multiple of a matrix; None for a text without `\begin`."""
    if r"\begin" not in text:
        return None
    match = _MATRIX.fullmatch(text)
    if match is None:
        return Answer("opaque", text)  # mathematics that is not understood
    factor = match["times"].rstrip("* ")  # 2 before a matrix multiplies each cell
    rows = []
    for row in filter(str.strip, match["rows"].split(r"\\")):
        cells = [f"{factor}({cell})" if factor else cell for cell in row.split("&")]
        rows.append(Answer("list", "", tuple(_read_tidy(cell, depth) for cell in cells)))
    return Answer("matrix", text, tuple(rows))


_READERS = (
    _read_relation, _read_matrix, _read_list, _read_reals, _read_union, _read_group, _read_pair,
)  # fmt: skip


def _read_quantity(text: str) -> Answer:
    """What no other reader reads: a value, a name, or mathematics that is not understood."""
    if text in (r"\emptyset", r"\infty", r"+\infty", r"-\infty"):
        return Answer("text", text.lstrip("+"))
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9 ,.'\-]*", text) and _WORD.search(text):
        return _text(text)  # a name rather than a product of letters
    try:
        return read_quantity(text)
    except Unreadable as error:
        if re.search(r"\\text\{|\.\.\.|[^ -~]", text):
            return _text(text)
        return Answer("opaque", text, label=str(error))
