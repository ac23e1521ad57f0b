"""Asking Math-Verify whether two expressions are equal. Runs in worker processes: there is no time limit in here."""

import logging
import re


def ask_math_verify(gold: str, answer: str) -> bool | None:
    """Whether Math-Verify proves two expressions equal, and none of its known slips explains that.

    None when it cannot read the gold.
    """
    wanted, given = _sympy(gold), _sympy(answer)
    if wanted is None or given is None:
        return None if wanted is None else False
    from math_verify import verify

    try:
        return bool(verify(wanted, given, timeout_seconds=None)) and _agree(wanted, given)
    except Exception:  # sympy's
        return False


def _warm_up() -> None:
    logging.getLogger("math_verify").setLevel(
        logging.ERROR
    )  # it warns that there is no time limit: there is one
    ask_math_verify(r"\sin^2 x + \cos^2 x", "1")


ask_math_verify.warm_up = _warm_up


def _sympy(text: str) -> object | None:
    """The expression that Math-Verify's LaTeX grammar reads.

    The grammar alone: `math_verify.parse` would take a fraction out of the middle of what it cannot read, and its
    other reader ends in sympy's `parse_expr`, which evaluates.
    """
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex

    # Floats would be compared to six places.
    text = re.sub(r"(\d*)\.(\d+)", lambda m: rf"\frac{{{m[1]}{m[2]}}}{{1{'0' * len(m[2])}}}", text)
    text = text.replace(r"\degree", r"^{\circ}").replace("*", r"\cdot ").replace("$", "")
    config = NormalizationConfig(
        basic_latex=True, malformed_operators=True, nits=True, boxed="none"
    )
    is_real = not should_treat_as_complex(text)
    try:
        return latex2sympy(
            normalize_latex(text, config),
            is_real=is_real,
            convert_degrees=True,
            normalization_config=None,
        )
    except Exception:  # a grammar and a converter of others: what it trips over is unread
        return None


def _agree(gold: object, answer: object) -> bool:
    """A second opinion for what Math-Verify finds equal: the same letters, and 30 equal digits at two points."""
    from sympy import Eq, Expr, Rational, Set
    from sympy.core.relational import Relational

    if isinstance(gold, Set) != isinstance(answer, Set) and not isinstance(gold, Relational):
        return False
    if isinstance(gold, Eq) and isinstance(
        answer, Eq
    ):  # two contradictions have the same solutions: none
        return bool(gold.free_symbols) and gold.free_symbols == answer.free_symbols
    if not isinstance(gold, Expr) or not isinstance(answer, Expr):
        return True
    if (gold - answer).is_Rational:  # an addend too small for any number of digits
        return bool(gold - answer == 0)
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for shift in (0, 5):
        point = {
            name: Rational(37 + 11 * place + shift, 29 + place) for place, name in enumerate(names)
        }
        if not _close(gold.subs(point), answer.subs(point)):
            return False
    return True


def _close(left: object, right: object) -> bool:
    left, right = left.doit().evalf(40), right.doit().evalf(40)
    if not (left.is_number and right.is_number):
        return True
    return abs(left - right) <= 1e-30 * max(abs(left), abs(right))
