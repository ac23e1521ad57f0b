"""The exact value of a LaTeX expression, without sympy: what decides most answers in microseconds.

    from rewards.latex_values import parse, same_value
    same_value(parse(r"\\frac{x^2-1}{x-1}"), parse("x+1"))     # True

An expression is held as a quotient of polynomials over the rationals, with square roots of integers, logarithms of
primes, pi, e, i and the letters as its variables, so that two of them are equal exactly when their cross products are.
What has no such form (sines, roots of sums) is compared in floating point at three points: a clear difference
decides, and of what looks equal this module says that it cannot tell.

Nothing is evaluated as code; a number has at most `MAX_BITS` bits and a polynomial `MAX_TERMS` terms.
"""

import cmath
import math
import re
import zlib
from collections.abc import Callable
from fractions import Fraction

MAX_BITS = 40_000
MAX_TERMS = 200
MAX_DEPTH = 30
MAX_TOKENS = 400
MAX_FACTORIAL = 3000


class Unreadable(ValueError):
    """Not an expression that this module can value; others may."""


class Malformed(Unreadable):
    """Not one expression in anybody's reading, such as `1 8 9`."""


# --------------------------------------------------------------------------- expressions: from text to a tree

_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?(?!\d)|\.\d+|\d+\.(?!\d)|\\[A-Za-z]+|\\[|{}]|[A-Za-z]|[-+*/^_!(){}\[\]|'=])\s*", re.ASCII
)
_FUNCTIONS = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sec": lambda x: 1 / cmath.cos(x),
    "csc": lambda x: 1 / cmath.sin(x), "cot": lambda x: 1 / cmath.tan(x), "arcsin": cmath.asin,
    "arccos": cmath.acos, "arctan": cmath.atan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "ln": cmath.log, "exp": cmath.exp, "abs": abs,
}  # fmt: skip
_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "kappa", "lambda",
    "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta",
    "Lambda", "Xi", "Sigma", "Phi", "Psi", "Omega", "ell",
}  # fmt: skip

Tree = tuple  # ("number", Fraction), ("letter", name), or (operation, tree, ...)


def parse(text: str) -> Tree:
    r"""The tree of one expression, as tuples; `text` is tidy.

    Raises:
        Unreadable: this is no expression, or not one that is understood here.

    Example: `parse("2x") == ("*", ("number", Fraction(2)), ("letter", "x"))`
    """
    parser = _Parser(text)
    tree = parser.sum()
    if parser.next is not None:
        raise Unreadable(text)
    return tree


