"""Reading an answer in LaTeX or plain: numbers with units, intervals, sets, lists, equations, matrices, words."""

import itertools
import re
from typing import NamedTuple

from rewards.latex.number import UPRIGHT_LETTER, with_mixed, without_separators, written_number
from rewards.latex.parse import Malformed, Tree, Unreadable, parse, rational
from rewards.latex.tidy import tidy
from rewards.latex.units import split_unit
from rewards.latex.value import constant, same_value


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
    label: str = (
        ""  # brackets of a group, name of a named value, signs of a relation, or of a list:
    )


INFINITY, MINUS_INFINITY = Answer("text", r"\infty"), Answer("text", r"-\infty")
_LIST_WORDS = re.compile(
    r"\\text\{\s*(?:,?\s*(and|or))\s*,?\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])"
)
_NAME = re.compile(
    r"(?:(?:\\(?:angle|triangle|overline|text|vec|mathbb|mathcal)\s*)?\{?(?:\\[A-Za-z]+|[A-Za-z][A-Za-z ]*)\}?"
    r"'*(?:_(?:\w|\{\w+\}))?(?:\(\s*-?\w+(?:\s*,\s*-?\w+)*\s*\))?|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\)|[A-Z]{2,4}\^2)\s*"
)
_LABEL = re.compile(  # what has a value without being an unknown: |AB|, P(A|B), A : B, dy/dx, a limit, a sum, 17 mod 5
    r"\|\s*[A-Z]{1,4}\s*\||(?:[A-Zfghpq]'*|\\text\{\w+\})\s*[(\[][^()\[\]=+]*[)\]]|[A-Za-z]+(?:\s*:\s*[A-Za-z]+)+"
    r"|\\frac\s*\{d[^{}]*\}\s*\{d[^{}]*\}|\\begin\{vmatrix\}.*\\end\{vmatrix\}|\\(?:lim|int|sum|prod|max|min|gcd|det|dim|deg)(?![A-Za-z]).*|.*\\bmod(?![A-Za-z]).*",
    re.DOTALL,
)
_COORDINATES = re.compile(r"\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_REALS = re.compile(
    r"\\mathbb\s*\{?R\}?(?:\s*(?:\\setminus|\\backslash|-)\s*\\\{(.*)\\\})?", re.DOTALL
)
_SUCH_THAT = re.compile(
    r"\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid|\||:)(?![A-Za-z])(.+)", re.DOTALL
)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_MEMBER = re.compile(r"([A-Za-z])\s*\\in(?![A-Za-z])\s*(.+)", re.DOTALL)
_RELATION = re.compile(r"\\le |\\ge |\\ne |<|>|=")
# A matrix with its brackets and the number that it is multiplied by, as one of a sum.
_MATRIX = re.compile(
    r"\s*(?P<sign>[-+]?)\s*(?P<times>[^-+=,;&\[(]*?)\s*\(?\s*(?:\[\s*|\(\s*)?"
    r"\\begin\{(?P<kind>[pbB]?matrix|array)\}(?:\{[lcr|]*\})?(?P<rows>.*?)\\end\{(?P=kind)\}"
    r"\s*[\])]?\s*\)?",
    re.DOTALL,
)
_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Times, ratios, dates, ordinals and numbers in another base are compared as they stand.
_LITERAL = re.compile(
    r"\d+\s*:\s*\d+.*|\d+\s*\^?\{?(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}*|[0-9A-F]+_\{?\d+\}?"
    r"|[A-Z][a-z]{2,8}\.? \d{1,2}, \d{4}",
    re.DOTALL,
)
_DECIMAL = re.compile(r"[-+]?\s*\d*\.(\d+)")
_UPRIGHT = re.compile(r"(?:\\text\{[^{}]*[A-Za-z][^{}]*\}\s*)+")
_WORD = re.compile(r"[A-Za-z]{3}|[A-Z]{2}|^[A-Z][a-z]$|^no$")
_NAME_LETTERS = re.compile(r"[A-Za-z][A-Za-z0-9 ,.'\-]*")


def read_answer(text: str) -> Answer:
    r"""Read one answer, in LaTeX or plain.

    Example: `read_answer(r"(3, \frac12)").kind == "group"`; `read_answer("5 cm").unit == "cm"`
    """
    if len(text) < 20 and _PLAIN.fullmatch(text):
        places = len(text.partition(".")[2]) or None
        return Answer("quantity", text, (), rational(text), "", places)
    return _read(
        tidy(re.sub(r"(?<=\d)[ \t]*\r?\n\s*(?=\d)", ", ", text)), 0
    )  # a new line separates two numbers


