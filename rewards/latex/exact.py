r"""The exact value of a LaTeX expression, without sympy: `same_value(parse(r"\frac{x^2-1}{x-1}"), parse("x+1"))`.

An expression is held as a quotient of polynomials over the rationals, with square roots of integers, logarithms of
primes, pi, e, i and the letters as its variables, so that two of them are equal exactly when their cross products are.
What has no such form (sines, roots of sums) is compared in floating point at three points: a clear difference
decides, and of what looks equal this module says that it cannot tell.

Nothing is evaluated as code; a number has at most `MAX_BITS` bits and a polynomial `MAX_TERMS` terms.
"""

import functools
import itertools
import math
import operator
from fractions import Fraction

from rewards.latex.approximate import clearly_different
from rewards.latex.parse import Malformed, Tree, Unreadable

MAX_BITS = 40_000
MAX_TERMS = 200
MAX_FACTORIAL = 3000
MAX_NAME_BITS = 10_000
# A polynomial: {(radicand, ((letter, exponent), ...)): coefficient}; an exact value: (numerator, denominator).
Polynomial = dict[tuple[int, tuple], Fraction]
Exact = tuple[Polynomial, Polynomial]
_ONE: Polynomial = {(1, ()): Fraction(1)}
_E: Exact = ({(1, (("e", 1),)): Fraction(1)}, _ONE)
_I_PI = (1, (("i", 1), ("pi", 1)))


def exact(tree: Tree) -> Exact:
    """The value of a tree; roots and functions without a rational form become letters, named by what they are of.

    Raises:
        Unreadable: too large to hold, a division by zero, or a power that cannot be named.
    """
    operation, *parts = tree
    if operation == "number":
        return {(1, ()): parts[0]} if parts[0] else {}, _ONE
    if operation == "letter":
        return {(1, ((parts[0], 1),)): Fraction(1)}, _ONE
    values = [exact(part) for part in parts]
    if operation in _BINARY:
        return _BINARY[operation](*values)
    if operation == "root":
        return _root(values[1], values[0])
    if operation in ("!", "binom", "mod"):
        return _count(operation, values)
    if operation == "ln":
        return _logarithm(values[0])
    if operation in _RATIOS:
        return _divide(
            *(_wave(name, values[0]) if name else (_ONE, _ONE) for name in _RATIOS[operation])
        )
    return _named(operation, values)


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    total = dict(left)
    for term, coefficient in right.items():
        total[term] = total.get(term, 0) + coefficient
    return _limited({term: coefficient for term, coefficient in total.items() if coefficient})


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    if left is _ONE or right is _ONE:
        return right if left is _ONE else left
    if len(left) * len(right) > 10 * MAX_TERMS:
        raise Unreadable("too many terms")
    product: Polynomial = {}
    for (root, letters), coefficient in left.items():
        for (root2, letters2), coefficient2 in right.items():
            common = math.gcd(root, root2)
            letters3, sign = _multiply_letters(letters, letters2)
            term = (root // common * (root2 // common), letters3)
            product[term] = product.get(term, 0) + sign * common * coefficient * coefficient2
    return _limited({term: coefficient for term, coefficient in product.items() if coefficient})


def _multiply_letters(left: tuple, right: tuple) -> tuple[tuple, int]:
    if not left or not right:
        return left or right, 1
    exponents = dict(left)
    for name, exponent in right:
        exponents[name] = exponents.get(name, 0) + exponent
    sign = -1 if exponents.get("i", 0) % 4 in (2, 3) else 1
    if "i" in exponents:
        exponents["i"] %= 2
    return tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent)), sign


