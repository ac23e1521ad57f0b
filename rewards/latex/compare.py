"""Whether two answers are the same: `compare(read_answer("1/2, 3"), read_answer("0.5, 3"))`."""

import re
from itertools import pairwise
from math import inf, nan

from rewards.latex.number import Answer, conversion
from rewards.latex.parse import Tree, minus, rational
from rewards.latex.read import INFINITY, MINUS_INFINITY, is_constant
from rewards.latex.value import constant, constant_ratio, has_value, letters, same_value

# A decimal needs this many places to count as a rounded value: 0.333333 is 1/3, 0.3333 is not.
ROUNDED_PLACES = 6
FLOAT_DIGITS = 14  # significant digits of a float without rounding error
_CHOICES = [("letter", letter) for letter in "ABCDEFGHIJ"]
# Names that may be answers themselves.
_TWO_ANSWERS = re.compile(r"[A-J]|(?!(?:answer|result|type|day|name)\b)(?i:[a-z]{2,})")
_DECIMAL_COMMA = re.compile(r"([-+]?\d+),(\d{1,2}|(?<=0,)\d+)")
_RATIO = re.compile(r"(\d+): (\d+)")


def compare(gold: Answer, answer: Answer) -> bool:
    """Whether `answer` equals `gold`, by stricter rules than other checkers have.

    Brackets and the order of a bare list count. A set is not a tuple. Two units must agree. One
    value is not a list of one value. `x = 5` equals 5, but the equation `x + y = 5` does not.
    """
    kinds = {gold.kind, answer.kind}
    if "bad" in kinds:
        return False
    is_or = answer.kind == "list" and answer.label == "any" and gold.kind not in ("list", "union")
    if is_or and all(compare(gold, item) for item in answer.items):  # 3/4 or 0.75
        return True
    if "choice" in kinds and len(kinds) == 2:  # (C) 14 equals 14 and C, but (D) C does not equal C
        if gold.kind == "choice":
            return any(compare(item, answer) for item in gold.items)
        value, letter = answer.items
        return compare(gold, letter if gold.tree in _CHOICES else value)
    if kinds == {"named"} and gold.label == answer.label:  # x = 5, x = 5.0
        return compare(gold.items[0], answer.items[0])
    if (gold.kind, answer.kind) == ("named", "equation") and is_constant(gold.items[0]):
        return False  # 3x + 1 = 7 does not answer x = 2
    if kinds <= {"named", "equation"}:  # left minus right of one is a multiple of the other's
        left, right = _residual(gold), _residual(answer)
        if left is None or right is None:
            return gold.source == answer.source
        return bool(letters(left)) and constant_ratio(left, right) is not None
    # `No = Yes` and `A = B` are two answers; `x = B` and `answer = Yes` are one.
    is_of_words = gold.kind == "text" or gold.tree in _CHOICES
    if answer.kind == "named" and is_of_words and _TWO_ANSWERS.fullmatch(answer.label):
        return False
    if "named" in kinds:
        sides = (side.items[0] if side.kind == "named" else side for side in (gold, answer))
        return compare(*sides)
    if (gold.kind in ("group", "union")) != (answer.kind in ("group", "union")):
        gold, answer = _as_set(gold) or gold, _as_set(answer) or answer
    kinds = {gold.kind, answer.kind}
    if gold.kind == "relation":
        return _same_relation(gold, answer)
    if kinds == {"quantity"}:
        return _same_quantity(gold, answer)
    if "quantity" in kinds:
        value, text = (gold, answer) if gold.kind == "quantity" else (answer, gold)
        return _is_spelling(text.source, value)  # 2:3 for 2/3
    if kinds & {"text", "opaque"}:  # words, or mathematics that is not understood
        return gold.source == answer.source
    return _same_items(gold, answer)


def problem_of(gold: Answer) -> str | None:
    """Why no answer can equal the gold: the parser's words, or "" without any; None if one can."""
    if gold.kind in ("bad", "opaque"):  # no answer, or not understood
        return gold.label
    if gold.kind == "quantity":
        return None if has_value(gold.tree) else ""
    if gold.kind == "choice":  # its letter alone is an answer, too
        return None
    problems = map(problem_of, gold.items)
    return next((problem for problem in problems if problem is not None), None)


