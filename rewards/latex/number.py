"""Reads a text that is one number, with or without a unit, in LaTeX or prose."""

import re
from fractions import Fraction
from typing import NamedTuple

from rewards.latex.parse import NUMBER_WORDS, Tree, Unreadable, parse, rational, tidy

MAX_NUMBER_CHARS = 100  # a longer text is not a number that anybody meant
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,])", re.ASCII)
_REPEATING = re.compile(r"([0-9]{1,9})\.([0-9]{0,9})\\overline\{([0-9]{1,9})\}")
_UPRIGHT_LETTER = re.compile(r"\\text\{\s*\(?([A-Za-z])\)?\.?\s*\}")
_PLAIN_MIXED = re.compile(r"([-+]?\s*\d+) (\d+)/(\d+)", re.ASCII)

# Each unit with its other names. Any name that is not here is a unit of its own.
_SPELLINGS = {
    "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer", "mm": "millimeter",
    "in": "inch inche", "ft": "foot feet", "mi": "mile", "$": "dollar usd", "cent": "¢",
    "h": "hour hr", "min": "minute", "s": "second sec", "deg": "degree", "": "unit",
    "%": "percent pct percentage", "g": "gram", "kg": "kilogram", "mg": "milligram", "lb": "pound",
    "oz": "ounce", "l": "liter", "ml": "milliliter", "mi/h": "mph",
    "rad": "radian", "€": "euro eur", "£": "gbp",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _SPELLINGS.items() for name in names.split()}
# The size of each unit, measured in the first unit of its line.
_MEASURES = (
    {"m": 1, "mm": Fraction(1, 1000), "cm": Fraction(1, 100), "km": 1000},
    {"s": 1, "min": 60, "h": 3600},
    {"$": 1, "cent": Fraction(1, 100)},
)
_SIZES = {"square": "2", "sq": "2", "cubic": "3"}
UNIT_NAMES = {*_UNITS, *_SPELLINGS, *_SIZES}
SCALES = {"hundred": 100, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9}
# Words and letters right after a number that change its value, also if they are not read: "18
# lakh" is not 18. Ordinals are here in the plural ("18 fourths"): "18 fourth graders" are 18.
SCALE = (
    rf"(?:[kKMB]|bn|mn|tn|mln|(?i:{'|'.join(SCALES)}|(?:[mbt]|quadr|quint|sext)[a-z]{{0,4}}illion"
    r"|lakh|lac|crore|myriad|grand|squared|cubed|factorial|hal(?:f|ves)"
    r"|(?:hundred|thousand|[a-z]{1,6}illion)ths?|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven"
    r"|twelf|[a-z]{3,6}teen|[a-z]{3,6}tie)th)s)s?)(?![A-Za-z0-9])"
)
# Words that turn an answer into a guess.
HEDGES = {
    "maybe", "perhaps", "possibly", "probably", "about", "approximately", "around", "nearly",
    "almost", "roughly",
}  # fmt: skip
# Words that bound or change an answer, or let it hold under a condition.
QUALIFIERS = {
    "if", "unless", "when", "while", "until", "otherwise", "without", "except", "besides", "most",
    "least", "below", "under", "above", "versus", "vs", "impossible", "invalid", "doubled",
    "tripled", "halved", "binary",
}  # fmt: skip
# No unit contains these words: they belong to the number or to a sentence, or deny the number.
_NO_UNITS = HEDGES | QUALIFIERS | NUMBER_WORDS.keys() | {
    "no", "not", "never", "wrong", "incorrect", "false", "or", "and", "but", "than", "to", "by",
    "mod", "modulo", "times", "plus", "minus", "over", "root", "pi", "sqrt", "choose", "point",
    "third", "quarter", "quarters", "e", "i", "k", "sin", "cos", "tan", "log", "ln", "st", "nd",
    "rd", "th", "so", "such", "that", "is", "are",
}  # fmt: skip
_WORDS = r"[A-Za-z¢][A-Za-z.]*(?:[ /][A-Za-z]+\.?)*"
_UNIT = re.compile(
    r"(?P<value>.*?[\w)}.])(?P<gap>\s*(?:/\s?(?=[A-Za-z]{2}))?)"
    rf"(?:\\text\{{\s*(?P<upright>{_WORDS})\s*\}}|(?<=[\d)}}.\s/])(?P<plain>{_WORDS}))"
    r"\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?\s*",
    re.DOTALL,
)
_SIGN = re.compile(
    r"(?P<value>.*?[\d)}.])\s*(?:(?P<percent>%)|\\degree\s*(?:\\text\{\s*[CF]\s*\}|[CF])?)\s*",
    re.DOTALL,
)
_MODULUS = re.compile(
    r"(?P<value>.*\S)\s*(?:\\pmod\s*\{?\s*(\w+)\s*\}?|\\text\{\s*\(\s*mod\s*(\w+)\s*\)\s*\})",
    re.DOTALL,
)
CURRENCIES = "$€£¥₹₩₽₱₫₺₦"
_CURRENCY = re.compile(
    rf"(-?)\s*(?:[A-Z]{{1,3}}(?=\\?\$))?(?:\\\$|[{CURRENCIES}])\s*(.+)"
    rf"|(.+?)\s*(?:\\\$|[{CURRENCIES}])",
    re.DOTALL,
)


