r"""Whether two expressions have the same value, as `\sin 2x` and `2\sin x\cos x` have.

Both are evaluated at thirteen points. A point gives each letter a number: small or very large,
above or below 0, a fraction or a natural number. Nothing is evaluated as code. Fractions are exact,
other values have 280 digits. The work is counted, so that no expression takes long.

At some points an expression has no value: letters are real numbers, so a root, a logarithm or an
arcsine of letters must be real, and `n!`, `\binom{n}{k}`, `n \bmod 3` and `(-1)^n` need natural
numbers. Only points where both expressions have a value are compared. So `\ln x^2` equals `2\ln x`,
as textbooks write, but `\sqrt{x^2}` is not `x`. Without letters values are complex: `\sqrt{-4}`
equals `2i`.
"""

import functools
import math
import operator
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction

import mpmath

from rewards.latex.parse import Tree, Unreadable

_mp = mpmath.MPContext()  # a context of our own, since all threads share mpmath's precision
_mp.prec = 1100
mpc, mpf = _mp.mpc, _mp.mpf
Number = Fraction | mpc
MAX_BITS = 40_000  # of a fraction
MAX_INEXACT_BITS = 450  # of a fraction that meets an inexact value, such as a root or a sine
MAX_WORK = 12_000  # for the values of one expression at all points, in about microseconds
# Relative sizes. Below _NOISE a part is a rounding error. Below _EQUAL a difference is none. Below
# _LOST an addend has lost too many digits in the sum.
_NOISE, _EQUAL, _LOST = mpf(2) ** -1000, mpf(2) ** -950, mpf(2) ** -450
_SMALL, _LARGE = mpf(2) ** -300, 10**6  # functions keep their digits for arguments between them
_CONSTANTS = {"pi": mpc(_mp.pi), "e": mpc(_mp.e), "i": mpc(0, 1)}

_FAR = 10**12 + 1  # beyond the numbers that people write: |x - c| is x - c here, and c - x at -_FAR
_SIZES = (1, 17, 41, 1, 4001, 1)  # of the points where some letters are above 0 and some below
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
POINTS = range(4 + len(_SIZES) + 3)


@functools.lru_cache(maxsize=1024)
def _letter_at_points(name: str) -> list[Fraction]:
    """The value of a letter at each of the points where two expressions are compared.

    At the first points all letters have one sign. At the next it is a bit of the letter's code: two
    letters differ in a bit, so |xy| is not xy somewhere. The last three are natural numbers, all
    others fractions of an even denominator: no negative number to this power is real.
    """
    sizes, code = [1, 41, _FAR, -_FAR], sum(map(ord, name))
    for bit, size in enumerate(_SIZES):
        sizes.append(-size if code >> bit & 1 else size)
    hashes = [zlib.crc32(f"{i}{name}".encode()) for i in POINTS]  # unlike hash(), alike in each run
    values = [size * Fraction(2 * (hashes[i] % 5000) + 301, 9998) for i, size in enumerate(sizes)]
    # Where n is above k, n! / (n - k)! is defined: once where a < b < c, and once where c < b < a.
    place = _ALPHABET.find(name) + 1 if len(name) == 1 else hashes[-1] % 52 + 1
    naturals = [place, 53 - place, 2 + hashes[-1] % 11]  # at the last three points
    return [*values, *map(Fraction, naturals)]


def same_value(left: Tree, right: Tree) -> bool:
    """Whether two trees are equal at each point (a number for each letter) where both have a value.

    There must be three such points, or as many as give `left` a value, but at least one.

    Example: `same_value(parse("2(x+1)"), parse("2x+2"))`
    """
    if left == right:
        return True
    shared = defined = 0
    for a, b in zip(_values(left), _values(right), strict=True):
        defined += a is not None
        if a is None or b is None:
            continue
        if not _equal(a, b):
            return False
        shared += 1
    return shared >= max(1, min(3, defined))


def constant_ratio(left: Tree, right: Tree) -> float | None:
    """The ratio `left` / `right` if it is one number other than 0 wherever both have a value.

    None if it is not, or if both have a value at fewer than three points (of letters' numbers).

    Example: `constant_ratio(parse("2x-6"), parse("x-3")) == 2.0`
    """
    ratios = []
    for a, b in zip(_values(left), _values(right), strict=True):
        if a is None or b is None or a == b == 0:
            continue
        try:
            a, b = _alike(a, b)
            ratios.append(a / b)
        except (ArithmeticError, Unreadable):
            return None
        if not ratios[-1] or not _equal(ratios[0], ratios[-1]):
            return None
    return float(ratios[0].real) if len(ratios) >= 3 else None


