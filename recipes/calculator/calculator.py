"""The environment of the recipe: a calculator tool that remembers its last result."""

import re
from decimal import Decimal
from fractions import Fraction

from rewards.latex.parse import parse
from rewards.latex.value import exact_constant

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
        self.last = None  # if the expression raises, no result remains
        self.last = text_of(value_of(expression))
        return self.last

    def get_reward(self) -> float:
        """Score the rollout: 1.0 if the last result is the row's answer, else 0.0."""
        return 1.0 if self.last == self.answer else 0.0


def value_of(expression: str) -> Fraction:
    """Evaluate an expression of numbers, + - * / and parentheses; ValueError for anything else.

    Example: `value_of("(2 + 3) * 4") == 20`
    """
    if len(expression) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    if not re.fullmatch(r"[0-9\s.+*/()-]*", expression):
        raise ValueError("only numbers, + - * / and parentheses")
    value = exact_constant(parse(expression))  # exact; parse raises ValueError
    if value is None:  # no value, as of 1 / 0
        raise ValueError(f"cannot work out {expression!r}")
    return value


def text_of(value: Fraction) -> str:
    """Write a whole number without decimals, any other number with at most four.

    Example: `text_of(Fraction(7, 2)) == "3.5"`
    """
    if value.denominator == 1:
        return str(value.numerator)
    # Decimal, since a large number would overflow a float.
    decimal = f"{Decimal(value.numerator) / value.denominator:.4f}"
    return decimal.rstrip("0").rstrip(".")