class _Parser:
    """Recursive descent; a class because all of its functions share the place they have come to."""

    def __init__(self, text: str):
        self.tokens, end = [], 0
        for match in _TOKEN.finditer(text):
            if match.start() != end:
                break
            self.tokens.append(match[1])
            end = match.end()
        if end != len(text) or not self.tokens:
            raise Unreadable(text)
        if len(self.tokens) > MAX_TOKENS:
            raise Malformed("too long")
        self.tokens.reverse()
        self.depth = 0

    @property
    def next(self) -> str | None:
        return self.tokens[-1] if self.tokens else None

    def take(self, token: str | None = None) -> str:
        if not self.tokens or token not in (None, self.tokens[-1]):
            raise Unreadable(token)
        return self.tokens.pop()

    def sum(self) -> Tree:
        tree = self.product()
        while self.next in ("+", "-"):
            sign, right = self.take(), self.product()
            tree = ("+", tree, right if sign == "+" else ("*", rational(-1), right))
        return tree

    def product(self) -> Tree:
        tree, divided = self.signed(), False
        while self.next is not None:
            if self.next == "*":
                self.take()
                tree, divided = ("*", tree, self.signed()), False
            elif self.next == "/":
                self.take()
                tree, divided = ("/", tree, self.signed()), True
            elif self.starts_factor():
                if divided:  # 1/2x: a half of x, or one over 2x?
                    raise Malformed("two numbers") if self.next[0].isdigit() else Unreadable("ambiguous quotient")
                tree = self.adjacent(tree)
            else:
                break
        return tree

    def starts_factor(self) -> bool:
        return self.next not in ("+", "-", "*", "/", ")", "}", "]", "|", "^", "_", "!", r"\}", r"\|", "'", None)

    def adjacent(self, left: Tree) -> Tree:
        r"""`2x` is a product, `2\frac{1}{3}` a mixed number, and two numbers side by side are nothing."""
        if self.next[0].isdigit() or self.next[0] == ".":
            raise Malformed("a number after a factor")
        is_fraction = self.next == r"\frac"
        right = self.power()
        if is_fraction and left[0] == "number" and right[0] == "/" and right[1][0] == right[2][0] == "number":
            return _mixed(left, right)
        return ("*", left, right)

    def signed(self) -> Tree:
        minus = False
        while self.next in ("+", "-"):
            minus ^= self.take() == "-"
        tree = self.power()
        if tree[0] == "number" and self.next == r"\frac":  # -1\frac{1}{2} is minus one and a half
            tree = self.adjacent(tree)
        return ("*", rational(-1), tree) if minus else tree

    def power(self) -> Tree:
        tree = self.atom()
        while self.next in ("^", "!", r"\degree"):
            token = self.take()
            if token == "^":
                tree = ("^", tree, self.exponent())
            elif token == "!":
                tree = ("!", tree)
            else:
                tree = ("*", tree, ("/", ("letter", "pi"), rational(180)))
        return tree

    def exponent(self) -> Tree:
        """In `2^10` everybody means the whole number, whatever LaTeX prints; `2^3^2` is 2^9."""
        tree = self.signed_atom()
        if self.next == "^":
            self.take()
            tree = ("^", tree, self.exponent())
        return tree

    def signed_atom(self) -> Tree:
        if self.next == "-":
            self.take()
            return ("*", rational(-1), self.atom())
        return self.atom()

    def atom(self) -> Tree:
        self.depth += 1  # everything that nests comes by here
        if self.depth > MAX_DEPTH:
            raise Malformed("nested too deeply")
        tree = self.bare_atom()
        self.depth -= 1
        return tree

    def bare_atom(self) -> Tree:
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return rational(token)
        if token in ("(", "{", "[", "|"):
            tree = self.sum()
            self.take({"(": ")", "{": "}", "[": "]", "|": "|"}[token])
            return ("abs", tree) if token == "|" else tree
        if token.isalpha():
            return self.letter(token)
        return self.command(token[1:])

    def letter(self, name: str) -> Tree:
        if self.next == "_":
            self.take()
            name += "_" + self.word()
        if self.next == "'":
            raise Unreadable("a prime")
        return ("letter", name)

    def word(self) -> str:
        """The text of a group or of a single token: a subscript, or a letter in upright type."""
        if self.next != "{":
            return self.take()
        self.take()
        word = ""
        while self.next != "}":
            word += self.word() if self.next == "{" else self.take()
        self.take()
        return word

    def command(self, name: str) -> Tree:
        if name == "frac":
            return ("/", *self.two_arguments())
        if name in ("binom", "dbinom", "tbinom"):
            return ("binom", *self.two_arguments())
        if name == "sqrt":
            return self.root()
        if name == "text":
            return self.upright()
        if name == "log" or name in _FUNCTIONS:
            return self.function(name)
        if name in ("sum", "prod"):
            return self.series(name)
        if name == "pi":
            return ("letter", "pi")
        if name in _GREEK:
            return self.letter(name)
        raise Unreadable(name)

    def upright(self) -> Tree:
        word = self.word()
        if len(word) != 1 or not word.isalpha():
            raise Unreadable(word)
        return ("letter", word)

    def two_arguments(self) -> tuple[Tree, Tree]:
        r"""`{1}{2}`, `12`, `1{2}`, `{1}2`; what three digits after `\frac` mean nobody knows."""
        if self.next and re.fullmatch(r"\d\d", self.next):
            first, second = self.take()
            return rational(first), rational(second)
        return self.argument(), self.argument()

    def argument(self) -> Tree:
        if self.next and self.next[0].isdigit() and len(self.next) > 1:
            raise Unreadable("digits without braces")
        return self.atom()

    def root(self) -> Tree:
        degree = rational(2)
        if self.next == "[":
            self.take()
            degree = self.sum()
            self.take("]")
        return ("root", degree, self.argument())

    def series(self, name: str) -> Tree:
        """Its limits are kept as they are written: two series are the same, or it is for others to say."""
        limits = {}
        while self.next in ("_", "^"):
            place = self.take()
            limits[place] = self.word()
        return (name, ("letter", f"{limits.get('_')}..{limits.get('^')}"), self.product())

    def function(self, name: str) -> Tree:
        base = power = None
        while self.next in ("_", "^"):
            if self.take() == "_":
                base = self.argument()
            else:
                power = self.exponent()
        if power is not None and power != rational(2):
            raise Unreadable("an inverse or a power: nobody knows")
        tree = self.function_argument()
        if name == "log" or base is not None:
            if base is None or name not in ("log", "ln"):  # base 10, base e: it depends on the author
                raise Unreadable("a logarithm without its base")
            tree = ("/", ("ln", tree), ("ln", base))
        else:
            tree = (name, tree)
        return tree if power is None else ("^", tree, power)

    def function_argument(self) -> Tree:
        if self.next in ("(", "{"):
            tree = self.atom()
            if self.next in ("^", "!"):
                raise Unreadable("a power of the argument, or of the function?")
            return tree
        tree = self.power()
        while self.starts_factor() and self.next[1:] not in (*_FUNCTIONS, "log") and self.next != "(":
            tree = self.adjacent(tree)
        return tree


