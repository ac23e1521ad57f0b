"""pass@k: how likely one of k samples solves a problem, from n samples of each, with intervals over problems."""

import math
from typing import NamedTuple

from recipes.common.tools.stats import bootstrap_interval

Count = tuple[int, int]  # of one problem: samples that were judged, and those of them that are right


class Figure(NamedTuple):
    """A mean over problems between 0 and 1 (a difference: -1 and 1), its 95 % interval, and over how many problems."""

    mean: float | None  # None over no problem
    interval: tuple[float, float] | None
    problems: int


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of pass@k from `n` samples of which `c` are right: 1 - C(n - c, k) / C(n, k).

    Follows Chen et al. 2021 (arXiv 2107.03374), section 2.1: the quotient as a product, which stays small where the
    binomials do not. `1 - (1 - c / n) ** k` would be too low.

    Raises:
        ValueError: not 1 <= k <= n, or not 0 <= c <= n.

    Example: `pass_at_k(4, 1, 2) == 0.5`: half of the pairs of four samples hold the one that is right.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples: k must lie between 1 and {n}. Draw more samples, or lower k.")
    if not 0 <= c <= n:
        raise ValueError(f"{c} right samples of {n}: there can be 0 to {n}.")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def count_right(verdicts: list[dict[str, bool]], metric: str) -> Count:
    """How many samples of a problem have this metric, and how many of them are right by it.

    A sample without the metric was not judged: our machinery failed, which is neither right nor wrong.

    Example: `count_right([{"tests": True}, {"tests": False}, {}], "tests") == (2, 1)`
    """
    judged = [verdict[metric] for verdict in verdicts if metric in verdict]
    return len(judged), sum(judged)


def estimate(counts: list[Count], k: int, seed: int = 0) -> Figure:
    """Mean pass@k over the problems with at least `k` judged samples, its interval by bootstrap over them.

    Example: `estimate([(4, 4), (4, 0), (3, 1)], k=4)` has mean 0.5, of 2 problems.
    """
    return _figure([pass_at_k(n, c, k) for n, c in counts if n >= k], seed)


def difference(first: list[Count], second: list[Count], k: int, seed: int = 0) -> Figure:
    """Mean of second minus first, problem by problem, where both have `k` judged samples; problems are resampled.

    Raises:
        ValueError: not as many problems in one as in the other.

    Example: `difference([(4, 0), (4, 4)], [(4, 1), (4, 4)], k=2).mean == 0.25`
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if min(a[0], b[0]) >= k]
    return _figure([pass_at_k(*b, k) - pass_at_k(*a, k) for a, b in pairs], seed)


def estimate_line(k: int, figure: Figure) -> str:
    """One line for people. Example: `  pass@4      50.0 % (25-75)`"""
    if figure.mean is None:
        return _unknown(k)
    low, high = (100 * bound for bound in figure.interval)
    return f"  pass@{k:<5}{100 * figure.mean:>6.1f} % " + (f"({low:.0f}-{high:.0f})" if low < high else NO_SPREAD)


def difference_line(k: int, figure: Figure) -> str:
    """One line for people. Example: `  pass@4     +25.0 pt (+0 to +75)`"""
    if figure.mean is None:
        return _unknown(k)
    low, high = (100 * bound for bound in figure.interval)
    within = f"({low:+.0f} to {high:+.0f})" if low < high else NO_SPREAD
    return f"  pass@{k:<5}{100 * figure.mean:>+6.1f} pt {within}"


NO_SPREAD = "(the same in every problem, so a bootstrap gives no interval)"


def _unknown(k: int) -> str:
    return f"  pass@{k:<5} not known: no problem has {k} judged samples"


def _figure(values: list[float], seed: int) -> Figure:
    if not values:
        return Figure(None, None, 0)
    return Figure(sum(values) / len(values), bootstrap_interval(values, seed), len(values))
