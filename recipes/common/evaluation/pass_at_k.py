"""pass@k: the probability that at least one of k samples solves a problem.

It is estimated from n samples of each problem, with a bootstrap interval over the problems.
"""

import math
from statistics import fmean

from recipes.common.utils.stats import bootstrap_interval
from recipes.common.utils.tables import in_words, points, share_and_span


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate if `c` of `n` samples are right: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), section 2.1. `1 - (1 - c / n) ** k` would be too low.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)  # exact integers until the division


def estimate(row: dict, metric: str, k: int) -> float | None:
    """pass@k of one problem by a metric; None if fewer than k of its samples have the metric."""
    known = [draw[metric] for draw in row["samples"] if draw.get(metric) is not None]
    return pass_at_k(len(known), sum(known), k) if len(known) >= k else None


def lines_of(models: dict[str, list[dict]]) -> list[str]:
    """Lines to print: pass@1, 4, 16, ..., n of each model by each metric.

    For two models each pass@k has a line with the difference, too. A sample without the metric (the
    sandbox failed) does not count in its problem's n. A problem with n < k is left out.
    """
    samples = [row["samples"] for rows in models.values() for row in rows]
    metrics = dict.fromkeys(name for draws in samples for draw in draws for name in draw)
    n, lines = len(samples[0]), []
    for metric in metrics:
        for k in [*(4**i for i in range(8) if 4**i < n), n]:
            label = f"  {in_words(metric)} pass@{k:<4}"
            values = [[estimate(row, metric, k) for row in rows] for rows in models.values()]
            for name, of_model in zip(models, values, strict=True):
                if known := [value for value in of_model if value is not None]:
                    span = share_and_span(fmean(known), bootstrap_interval(known))
                    lines.append(f"{label} {span}  {name}")
            if len(models) == 2:
                pairs = [pair for pair in zip(*values, strict=True) if None not in pair]
                change = [new - old for old, new in pairs]
                if change:
                    within = points(fmean(change), bootstrap_interval(change))
                    lines.append(f"{label} {within}  by problem")
    return [*lines, "  95 %: bootstrap over the problems"]
