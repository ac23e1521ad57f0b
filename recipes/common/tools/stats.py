"""The statistics of before and after: a Wilson interval, the exact McNemar test, a bootstrap interval."""

import math
from statistics import mean, stdev

import numpy as np

Z_95 = 1.959963984540054
# The 0.975 quantile of Student's t for 1, 2, ... degrees of freedom; beyond them the normal one is 2 % too small.
T_95 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448),
    *(2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484),
)


def wilson_interval(successes: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson 1927); `(0.0, 1.0)` when `n` is 0.

    Example: `wilson_interval(5, 10) == (0.2366, 0.7634)` rounded to four digits.
    """
    if n == 0:
        return 0.0, 1.0
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_p(before: list[bool], after: list[bool]) -> float:
    """The exact two-sided McNemar test of paired outcomes (binomial on the rows that changed); 1.0 when none did.

    Example: nine rows won and one lost: `mcnemar_p([False] * 9 + [True], [True] * 9 + [False]) == 0.021484375`
    """
    won = sum(not b and a for b, a in zip(before, after, strict=True))
    lost = sum(b and not a for b, a in zip(before, after, strict=True))
    changed, fewer = won + lost, min(won, lost)
    tail = sum(math.comb(changed, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**changed)


def t_quantile(values: int) -> float:
    """The 0.975 quantile of Student's t for the mean of so many values, two or more."""
    return T_95[values - 2] if values - 2 < len(T_95) else Z_95


def t_interval(values: list[float], low: float = -math.inf, high: float = math.inf) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean of a few independent values (seeds), cut at what is possible; None for one.

    Example: `t_interval([1.0, 2.0, 3.0]) == (-0.4841, 4.4841)` rounded to four digits.
    """
    if len(values) < 2:
        return None
    half = t_quantile(len(values)) * stdev(values) / math.sqrt(len(values))
    return max(low, mean(values) - half), min(high, mean(values) + half)


def paired_interval(before: list[bool], after: list[bool], z: float = Z_95) -> tuple[float, float]:
    """The interval of the change of a share over paired rows (Bonett and Price 2012: Laplace's, one row more each way).

    Example: 4 of 32 rows won and none lost: `paired_interval([False] * 32, [True] * 4 + [False] * 28) == (-0.01, 0.24)`
    rounded; without any rows it is `(-1.0, 1.0)`.
    """
    won = (1 + sum(not b and a for b, a in zip(before, after, strict=True))) / (len(before) + 2)
    lost = (1 + sum(b and not a for b, a in zip(before, after, strict=True))) / (len(before) + 2)
    half = z * math.sqrt((won + lost - (won - lost) ** 2) / (len(before) + 2))
    return max(-1.0, won - lost - half), min(1.0, won - lost + half)


def paired_difference(before: list[float], after: list[float]) -> tuple[float, float | None]:
    """Mean of `after - before` row by row, and its standard error; None for one row.

    Example: `paired_difference([0, 0, 1, 0], [1, 0, 1, 1]) == (0.5, 0.28867513459481287)`
    """
    changes = [a - b for b, a in zip(before, after, strict=True)]
    return mean(changes), stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else None


def bootstrap_interval(values: list[float], seed: int = 0, draws: int = 10_000) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of `values`, one of each problem (Efron 1979).

    Problems are resampled, and not the samples of each: these say nothing of other problems. The interval is too
    narrow below some thirty problems, and a point where all are alike.

    Raises:
        ValueError: no values, or fewer than one draw.

    Example: `bootstrap_interval([0.25, 0.25]) == (0.25, 0.25)`; of `[0.0, 1.0]` it is `(0.0, 1.0)`
    """
    if not len(values) or draws < 1:
        raise ValueError(f"a bootstrap of {len(values)} values in {draws} draws: it needs at least one of both.")
    given, random = np.asarray(values, dtype=float), np.random.default_rng(seed)
    means = [given[random.integers(len(given), size=len(given))].mean() for _ in range(draws)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
