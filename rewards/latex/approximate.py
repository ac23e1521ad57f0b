"""The value of an expression in floating point: enough to tell two values apart, never to call them equal."""

import cmath
import math
import operator
import zlib
from collections.abc import Callable

from rewards.latex.parse import FUNCTIONS, Tree

_CONSTANTS = {"pi": math.pi, "e": math.e, "i": 1j}
_NO_VALUE = (ArithmeticError, ValueError, TypeError, KeyError)


def _real_root(degree: complex, value: complex) -> complex:
    odd = degree.imag == 0 and degree.real % 2 == 1
    if odd and complex(value).imag == 0 and value.real < 0:
        return -((-value.real) ** (1 / degree.real))
    return complex(value) ** (1 / degree)


_OPERATIONS = FUNCTIONS | {
    "+": operator.add, "*": operator.mul, "/": operator.truediv, "^": operator.pow, "root": _real_root,
    "!": lambda n: math.gamma(n.real + 1), "binom": lambda n, k: math.comb(round(n.real), round(k.real)),
}  # fmt: skip


def _value(tree: Tree, letter: Callable[[str], complex]) -> complex:
    """The value with `letter` giving one to every letter; it raises one of `_NO_VALUE` where there is none."""
    operation, *parts = tree
    if operation == "number":
        return float(parts[0])
    if operation == "letter":
        return letter(parts[0])
    return _OPERATIONS[operation](
        *(_value(part, letter) for part in parts)
    )  # a series is not an operation here


def _point(seed: int) -> Callable[[str], complex]:
    return lambda name: (
        _CONSTANTS.get(name) or 0.3 + zlib.crc32(f"{seed}{name}".encode()) % 10_007 / 9000
    )


def clearly_different(left: Tree, right: Tree) -> bool:
    """True when the values differ at one of three points by more than rounding explains."""
    for seed in range(3):
        a, b = (_finite(tree, _point(seed)) for tree in (left, right))
        if a is None or b is None or (cmath.isinf(a) and cmath.isinf(b)):
            continue
        if cmath.isinf(a) or cmath.isinf(b):
            return True
        if abs(a - b) > 1e-9 * max(abs(a), abs(b)) + 1e-12:
            return True
    return False


def _finite(tree: Tree, point: Callable[[str], complex]) -> complex | None:
    try:
        value = complex(_value(tree, point))
    except OverflowError:
        return complex(math.inf)
    except _NO_VALUE:
        return None
    if cmath.isnan(value):
        return None
    return (
        value if max(abs(value.real), abs(value.imag)) < 1e150 else complex(math.inf)
    )  # its square would overflow


def constant(tree: Tree) -> complex | None:
    """The value of a tree without letters in floating point; None where it has letters or no finite value."""
    try:
        value = complex(_value(tree, _CONSTANTS.__getitem__))
    except _NO_VALUE:
        return None
    return value if cmath.isfinite(value) else None
