"""The unit behind a number, under one name for all its spellings."""

import re

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


def split_unit(text: str) -> tuple[str, str, int]:
    """The value, its unit, and the scale that a word such as million gives it."""
    currency = _CURRENCY.fullmatch(text)
    if currency:
        value, unit, scale = split_unit((currency["minus"] or "") + (currency["before"] or currency["after"]))
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
