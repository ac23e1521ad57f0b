r"""Whether two expressions have the same value: `same_value(parse(r"\sin 2x"), parse(r"2\sin x\cos x"))`.

Letters stand for fractions, at three points. What is rational there is compared exactly, the rest
to 300 digits. Nothing is evaluated as code, and the work is counted, so that no expression takes
long: what is too large, or loses digits on its way, has no value, and equals nothing.
"""

import math
import zlib
from collections.abc import Callable
from fractions import Fraction

import mpmath

from rewards.latex.parse import Tree, Unreadable

_mp = mpmath.MPContext()  # one of our own: the precision of mpmath's is shared by all threads
_mp.prec = 1100
mpc, mpf = _mp.mpc, _mp.mpf
Number = Fraction | mpc
_NOISE, _EQUAL, _LOST, _SMALL = (mpf(2) ** -bits for bits in (900, 700, 600, 300))
MAX_BITS = 40_000  # of a fraction
MAX_INEXACT_BITS = 600  # of a fraction that meets a root or a sine: fewer than are kept of those
MAX_WORK = 5000  # microseconds, about, that the value at one point takes
MAX_TERMS = 200  # of a sum or product that is written out
_POINTS = range(3)
_CONSTANTS = {"pi": mpc(_mp.pi), "e": mpc(_mp.e), "i": mpc(0, 1)}
_NO_VALUE = (ArithmeticError, ValueError, TypeError, RecursionError)  # Unreadable is a ValueError