def constant(tree: Tree) -> complex | None:
    """The value of a tree without letters; None where it has letters or no finite value."""
    value = exact_constant(tree)
    try:
        return None if value is None else complex(value)
    except OverflowError:
        return None


def exact_constant(tree: Tree) -> Number | None:
    """`constant`, but a fraction where the value is rational, and else of 280 digits.

    Example: `exact_constant(parse("1/3 + 1/3")) == Fraction(2, 3)`
    """
    return None if letters(tree) else next(_values(tree))


def has_value(tree: Tree) -> bool:
    """Whether the tree has a value for any of the numbers that its letters are tried with."""
    return any(value is not None for value in _values(tree))


def letters(tree: Tree) -> set[str]:
    """The letters of a tree that are unknowns, so not pi, e or i."""
    if tree[0] == "letter":
        return {tree[1]} - _CONSTANTS.keys()
    return set().union(*(letters(part) for part in tree[1:] if isinstance(part, tuple)))


def _values(tree: Tree) -> Iterator[Number | None]:
    """The value of a tree at each point (a number for each letter); None where it has none."""
    evaluator, has_letters = _Evaluator(), bool(letters(tree))
    value = None
    for point in POINTS:
        if has_letters or point == 0:  # without letters all points give the first value
            try:
                value = evaluator.value(tree, point)
            except (ArithmeticError, ValueError, TypeError, RecursionError):  # also Unreadable
                value = None
        yield value


