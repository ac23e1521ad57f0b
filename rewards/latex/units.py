"""The unit behind a number, under one name for all its spellings."""

import re
from fractions import Fraction

from rewards.latex.tidy import NUMBER_WORDS

_UNITS = {
    "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km",
    "millimeter": "mm", "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd",
    "mile": "mi", "dollar": "$", "usd": "$", "cent": "cent", "¢": "cent", "hour": "h", "hr": "h",
    "minute": "min", "second": "s", "sec": "s", "degree": "deg", "percent": "%", "pct": "%",
    "percentage": "%", "unit": "", "gram": "g", "kilogram": "kg", "milligram": "mg", "pound": "lb",
    "lb": "lb", "ounce": "oz", "liter": "l", "milliliter": "ml", "mph": "mi/h", "km/hr": "km/h",
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
SCALES = {"hundred": 100, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9}
# Words and letters right behind a number that change its value, also those that are not read:
# "18 lakh", "18M" are not 18. A fourth may count grades ("18 fourth graders"), so of those the
# plural alone is here.
SCALE = (
    rf"(?:[kKMB]|bn|mn|tn|mln|(?i:{'|'.join(SCALES)}|(?:[mbt]|quadr|quint|sext)[a-z]{{0,4}}illion"
    r"|lakh|lac|crore|myriad|grand|squared|cubed|factorial|hal(?:f|ves)"
    r"|(?:hundred|thousand|[a-z]{1,6}illion)ths?|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven"
    r"|twelf|[a-z]{3,6}teen|[a-z]{3,6}tie)th)s)s?)(?![A-Za-z0-9])"
)
# Words that make a guess of an answer.
HEDGES = {
    "maybe", "perhaps", "possibly", "probably", "about", "approximately", "around", "nearly",
    "almost", "roughly",
}  # fmt: skip
# No unit has these words: they are a part of the number or of a sentence, or take it back.
_NO_UNITS = HEDGES | NUMBER_WORDS.keys() | {
    "no", "not", "never", "wrong", "incorrect", "false", "or", "and", "but", "except", "if",
    "less", "more", "fewer", "than", "to", "by", "mod",
    "times", "plus", "minus", "over", "root", "pi", "sqrt", "choose", "point", "third", "quarter",
    "quarters", "e", "i", "k", "sin", "cos", "tan", "log", "ln", "st", "nd", "rd", "th", "so",
    "such", "that", "is", "are", "modulo",
}  # fmt: skip
_WORDS = r"[A-Za-z¢][A-Za-z.]*(?:[ /][A-Za-z]+\.?)*"
_UNIT = re.compile(
    r"(?P<value>.*?[\w)}.])(?P<gap>\s*)"
    rf"(?:\\text\{{\s*(?P<upright>{_WORDS})\s*\}}|(?<=[\d)}}.\s])(?P<plain>{_WORDS}))"
    r"\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?\s*",
    re.DOTALL,
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
    r"(?P<minus>-?)\s*(?:\\\$|[$€£¥]|\\text\{\s*USD?\s*\}|USD )\s*(?P<before>.+)"
    r"|(?P<after>.+?)\s*(?:\\\$|[$€£¥])",
    re.DOTALL,
)


def split_unit(text: str, in_prose: bool = False) -> tuple[str, str, int]:
    """The value, its unit, and the scale that a word such as million gives it.

    In prose `5 m` is a length; in mathematics, where white space means nothing, it is a letter.
    """
    if currency := _CURRENCY.fullmatch(text):
        amount = (currency["minus"] or "") + (currency["before"] or currency["after"])
        value, _, scale = split_unit(amount, in_prose)
        return value, "$", scale
    if "mod" in text and (modulus := _MODULUS.fullmatch(text)):
        return modulus["value"], f"mod {modulus[2] or modulus[3] or modulus[4]}", 1
    if sign := _SIGN.fullmatch(text):
        commands = sign["value"].replace(r"\frac", "")
        if not sign["percent"] and re.search(r"\\[a-z]{3}", commands):  # cos 60°
            return text, "", 1
        return sign["value"], sign["percent"] or "deg", 1
    match = _UNIT.fullmatch(text)
    words = (
        (match["upright"] or match["plain"]).casefold().replace(".", "").split() if match else []
    )
    if not match or not _is_unit(match, words, in_prose):
        return text, "", 1
    scale = SCALES.get(words[0].removesuffix("s"), 1)
    name = _unit_name(words if scale == 1 else words[1:], match["power"])
    return match["value"].rstrip(), name, scale


def conversion(unit: str, other: str) -> Fraction | None:
    """How many of `other` one `unit` is; None where they measure different things."""
    for measures in _MEASURES:
        if unit in measures and other in measures:
            return Fraction(measures[unit]) / measures[other]
    return None


def _is_unit(match: re.Match[str], words: list[str], in_prose: bool) -> bool:
    """`5 cm`, `5cm`, `5 eggs` have units, `5 m`, `3ba`, `3 ba` letters, `5 tenths` is neither."""
    word, value = words[0].removesuffix("s"), match["value"]
    if _NO_UNITS.intersection(words):
        return False
    if re.fullmatch(SCALE, words[0]) and word not in SCALES:
        return False
    is_known = words[0] in _UNITS or word in _NAMES or word in _SIZES
    if match["upright"]:
        return is_known or not value[-1].isalpha() or value.endswith(r"\pi")
    if not re.search(r"(?:[\d)}.]|\\pi)$", value):
        return False
    if words[0] in ("m", "s", "h", "l"):
        return in_prose and bool(match["gap"])
    return is_known or len(words[0]) > (2 if match["gap"] else 3)


def _unit_name(words: list[str], power: str | None) -> str:
    for word, number in _SIZES.items():
        if word in words:
            words, power = [other for other in words if other != word], number
    singular = [word.removesuffix("s") for word in words]
    names = [
        _UNITS.get(word, _UNITS.get(one, one)) for word, one in zip(words, singular, strict=True)
    ]
    name = " ".join(names).replace(" per ", "/")
    return f"{name}^{power}" if power and name else name
