"""pass@k: the probability that at least one of k samples solves a problem."""

import math
from itertools import chain, product
from statistics import fmean, pvariance

from recipes.common.utils.stats import t_quantile, wilson_interval
from recipes.common.utils.tables import in_words, share_and_span


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate if `c` of `n` samples are right: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), section 2.1. `1 - (1 - c / n) ** k` would be too low.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)  # exact integers until the division


def format_pass_at_k(models: dict[str, list[dict]]) -> list[str]:
    """Lines of pass@1, 4, 16, ..., n with n samples a problem, for each metric and each model.

    `models` maps name -> evaluated rows; a row's `samples` are the metrics of its completions. A
    sample lacks a metric if the sandbox failed; a problem counts only if k of its samples have it.
    """
    samples_of_rows = [row["samples"] for rows in models.values() for row in rows]
    metrics = dict.fromkeys(name for sample in chain(*samples_of_rows) for name in sample)
    n = len(samples_of_rows[0])
    lines = []
    for metric, k in product(metrics, [*(4**i for i in range(8) if 4**i < n), n]):
        for model, rows in models.items():
            estimates = []
            for row in rows:
                known = [sample[metric] for sample in row["samples"] if metric in sample]
                if len(known) >= k:
                    estimates.append(pass_at_k(len(known), sum(known), k))
            if estimates:
                share = share_and_span(fmean(estimates), interval_of(estimates))
                lines.append(f"  {in_words(metric)} pass@{k:<4} {share}  {model}")
    return [*lines, "  95 %, over problems: Wilson's interval, with Student's quantile"]


def interval_of(estimates: list[float]) -> tuple[float, float]:
    """Wilson's 95 % interval of the mean of estimates from 0 to 1, of problems.

    A problem of which several samples are known tells more than a yes or no: n of them count as
    n q (1 - q) / variance, with one more at 0 and at 1, and Student's quantile in place of 1.96.
    Where all are 0 or 1 it is Wilson's own. Student's interval misses too often near 0 and 1.
    """
    n, share = len(estimates), fmean(estimates)
    if set(estimates) <= {0.0, 1.0}:
        return wilson_interval(round(sum(estimates)), n)
    wider = [*estimates, 0.0, 1.0]
    middle = fmean(wider)
    worth = n * middle * (1 - middle) / pvariance(wider)
    z2 = t_quantile(max(n, 2)) ** 2 / worth
    half = math.sqrt(z2 * share * (1 - share) + z2 * z2 / 4) / (1 + z2)
    center = (share + z2 / 2) / (1 + z2)
    return max(0.0, center - half), min(1.0, center + half)