def rational(text: str | int) -> Tree:
    return ("number", Fraction(text))


def _mixed(whole: Tree, fraction: Tree) -> Tree:
    r"""`2\frac{1}{3}`; an improper fraction after a whole number is nothing that anybody means."""
    numerator, denominator = fraction[1][1], fraction[2][1]
    if whole[1].denominator != 1 or not 0 <= numerator < denominator:
        raise Malformed("no mixed number")
    return ("+", whole, fraction)


# --------------------------------------------------------------------------- exact values

# A polynomial: {(radicand, ((letter, exponent), ...)): coefficient}; an exact value: (numerator, denominator).
Polynomial = dict[tuple[int, tuple], Fraction]
Exact = tuple[Polynomial, Polynomial]
_ONE: Polynomial = {(1, ()): Fraction(1)}


def exact(tree: Tree) -> Exact:
    """The value of a tree as a quotient of polynomials.

    Roots and functions that have no rational form become letters of their own, named by what they are of.

    Raises:
        Unreadable: too large to hold, a division by zero, or a power that cannot be named.
    """
    operation, *parts = tree
    if operation == "number":
        return {(1, ()): parts[0]} if parts[0] else {}, _ONE
    if operation == "letter":
        return {(1, ((parts[0], 1),)): Fraction(1)}, _ONE
    values = [exact(part) for part in parts]
    if operation == "+":
        return _add(*values)
    if operation == "*":
        return _quotient(_times(values[0][0], values[1][0]), _times(values[0][1], values[1][1]))
    if operation == "/":
        return _divide(*values)
    if operation == "^":
        return _power(*values)
    if operation == "root":
        return _root(values[1], values[0])
    if operation in ("!", "binom"):
        return _count(operation, values)
    if operation == "ln":
        return _logarithm(values[0])
    if operation in _RATIOS:
        return _divide(*(_wave(name, values[0]) if name else (_ONE, _ONE) for name in _RATIOS[operation]))
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
    return _quotient(_plus(_times(left[0], right[1]), _times(right[0], left[1])), _times(left[1], right[1]))


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
    if power is None or power.denominator > 24:
        return _named("^", [base, exponent])
    if power.denominator != 1:
        return _power(_root(base, ({(1, ()): Fraction(power.denominator)}, _ONE)), _constant(power.numerator))
    times = abs(power.numerator)
    if number is not None:
        return _constant(_rational_power(number, power.numerator))
    if times > (64 if len(base[0]) * len(base[1]) > 1 else 10_000):
        raise Unreadable("too high a power")
    return _repeated(_divide((_ONE, _ONE), base) if power < 0 else base, times)


