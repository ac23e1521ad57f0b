r"""Whether two expressions have the same value, as `\sin 2x` and `2\sin x\cos x` have.

Both expressions are evaluated at three points. A point gives each letter a fraction. Rational
values are compared exactly, others to 280 digits. Nothing is evaluated as code. The work is
counted, so that no expression takes long. A value that is too large or loses digits is None, which
equals nothing.
"""

import math
import operator
import zlib
from collections.abc import Callable
from fractions import Fraction

import mpmath

from rewards.latex.parse import Tree, Unreadable

_mp = mpmath.MPContext()  # a context of our own, since all threads share mpmath's precision
_mp.prec = 1100
mpc, mpf = _mp.mpc, _mp.mpf
Number = Fraction | mpc
MAX_BITS = 40_000  # of a fraction
MAX_INEXACT_BITS = 450  # of a fraction that meets an inexact value, such as a root or a sine
MAX_WORK = 5000  # for the value at one point, in about microseconds
# Relative sizes. Below _NOISE a part is a rounding error. Below _EQUAL a difference is none. Below
# _LOST an addend has lost too many digits in the sum.
_NOISE, _EQUAL, _LOST = mpf(2) ** -1000, mpf(2) ** -950, mpf(2) ** -450
_SMALL, _LARGE = mpf(2) ** -300, 10**6  # functions keep their digits for arguments between them
_POINTS = range(3)
_CONSTANTS = {"pi": mpc(_mp.pi), "e": mpc(_mp.e), "i": mpc(0, 1)}


def same_value(left: Tree, right: Tree) -> bool:
    """Whether two trees are equal at each point where either has a value, at one point at least.

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
    """The ratio `left` / `right` if it is the same at all points and not 0, else None."""
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
    """The letters of a tree that are unknowns, so not pi, e or i."""
    if tree[0] == "letter":
        return {tree[1]} - _CONSTANTS.keys()
    return set().union(*(letters(part) for part in tree[1:] if isinstance(part, tuple)))


def has_value(tree: Tree) -> bool:
    """Whether the tree has a value at any of the points."""
    return any(value_at(tree, point) is not None for point in _POINTS)


def value_at(tree: Tree, point: int) -> Number | None:
    """The value of a tree at a point; None where it has none or takes too much work."""
    try:
        return _Point(point).value(tree)
    except (ArithmeticError, ValueError, TypeError, RecursionError):  # Unreadable is a ValueError
        return None


class _Point:
    """A point, which gives each letter a fraction; `work` is what may still be spent on a value."""

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
        # Between 0.03 and 1.15; crc32, unlike hash(), is the same in every process.
        size = Fraction(300 + zlib.crc32(f"{self.number}{name}".encode()) % 10_007, 9000)
        return -size if self.number == 2 else size  # for x < 0 the root of x^2 is not x

    def apply(self, operation: str, values: list[Number]) -> Number:
        """The result of an operation; exact where the values and the result are fractions."""
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
    """The sum, or 0 if only rounding errors remain; Unreadable if the smaller addend is lost."""
    small, large = sorted((abs(left), abs(right)))
    if 0 < small < _LOST * large:
        raise Unreadable("an addend that is lost")
    total = left + right
    return total if abs(total) > _NOISE * large else mpc(0)


def _has_real_root(base: Number, exponent: Number) -> bool:
    """Whether the base is negative and its power is real, as a third root is."""
    is_negative = base.imag == 0 and base.real < 0
    return is_negative and isinstance(exponent, Fraction) and exponent.denominator % 2 == 1


def _power(base: mpc, exponent: mpc) -> mpc:
    if not _SMALL < abs(exponent) < 1000:
        raise Unreadable("too large or too small")
    power = base**exponent
    return _clean(power, abs(power))


def _of_sized(function: Callable[[mpc], mpc]) -> Callable[[mpc], mpc]:
    """The function, but Unreadable for an argument so large or small that digits are lost."""

    def of_sized(value: mpc) -> mpc:
        if value and not _SMALL < abs(value) < _LARGE:
            raise Unreadable("too large or too small")
        return _clean(function(value), mpf(1))

    return of_sized


def _clean(value: mpc, size: mpf) -> mpc:
    """The value, with 0 for a real or imaginary part that is only a rounding error."""
    real, imag = mpc(value).real, mpc(value).imag
    return mpc(real * (abs(real) > _NOISE * size), imag * (abs(imag) > _NOISE * size))


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """The power as a fraction; None for a fractional exponent, which is a root."""
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Unreadable("zero to no power")
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)  # cheap for a large exponent
    if _bits(base) * abs(exponent) > MAX_BITS:
        raise Unreadable("too large")
    return base**exponent.numerator


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    if n.denominator == 1:
        return Fraction(math.comb(_whole(n), _whole(k)))
    return math.prod((n - i) / (i + 1) for i in range(_whole(k, 12)))  # a polynomial in n


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
    # A value that is a whole number up to rounding counts as that whole number.
    "floor": lambda a: mpc(_mp.floor(a.real + _EQUAL)),
    "ceil": lambda a: mpc(_mp.ceil(a.real - _EQUAL)),
}  # fmt: skip
