"""Statistics of evaluations. scipy takes seconds to load, so each function imports it itself."""

import math
from statistics import mean, stdev

import numpy as np

Z_95, Z_80 = 1.959963984540054, 0.8416212335729143  # of the normal distribution


def share(outcomes: list[bool | None]) -> float:
    """The share of True among the outcomes that are not None; 0.0 if there are none."""
    known = [outcome for outcome in outcomes if outcome is not None]
    return sum(known) / len(known) if known else 0.0


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share; (0, 1) when `n` is 0.

    >>> [round(end, 4) for end in wilson_interval(5, 10)]
    [0.2366, 0.7634]
    """
    from scipy.stats import binomtest

    if n == 0:
        return 0.0, 1.0
    low, high = binomtest(successes, n).proportion_ci(method="wilson")
    return float(low), float(high)


def won_and_lost(before: list[bool], after: list[bool]) -> tuple[int, int]:
    """How many paired outcomes became True, and how many became False."""
    pairs = list(zip(before, after, strict=True))
    return pairs.count((False, True)), pairs.count((True, False))


def mcnemar_p(before: list[bool], after: list[bool]) -> float:
    """The p-value of the exact two-sided McNemar test of paired outcomes; 1.0 if none changed.

    >>> mcnemar_p([False] * 9 + [True], [True] * 9 + [False])  # nine rows won and one lost
    0.021484375
    """
    from scipy.stats import binomtest

    won, lost = won_and_lost(before, after)
    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def paired_interval(before: list[bool], after: list[bool]) -> tuple[float, float]:
    """The 95 % interval of the change of a share over paired rows; (-1, 1) without rows.

    Bonett and Price 2012: Laplace's correction adds one row won and one row lost.

    >>> after = [True] * 4 + [False] * 28  # four rows won, none lost
    >>> [round(end, 3) for end in paired_interval([False] * 32, after)]
    [-0.018, 0.253]
    """
    n = len(before) + 2
    won, lost = ((1 + changed) / n for changed in won_and_lost(before, after))
    half = Z_95 * math.sqrt((won + lost - (won - lost) ** 2) / n)
    return max(-1.0, won - lost - half), min(1.0, won - lost + half)


def t_quantile(values: int, level: float = 0.05) -> float:
    """Student's t quantile (0.975 by default) for an interval of the mean of so many `values`."""
    from scipy.stats import t

    return float(t.ppf(1 - level / 2, values - 1))


def t_interval(values: list[float], level: float = 0.05) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean of independent values; None for fewer than two.

    `level` is the share of intervals that miss the mean.

    >>> [round(end, 4) for end in t_interval([1.0, 2.0, 3.0])]
    [-0.4841, 4.4841]
    """
    if len(values) < 2:
        return None
    half = t_quantile(len(values), level) * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def interval_of_mean(
    values: list[float], low: float, high: float, of_equal: tuple[float, float]
) -> tuple[float, float]:
    """The 95 % interval of the mean of independent values: Student's, cut at `low` and `high`.

    Student's has no width where all values are equal, and there is none of a single value: the
    interval is then `of_equal`, such as one over the questions.
    """
    if len(set(values)) < 2:
        return of_equal
    start, end = t_interval(values)
    return max(low, start), min(high, end)


def slope_test(values: list[float]) -> tuple[float, float]:
    """The slope of a line through four values or more, and its two-sided p-value.

    Successive errors are often correlated. So n errors count as n (1 - r) / (1 + r) independent
    ones (Santer et al. 2000, section 2, doi:10.1029/1999JD901105). They are errors around a fit
    that may bend, as a reward that levels off would look correlated around a line. r is their
    correlation plus (3 + 5 r) / n, as the fit makes it too small. p is 1.0 if at most three
    independent errors remain. Not covered: a drift that noise hides.

    >>> slope_test([1.0, 2.0, 3.0, 4.0])
    (1.0, 0.0)
    """
    from scipy.stats import t

    n, steps = len(values), np.arange(len(values)) - (len(values) - 1) / 2
    values = np.array(values) - values[0]  # exact zeros if the reward never changes
    slope = float(steps @ values / (steps @ steps))
    bent_fit = np.column_stack([np.ones(n), steps, np.log(np.arange(1, n + 1))])  # log: levels off
    errors = values - bent_fit @ np.linalg.lstsq(bent_fit, values)[0]
    scatter = float(errors @ errors)
    if scatter <= 1e-24 * float(np.square(values).sum()):  # only rounding errors
        return slope, float(slope == 0.0)
    r = float(errors[1:] @ errors[:-1]) / scatter
    r = max(0.0, r + (3 + 5 * r) / n)
    freedom = n * (1 - r) / (1 + r) - 3
    if freedom <= 0.0:
        return slope, 1.0
    deviation = math.sqrt(scatter / freedom / float(steps @ steps))
    return slope, 2 * float(t.sf(abs(slope) / deviation, freedom))


def power_line(n: int) -> str:
    """The sentence that says which change `n` test questions can show, before and after a run.

    By the normal approximation of McNemar's test at 5 %, for 80 % power. The change cannot be
    larger than the share of rows that change: a quarter, or for few rows as many as it takes.

    >>> power_line(5)
    '5 test questions can show no change, however large'
    """
    change, given = (Z_95 + Z_80) * math.sqrt(0.25 / n), "a quarter of rows change"
    if change > 0.25:
        change, given = min(1.0, (Z_95 + Z_80) ** 2 / n), "no other row changes"
    shown = f"a change of {100 * change:.1f} points or more (80 % power, if {given})"
    if n < 6:  # McNemar's p of five rows that all change is 0.06
        shown = "no change, however large"
    return f"{n} test questions can show {shown}"