def _split_unit(text: str, in_prose: bool) -> tuple[str, str, int]:
    """Split a text into its value, its unit (or "") and the scale of a word like million (else 1).

    `in_prose` says that the text has no LaTeX, where `5 m` is a length and not 5 times m.
    Example: of `5 square km` ("5", "km^2", 1), of `$2 million` ("2", "$", 1000000)
    """
    if currency := _CURRENCY.fullmatch(text):
        amount = (currency[1] or "") + (currency[2] or currency[3])
        value, _, scale = _split_unit(amount, in_prose)
        return value, next((sign for sign in text if sign in CURRENCIES), "$"), scale
    if modulus := _MODULUS.fullmatch(text):
        return modulus["value"], f"mod {modulus[2] or modulus[3]}", 1
    if sign := _SIGN.fullmatch(text):
        commands = sign["value"].replace(r"\frac", "")
        if not sign["percent"] and re.search(r"\\[a-z]{3}", commands):  # cos 60° has no unit
            return text, "", 1
        return sign["value"], sign["percent"] or "deg", 1
    match = _UNIT.fullmatch(text)
    name = (match["upright"] or match["plain"]).casefold().replace(".", "") if match else ""
    words = name.split()
    if not match or not _is_unit(match, words, in_prose):
        return text, "", 1
    scale, power, units = SCALES.get(words[0].removesuffix("s"), 1), match["power"], []
    words = name.replace("/", " per ").split()  # "miles/h" as "miles per h"
    for word in words[1:] if scale > 1 else words:  # without "million" of "million dollars"
        singular = word if word in _SPELLINGS else word.removesuffix("s")  # "s" is seconds
        if word in _SIZES:
            power = _SIZES[word]
        else:
            units.append(_UNITS.get(word, _UNITS.get(singular, singular)))
    unit = " ".join(units).replace(" per ", "/")
    return match["value"].rstrip(), f"{unit}^{power}" if power and unit else unit, scale


def _is_unit(match: re.Match[str], words: list[str], in_prose: bool) -> bool:
    """Whether the words that `match` (of `_UNIT`) has behind a value are its unit, as in `5 eggs`.

    Short unknown words are products of letters (`3ba`, `3 ba`), and `5 tenths` is a number. `5 m`
    is a length in prose; in mathematics, where white space means nothing, m is a letter.
    """
    if in_prose and words[0] in ("a", "an"):  # "$18 a week"
        words = words[1:] or words
    first, singular = words[0], words[0].removesuffix("s")
    if _NO_UNITS.intersection(words) or (re.fullmatch(SCALE, first) and singular not in SCALES):
        return False
    is_known = first in UNIT_NAMES or singular in UNIT_NAMES
    is_behind_number = re.search(r"(?:[\d)}.]|\\pi)$", match["value"]) is not None
    if match["upright"]:
        return is_known or is_behind_number
    if first in ("m", "s", "h", "l"):
        is_known = in_prose and bool(match["gap"])
    return is_behind_number and (is_known or len(first) > (2 if match["gap"] else 3))