def _same_items(gold: Answer, answer: Answer) -> bool:
    """Whether two groups, sets, lists, unions or matrices have the same items.

    A label is the brackets of a group, or for others `any` (any order) or `names` (x = 1, y = 2).
    """
    if {gold.kind, answer.kind} == {"matrix", "group"}:
        gold, answer = _as_tuple(gold), _as_tuple(answer)
    if [gold.label, answer.label].count("names") == 1:  # y = 2, x = 1 is sorted: it equals (1, 2)
        gold, answer = _by_name(gold), _by_name(answer)
    kinds, labels = {gold.kind, answer.kind}, {gold.label, answer.label}
    is_comparable = len(kinds) == 1 or kinds in ({"list", "group"}, {"list", "set"})
    if not is_comparable or len(gold.items) != len(answer.items):
        return False
    if "group" in kinds:  # a bare list is a tuple: 1, 3 equals (1, 3)
        return (len(labels) == 1 or labels == {"", "()"}) and _in_order(gold, answer)
    if "any" not in labels and "set" not in kinds and labels != {"names"}:
        return _in_order(gold, answer)
    rest = list(answer.items)  # else in any order: each item of the gold takes an equal one away
    for item in gold.items:
        place = next((i for i, other in enumerate(rest) if compare(item, other)), None)
        if place is None:
            return False
        del rest[place]
    return True


def _as_tuple(answer: Answer) -> Answer:
    """A matrix of one column as a tuple; any other answer unchanged."""
    if answer.kind != "matrix" or any(len(row.items) != 1 for row in answer.items):
        return answer
    return Answer("group", answer.source, tuple(row.items[0] for row in answer.items), label="()")


def _by_name(answer: Answer) -> Answer:
    """A list of named values in the order of their names; any other answer unchanged."""
    if answer.label != "names":
        return answer
    return answer._replace(items=tuple(sorted(answer.items, key=lambda item: item.label)), label="")


def _in_order(gold: Answer, answer: Answer) -> bool:
    return all(compare(*pair) for pair in zip(gold.items, answer.items, strict=True))


def _same_quantity(gold: Answer, answer: Answer) -> bool:
    """Whether two expressions with their units, or without, have the same value."""
    units = {gold.unit, answer.unit}
    if len(units) == 2 and "%" in units:
        return "" in units and _same_percent(gold, answer)
    if units in ({"deg", ""}, {"deg", "rad"}):
        degrees, radians = (gold, answer) if gold.unit == "deg" else (answer, gold)
        one_degree = ("/", ("letter", "pi"), rational(180))
        if same_value(("*", degrees.tree, one_degree), radians.tree):
            return True
    if gold.unit != answer.unit and gold.unit and answer.unit:
        factor = conversion(answer.unit, gold.unit)
        return factor is not None and same_value(gold.tree, ("*", rational(factor), answer.tree))
    # A to F alone: g, h and i are names of their own.
    if gold.tree in _CHOICES[:6] and answer.tree == ("letter", gold.tree[1].lower()):
        return True  # the letter of a choice, in lower case
    same = same_value(gold.tree, answer.tree)
    return same or _is_rounded(gold, answer) or _is_rounded(answer, gold)


def _same_percent(gold: Answer, answer: Answer) -> bool:
    """Whether a percentage equals a plain number: 35% equals 0.35.

    35% also equals 35, with the sign left out; but 0.35% is not 0.35, and (40/9)% is not 40/9.
    """
    percent, plain = (gold, answer) if gold.unit == "%" else (answer, gold)
    if same_value(("/", percent.tree, rational(100)), plain.tree):
        return True
    is_number = re.fullmatch(r"[-+]?\s*\d+(?:\.\d+)?", plain.source) is not None
    is_large = abs(constant(percent.tree) or 0) >= 1  # 0.35 can mean 35%
    return is_number and is_large and same_value(gold.tree, answer.tree)


def _is_rounded(decimal: Answer, other: Answer) -> bool:
    """Whether `decimal` is `other`, which is not a decimal, rounded to at least six places.

    A decimal below 0.001 does not count: six places show too few of its digits.
    """
    if (decimal.places or 0) < ROUNDED_PLACES or other.places is not None:
        return False
    value, true = constant(decimal.tree), constant(other.tree)
    if not value or not true or other.tree[0] == "number" or abs(value) < 1e-3:
        return False
    places = min(decimal.places, FLOAT_DIGITS - len(str(int(abs(value)))))
    # Half of the last place, and float error.
    return places >= ROUNDED_PLACES and abs(value - true) <= 0.500001 * 10**-places