def _read(text: str, depth: int) -> Answer:
    text = text.strip()
    if not text or depth > 8 or not _balanced(text):
        return Answer("bad", text)
    if _LITERAL.fullmatch(text):
        return _text(text)
    for reader in (_read_relation, _read_matrix, _read_list, _read_union, _read_group, _read_pair):
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
    for match in re.finditer(
        rf"(?P<open>\\begin|\\?\{{|[(\[])|(?P<close>\\end|\\?\}}|[)\]])|(?P<split>{separator.pattern})",
        text,
    ):
        if match["open"] or match["close"]:
            depth = depth + 1 if match["open"] else max(0, depth - 1)
        elif depth == 0:
            parts += [text[start : match.start()], match["split"].strip()]
            start = match.end()
    return [*parts, text[start:]]


def _read_matrix(text: str, depth: int) -> Answer | None:
    """A matrix, or a sum of multiples of matrices of one shape, which is added up cell by cell."""
    if r"\begin" not in text:
        return None
    cells, end = [], 0
    while match := _MATRIX.match(text, end):
        times = match["sign"] + (match["times"].rstrip("* ") + "*" if match["times"] else "")
        rows = [row.split("&") for row in match["rows"].split(r"\\") if row.strip()]
        rows = [[f"{times}({cell})" if times else cell for cell in row] for row in rows]
        if cells and (not match["sign"] or list(map(len, rows)) != list(map(len, cells))):
            return Answer("opaque", text)
        cells = [list(map("".join, zip(*pair))) for pair in zip(cells, rows)] if cells else rows
        end = match.end()
    if end != len(text) or any(r"\begin" in cell for row in cells for cell in row):
        return Answer("opaque", text)
    items = tuple(
        Answer("list", "", tuple(_read(cell, depth + 1) for cell in row)) for row in cells
    )
    return Answer("matrix", text, items)


def _text(text: str) -> Answer:
    words = re.sub(r"\\text|[{}()^]", "", text)
    words = re.sub(r"^\s*(?:an?|the)\s", "", words, flags=re.IGNORECASE)
    words = re.sub(r"\s*([:,])\s*|\s+", r"\1 ", words).strip(" .,").casefold()
    return Answer("text", re.sub(r"\b([ap])\. ?m\b", r"\1m", words))


def _read_relation(text: str, depth: int) -> Answer | None:
    """`x = 5` is a named value, `2x + y = 5` an equation, `x < 5` a relation; what follows an \\approx is dropped."""
    member = _MEMBER.fullmatch(text)
    if member:
        return Answer("named", text, (_read(member[2], depth + 1),), label=member[1])
    exact, _, about = text.partition(r"\approx")
    if about:  # of "1/3 = 0.333..." what is exact counts, of "x = 0.333..." what there is
        value = _read(exact, depth + 1) if exact.strip() else None
        is_named = value is None or (
            _is_name(exact) and (value.kind != "quantity" or constant(value.tree) is None)
        )
        text = f"{exact}={about}" if is_named else exact
    parts = _split(text, _RELATION)
    if len(parts) == 1:
        return _read(text, depth + 1) if about else None
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
    if len(sides) > 2 and _is_name(sides[-2]):
        first = sides[-2].strip()
    if not first:
        return _read(last, depth + 1)
    if _is_name(last) and not _is_name(first):
        first, last, sides = last, first, sides[::-1]  # 5 = x
    items = tuple(_read(side, depth + 1) for side in sides)
    value = items[-1]
    constants = [
        item for item in items if item.kind == "quantity" and constant(item.tree) is not None
    ]
    if value in constants and any(
        not same_value(item.tree, value.tree) for item in constants
    ):  # 3 + 4 = 8
        return Answer("bad", text)
    if (
        _COORDINATES.fullmatch(first)
        and value.kind == "group"
        and len(value.items) == first.count(",") + 1
    ):
        pairs = zip(
            re.findall("[A-Za-z]", first), value.items, strict=True
        )  # (x, y) = (1, 2) is x = 1, y = 2
        named = tuple(Answer("named", text, (item,), label=name) for name, item in pairs)
        return Answer("list", text, named, label="names")
    if _is_name(first):
        return Answer(
            "named",
            text,
            (value, _read(first, depth + 1)),
            label=re.sub(r"\\text|[\s{}]", "", first),
        )
    if (
        len(constants) >= max(2, len(items) - 1) and value in constants
    ):  # 3 + 4 = 7, a + b = 3 + 4 = 7
        return value
    return Answer("equation" if len(items) == 2 else "opaque", text, items)


def _is_name(text: str) -> bool:
    text = text.strip()
    return bool(_NAME.fullmatch(text) or _LABEL.fullmatch(text))


def _read_inequality(text: str, sides: list[str], signs: list[str], depth: int) -> Answer | None:
    if any(_several(side) for side in sides):
        return None
    if all(sign in (">", r"\ge") for sign in signs):
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    items = tuple(_read(side, depth + 1) for side in sides)
    return Answer("relation", text, items, label=" ".join(signs))


