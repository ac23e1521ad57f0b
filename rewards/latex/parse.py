"""Rewrites a text in one spelling (`tidy`) and parses it to a tree (`parse`), not evaluated."""

import re
from fractions import Fraction

MAX_DEPTH = 30
MAX_TOKENS = 400
Tree = tuple  # ("number", Fraction), ("letter", name), or (operation, tree, ...)


class Unreadable(ValueError):
    """The text is not an expression that this parser understands."""


_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi "
    "omega Gamma Delta Theta Lambda Sigma Phi Psi Omega"
).split()
_SIGNS = str.maketrans(
    "−–\uff0d\u2010\u2011⁄\u00a0\u2009\u202f（）［］，、；：＝＜＞％＋。∙⋅′",
    "-----/   ()[],,;:=<>%+.**'",
) | str.maketrans({
    **{one: rf"\{name} " for name, one in zip(_GREEK, "αβγδεζηθκλμνξρστφχψωΓΔΘΛΣΦΨΩ", strict=True)},
    "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "或": " or ", "和": " and ",
    "°": r"^\circ ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∪": r"\cup ", "∈": r"\in ", "≈": r"\approx ", "∅": r"\emptyset ", "⅔": r"\frac{2}{3}",
    "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}",
})  # fmt: skip
_RAISED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ", "+-0123456789n")
_SPELLINGS = {
    "*": "cdot times ast", "/": "div", "=": "equiv", "(": "langle", ")": "rangle",
    r"\{": "lbrace", r"\}": "rbrace", "<": "lt", ">": "gt", "|": "vert lvert rvert", ":": "colon",
    r"\le ": "le leq leqslant", r"\ge ": "ge geq geqslant", r"\ne ": "ne neq", " ": "quad qquad",
    r"\cup": "bigcup", r"\tan": "tg", r"\cot": "ctg", r"\arctan": "arctg", r"\log_{10}": "lg",
    r"\emptyset": "varnothing", "...": "dots ldots cdots", r"\binom": "dbinom tbinom",
    r"\setminus": "backslash", r"\mathbb": "Bbb", r"\\": "newline cr",
    r"\frac": "dfrac tfrac cfrac nicefrac sfrac", " and ": "land wedge", " or ": "lor vee",
}  # fmt: skip
_OPERATORS = {"**": "^", "<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", r"\not=": r"\ne "}
_COMMANDS = {name: sign for sign, names in _SPELLINGS.items() for name in names.split()}
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
NUMBER_WORDS = {word: i for i, word in enumerate(_ONES)}
for _i, _ten in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2):
    NUMBER_WORDS[_ten] = 10 * _i
    NUMBER_WORDS |= {f"{_ten}-{_ONES[j]}": 10 * _i + j for j in range(10)}