class _Evaluator:
    """Evaluates one expression at the points; `work` is what it may still spend, for all points."""

    work = MAX_WORK

    def value(self, tree: Tree, point: int) -> Number:
        """The value of a tree at a point; raises `Unreadable` or `ArithmeticError` if none."""
        operation, *parts = tree
        if operation == "number":
            return parts[0]
        if operation == "letter":
            name = parts[0]
            return _CONSTANTS[name] if name in _CONSTANTS else _letter_at_points(name)[point]
        values = [self.value(part, point) for part in parts]
        result = self.apply(operation, values)
        is_complex = result.imag and all(value.imag == 0 for value in values)
        if is_complex and letters(tree):
            raise Unreadable("a root, logarithm or arcsine of letters that is not real")
        return result

    def apply(self, operation: str, values: list[Number]) -> Number:
        """The result of an operation; exact where the values and the result are fractions."""
        if operation == "root":
            degree, base = values
            operation, values = "^", [base, 1 / degree]
        result = None
        if operation in _EXACT and all(isinstance(value, Fraction) for value in values):
            result = _EXACT[operation](*values)
        elif operation not in _INEXACT:
            raise Unreadable(f"{operation} is computed for fractions only, not for roots or sines")
        if isinstance(result, Fraction):
            bits = _bits(result)
            self.spend(2 + bits * bits // 2_000_000)  # about the microseconds it took
            if bits > MAX_BITS:
                raise Unreadable("the value has too many digits")
            return result
        if operation == "^":
            base, exponent = values
            is_root_of_odd = isinstance(exponent, Fraction) and exponent.denominator % 2 == 1
            if is_root_of_odd and base.imag == 0 and base.real < 0:  # third root of -8: -2, real
                return self.apply("^", [-base, exponent]) * (-1) ** exponent.numerator
        self.spend(10 if operation in "+*/" else 100)
        result = _INEXACT[operation](*map(_inexact, values))
        if not _mp.isfinite(result):
            raise Unreadable("the value is infinite or undefined")
        return result

    def spend(self, work: int) -> None:
        """Count work done, in about microseconds; raise `Unreadable` once it is too much."""
        self.work -= work
        if self.work < 0:
            raise Unreadable("the value takes too much work")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _inexact(value: Number) -> mpc:
    """The number with 280 digits; `Unreadable` for a fraction that would lose any."""
    if not isinstance(value, Fraction):
        return value
    if _bits(value) > MAX_INEXACT_BITS:
        raise Unreadable("a fraction of too many digits in an inexact sum or product")
    return mpc(mpf(value.numerator) / value.denominator)


def _alike(left: Number, right: Number) -> tuple[Number, Number]:
    """Two numbers of one kind: unchanged if both are fractions, else both inexact."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left, right
    return _inexact(left), _inexact(right)


def _equal(left: Number, right: Number) -> bool:
    """Whether two numbers are equal, up to rounding errors unless both are fractions."""
    try:
        left, right = _alike(left, right)
    except Unreadable:
        return False
    if isinstance(left, Fraction):
        return left == right
    return abs(left - right) <= _EQUAL * max(abs(left), abs(right))


def _sum(left: mpc, right: mpc) -> mpc:
    """The sum, or 0 if only rounding errors remain; `Unreadable` if it loses a small addend."""
    small, large = sorted((abs(left), abs(right)))
    if 0 < small < _LOST * large:
        raise Unreadable("an addend is too small to show in the sum")
    total = left + right
    return total if abs(total) > _NOISE * large else mpc(0)


def _power(base: mpc, exponent: mpc) -> mpc:
    """The power; `Unreadable` for an exponent so large or small that digits are lost."""
    if not _SMALL < abs(exponent) < 1000:
        raise Unreadable("the exponent is too large or too small to keep all digits")
    power = base**exponent
    return _clean(power, abs(power))


def _limited(function: Callable[[mpc], mpc]) -> Callable[[mpc], mpc]:
    """The function, but `Unreadable` for an argument so large or small that digits are lost."""

    def limited(value: mpc) -> mpc:
        if value and not _SMALL < abs(value) < _LARGE:
            raise Unreadable("the argument is too large or too small to keep all digits")
        return _clean(function(value), mpf(1))

    return limited


def _clean(value: mpc, size: mpf) -> mpc:
    """The value, with 0 for a real or imaginary part that is a rounding error beside `size`."""
    real, imag = mpc(value).real, mpc(value).imag
    return mpc(real * (abs(real) > _NOISE * size), imag * (abs(imag) > _NOISE * size))


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """The power as a fraction; None for a fractional exponent, which is a root."""
    if exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Unreadable("0 to the power 0, or to a negative power")
    if _bits(base) * abs(exponent) > MAX_BITS:
        raise Unreadable("the power has too many digits")
    return base**exponent.numerator


def _whole(value: Fraction, limit: int = 3000) -> int:
    """The value as an integer; `Unreadable` unless it is one from 0 to the limit."""
    if value.denominator != 1 or not 0 <= value <= limit:
        raise Unreadable(f"not a whole number from 0 to {limit}")
    return int(value)


_EXACT = {
    "+": operator.add, "*": operator.mul, "/": operator.truediv, "^": _exact_power, "abs": abs,
    "!": lambda n: Fraction(math.factorial(_whole(n))),
    "binom": lambda n, k: Fraction(math.comb(_whole(n), _whole(k, limit=int(n)))),
    "mod": lambda a, b: Fraction(_whole(a, 10**9) % _whole(b, 10**9)),
    "floor": lambda a: Fraction(math.floor(a)), "ceil": lambda a: Fraction(math.ceil(a)),
}  # fmt: skip
_sin, _cos, _sinh, _cosh = map(_limited, (_mp.sin, _mp.cos, _mp.sinh, _mp.cosh))
_INEXACT = {
    "+": _sum, "*": operator.mul, "/": operator.truediv, "^": _power, "abs": lambda a: mpc(abs(a)),
    "sin": _sin, "cos": _cos, "sec": lambda a: 1 / _cos(a), "csc": lambda a: 1 / _sin(a),
    "tan": lambda a: _sin(a) / _cos(a), "cot": lambda a: _cos(a) / _sin(a),
    "sinh": _sinh, "cosh": _cosh, "tanh": lambda a: _sinh(a) / _cosh(a),
    "arcsin": _limited(_mp.asin), "arccos": _limited(_mp.acos), "arctan": _limited(_mp.atan),
    "ln": _limited(_mp.ln), "exp": _limited(_mp.exp),
    # A value that is a whole number up to rounding counts as that whole number.
    "floor": lambda a: mpc(_mp.floor(a.real + _EQUAL)),
    "ceil": lambda a: mpc(_mp.ceil(a.real - _EQUAL)),
}  # fmt: skip
