"""From the tidy text of an expression to its tree. Nothing is evaluated."""

import re
from fractions import Fraction

MAX_DEPTH = 30
MAX_TOKENS = 400
Tree = tuple  # ("number", Fraction), ("letter", name), or (operation, tree, ...)


class Unreadable(ValueError):
    """Not an expression that is understood here."""


class Malformed(Unreadable):
    """Not one expression in anybody's reading, such as `1 8 9`."""


_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?(?!\d)|\.\d+|\d+\.(?!\d)"  # a number
    r"|\\[A-Za-z]+|\\[|{}]"  # a command
    r"|[A-Za-z]|[-+*/^_!(){}\[\]|'=])\s*",
    re.ASCII,
)
_FUNCTIONS = set("sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh ln exp log".split())
_LETTERS = set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma tau "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell pi".split()
)
_CLOSING = {"(": ")", "{": "}", "[": "]", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_OF_BRACKETS = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}
_NO_FACTOR = {*"+-*/)}]|^_!'", r"\}", r"\|", r"\bmod", r"\rfloor", r"\rceil", None}
_PRODUCTS = {"*": "*", "/": "/", r"\bmod": "mod"}


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


def rational(value: str | int | Fraction) -> Tree:
    return ("number", Fraction(value))


def minus(tree: Tree) -> Tree:
    return ("*", rational(-1), tree)


class _Parser:
    """Recursive descent; a class because its functions share the place they have come to."""

    def __init__(self, text: str):
        self.tokens, end = [], 0
        while match := _TOKEN.match(text, end):
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
            is_plus = self.take() == "+"
            right = self.product()
            tree = ("+", tree, right if is_plus else minus(right))
        return tree

    def product(self) -> Tree:
        tree, sign = self.signed(), "*"
        while self.next not in _NO_FACTOR or self.next in _PRODUCTS:
            if self.next in _PRODUCTS:
                sign = self.take()
                tree = (_PRODUCTS[sign], tree, self.signed())
            elif sign != "/":
                tree = self.adjacent(tree)
            elif self.next[0].isdigit():
                raise Malformed("two numbers")
            else:  # 1/2x: a half of x, or one over 2x?
                raise Unreadable("ambiguous quotient")
        return tree

    def adjacent(self, left: Tree) -> Tree:
        r"""`2x` and `2^6 3^5` are products, `2\frac{1}{3}` a mixed number, `1 8` is nothing."""
        last = left[2] if left[0] == "*" else left
        ends_in_power = last[0] == "^" and last[1][0] == "number"
        if re.match(r"[.\d]", self.next) and not ends_in_power:
            raise Malformed("a number after a factor")
        is_fraction = self.next == r"\frac"
        right = self.power()
        if is_fraction and left[0] == right[1][0] == right[2][0] == "number":
            whole, over, under = left[1], right[1][1], right[2][1]
            are_whole = whole.denominator == over.denominator == under.denominator == 1
            if not are_whole or not 0 <= over < under:  # nothing that anybody means
                raise Malformed("no mixed number")
            return rational(whole + over / under)
        return ("*", left, right)

    def signed(self) -> Tree:
        is_minus = self.next in ("+", "-") and self.take() == "-"
        tree = self.power()
        if tree[0] == "number" and self.next == r"\frac":  # -1\frac{1}{2} is minus one and a half
            tree = self.adjacent(tree)
        return minus(tree) if is_minus else tree

    def power(self) -> Tree:
        tree = self.atom()
        while self.next in ("^", "!", r"\degree"):
            token = self.take()
            if token == r"\degree":
                tree = ("*", tree, ("/", ("letter", "pi"), rational(180)))
            else:
                tree = ("^", tree, self.exponent()) if token == "^" else ("!", tree)
        return tree

    def exponent(self) -> Tree:
        """In `2^10` everybody means the whole number, whatever LaTeX prints; `2^3^2` is 2^9."""
        is_minus = self.next == "-" and self.take()
        tree = minus(self.atom()) if is_minus else self.atom()
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
        if re.match(r"[.\d]", token):
            return rational(token)
        if token in _CLOSING:
            tree = self.sum()
            self.take(_CLOSING[token])
            return (_OF_BRACKETS[token], tree) if token in _OF_BRACKETS else tree
        name = token.removeprefix("\\")
        if token.isalpha() or name in _LETTERS:
            return self.letter(name)
        if name in ("frac", "binom"):
            return ("/" if name == "frac" else name, self.argument(), self.argument())
        if name == "sqrt":
            degree = self.atom() if self.next == "[" else rational(2)
            return ("root", degree, self.argument())
        if name in _FUNCTIONS:
            return self.function(name)
        raise Unreadable(token)

    def letter(self, name: str) -> Tree:
        """A letter with its subscript: the text of one token or of a group."""
        if self.next == "_":
            name += self.take()
            if self.next == "{":
                self.take()
                while self.next != "}":
                    name += self.take()
                self.take()
            else:
                name += self.take()
        if self.next == "'":
            raise Unreadable("a prime")
        return ("letter", name)

    def argument(self) -> Tree:
        if self.next and self.next.isdigit() and len(self.next) > 1:
            raise Unreadable("digits without braces")
        return self.atom()

    def function(self, name: str) -> Tree:
        base = power = None
        while self.next in ("_", "^"):
            if self.take() == "_":
                base = self.argument()
            else:
                power = self.exponent()
        if power == minus(rational(1)) and name in ("sin", "cos", "tan"):
            name, power = f"arc{name}", None
        if power is not None and (power[0] != "number" or power[1] < 1):
            raise Unreadable("an inverse or a power: nobody knows")
        if base is not None and name not in ("log", "ln"):
            raise Unreadable("a function with a base")
        tree = self.function_argument()
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
        while self.next not in _NO_FACTOR and self.next != "(" and self.next[1:] not in _FUNCTIONS:
            tree = self.adjacent(tree)
        return tree