_REWRITES = [  # rewrites to one spelling, applied in this order
    # Raised digits of keyboards: x², 10⁻⁸.
    (r"[⁺⁻⁰¹²³⁴-⁹ⁿ]+", lambda raised: f"^{{{raised[0].translate(_RAISED)}}} "),
    # Size, space, colour and font do not change the value.
    (r"\\(?:left|right|middle|[bB]igg?[lr]?|displaystyle|textstyle|limits|[lL]arge|LARGE|huge|Huge"
     r"|small|bf|rm|it)(?![A-Za-z])\s?", ""),
    (r"\\(?:hspace|[hv]?phantom)\*?\s*\{[^{}]*\}|(?<=\\\\)\[[-\d.]+\s*[a-z]{2}\]", " "),
    (r"\A(\\text[a-z]*\{\s*)?(?:[Oo]ption|[Cc]hoice)\s+(?=\(?[A-J]\b)", r"\1"),
    (r"\\(?:mbox|operatorname|text(?:bf|it|rm|normal)?|math(?:rm|bf|it|sf)|boldsymbol|bm)\*?\s*\{",
     r"\\text{"),
    (r"\\text\{ ?((?:arc)?(?:sin|cos|tan|c?tg)h?|cot|ln|log|lg|exp) ?\}(?=\s*[\w\\({^])", r"\\\1 "),
    (r"\\text\{([A-Za-z /]+)\^\s*\{?(\d)\}?\s*\}", r"\\text{\1}^\2 "),
    (r"\\dot\s*\{?([0-9])\}?([0-9]{0,7})\\dot\s*\{?([0-9])\}?", r"\\overline{\1\2\3}"),
    (r"\\text\{\s*\\?([$%])\s*\}", r"\\\1"),
    # A formula that stands in \text as a whole: \text{x = 3}, \text{\$3.50}, \text{-2 and 3}.
    (r"\A\\text\{(?=[^{}]*(?:[=<>,([$%]|\b(?:and|or)\b))"
     r"((?:and|or|\\?[^A-Za-z{}\\]|\\[{}]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))*)\}\Z", r"\1"),
    (r"\{([^{}\\]*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
    (r"\{([^{}\\]*)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"(\.[0-9]{0,9})\\(?:overline|bar|dot)\s*(?:\{([0-9]{1,9})\}|([0-9]))", r"\1\\overline{\2\3}"),
    (r"\\text(?=\{[^{}A-Za-z]*(?:\\[A-Za-z]|\^))", ""),
    (r"\\(?:text)?color\s*\{[^{}]*\}|\\underline(?=\s*\{)", ""),
    # Words for numbers, and numbers among words.
    (rf"\\text\{{\s*({'|'.join(NUMBER_WORDS)})\s*\}}", lambda word: str(NUMBER_WORDS[word[1]])),
    (r"(?<=\d)\s*(?:\\text\{\s*out of\s*\}|out of)\s*(?=\d)", "/"),
    (r"(?<![A-Za-z\\])(?:[Nn]egative|[Mm]inus)\s(?=[\d.\\])", "-"),
    (r"\\text\{\s*((?:\\?\$)?[-+]?[\d.,/]*\d)\s*\}", r"\1"),
    (r"\\text\{\s*([-+]?[\d.,/]*\d)\s+([A-Za-z][A-Za-z ]*)\}", r"\1 \\text{\2}"),
    # Several choices: `A, B, D` and `(A)(B)(D)` as ABD.
    (r"\A(?!.*\\\{|(?:.*[^A-Z])?II)(?=.*[A-J].*[A-J])(?:\\text\{\s*)?(?:(?:\(?[A-J]\)?|,|and|\\[{}]|\\text\{\s*,?\s*and\s*\})"
     r"\s*)*\}?\Z", lambda choices: "".join(re.findall("[A-J]", choices[0]))),
    # Spellings of keyboards: √16, infinity, and U between two intervals.
    (r"([√∛])\s*(\d+(?:\.\d+)?|[A-Za-z]|(?=[({]))",
     lambda root: rf"\sqrt{'' if root[1] == '√' else '[3]'}" + (root[2] and f"{{{root[2]}}}")),
    (r"\\text\{\s*(-?)(?:infinity|inf)\s*\}|(?<![A-Za-z\\])(?:infinity|infty|inf)(?![A-Za-z])",
     r"\1\\infty "),
    (r"(?<=[\])}])\s*U\s*(?=[\[({\\])", r" \\cup "),
    # Spellings of programs, such as sqrt(3) and pi, but not inside a word.
    (r"\\text\{[^{}]*\}|(?<![A-Za-z\\])(?:sqrt(?=\s*[({\d])|pi(?![A-Za-z])"
     r"|(?:(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|exp)(?=\s*[(^]))",
     lambda call: call[0] if call[0][0] == "\\" else f"\\{call[0]} "),
    (r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?|\.\d+)[eE]([-+]?\d{1,4})(?![\w.])", r"\1*10^{\2}"),
    (r"\*\*|<=|>=|!=|\\not=", lambda match: _OPERATORS[match[0]]),
    # Thousands (not behind a single 0), a decimal comma, and white space.
    (r"(?<=\d)(?<!(?<![\d.])0)(?:\s*\{\s*,\s*\}\s*|\s?,\s?\\!\s*|\\[,!;:]\s?)(?=\d{3}(?!\d))", ""),
    (r"(?<=\d)\s*\{\s*,\s*\}\s*(?=\d)", "."),
    (r"(?<!\\)\\[,;:!> ]|~", " "),
    # One command for several.
    (r"\\([A-Za-z]+)", lambda match: _COMMANDS.get(match[1], match[0])),
    (r"\\frac\s*(\d)\s*(\d)(?!\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}", r"\\text{\1/\2}"),
    (r"(?:\{\s*\}|(?<![\w}]))[_^]\{?(\d+)\}?\s*(?:C|\\text\{C\})_\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"(?:(?<![A-Za-z\\])C|\\text\{C\})_\{?(\d\d|[3-9])\}?\^\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"\\\{\s*\\\}", r"\\emptyset"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])", r"\\degree "),
    (r"\\%", "%"),
    (r"\s+", " "),
]  # fmt: skip
_REWRITES = [(re.compile(pattern), replacement) for pattern, replacement in _REWRITES]
_DELIMITERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]


