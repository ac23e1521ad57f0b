"""The environment of the recipe: a calculator tool that remembers its last result."""

import ast
import operator
from decimal import Decimal
from fractions import Fraction

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 80  # characters, so that no expression is deep or its result large


class Calculator:
    """Environment and verifier: the reward is 1.0 if the last result is the row's answer."""

    kind, full = "verifier", 1.0

    def reset(self, answer: str, **row) -> None:
        """Start the rollout of a row; returns None, so TRL adds nothing to the prompt."""
        self.answer, self.last = answer, None

    def calculate(self, expression: str) -> str:
        """Works out an expression.

        Args:
            expression: Numbers, + - * / and parentheses.
        """
        self.last = None
        self.last = text_of(value_of(expression))
        return self.last

    def get_reward(self) -> float:
        return 1.0 if self.last == self.answer else 0.0


def value_of(expression: str) -> Fraction:
    """Evaluate an expression of numbers, + - * / and parentheses; ValueError for anything else.

    Example: `value_of("(2 + 3) * 4") == 20`
    """
    if len(expression) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"cannot work out {expression!r}") from error


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("only numbers, + - * / and parentheses")


def text_of(value: Fraction) -> str:
    """Write a whole number without decimals, any other number with at most four.

    Example: `text_of(Fraction(7, 2)) == "3.5"`
    """
    if value.denominator == 1:
        return str(value.numerator)
    # Decimal, since a large number would overflow a float.
    decimal = f"{Decimal(value.numerator) / value.denominator:.4f}"
    return decimal.rstrip("0").rstrip(".")
