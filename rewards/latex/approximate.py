"""The value of an expression in floating point: enough to tell two values apart, never to call them equal."""

import cmath
import math
import zlib
from collections.abc import Callable

from rewards.latex.parse import FUNCTIONS, Tree


def approximate(tree: Tree, point: Callable[[str], complex]) -> complex:
    """The value in floating point, with `point` giving one to every letter.

    Raises:
        ArithmeticError, ValueError: it has none.
    """
    operation, *parts = tree
    if operation == "number":
        return float(parts[0])
    if operation == "letter":
        return point(parts[0])
    values = [approximate(part, point) for part in parts]
    if operation in ("+", "*"):
        return values[0] + values[1] if operation == "+" else values[0] * values[1]
    if operation == "/":
        return values[0] / values[1]
    if operation == "^":
        return values[0] ** values[1]
    if operation == "root":
        return _real_root(values[1], values[0])
    if operation in ("sum", "prod"):
        raise ValueError("a series")
    if operation == "!":
        return math.gamma(values[0].real + 1)
    if operation == "binom":
        return math.comb(round(values[0].real), round(values[1].real))
    return FUNCTIONS[operation](values[0])


def _real_root(value: complex, degree: complex) -> complex:
    odd = degree.imag == 0 and degree.real % 2 == 1
    if odd and complex(value).imag == 0 and value.real < 0:
        return -((-value.real) ** (1 / degree.real))
    return complex(value) ** (1 / degree)


def _point(seed: int) -> Callable[[str], complex]:
    known = {"pi": math.pi, "e": math.e, "i": 1j}
    return lambda name: known[name] if name in known else 0.3 + zlib.crc32(f"{seed}{name}".encode()) % 10_007 / 9000


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
        value = complex(approximate(tree, point))
    except OverflowError:
        return complex(math.inf)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if cmath.isnan(value):
        return None
    return value if max(abs(value.real), abs(value.imag)) < 1e150 else complex(math.inf)  # its square would overflow


def constant(tree: Tree) -> complex | None:
    """The value of a tree without letters in floating point; None where it has letters or no finite value."""
    try:
        value = complex(approximate(tree, {"pi": math.pi, "e": math.e, "i": 1j}.__getitem__))
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return None
    return value if cmath.isfinite(value) else None