def tidy(text: str) -> str:
    r"""The text in one spelling of its LaTeX, without math delimiters and a final full stop.

    Example: `tidy(r"$\dfrac{1}{2}\,\mbox{cm}.$") == r"\frac{1}{2} \text{cm}"`
    """
    text = _without_delimiters(text).translate(_SIGNS)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return _without_delimiters(text)


def _without_delimiters(text: str) -> str:
    """The text without `$` or the like around it, and without a final stop."""
    text = text.strip()
    for start, end in _DELIMITERS:
        inside = text.rstrip(".,;: ")
        if len(inside) >= len(start + end) and inside.startswith(start) and inside.endswith(end):
            inside = inside[len(start) : len(inside) - len(end)].strip()
            text = text if start in inside else inside  # `$a$ and $b$` stays as it is
    ends = re.search(r"(?<![.\\])[.,;:]\s*$", text)  # an ellipsis is not a full stop
    return text[: ends.start()].strip() if ends else text


_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?|\.\d+"  # a number
    r"|(?:[A-Za-z]|\\(?!log|ln)[A-Za-z]+)_(?:\d+|[A-Za-z]|\{[A-Za-z\d]+\})"  # an index
    r"|\\[A-Za-z]+|\\[|{}]"  # a command
    r"|[A-Za-z]|[-+*/^_!(){}\[\]|'=])\s*",
    re.ASCII,
)
_FUNCTIONS = set("sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh ln exp log".split())
_LETTERS = {*_GREEK, "varepsilon", "varphi", "ell", "pi"}
_CLOSING = {"(": ")", "{": "}", "[": "]", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_OF_BRACKETS = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}
_NO_FACTOR = {*"+-*/)}]|^_!'", r"\}", r"\|", r"\bmod", r"\rfloor", r"\rceil", None}
_PRODUCTS = {"*": "*", "/": "/", r"\bmod": "mod"}


def parse(text: str) -> Tree:
    r"""The tree of one expression, as tuples; `text` comes from `tidy`. May raise `Unreadable`.

    Example: `parse("2x") == ("*", ("number", Fraction(2)), ("letter", "x"))`
    """
    parser = _Parser(text)
    tree = parser.sum()
    if parser.next is not None:
        raise Unreadable(f"{parser.next} stands where an operation or the end should be")
    return tree


def rational(value: str | int | Fraction) -> Tree:
    return ("number", Fraction(value))


def minus(tree: Tree) -> Tree:
    return ("*", rational(-1), tree)


