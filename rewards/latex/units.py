"""The unit behind a number, under one name for all its spellings."""

import re
from fractions import Fraction

from rewards.latex.tidy import NUMBER_WORDS

_UNITS = {
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km", "millimeter": "mm",
    "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "dollar": "$", "usd": "$",
    "hour": "h", "hr": "h", "minute": "min", "second": "s", "sec": "s", "degree": "deg", "percent": "%", "pct": "%",
    "percentage": "%", "unit": "", "gram": "g", "kilogram": "kg", "pound": "lb", "lb": "lb", "liter": "l",
    "milliliter": "ml", "milligram": "mg", "ounce": "oz", "mph": "mi/h", "km/hr": "km/h", "cent": "cent", "¢": "cent",
}  # fmt: skip
# How many of the first unit of its line each is.
_MEASURES = (
    {"m": 1, "mm": Fraction(1, 1000), "cm": Fraction(1, 100), "km": 1000},
    {"ft": 1, "in": Fraction(1, 12), "yd": 3, "mi": 5280},
    {"s": 1, "min": 60, "h": 3600},
    {"$": 1, "cent": Fraction(1, 100)},
    {"g": 1, "kg": 1000},
)
_NAMES = {*_UNITS, *_UNITS.values()} - {""}
_SIZES = {"square": "2", "sq": "2", "cubic": "3"}
_SCALES = {
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
# Words and letters right behind a number that change its value: "18 lakh", "18M" are not 18. A fourth
# or a fifth may count grades or coins ("18 third graders"), so of those only the plural is here.
SCALE = (
    r"(?:[kKMB]|bn|mn|tn|mln|(?i:hundred|thousand|(?:[mbt]|quadr|quint|sext)[a-z]{0,4}illion|lakh"
    r"|lac|crore|dozen|myriad|grand|squared|cubed|factorial|hal(?:f|ves)"
    r"|(?:hundred|thousand|[a-z]{1,6}illion)ths?|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven"
    r"|twelf|[a-z]{3,6}teen|[a-z]{3,6}tie)th)s)s?)(?![A-Za-z0-9])"
)
# After a number these are not a unit: they change the value, add another, or take it back.
_NO_UNITS = {
    "and", "or", "to", "times", "plus", "minus", "over", "squared", "cubed", "factorial", "mod", "modulo",
    "root", "pi", "sqrt", "choose", "less", "than", "least", "most", "about", "approximately", "not", "never",
    "point", "half", "halves", "thirds", "third", "quarters", "quarter", "e", "i", "sin", "cos", "tan", "log", "ln",
    "st", "nd", "rd", "th", "maybe", "perhaps", "possibly", "probably", "roughly", "around", "nearly", "almost", "so",
    "k", "such", "that", "is", "are", "wrong", "incorrect", "false", *NUMBER_WORDS,
}  # fmt: skip
# Nor can a unit begin with these, though "18 cups of flour" and "18 dollars each" are units.
_NO_FIRST = {
    "of",
    "more",
    "at",
    "by",
    "the",
    "with",
    "from",
    "through",
    "base",
    "below",
    "above",
    "each",
}
_WORDS = r"[A-Za-z¢][A-Za-z.]*(?:[ /][A-Za-z]+\.?)*"
_POWER = r"\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?\s*"
_UPRIGHT = re.compile(
    rf"(?P<value>.*?[\w)}}.])\s*\\text\{{\s*(?P<words>{_WORDS})\s*\}}{_POWER}", re.DOTALL
)
_PLAIN = re.compile(
    rf"(?P<value>.*?(?:[\d)}}.]|\\pi(?= )))(?P<gap>\s*)(?P<words>{_WORDS}){_POWER}", re.DOTALL
)
_SIGN = re.compile(
    r"(?P<value>.*?[\d)}.])\s*(?:(?P<percent>%)|\\degree\s*(?:\\text\{\s*[CF]\s*\}|[CF])?)\s*",
    re.DOTALL,
)
_MODULUS = re.compile(
    r"(?P<value>.*\S)\s*(?:\\pmod\s*\{?\s*(\w+)\s*\}?|\\text\{\s*\(\s*mod\s*(\w+)\s*\)\s*\}"
    r"|\(\s*(?:\\[bp]?mod|\\text\{\s*mod\s*\}|mod)\s*\{?\s*(\w+)\s*\}?\s*\))",
    re.DOTALL,
)
_CURRENCY = re.compile(
    r"(?P<minus>-?)\s*(?:\\\$|[$€£¥]|\\text\{\s*USD?\s*\}|USD )\s*(?P<before>.+)|(?P<after>.+?)\s*(?:\\\$|[$€£¥])",
    re.DOTALL,
)
_CHANGES = re.compile(SCALE)


def split_unit(text: str, in_prose: bool = False) -> tuple[str, str, int]:
    """The value, its unit, and the scale that a word such as million gives it.

    In prose `5 m` is a length; in mathematics, where white space means nothing, it is a letter.
    """
    currency = _CURRENCY.fullmatch(text)
    if currency:
        amount = (currency["minus"] or "") + (currency["before"] or currency["after"])
        value, _, scale = split_unit(amount, in_prose)
        return value, "$", scale
    modulus = _MODULUS.fullmatch(text) if "mod" in text else None
    if modulus:
        return modulus["value"], f"mod {modulus[2] or modulus[3] or modulus[4]}", 1
    sign = _SIGN.fullmatch(text)
    if sign:
        is_angle = not sign["percent"] and re.search(
            r"\\[a-z]{3}", sign["value"].replace(r"\frac", "")
        )  # cos 60°
        return (text, "", 1) if is_angle else (sign["value"], sign["percent"] or "deg", 1)
    match = _UPRIGHT.fullmatch(text) or _PLAIN.fullmatch(text)
    words = match["words"].casefold().replace(".", "").split() if match else []
    if not match or not _is_unit(match, words, in_prose):
        return text, "", 1
    scale = _SCALES.get(words[0].removesuffix("s"), 1)
    return (
        match["value"].rstrip(),
        _unit_name(words[1:] if scale != 1 else words, match["power"]),
        scale,
    )


def conversion(unit: str, other: str) -> Fraction | None:
    """How many of `other` one `unit` is; None where they measure different things."""
    for measures in _MEASURES:
        if unit in measures and other in measures:
            return Fraction(measures[unit]) / measures[other]
    return None


def _is_unit(match: re.Match[str], words: list[str], in_prose: bool) -> bool:
    """`5 cm`, `5cm`, `5 eggs`, `10weeks` have units; `5 m`, `3ba` and `3 ba` have letters; `5 tenths` is neither."""
    word, value = words[0].removesuffix("s"), match["value"]
    if words[0] in _NO_FIRST or _NO_UNITS.intersection(words):
        return False
    if _CHANGES.fullmatch(words[0]) and word not in _SCALES:
        return False
    known = words[0] in _UNITS or word in _NAMES or word in _SIZES
    if match.re is _UPRIGHT:
        return known or not value[-1].isalpha() or value.endswith(r"\pi")
    if known and (in_prose and match["gap"] or words[0] not in ("m", "s", "h", "l")):
        return True
    return len(words[0]) > (2 if match["gap"] else 3)


def _unit_name(words: list[str], power: str | None) -> str:
    for word, number in _SIZES.items():
        if word in words:
            words, power = [other for other in words if other != word], number
    names = [
        _UNITS.get(word, _UNITS.get(word.removesuffix("s"), word.removesuffix("s")))
        for word in words
    ]
    name = " ".join(names).replace(" per ", "/")
    return f"{name}^{power}" if power and name else name
