r"""Whether two answers are the same, strictly: `compare(read_answer(r"\frac{1}{2}, 3"), read_answer("0.5, 3"))`.

`rewards.latex.exact` compares expressions; a pair that it cannot decide is pending, for `rewards.latex.prove`.
"""

import re
from fractions import Fraction

from rewards.latex.approximate import constant
from rewards.latex.exact import Exact, Polynomial, exact, letters, same_value
from rewards.latex.parse import Unreadable, rational
from rewards.latex.read import INFINITY, MINUS_INFINITY, Answer
from rewards.latex.units import conversion

# A decimal counts as the rounded form of an exact value from here on: 0.333333 is 1/3, 0.3333 is not.
ROUNDED_PLACES = 6
FLOAT_DIGITS = 14  # that floating point gets right
Pending = list[tuple[str, str]]
_CHOICES = [("letter", letter) for letter in "ABCDEF"]
_DECIMAL_COMMA = re.compile(r"([-+]?\d+),(\d{1,2}|(?<=0,)\d+)")


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
    if (
        gold.kind == "named" and answer.kind == "equation" and _is_constant(gold.items[0])
    ):  # x = 2, and 3x + 1 = 7
        return False
    if {gold.kind, answer.kind} <= {"named", "equation"}:
        return _same_equation(gold, answer, pending)
    if gold.kind == "named" or answer.kind == "named":
        bare = [side.items[0] if side.kind == "named" else side for side in (gold, answer)]
        return _same(*bare, pending)
    if (gold.kind in ("group", "union")) != (answer.kind in ("group", "union")):
        gold, answer = _as_set(gold) or gold, _as_set(answer) or answer
    if gold.kind == "relation":
        return _same_relation(gold, answer, pending)
    if "text" in (gold.kind, answer.kind):
        return _same_text(gold, answer)
    if gold.kind == answer.kind == "quantity":
        return _same_quantity(gold, answer, pending)
    if gold.items or answer.items:
        return _same_items(gold, answer, pending)
    return _ask(gold, answer, pending)