class _Parser:
    """A recursive-descent parser; `tokens` holds the tokens not read yet, in reverse order."""

    def __init__(self, text: str):
        self.tokens, end = [], 0
        while match := _TOKEN.match(text, end):
            self.tokens.append(match[1])
            end = match.end()
        if end != len(text) or not self.tokens:
            raise Unreadable(f"{text[end : end + 20]!r} is not read as mathematics")
        if len(self.tokens) > MAX_TOKENS:
            raise Unreadable(f"an expression of more than {MAX_TOKENS} signs")
        self.tokens.reverse()
        self.depth = 0

    @property
    def next(self) -> str | None:
        """The next token, which is not taken; None at the end."""
        return self.tokens[-1] if self.tokens else None

    def take(self, token: str | None = None) -> str:
        """Take the next token; `Unreadable` if there is none, or not the token asked for."""
        if not self.tokens or token not in (None, self.tokens[-1]):
            raise Unreadable(f"{token or 'a number or a letter'} is missing")
        return self.tokens.pop()

    def sum(self) -> Tree:
        """Products joined by `+` and `-`."""
        tree = self.product()
        while self.next in ("+", "-"):
            is_plus = self.take() == "+"
            right = self.product()
            tree = ("+", tree, right if is_plus else minus(right))
        return tree

    def product(self) -> Tree:
        r"""Factors joined by `*`, `/`, `\\bmod`, or nothing (`2x`); `a/bx` is `Unreadable`."""
        tree, sign = self.signed(), "*"
        while self.next not in _NO_FACTOR or self.next in _PRODUCTS:
            if self.next in _PRODUCTS:  # a sign stands between the factors
                sign = self.take()
                tree = (_PRODUCTS[sign], tree, self.signed())
            elif sign == "/":
                raise Unreadable("a/bx can mean (a/b)x or a/(bx): write \\frac or parentheses")
            else:
                tree = self.adjacent(tree)
        return tree

    def adjacent(self, left: Tree) -> Tree:
        r"""`left` with the next factor: `2x` a product, `2\frac{1}{3}` a number, `1 8` an error."""
        last = left[2] if left[0] == "*" else left
        is_closed = last[0] in ("^", "!") and last[1][0] == "number"
        if re.match(r"[.\d]", self.next) and not is_closed:  # but 2^3 3^2 and 3!7! are products
            raise Unreadable("a number behind a factor: write a multiplication sign")
        starts_mixed = left[0] == "number" and self.next == r"\frac"
        right = self.power()
        is_mixed = starts_mixed and right[0] == "/" and right[1][0] == right[2][0] == "number"
        if not is_mixed:
            return ("*", left, right)
        whole, over, under = left[1], right[1][1], right[2][1]
        are_whole = whole.denominator == over.denominator == under.denominator == 1
        if not are_whole or not 0 <= over < under:  # nobody writes 2\frac{5}{3}
            raise Unreadable("a number before a fraction that is not below 1")
        return rational(whole + over / under)

    def signed(self) -> Tree:
        """A power, with or without a sign before it."""
        sign = self.take() if self.next in ("+", "-") else "+"
        tree = self.power()
        if tree[0] == "number" and self.next == r"\frac":  # -1\frac{1}{2} is minus one and a half
            tree = self.adjacent(tree)
        return minus(tree) if sign == "-" else tree

    def power(self) -> Tree:
        r"""An atom with what stands behind it: exponents, `!`, and the sign of degrees."""
        tree = self.atom()
        while self.next in ("^", "!", r"\degree"):
            token = self.take()
            if token == "!" and tree[0] == "!":
                raise Unreadable("n!! can mean (n!)! or the product n(n-2)(n-4)...")
            if token == r"\degree":
                tree = ("*", tree, ("/", ("letter", "pi"), rational(180)))
            else:
                tree = ("^", tree, self.exponent()) if token == "^" else ("!", tree)
        return tree

    def exponent(self) -> Tree:
        """The exponent. In `2^10` it is 10, although LaTeX raises only the 1; 2^3^2 is 2^9."""
        sign = self.take() if self.next == "-" else "+"
        tree = minus(self.atom()) if sign == "-" else self.atom()
        if self.next == "^":
            self.take()
            tree = ("^", tree, self.exponent())
        return tree

    def atom(self) -> Tree:
        """A number, a letter, a function with its argument, or an expression in brackets."""
        self.depth += 1  # every nested expression passes here
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"more than {MAX_DEPTH} parts inside one another")
        tree = self.atom_of(self.take())
        self.depth -= 1
        return tree

    def atom_of(self, token: str) -> Tree:
        """The atom that begins with this token, which is taken already."""
        if re.match(r"[.\d]", token):
            return rational(token)
        if token in _CLOSING:
            tree = self.sum()
            self.take(_CLOSING[token])
            return (_OF_BRACKETS[token], tree) if token in _OF_BRACKETS else tree
        name = token.removeprefix("\\")
        if token[0].isalpha() or name.partition("_")[0] in _LETTERS:
            return ("letter", re.sub("[{}]", "", name))
        if name in ("frac", "binom"):
            return ("/" if name == "frac" else name, self.atom(), self.atom())
        if name == "sqrt":
            degree = self.atom() if self.next == "[" else rational(2)
            return ("root", degree, self.atom())
        if name in _FUNCTIONS:
            return self.function(name)
        raise Unreadable(f"{token.partition('_')[0]} is not read here")

    def function(self, name: str) -> Tree:
        r"""A function with its base, power and argument: `\log_2 8`, `\sin^2 x`, `\sin^{-1} x`."""
        base = power = None
        while self.next == "^" or (self.next == "_" and name in ("log", "ln")):
            if self.take() == "_":
                base = self.atom()
            else:
                power = self.exponent()
        if power == minus(rational(1)):
            if name not in ("sin", "cos", "tan"):
                raise Unreadable(f"{name}^{{-1}} x can mean the inverse function or a quotient")
            name, power = f"arc{name}", None
        argument = self.function_argument()
        if name == "log" and base is None:  # its base, 10 or e, is a letter: an unknown
            base = ("letter", "log")
        tree = (name, argument) if base is None else ("/", ("ln", argument), ("ln", base))
        return tree if power is None else ("^", tree, power)

    def function_argument(self) -> Tree:
        """What stands in brackets, else a product up to the next function: `\\sin 2x \\cos x`."""
        if self.next in ("(", "{"):
            return self.atom()
        tree = self.power()
        while self.next not in _NO_FACTOR and self.next != "(" and self.next[1:] not in _FUNCTIONS:
            tree = self.adjacent(tree)
        return tree