def conversion(unit: str, other: str) -> Fraction | None:
    """How many `other` are one `unit`: 100 for "m" and "cm"; None where no conversion is known."""
    for measures in _MEASURES:
        if unit in measures and other in measures:
            return Fraction(measures[unit]) / measures[other]
    return None


class Answer(NamedTuple):
    """An answer as read.

    kind: quantity, group (brackets kept), set, list, union, named (`x = 5`), equation, relation,
        matrix, choice (value, letter), text, opaque (mathematics not understood) or bad (none).
    source: the tidy text.
    tree, unit, places: of a quantity; `places` (decimal places) only of one decimal number.
    label: the brackets of a group, the name of a named value, the signs of a relation. A list or
        set has `any` (any order), `names` (each item is named), `pm` (from a \\pm b) or none. For
        opaque and bad: why the text is not read, or nothing.
    """

    kind: str
    source: str
    items: tuple["Answer", ...] = ()
    tree: Tree | None = None
    unit: str = ""
    places: int | None = None
    label: str = ""


def number_of(text: str) -> Fraction | None:
    r"""The exact value of a text that is one number, with or without a unit; else None.

    It reads `-3`, `18.0`, `1{,}800`, `\$18`, `18 m^2`, `50%` (as 50), `½`, `\frac{1}{2}`. It gives
    None for an operation left to do (`36/2`, `2^3`; but `5/2` is a number), for letters (`18x`),
    words that change the value (`18 less two`), and other than ASCII digits; in linear time.

    Example: `number_of(r"$1{,}800$ eggs") == 1800`; `number_of("2 1/2") == Fraction(5, 2)`;
    `number_of("18 dozen") == 216`; `number_of("36/2") is None`; `number_of("18x") is None`
    """
    if len(text) > MAX_NUMBER_CHARS:
        return None
    if text.isascii() and text.isdigit():  # the fast path for most numbers
        return Fraction(int(text))
    try:
        return written_number(read_quantity(tidy(text), in_prose="\\" not in text).tree)
    except (Unreadable, ZeroDivisionError):
        return None


def read_quantity(text: str, in_prose: bool = False) -> Answer:
    """Read an expression and its unit (`_split_unit`) from `tidy` text; may raise `Unreadable`."""
    source, unit, scale = _split_unit(without_separators(text), in_prose)
    if re.search(r"(?<![A-Za-z\\{_])[A-Za-z]{4}", source):  # not a product of letters
        raise Unreadable("words among the mathematics")
    # Write mixed numbers and repeating decimals with `\frac`, and upright letters as letters.
    plain = _REPEATING.sub(_repeating, _UPRIGHT_LETTER.sub(r"\1", source))
    if mixed := _PLAIN_MIXED.fullmatch(plain):
        plain = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    tree = parse(plain)
    if scale != 1:
        number = written_number(tree)
        tree = ("*", tree, rational(scale)) if number is None else rational(number * scale)
    decimal = re.fullmatch(r"[-+]?\s*\d*\.(\d+)", source)
    places = len(decimal[1]) if decimal else None
    return Answer("quantity", source, tree=tree, unit=unit, places=places)


def written_number(tree: Tree) -> Fraction | None:
    """The number that a tree is; None where an operation is left to do.

    A sign is not an operation, nor is a fraction of whole numbers, but `36/2`, which is 18, is one.
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
    """The text with `1,234` and `1 234` as 1234; unchanged if it has brackets, as in (1,234)."""
    if re.search(r"[(\[]|\\\{", text):
        return text
    return _THOUSANDS.sub(lambda match: re.sub("[ ,]", "", match[0]), text)


def _repeating(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` as a fraction: (16 - 1) / 90."""
    start, period = match[1] + match[2], match[3]
    nines = "9" * len(period) + "0" * len(match[2])
    return rf"\frac{{{int(start + period) - int(start)}}}{{{nines}}}"