def same_value(left: Tree, right: Tree) -> bool:
    """Whether two trees have the same value, wherever they have one, and they have one somewhere.

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
    if not all(a and b for a, b in pairs):
        return None
    ratios = [_inexact(a) / _inexact(b) for a, b in pairs]
    return float(ratios[0].real) if all(_equal(ratio, ratios[0]) for ratio in ratios) else None


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
    except _NO_VALUE:
        return None


class _Point:
    """A fraction for every letter, and the work that is left for a value there."""

    def __init__(self, number: int):
        self.number, self.work, self.bound = number, MAX_WORK, {}

    def value(self, tree: Tree) -> Number:
        operation, *parts = tree
        if operation == "number":
            return parts[0]
        if operation == "letter":
            return self.letter(parts[0])
        if operation in ("sum", "prod"):
            return self.series(*tree)
        return self.apply(operation, [self.value(part) for part in parts])

    def letter(self, name: str) -> Number:
        if name in self.bound or name in _CONSTANTS:
            return self.bound[name] if name in self.bound else _CONSTANTS[name]
        size = Fraction(300 + zlib.crc32(f"{self.number}{name}".encode()) % 10_007, 9000)
        return -size if self.number == 2 else size  # below 0 the root of x^2 is not x

    def apply(self, operation: str, values: list[Number]) -> Number:
        """An operation, exact where all are fractions and the result is one."""
        found = None
        if operation in _EXACT and all(isinstance(value, Fraction) for value in values):
            found = _EXACT[operation](*values)
        if found is None:
            if operation not in _INEXACT:
                raise Unreadable("not of whole numbers")
            self.spend(10 if operation in "+*/" else 100)
            found = _INEXACT[operation](*values)
        if isinstance(found, Fraction):
            bits = max(found.numerator.bit_length(), found.denominator.bit_length())
            self.spend(2 + bits * bits // 2_000_000)
            return _sized(found, MAX_BITS)
        if not _mp.isfinite(found):
            raise Unreadable("no number")
        return found

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise Unreadable("too much work")

    def series(self, operation: str, limits: Tree, body: Tree) -> Number:
        """A short one written out; any other is a letter that its limits and its body name."""
        start, _, end = limits[1].partition("..")
        name, _, start = start.partition("=")
        if not (start.isdigit() and end.isdigit() and int(end) - int(start) < MAX_TERMS):
            value = self.value(body)
            digits = value if isinstance(value, Fraction) else _mp.nstr(value, 250)
            return self.letter(f"{operation} {limits[1]} {digits}")
        sign, outside = "+" if operation == "sum" else "*", self.bound
        total: Number = Fraction(operation == "prod")
        for k in range(int(start), int(end) + 1):
            self.bound = outside | {name: Fraction(k)}
            total = self.apply(sign, [total, self.value(body)])
        self.bound = outside
        return total


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


def _sized(value: Fraction, bits: int) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > bits:
        raise Unreadable("too large")
    return value


def _inexact(value: Number) -> mpc:
    if not isinstance(value, Fraction):
        return value
    value = _sized(value, MAX_INEXACT_BITS)
    return mpc(mpf(value.numerator) / value.denominator)


def _sum(left: Number, right: Number) -> mpc:
    """What is left of a difference of equals is 0, and an addend too small to be held is no value."""
    left, right = _inexact(left), _inexact(right)
    total, small, large = left + right, *sorted((abs(left), abs(right)))
    if 0 < small < _LOST * large:
        raise Unreadable("an addend that is lost")
    return total if abs(total) > _NOISE * large else mpc(0)


def _clean(value: mpc, size: mpf | int = 1) -> mpc:
    """Without a part that is nothing but what was rounded on the way."""
    value = mpc(value)
    real, imaginary = (
        0 if abs(part) < _NOISE * size else part for part in (value.real, value.imag)
    )
    return mpc(real, imaginary)


def _of_sized(function: Callable[[mpc], mpc]) -> Callable[[Number], mpc]:
    """A function of what is neither so large nor so small that its value would have no digits."""

    def of_sized(value: Number) -> mpc:
        value = _inexact(value)
        if value and not _SMALL < abs(value) < 1e6:
            raise Unreadable("too large or too small")
        return _clean(function(value))

    return of_sized


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """None where it is no fraction, or one of roots."""
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Unreadable("zero to no power")
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent) > MAX_BITS:
        raise Unreadable("too large")
    return base**exponent.numerator


def _power(base: Number, exponent: Number) -> mpc:
    """The real root of a negative number where there is one."""
    value, times = _inexact(base), _inexact(exponent)
    if not _SMALL < abs(times) < 1000:
        raise Unreadable("too large or too small")
    is_negative = value.imag == 0 and value.real < 0
    if is_negative and isinstance(exponent, Fraction) and exponent.denominator % 2:
        return (-1) ** exponent.numerator * (-value) ** times
    power = value**times
    return _clean(power, abs(power))


def _root(degree: Number, value: Number) -> mpc:
    return _power(value, 1 / degree)


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    k = _whole(k, 3000 if n.denominator == 1 else 12)
    if n.denominator == 1:
        return Fraction(math.comb(_whole(n, 3000), k))
    return math.prod((n - i) / (i + 1) for i in range(k))  # of a letter, it is a polynomial


def _whole(value: Fraction, limit: int) -> int:
    if value.denominator != 1 or not 0 <= value <= limit:
        raise Unreadable("too large, or not a whole number")
    return int(value)


def _rounded(function: Callable[[mpf], mpf], slack: mpf) -> Callable[[Number], Fraction]:
    """What is a whole number but for its last digits is that whole number."""
    return lambda value: Fraction(int(function(_inexact(value).real + slack)))


_EXACT = {
    "+": lambda a, b: a + b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "^": _exact_power,
    "abs": abs, "binom": _binomial, "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)), "!": lambda n: Fraction(math.factorial(_whole(n, 3000))),
    "mod": lambda a, b: Fraction(_whole(a, 10**9) % _whole(b, 10**9)),
}  # fmt: skip
_sin, _cos, _sinh, _cosh = map(_of_sized, (_mp.sin, _mp.cos, _mp.sinh, _mp.cosh))
_INEXACT = {
    "+": _sum, "*": lambda a, b: _inexact(a) * _inexact(b), "/": lambda a, b: _inexact(a) / _inexact(b),
    "^": _power, "root": _root, "abs": lambda a: mpc(abs(_inexact(a))),
    "floor": _rounded(_mp.floor, _EQUAL), "ceil": _rounded(_mp.ceil, -_EQUAL),
    "sin": _sin, "cos": _cos, "tan": lambda a: _sin(a) / _cos(a), "sec": lambda a: 1 / _cos(a),
    "csc": lambda a: 1 / _sin(a), "cot": lambda a: _cos(a) / _sin(a),
    "sinh": _sinh, "cosh": _cosh, "tanh": lambda a: _sinh(a) / _cosh(a),
    "arcsin": _of_sized(_mp.asin), "arccos": _of_sized(_mp.acos), "arctan": _of_sized(_mp.atan),
    "ln": _of_sized(_mp.ln), "exp": _of_sized(_mp.exp),
}  # fmt: skip