def _is_spelling(text: str, value: Answer) -> bool:
    """Whether a text spells a value: `2:3` a fraction, `2,75` a number with a decimal point."""
    if value.tree[0] == "/" and (ratio := _RATIO.fullmatch(text)):
        return same_value(("/", rational(ratio[1]), rational(ratio[2])), value.tree)
    if value.places and (comma := _DECIMAL_COMMA.fullmatch(text)):
        return same_value(rational(f"{comma[1]}.{comma[2]}"), value.tree)
    return False


def _same_relation(gold: Answer, answer: Answer) -> bool:
    """Whether two inequalities are the same; but `2x < 10`, not solved, does not answer `x < 5`."""
    if gold.kind != answer.kind or gold.label != answer.label:  # the label has the signs
        return False
    if _in_order(gold, answer):
        return True
    left, right = _residual(gold), _residual(answer)
    if left is None or right is None or (_is_solved(gold) and not _is_solved(answer)):
        return False
    ratio = constant_ratio(left, right)
    return ratio is not None and ratio > 0  # a ratio below 0 flips < and >


def _residual(answer: Answer) -> Tree | None:
    """The left side minus the right side; None unless there are two sides, both expressions."""
    sides = answer.items[::-1] if answer.kind == "named" else answer.items  # 5, x of x = 5
    if len(sides) != 2 or any(side.kind != "quantity" for side in sides):
        return None
    return ("+", sides[0].tree, minus(sides[1].tree))


def _is_solved(relation: Answer) -> bool:
    """Whether one side is `x` or `-x` and another a constant: `x < 5`, not `2x < 10`."""
    sides = []
    for side in relation.items:
        is_negative = (side.tree or ())[:2] == ("*", rational(-1))  # -x is the tree of -1 * x
        sides.append(side._replace(tree=side.tree[2]) if is_negative else side)
    return any(map(_is_unknown, sides)) and any(map(is_constant, sides))


def _is_unknown(answer: Answer) -> bool:
    return answer.kind == "quantity" and answer.tree[0] == "letter" and bool(letters(answer.tree))


def _as_set(answer: Answer) -> Answer | None:
    """A relation as an interval, several as a union; None for any other answer.

    `a < x < b` and `x < b` are intervals. Relations joined by "or" are a union, and so are those
    joined by a comma whose intervals do not overlap: no number is in both, as in `x < 2, x > 3`.
    """
    if answer.kind == "list":
        parts = [_as_set(item) for item in answer.items]
        is_union = None not in parts and (answer.label == "any" or _are_apart(answer.items, parts))
        return Answer("union", answer.source, tuple(parts), label="any") if is_union else None
    ends, signs = list(answer.items), answer.label.split()
    if answer.kind != "relation" or not {"<", r"\le"}.issuperset(signs):
        return None
    if len(ends) == 2 and _is_unknown(ends[0]):
        ends, signs = [MINUS_INFINITY, *ends], ["<", *signs]
    elif len(ends) == 2:
        ends, signs = [*ends, INFINITY], [*signs, "<"]
    if len(ends) != 3 or not _is_unknown(ends[1]):
        return None
    left, right = "(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]"
    return Answer("group", answer.source, (ends[0], ends[2]), label=left + right)


def _are_apart(relations: tuple[Answer, ...], intervals: list[Answer]) -> bool:
    """Whether these intervals, of relations of one letter, do not overlap."""
    unknowns = {side.tree for item in relations for side in item.items if _is_unknown(side)}
    places = sorted(tuple(map(_place, interval.items)) for interval in intervals)
    return len(unknowns) == 1 and all(one[1] <= next_one[0] for one, next_one in pairwise(places))


def _place(end: Answer) -> float:
    """Where an end of an interval is on the line of numbers; nan if it is no constant."""
    if end in (INFINITY, MINUS_INFINITY):
        return inf if end == INFINITY else -inf
    return constant(end.tree).real if is_constant(end) else nan