def _read_list(text: str, depth: int) -> Answer | None:
    text = without_separators(text)
    parts = _split(text, re.compile(rf",|;|{_LIST_WORDS.pattern}"))
    if len(parts) == 1:
        return None
    items = [part for part in parts[::2] if part.strip()]  # "1, 2, and 3"
    if len(items) == 1 or len(items) < len(parts[::2]) - any(
        _LIST_WORDS.fullmatch(word) for word in parts[1::2]
    ):
        return Answer("bad", text)
    read = [_read(item, depth + 1) for item in items]
    if read[0].kind == "named" and all(item.kind != "named" for item in read[1:]):  # n = 1, 2, 3
        values = (read[0].items[0], *read[1:])
        return Answer("named", text, (_spliced(text, values, ""),), label=read[0].label)
    names = [item.label for item in read if item.kind == "named"]
    named = "names" if len(set(names)) == len(read) else ""
    in_any_order = any("or" in re.sub(r"\\text", "", word) for word in parts[1::2])
    return _spliced(text, read, "any" if in_any_order else named)


def _spliced(
    text: str, items: list[Answer] | tuple[Answer, ...], order: str, kind: str = "list"
) -> Answer:
    """A list in which `1 \\pm 2` has become its two values, in no order any more."""
    flat = []
    for item in items:
        flat += item.items if item.label == "pm" else [item]
    return Answer(kind, text, tuple(flat), label=order if len(flat) == len(items) else "any")


def _read_union(text: str, depth: int) -> Answer | None:
    reals = _REALS.fullmatch(text)
    if reals:
        return _read_reals(text, _read(rf"\{{{reals[1]}\}}", depth + 1).items if reals[1] else ())
    parts = _split(text, _CUP) if r"\cup" in text else []
    return (
        Answer("union", text, tuple(_read(part, depth + 1) for part in parts[::2]), label="any")
        if parts
        else None
    )


def _read_reals(text: str, without: tuple[Answer, ...]) -> Answer:
    """All numbers, without some, as intervals."""
    if any(item.kind != "quantity" or constant(item.tree) is None for item in without):
        return Answer("opaque", text)
    ends = [MINUS_INFINITY, *sorted(without, key=lambda item: constant(item.tree).real), INFINITY]
    parts = tuple(Answer("group", text, pair, label="()") for pair in itertools.pairwise(ends))
    return parts[0] if len(parts) == 1 else Answer("union", text, parts, label="any")


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
    if (
        not is_set and text[0] != "[" and (len(parts) == 1 or text[0] == "{")
    ):  # (x + 1): an expression
        return (
            _read(inside, depth + 1)
            if text[0] == "{" or _LIST_WORDS.search(inside) is None
            else None
        )
    read = [_read(part, depth + 1) for part in parts[::2]]
    if is_set and len(read) == 1 and (condition := _SUCH_THAT.fullmatch(inside)):
        return _read(condition[1], depth + 1)
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
    count = len(_PLUS_MINUS.findall(text)) if r"\pm" in text else 0
    if count != 1:
        return Answer("opaque", text) if count else None
    values = tuple(_read(_PLUS_MINUS.sub(sign, text), depth + 1) for sign in "+-")
    return Answer("set", text, values, label="pm")


def _read_quantity(text: str) -> Answer:
    if text in (r"\emptyset", r"\infty", r"+\infty", r"-\infty"):
        return Answer("text", text.lstrip("+"))
    value, unit, scale = split_unit(without_separators(text))
    if _is_words(value):
        return _text(text)
    try:
        tree = parse(with_mixed(value))
    except Malformed:
        return Answer("bad", text)
    except Unreadable:
        if re.search(r"\\text\{|\.\.\.|[^ -~]", text):
            return _text(text)
        torn = text.count("(") != text.count(")") or text.count("[") != text.count("]")
        return Answer("bad" if torn or re.search(r"\{\s*,?\s*\}|\?|__", text) else "opaque", value)
    decimal = _DECIMAL.fullmatch(value)
    if scale != 1:
        number = written_number(tree)
        tree = ("*", tree, rational(scale)) if number is None else rational(number * scale)
    return Answer("quantity", value, (), tree, unit, len(decimal[1]) if decimal else None)


def _is_words(text: str) -> bool:
    """Letters of a name rather than a product: any in upright type, three together, or two capitals."""
    if text.startswith(r"\text"):
        return bool(_UPRIGHT.fullmatch(text)) and not UPRIGHT_LETTER.fullmatch(text)
    return bool(_NAME_LETTERS.fullmatch(text) and _WORD.search(text))
