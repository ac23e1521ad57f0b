r"""Whether two expressions have the same value, as `\sin 2x` and `2\sin x\cos x` have.

Letters stand for fractions, at three points. What is rational there is compared exactly, the rest
to 280 digits. Nothing is evaluated as code, and the work is counted, so that no expression takes
long: what is too large, or loses digits on its way, has no value, and equals nothing.
"""

import math
import operator
import zlib
from collections.abc import Callable
from fractions import Fraction

import mpmath

from rewards.latex.parse import Tree, Unreadable

_mp = mpmath.MPContext()  # one of our own: the precision of mpmath's is shared by all threads
_mp.prec = 1100
mpc, mpf = _mp.mpc, _mp.mpf
Number = Fraction | mpc
MAX_BITS = 40_000  # of a fraction
MAX_INEXACT_BITS = 450  # of a fraction that meets a root or a sine
MAX_WORK = 5000  # microseconds, about, that the value at one point takes
# Relative to what is added: what is smaller is an error of rounding, the same, or lost in a sum.
_NOISE, _EQUAL, _LOST = mpf(2) ** -1000, mpf(2) ** -950, mpf(2) ** -450
_SMALL, _LARGE = mpf(2) ** -300, 10**6  # where functions keep their digits
_POINTS = range(3)
_CONSTANTS = {"pi": mpc(_mp.pi), "e": mpc(_mp.e), "i": mpc(0, 1)}


def same_value(left: Tree, right: Tree) -> bool:
    """Whether two trees have the same value wherever one of them has any, and one has somewhere.

    Example: `same_value(parse("2(x+1)"), parse("2x+2"))`
    """
    if left == right:
        return True
    if not letters(left) | letters(right):
        return _equal(value_at(left, 0), value_at(right, 0))
    pairs = [(value_at(left, point), value_at(right, point)) for point in _POINTS]
    known = [pair for pair in pairs if pair != (None, None)]
    return bool(known) and all(_equal(*pair) for pair in known)


def constant_ratio(left: Tree, right: Tree) -> float | None:
    """What `left` is of `right` if that is the same at all points and not 0, else None."""
    pairs = [(value_at(left, point), value_at(right, point)) for point in _POINTS]
    try:
        ratios = [_inexact(a) / _inexact(b) for a, b in pairs if a and b]
    except Unreadable:
        return None
    is_constant = len(ratios) == len(pairs) and all(_equal(ratios[0], r) for r in ratios)
    return float(ratios[0].real) if is_constant else None


def constant(tree: Tree) -> complex | None:
    """The value of a tree without letters; None where it has letters or no finite value."""
    value = None if letters(tree) else value_at(tree, 0)
    try:
        return None if value is None else complex(value)
    except OverflowError:
        return None


def letters(tree: Tree) -> set[str]:
    """The letters of a tree that stand for any number."""
    if tree[0] == "letter":
        return {tree[1]} - _CONSTANTS.keys()
    return set().union(*(letters(part) for part in tree[1:] if isinstance(part, tuple)))


def has_value(tree: Tree) -> bool:
    """Whether there is a value at one of the points."""
    return any(value_at(tree, point) is not None for point in _POINTS)


def value_at(tree: Tree, point: int) -> Number | None:
    """The value at a point; None where there is none, or it takes too long to find."""
    try:
        return _Point(point).value(tree)
    except (ArithmeticError, ValueError, TypeError, RecursionError):  # Unreadable is a ValueError
        return None