def _repeated(value: Exact, times: int) -> Exact:
    result: Exact = (_ONE, _ONE)
    while times:
        if times & 1:
            result = _quotient(_times(result[0], value[0]), _times(result[1], value[1]))
        times >>= 1
        if times:
            value = (_times(value[0], value[0]), _times(value[1], value[1]))
    return result


def _constant(value: Fraction | int) -> Exact:
    return ({(1, ()): Fraction(value)} if value else {}), _ONE


def _rational_power(number: Fraction, times: int) -> Fraction:
    if number == 0 and times <= 0:
        raise Malformed("zero to no power")
    if max(number.numerator.bit_length(), number.denominator.bit_length()) * abs(times) > MAX_BITS and abs(number) != 1:
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
    outside, inside = _take_powers(abs(number.numerator) * number.denominator ** (int(n) - 1), int(n))
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
    """n! and binomials of small whole numbers."""
    numbers = [_rational(value) for value in values]
    if any(n is None or n.denominator != 1 or not 0 <= n <= MAX_FACTORIAL for n in numbers):
        raise Unreadable("too large, or no whole number")
    counted = math.factorial(int(numbers[0])) if operation == "!" else math.comb(*map(int, numbers))
    return _constant(counted)


def _logarithm(value: Exact) -> Exact:
    """The logarithm of a fraction is a sum of logarithms of primes, each a letter."""
    number = _rational(value)
    if value == ({(1, (("e", 1),)): Fraction(1)}, _ONE):
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
                rest = {
                    (root, tuple((n, e - 2 if n == name else e) for n, e in names if (n, e) != (name, 2))): coefficient
                }
                square = {(1, ()): Fraction(1), (1, (("?sin:" + name[5:], 2),)): Fraction(-1)}
                others = {term: c for term, c in polynomial.items() if term != (root, names)}
                return _without_cosines(_plus(others, _times(rest, square)))
    return polynomial


def _named(operation: str, values: list[Exact]) -> Exact:
    """A letter for what has no exact form: equal names are equal values, different names say nothing."""
    if operation == "abs" and _rational(values[0]) is not None:
        return _constant(abs(_rational(values[0])))
    name = f"?{operation}:{[[sorted(side.items()) for side in value] for value in values]}"
    if len(name) > 4000:
        raise Unreadable("too long a name")
    return {(1, ((name, 1),)): Fraction(1)}, _ONE


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
    if _is_series(left) and _is_series(right):  # nobody proves two of them equal in the time there is
        return False
    return False if _clearly_different(left, right) else None


def _is_series(tree: Tree) -> bool:
    return tree[0] in ("sum", "prod") or any(_is_series(part) for part in tree[1:] if isinstance(part, tuple))


# --------------------------------------------------------------------------- approximate values


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
    return _FUNCTIONS[operation](values[0])


def _real_root(value: complex, degree: complex) -> complex:
    odd = degree.imag == 0 and degree.real % 2 == 1
    if odd and complex(value).imag == 0 and value.real < 0:
        return -((-value.real) ** (1 / degree.real))
    return complex(value) ** (1 / degree)


def _point(seed: int) -> Callable[[str], complex]:
    known = {"pi": math.pi, "e": math.e, "i": 1j}
    return lambda name: known[name] if name in known else 0.3 + zlib.crc32(f"{seed}{name}".encode()) % 10_007 / 9000


def _clearly_different(left: Tree, right: Tree) -> bool:
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
