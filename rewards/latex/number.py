"""A text that is one number and its unit: the one grammar of numbers, for LaTeX and prose."""

import re
from fractions import Fraction
from typing import NamedTuple

from rewards.latex.parse import Tree, Unreadable, parse, rational
from rewards.latex.tidy import tidy
from rewards.latex.units import split_unit

MAX_NUMBER_CHARS = 100  # a longer text is not a number that anybody meant
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,])", re.ASCII)
_REPEATING = re.compile(r"([0-9]{1,9})\.([0-9]{0,9})\\overline\{([0-9]{1,9})\}")
_UPRIGHT_LETTER = re.compile(r"\\text\{\s*\(?([A-Za-z])\)?\s*\}")
_DECIMAL = re.compile(r"[-+]?\s*\d*\.(\d+)")
_WORD = re.compile(r"(?<![A-Za-z\\{_])[A-Za-z]{4}")  # which is no product of letters
_PLAIN_MIXED = re.compile(r"([-+]?)\s*(\d+) (\d+)/(\d+)", re.ASCII)


class Quantity(NamedTuple):
    """An expression, its unit, and its decimal places where it is one decimal number."""

    source: str
    tree: Tree
    unit: str
    places: int | None


def number_of(text: str) -> Fraction | None:
    r"""The exact value of a text that is one number, with or without a unit; else None.

    Read are `18`, `-3`, `18.0`, `1,800`, `1{,}800`, `$18$`, `$18`, `\$18`, `18 eggs`, `18 m^2`,
    `50%` (as 50), `½`, `2 1/2`, `\frac{1}{2}` and `18 thousand` (as 18000). A number with an
    operation left to do is no number: `36/2`, `9*2`, `2^3` are None, while a fraction that is no
    whole number, as 5/2, is one. Nor is what has letters, `18x`, or words that change what they
    stand behind, `18 less two`. ASCII digits only; linear in the length of the text; never raises.

    Example: `number_of(r"$1{,}800$ eggs") == 1800`; `number_of("2 1/2") == Fraction(5, 2)`;
    `number_of("18 dozen") == 216`; `number_of("36/2") is None`; `number_of("18x") is None`
    """
    if len(text) > MAX_NUMBER_CHARS:
        return None
    if text.isascii() and text.isdigit():  # most numbers
        return Fraction(int(text))
    try:
        return written_number(read_quantity(tidy(text), in_prose="\\" not in text).tree)
    except (Unreadable, ZeroDivisionError):
        return None


def read_quantity(text: str, in_prose: bool = False) -> Quantity:
    """Read a tidy text as an expression and its unit.

    Raises:
        Unreadable: it is none.
    """
    source, unit, scale = split_unit(without_separators(text), in_prose)
    if _WORD.search(source):
        raise Unreadable("a word")
    decimal = _DECIMAL.fullmatch(source)
    tree = parse(_with_fractions(source))
    if scale != 1:
        number = written_number(tree)
        tree = ("*", tree, rational(scale)) if number is None else rational(number * scale)
    return Quantity(source, tree, unit, len(decimal[1]) if decimal else None)


def written_number(tree: Tree) -> Fraction | None:
    """The number that a tree is without any calculation: None where an operation is left to do.

    A sign and the line of a fraction are no operations, unless the fraction is a whole number.
    """
    operation, *parts = tree
    if operation == "number":
        return parts[0]
    if operation == "*" and parts[0] == ("number", Fraction(-1)):  # a minus sign
        number = written_number(parts[1])
        return None if number is None else -number
    if operation == "/":
        over, under = (written_number(part) for part in parts)
        if over is None or not under or over.denominator != 1 or under.denominator != 1:
            return None
        return None if (over / under).denominator == 1 else over / under
    return None


def without_separators(text: str) -> str:
    """`1,234` and `1 234` as 1234, except inside brackets, where a comma separates."""
    if re.search(r"[(\[]|\\\{", text):
        return text
    return _THOUSANDS.sub(lambda match: re.sub("[ ,]", "", match[0]), text)


def _with_fractions(text: str) -> str:
    """Mixed numbers and repeating decimals by `\\frac`, and upright letters as letters."""
    text = _REPEATING.sub(_repeating, _UPRIGHT_LETTER.sub(r"\1", text))
    match = _PLAIN_MIXED.fullmatch(text)
    return rf"{match[1]}{match[2]}\frac{{{match[3]}}}{{{match[4]}}}" if match else text


def _repeating(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` as a fraction: (16 - 1) / 90."""
    start, period = match[1] + match[2], match[3]
    nines = "9" * len(period) + "0" * len(match[2])
    return rf"\frac{{{int(start + period) - int(start)}}}{{{nines}}}"