def _limited(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise Unreadable("too many terms")
    for coefficient in polynomial.values():
        if coefficient.numerator.bit_length() + coefficient.denominator.bit_length() > 2 * MAX_BITS:
            raise Unreadable("too large")
    return polynomial


def _add(left: Exact, right: Exact) -> Exact:
    if left[1] == right[1]:
        return _quotient(_plus(left[0], right[0]), left[1])
    return _quotient(
        _plus(_times(left[0], right[1]), _times(right[0], left[1])), _times(left[1], right[1])
    )


def _multiply(left: Exact, right: Exact) -> Exact:
    return _quotient(_times(left[0], right[0]), _times(left[1], right[1]))


def _divide(left: Exact, right: Exact) -> Exact:
    if not right[0]:
        raise Malformed("division by zero")
    return _quotient(_times(left[0], right[1]), _times(left[1], right[0]))


def _quotient(numerator: Polynomial, denominator: Polynomial) -> Exact:
    """Divide through where the denominator is a single term without letters: most often it is."""
    if denominator is not _ONE and len(denominator) == 1:
        ((root, letters), coefficient) = next(iter(denominator.items()))
        if not letters:
            return _times(numerator, {(root, ()): 1 / (coefficient * root)}), _ONE
    return numerator, denominator


def _rational(value: Exact) -> Fraction | None:
    """The value as a fraction where it is one."""
    numerator, denominator = value
    if denominator != _ONE or any(term != (1, ()) for term in numerator):
        return None
    return numerator.get((1, ()), Fraction(0))


def _power(base: Exact, exponent: Exact) -> Exact:
    number, power = _rational(base), _rational(exponent)
    if base == _E and set(exponent[0]) == {_I_PI} and exponent[1] == _ONE:  # e^{i pi / 3}
        angle = {(1, (("pi", 1),)): exponent[0][_I_PI]}, _ONE
        return _add(
            _wave("cos", angle),
            _multiply(({(1, (("i", 1),)): Fraction(1)}, _ONE), _wave("sin", angle)),
        )
    if power is None or power.denominator > 24:
        return _named("^", [base, exponent])
    if power.denominator != 1:
        return _power(
            _root(base, ({(1, ()): Fraction(power.denominator)}, _ONE)), _constant(power.numerator)
        )
    times = abs(power.numerator)
    if number is not None:
        return _constant(_rational_power(number, power.numerator))
    if times > (64 if len(base[0]) * len(base[1]) > 1 else 10_000):
        raise Unreadable("too high a power")
    value, result = _divide((_ONE, _ONE), base) if power < 0 else base, (_ONE, _ONE)
    for bit in f"{times:b}":
        result = _multiply(result, result)
        result = _multiply(result, value) if bit == "1" else result
    return result


def _constant(value: Fraction | int) -> Exact:
    return ({(1, ()): Fraction(value)} if value else {}), _ONE


def _rational_power(number: Fraction, times: int) -> Fraction:
    if number == 0 and times <= 0:
        raise Malformed("zero to no power")
    if (
        max(number.numerator.bit_length(), number.denominator.bit_length()) * abs(times) > MAX_BITS
        and abs(number) != 1
    ):
        raise Unreadable("too large")
    return number**times if abs(number) != 1 else number ** (times % 2)


def _root(value: Exact, degree: Exact) -> Exact:
    """Square roots of integers are exact; another root is a letter named by its radicand, without its whole part."""
    number, n = _rational(value), _rational(degree)
    if n is None or n.denominator != 1 or not 2 <= n <= 24:
        raise Unreadable("no such root")
    if number is None or (number < 0 and n != 2):
        return _named(f"root{n}", [value])
    if number == 0:
        return _constant(0)
    outside, inside = _take_powers(
        abs(number.numerator) * number.denominator ** (int(n) - 1), int(n)
    )
    factor = Fraction(outside, number.denominator)
    if n == 2:
        return {(inside, ((("i", 1),) if number < 0 else ())): factor}, _ONE
    if inside == 1:
        return _constant(factor)
    return {(1, ((f"?root{n}:{inside}", 1),)): factor}, _ONE


def _take_powers(number: int, n: int) -> tuple[int, int]:
    """`outside ** n * inside == number`, with nothing left inside that could be taken out."""
    if number.bit_length() > 96:
        raise Unreadable("too large a radicand")
    outside, inside, divisor = 1, 1, 2
    while divisor * divisor <= number and divisor < 2000:
        count = 0
        while number % divisor == 0:
            number, count = number // divisor, count + 1
        outside, inside = outside * divisor ** (count // n), inside * divisor ** (count % n)
        divisor += 1
    if number >= 2000 * 2000:  # what is left may be a square, but of no small prime
        whole = round(number ** (1 / n))
        if whole**n == number:
            return outside * whole, inside
        if number >= 2000**3:
            raise Unreadable("too large a radicand")
    return outside, inside * number


def _count(operation: str, values: list[Exact]) -> Exact:
    """n!, binomials and remainders of small whole numbers; n over 2 is also a polynomial."""
    numbers = [_rational(value) for value in values]
    if operation == "binom" and numbers[0] is None and numbers[1] in (1, 2, 3):
        steps = [
            _divide(_add(values[0], _constant(-i)), _constant(i + 1))
            for i in range(int(numbers[1]))
        ]
        return functools.reduce(_multiply, steps)
    if any(n is None or n.denominator != 1 or not 0 <= n <= MAX_FACTORIAL for n in numbers):
        raise Unreadable("too large, or not a whole number")
    return _constant(
        {"!": math.factorial, "binom": math.comb, "mod": operator.mod}[operation](
            *map(int, numbers)
        )
    )


def _logarithm(value: Exact) -> Exact:
    """The logarithm of a fraction is a sum of logarithms of primes, each a letter."""
    number = _rational(value)
    if value == _E:
        return _ONE, _ONE
    if number is None or number <= 0 or max(number.numerator, number.denominator) > 10**6:
        return _named("ln", [value])
    total: Polynomial = {}
    for side, sign in ((number.numerator, 1), (number.denominator, -1)):
        divisor = 2
        while side > 1:
            divisor = divisor if divisor * divisor <= side else side
            while side % divisor == 0:
                term = (1, ((f"ln {divisor}", 1),))
                total[term], side = total.get(term, Fraction(0)) + sign, side // divisor
            divisor += 1
    return {term: coefficient for term, coefficient in total.items() if coefficient}, _ONE


# Each as a quotient of a sine and a cosine.
_RATIOS = {
    "sin": ("sin", ""), "cos": ("cos", ""), "tan": ("sin", "cos"),
    "sec": ("", "cos"), "csc": ("", "sin"), "cot": ("cos", "sin"),
}  # fmt: skip
_HALF = Fraction(1, 2)
# sin(k pi / 12) for the k that everybody knows, as (radicand, coefficient).
_SINES = {0: (1, Fraction(0)), 2: (1, _HALF), 3: (2, _HALF), 4: (3, _HALF), 6: (1, Fraction(1))}


def _wave(name: str, value: Exact) -> Exact:
    """A sine or cosine: exact for the angles that everybody knows, else a letter."""
    numerator, denominator = value
    if denominator != _ONE or any(term != (1, (("pi", 1),)) for term in numerator):
        return _named(name, [value])
    twelfths = 12 * sum(numerator.values(), Fraction(0)) + (6 if name == "cos" else 0)
    place = twelfths % 12 if twelfths % 12 <= 6 else 12 - twelfths % 12
    if place not in _SINES:
        return _named(name, [value])
    radicand, size = _SINES[place]
    return ({(radicand, ()): size if twelfths % 24 < 12 else -size} if size else {}), _ONE


def _without_cosines(polynomial: Polynomial) -> Polynomial:
    """The same value with no square of a cosine in it: it is one less the square of the sine."""
    for (root, names), coefficient in polynomial.items():
        for name, exponent in names:
            if name.startswith("?cos:") and exponent >= 2:
                fewer = tuple(
                    (n, e - 2 if n == name else e) for n, e in names if (n, e) != (name, 2)
                )
                square = {(1, ()): Fraction(1), (1, (("?sin:" + name[5:], 2),)): Fraction(-1)}
                others = {term: c for term, c in polynomial.items() if term != (root, names)}
                return _without_cosines(_plus(others, _times({(root, fewer): coefficient}, square)))
    return polynomial


def _named(operation: str, values: list[Exact]) -> Exact:
    """A letter for what has no exact form: equal names are equal values, different names say nothing."""
    if operation == "abs" and _rational(values[0]) is not None:
        return _constant(abs(_rational(values[0])))
    for polynomial in itertools.chain.from_iterable(values):
        if (
            sum(c.numerator.bit_length() + c.denominator.bit_length() for c in polynomial.values())
            > MAX_NAME_BITS
        ):
            raise Unreadable(
                "too long a name"
            )  # and Python prints no integer of more than 4300 digits
    name = f"?{operation}:{[[sorted(side.items()) for side in value] for value in values]}"
    if len(name) > 4000:
        raise Unreadable("too long a name")
    return {(1, ((name, 1),)): Fraction(1)}, _ONE


_BINARY = {"+": _add, "*": _multiply, "/": _divide, "^": _power}


def letters(value: Exact) -> set[str]:
    """The letters of an exact value, pi and e among them."""
    return {name for side in value for _, names in side for name, _ in names}


def same_value(left: Tree, right: Tree) -> bool | None:
    """Whether two trees have the same value; None where this module cannot tell."""
    try:
        a, b = exact(left), exact(right)
        difference = _plus(_times(a[0], b[1]), _times(_times(b[0], a[1]), {(1, ()): Fraction(-1)}))
        if not difference or not _without_cosines(difference):
            return True
        if not any(name.startswith("?") for name in letters(a) | letters(b)):
            return False
    except Malformed:
        return False
    except (Unreadable, OverflowError, RecursionError):
        pass
    if _is_series(left) and _is_series(
        right
    ):  # nobody proves two of them equal in the time there is
        return False
    return False if clearly_different(left, right) else None


def _is_series(tree: Tree) -> bool:
    return tree[0] in ("sum", "prod") or any(
        _is_series(part) for part in tree[1:] if isinstance(part, tuple)
    )
