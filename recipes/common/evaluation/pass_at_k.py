"""pass@k: the probability that at least one of k samples solves a problem.

It is estimated from n samples of each problem, with a bootstrap interval over the problems.
"""

import math
from itertools import chain, product
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
    """Estimate pass@k of one problem; None if fewer than k of its samples have the metric."""
    outcomes = [sample[metric] for sample in row["samples"] if sample.get(metric) is not None]
    return pass_at_k(len(outcomes), sum(outcomes), k) if len(outcomes) >= k else None


def format_pass_at_k(models: dict[str, list[dict]]) -> list[str]:
    """Format pass@1, 4, 16, ..., n of each model by each metric, for n samples of a problem.

    With two models, each pass@k has a third line: the mean difference over the problems. A sample
    lacks the metric if the sandbox failed; a problem counts only if k of its samples have it.
    """
    samples_of_rows = [row["samples"] for rows in models.values() for row in rows]
    metrics = dict.fromkeys(name for sample in chain(*samples_of_rows) for name in sample)
    n = len(samples_of_rows[0])
    lines = []
    for metric, k in product(metrics, [*(4**i for i in range(8) if 4**i < n), n]):
        label = f"  {in_words(metric)} pass@{k:<4}"
        estimates = [[estimate(row, metric, k) for row in rows] for rows in models.values()]
        for name, values in zip(models, estimates, strict=True):
            if known := [value for value in values if value is not None]:
                share = share_and_span(fmean(known), bootstrap_interval(known))
                lines.append(f"{label} {share}  {name}")
        if len(models) == 2:
            pairs = zip(*estimates, strict=True)
            if changes := [new - old for old, new in pairs if None not in (old, new)]:
                change = points(fmean(changes), bootstrap_interval(changes))
                lines.append(f"{label} {change}  by problem")
    return [*lines, "  95 %: bootstrap over the problems"]
