"""From the tidy text of an expression to its tree. Nothing is evaluated."""

import re
from fractions import Fraction

MAX_DEPTH = 30
MAX_TOKENS = 400


class Unreadable(ValueError):
    """Not an expression that this module can value; others may."""


class Malformed(Unreadable):
    """Not one expression in anybody's reading, such as `1 8 9`."""


_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?(?!\d)|\.\d+|\d+\.(?!\d)|\\[A-Za-z]+|\\[|{}]|[A-Za-z]|[-+*/^_!(){}\[\]|'=])\s*",
    re.ASCII,
)
FUNCTIONS = {
    "sin", "cos", "tan", "sec", "csc", "cot", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "ln", "exp",
}  # fmt: skip
_ROUNDED = {"lfloor": ("floor", r"\rfloor"), "lceil": ("ceil", r"\rceil")}
_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "kappa", "lambda",
    "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta",
    "Lambda", "Xi", "Sigma", "Phi", "Psi", "Omega", "ell",
}  # fmt: skip
_NO_FACTOR = {*"+-*/)}]|^_!'", r"\}", r"\|", r"\bmod", r"\rfloor", r"\rceil", None}
Tree = tuple  # ("number", Fraction), ("letter", name), or (operation, tree, ...)


def parse(text: str) -> Tree:
    r"""The tree of one expression, as tuples; `text` is tidy.

    Raises:
        Unreadable: this is not an expression, or not one that is understood here.

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
            elif self.next == r"\bmod":
                self.take()
                tree, divided = ("mod", tree, self.signed()), False
            elif self.starts_factor():
                if divided:  # 1/2x: a half of x, or one over 2x?
                    raise (
                        Malformed("two numbers")
                        if self.next[0].isdigit()
                        else Unreadable("ambiguous quotient")
                    )
                tree = self.adjacent(tree)
            else:
                break
        return tree

    def starts_factor(self) -> bool:
        return self.next not in _NO_FACTOR

    def adjacent(self, left: Tree) -> Tree:
        r"""`2x` and `2^6 3^5` are products, `2\frac{1}{3}` a mixed number, two numbers side by side are nothing."""
        if (self.next[0].isdigit() or self.next[0] == ".") and not _ends_in_power(left):
            raise Malformed("a number after a factor")
        is_fraction = self.next == r"\frac"
        right = self.power()
        if (
            is_fraction
            and left[0] == "number"
            and right[0] == "/"
            and right[1][0] == right[2][0] == "number"
        ):
            return _mixed(left, right)
        return ("*", left, right)

    def signed(self) -> Tree:
        minus = self.next in ("+", "-") and self.take() == "-"
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
        minus = self.next == "-" and self.take()
        tree = ("*", rational(-1), self.atom()) if minus else self.atom()
        if self.next == "^":
            self.take()
            tree = ("^", tree, self.exponent())
        return tree

    def atom(self) -> Tree:
        self.depth += 1  # everything that nests comes by here
        if self.depth > MAX_DEPTH:
            raise Malformed("nested too deeply")
        tree = self.atom_of(self.take())
        self.depth -= 1
        return tree

    def atom_of(self, token: str) -> Tree:
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
            degree = rational(2)
            if self.next == "[":
                self.take()
                degree = self.sum()
                self.take("]")
            return ("root", degree, self.argument())
        if name == "text":  # a letter in upright type
            word = self.word()
            if len(word) == 1 and word.isalpha():
                return ("letter", word)
        if name == "log" or name in FUNCTIONS:
            return self.function(name)
        if name in ("sum", "prod"):
            return self.series(name)
        if name in _ROUNDED:
            operation, end = _ROUNDED[name]
            tree = self.sum()
            self.take(end)
            return (operation, tree)
        if name == "pi":
            return ("letter", "pi")
        if name in _GREEK:
            return self.letter(name)
        raise Unreadable(name)

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
        if power == ("*", rational(-1), rational(1)) and name in ("sin", "cos", "tan"):
            name, power = f"arc{name}", None
        if power is not None and (power[0] != "number" or power[1] < 1):
            raise Unreadable("an inverse or a power: nobody knows")
        tree = self.function_argument()
        if base is not None and name not in ("log", "ln"):
            raise Unreadable("a function with a base")
        if name == "log" and base is None:  # of 10 or of e: it depends on the author
            base = ("letter", "log")
        tree = (name, tree) if base is None else ("/", ("ln", tree), ("ln", base))
        return tree if power is None else ("^", tree, power)

    def function_argument(self) -> Tree:
        if self.next in ("(", "{"):
            tree = self.atom()
            if self.next in ("^", "!"):
                raise Unreadable("a power of the argument, or of the function?")
            return tree
        tree = self.power()
        while (
            self.starts_factor() and self.next[1:] not in (*FUNCTIONS, "log") and self.next != "("
        ):
            tree = self.adjacent(tree)
        return tree


def _ends_in_power(tree: Tree) -> bool:
    """Whether the last factor is a power of a number: a number behind it cannot belong to it."""
    last = tree[2] if tree[0] == "*" else tree
    return last[0] == "^" and last[1][0] == "number"


def rational(text: str | int | Fraction) -> Tree:
    return ("number", Fraction(text))


def _mixed(whole: Tree, fraction: Tree) -> Tree:
    r"""`2\frac{1}{3}`; an improper fraction after a whole number is nothing that anybody means."""
    numerator, denominator = fraction[1][1], fraction[2][1]
    if whole[1].denominator != 1 or not 0 <= numerator < denominator:
        raise Malformed("no mixed number")
    if denominator.denominator != 1 or numerator.denominator != 1:
        raise Malformed("no mixed number")
    return ("number", whole[1] + numerator / denominator)
