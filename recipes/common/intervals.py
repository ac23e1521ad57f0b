"""The statistics of before and after: a Wilson interval and the exact McNemar test."""

import math

Z_95 = 1.959963984540054


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