def _ask(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if gold.source != answer.source:
        pending.append((gold.source, answer.source))
    return True


def _same_text(gold: Answer, answer: Answer) -> bool:
    """The same words, or 2:3 for a fraction."""
    if gold.kind == answer.kind:
        return gold.source == answer.source
    text, value = (gold, answer) if gold.kind == "text" else (answer, gold)
    ratio = re.fullmatch(r"(\d+): (\d+)", text.source)
    is_fraction = value.kind == "quantity" and value.tree[0] == "/"
    return bool(
        ratio
        and is_fraction
        and same_value(("/", rational(ratio[1]), rational(ratio[2])), value.tree)
    )


_COMPARABLE = {("list", "group"), ("group", "list"), ("set", "list"), ("list", "set")}


def _same_items(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if {gold.kind, answer.kind} == {"matrix", "group"}:
        gold, answer = _as_tuple(gold), _as_tuple(answer)
    if "opaque" in (gold.kind, answer.kind):
        return {gold.kind, answer.kind} <= {"opaque", "matrix"} and _ask(gold, answer, pending)
    if [gold.label, answer.label].count(
        "names"
    ) == 1:  # (1, 2) may be y = 2, x = 1, not y = 1, x = 2
        gold, answer = _by_name(gold), _by_name(answer)
    kinds = (gold.kind, answer.kind)
    if (gold.kind != answer.kind and kinds not in _COMPARABLE) or len(gold.items) != len(
        answer.items
    ):
        return kinds in (("list", "quantity"), ("quantity", "list")) and _same_decimal_comma(
            gold, answer
        )
    if gold.kind == answer.kind == "group" and gold.label != answer.label:
        return False
    if "group" in kinds and {gold.label, answer.label} - {"", "()", "names"}:
        return gold.label == answer.label and _in_order(gold, answer, pending)
    any_order = (
        "any" in (gold.label, answer.label)
        or "set" in kinds
        or gold.label == answer.label == "names"
    )
    return _in_any_order(gold, answer, pending) if any_order else _in_order(gold, answer, pending)


def _as_tuple(answer: Answer) -> Answer:
    """A column of numbers as the tuple of them."""
    if answer.kind != "matrix" or any(len(row.items) != 1 for row in answer.items):
        return answer
    return Answer("group", answer.source, tuple(row.items[0] for row in answer.items), label="()")


def _by_name(answer: Answer) -> Answer:
    if answer.label != "names":
        return answer
    return answer._replace(items=tuple(sorted(answer.items, key=lambda item: item.label)), label="")


def _in_order(gold: Answer, answer: Answer, pending: Pending) -> bool:
    return all(_same(*pair, pending) for pair in zip(gold.items, answer.items, strict=True))


def _in_any_order(gold: Answer, answer: Answer, pending: Pending) -> bool:
    """Each item of gold takes the first item left that is surely the same, else the first that may be."""
    left = list(answer.items)
    for item in gold.items:
        found = [(asked, other) for other in left for asked in [[]] if _same(item, other, asked)]
        if not found:
            return False
        asked, taken = min(found, key=lambda entry: len(entry[0]))
        pending += asked
        left.remove(taken)
    return True


def _same_decimal_comma(gold: Answer, answer: Answer) -> bool:
    """`2,75` and `2.75`, where one of the two is written with a point."""
    comma, point = (gold, answer) if gold.kind == "list" else (answer, gold)
    match = _DECIMAL_COMMA.fullmatch(comma.source)
    return bool(
        match and point.places and same_value(rational(f"{match[1]}.{match[2]}"), point.tree)
    )


def _same_quantity(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if "%" in (gold.unit, answer.unit) and gold.unit != answer.unit:
        return "" in (gold.unit, answer.unit) and _same_percent(gold, answer)
    if gold.unit != answer.unit and gold.unit and answer.unit:
        factor = conversion(answer.unit, gold.unit)
        return (
            factor is not None
            and same_value(gold.tree, ("*", rational(factor), answer.tree)) is True
        )
    if gold.tree in _CHOICES and answer.tree == ("letter", gold.tree[1].lower()):
        return True
    same = same_value(gold.tree, answer.tree)
    if same is None:
        return _ask(gold, answer, pending)
    return same or _is_rounded(gold, answer) or _is_rounded(answer, gold)


def _same_percent(gold: Answer, answer: Answer) -> bool:
    """One side has a percent sign: 35% is 0.35, and it is 35 where the sign was left out (not a 0.35 or a 40/9)."""
    percent, plain = (gold, answer) if gold.unit == "%" else (answer, gold)
    if same_value(("/", percent.tree, rational(100)), plain.tree):
        return True
    is_number = re.fullmatch(r"[-+]?\s*\d+(?:\.\d+)?", plain.source) is not None
    return (
        is_number
        and abs(constant(percent.tree) or 0) >= 1
        and same_value(gold.tree, answer.tree) is True
    )


def _is_rounded(decimal: Answer, other: Answer) -> bool:
    """`decimal` is the other, which is not a decimal itself, rounded to its last of at least six places.

    What looks exact, 3628801.000000, and what has less than five digits is not taken for rounded.
    """
    if decimal.places is None or decimal.places < ROUNDED_PLACES or other.places is not None:
        return False
    written = decimal.source.rpartition(".")[2]
    value, true = constant(decimal.tree), constant(other.tree)
    if not value or not true or other.tree[0] == "number" or value.imag or abs(value) < 1e-3:
        return False
    places = min(decimal.places, FLOAT_DIGITS - len(str(int(abs(value)))))
    if len(written.rstrip("0")) < ROUNDED_PLACES - 2 or places < ROUNDED_PLACES:
        return False
    return abs(value - true) <= 0.500001 * 10**-places


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


def _is_constant(answer: Answer) -> bool:
    return answer.kind == "quantity" and constant(answer.tree) is not None


def _is_unknown(answer: Answer) -> bool:
    return (
        answer.kind == "quantity"
        and answer.tree[0] == "letter"
        and answer.tree[1] not in ("pi", "e", "i")
    )


def _same_relation(gold: Answer, answer: Answer, pending: Pending) -> bool:
    if answer.kind != "relation" or len(gold.items) != len(answer.items):
        return answer.kind == "opaque" and _ask(gold, answer, pending)
    if gold.label != answer.label:
        return False
    asked: Pending = []
    if _in_order(gold, answer, asked):
        pending += asked
        return True
    if len(gold.items) > 2 or (_is_solved(gold) and not _is_solved(answer)):
        return False
    residuals = [_residual(side) for side in (gold, answer)]
    if None in residuals:
        return all(item.kind in ("quantity", "opaque") for item in answer.items) and _ask(
            gold, answer, pending
        )
    ratio = _ratio(residuals[0][0], residuals[1][0]) if residuals[0][1] == residuals[1][1] else None
    return ratio is not None and (ratio > 0 or gold.label == r"\ne")


def _is_solved(relation: Answer) -> bool:
    """`x < 5`, and `-x > -5` too; not `2x < 10`."""
    minus = ("*", rational(-1))
    sides = [
        side._replace(tree=side.tree[2]) if (side.tree or ())[:2] == minus else side
        for side in relation.items
    ]
    return any(map(_is_unknown, sides)) and any(map(_is_constant, sides))


_ENDS = {"<": "()", r"\le": "[]"}


def _as_set(answer: Answer) -> Answer | None:
    """`a < x < b` or `x < b` as an interval, several of them joined by "or" as a union; None for anything else."""
    if answer.kind == "list" and answer.label == "any":
        parts = [_as_set(item) for item in answer.items]
        return None if None in parts else Answer("union", answer.source, tuple(parts), label="any")
    signs = answer.label.split()
    if answer.kind != "relation" or any(sign not in _ENDS for sign in signs):
        return None
    ends = list(answer.items)
    if len(ends) == 2:
        ends, signs = (
            ([MINUS_INFINITY, *ends], ["<", *signs])
            if _is_unknown(ends[0])
            else ([*ends, INFINITY], [*signs, "<"])
        )
    if len(ends) != 3 or not _is_unknown(ends[1]):
        return None
    brackets = _ENDS[signs[0]][0] + _ENDS[signs[1]][1]
    return Answer("group", answer.source, (ends[0], ends[2]), label=brackets)