class _Point:
    """A fraction for every letter, and the work that is left for a value there."""

    def __init__(self, number: int):
        self.number, self.work = number, MAX_WORK

    def value(self, tree: Tree) -> Number:
        operation, *parts = tree
        if operation == "number":
            return parts[0]
        if operation == "letter":
            return self.letter(parts[0])
        return self.apply(operation, [self.value(part) for part in parts])

    def letter(self, name: str) -> Number:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        size = Fraction(300 + zlib.crc32(f"{self.number}{name}".encode()) % 10_007, 9000)
        return -size if self.number == 2 else size  # below 0 the root of x^2 is not x

    def apply(self, operation: str, values: list[Number]) -> Number:
        """An operation, exact where all are fractions and the result is one."""
        if operation == "root":
            return self.apply("^", [values[1], 1 / values[0]])
        result = None
        if operation in _EXACT and all(isinstance(value, Fraction) for value in values):
            result = _EXACT[operation](*values)
        elif operation not in _INEXACT:
            raise Unreadable("not of whole numbers")
        if result is None and operation == "^" and _has_real_root(*values):
            result = self.apply("^", [-values[0], values[1]]) * (-1) ** values[1].numerator
        elif result is None:
            self.spend(10 if operation in "+*/" else 100)
            result = _INEXACT[operation](*map(_inexact, values))
        if isinstance(result, Fraction):
            bits = _bits(result)
            self.spend(2 + bits * bits // 2_000_000)
            if bits > MAX_BITS:
                raise Unreadable("too large")
        elif not _mp.isfinite(result):
            raise Unreadable("no number")
        return result

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise Unreadable("too much work")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _inexact(value: Number) -> mpc:
    if not isinstance(value, Fraction):
        return value
    if _bits(value) > MAX_INEXACT_BITS:
        raise Unreadable("too many digits")
    return mpc(mpf(value.numerator) / value.denominator)


def _equal(left: Number | None, right: Number | None) -> bool:
    if left is None or right is None:
        return False
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    try:
        left, right = _inexact(left), _inexact(right)
    except Unreadable:
        return False
    return abs(left - right) <= _EQUAL * max(abs(left), abs(right))


def _sum(left: mpc, right: mpc) -> mpc:
    """A difference of equals is 0; where an addend is too small to be held there is no value."""
    small, large = sorted((abs(left), abs(right)))
    if 0 < small < _LOST * large:
        raise Unreadable("an addend that is lost")
    total = left + right
    return total if abs(total) > _NOISE * large else mpc(0)


def _has_real_root(base: Number, exponent: Number) -> bool:
    """Whether a power of a negative number is real, as its third root is."""
    is_negative = base.imag == 0 and base.real < 0
    return is_negative and isinstance(exponent, Fraction) and exponent.denominator % 2 == 1


def _power(base: mpc, exponent: mpc) -> mpc:
    if not _SMALL < abs(exponent) < 1000:
        raise Unreadable("too large or too small")
    power = base**exponent
    return _clean(power, abs(power))


def _of_sized(function: Callable[[mpc], mpc]) -> Callable[[mpc], mpc]:
    """A function where its argument is neither so large nor so small that digits are lost."""

    def of_sized(value: mpc) -> mpc:
        if value and not _SMALL < abs(value) < _LARGE:
            raise Unreadable("too large or too small")
        return _clean(function(value), mpf(1))

    return of_sized


def _clean(value: mpc, size: mpf) -> mpc:
    """Without a part that is nothing but what was rounded on the way."""
    real, imag = mpc(value).real, mpc(value).imag
    return mpc(real * (abs(real) > _NOISE * size), imag * (abs(imag) > _NOISE * size))


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """None where it is no fraction, or one of roots."""
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Unreadable("zero to no power")
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)
    if _bits(base) * abs(exponent) > MAX_BITS:
        raise Unreadable("too large")
    return base**exponent.numerator


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    if n.denominator == 1:
        return Fraction(math.comb(_whole(n), _whole(k)))
    return math.prod((n - i) / (i + 1) for i in range(_whole(k, 12)))  # of a letter: a polynomial


def _whole(value: Fraction, limit: int = 3000) -> int:
    if value.denominator != 1 or not 0 <= value <= limit:
        raise Unreadable("too large, or not a whole number")
    return int(value)


_EXACT = {
    "+": operator.add, "*": operator.mul, "/": operator.truediv, "^": _exact_power, "abs": abs,
    "!": lambda n: Fraction(math.factorial(_whole(n))), "binom": _binomial,
    "mod": lambda a, b: Fraction(_whole(a, 10**9) % _whole(b, 10**9)),
    "floor": lambda a: Fraction(math.floor(a)), "ceil": lambda a: Fraction(math.ceil(a)),
}  # fmt: skip
_sin, _cos, _sinh, _cosh = map(_of_sized, (_mp.sin, _mp.cos, _mp.sinh, _mp.cosh))
_INEXACT = {
    "+": _sum, "*": operator.mul, "/": operator.truediv, "^": _power, "abs": lambda a: mpc(abs(a)),
    "sin": _sin, "cos": _cos, "sec": lambda a: 1 / _cos(a), "csc": lambda a: 1 / _sin(a),
    "tan": lambda a: _sin(a) / _cos(a), "cot": lambda a: _cos(a) / _sin(a),
    "sinh": _sinh, "cosh": _cosh, "tanh": lambda a: _sinh(a) / _cosh(a),
    "arcsin": _of_sized(_mp.asin), "arccos": _of_sized(_mp.acos), "arctan": _of_sized(_mp.atan),
    "ln": _of_sized(_mp.ln), "exp": _of_sized(_mp.exp),
    # What is a whole number but for its last digits is that whole number.
    "floor": lambda a: mpc(_mp.floor(a.real + _EQUAL)),
    "ceil": lambda a: mpc(_mp.ceil(a.real - _EQUAL)),
}  # fmt: skip
