"""pass@k: the probability that at least one of k samples solves a problem."""

import math
from itertools import chain, product
from statistics import fmean

from recipes.common.utils.stats import interval_of_mean, wilson_interval
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
                interval = interval_of_mean(estimates, 0.0, 1.0, of_equal=(0.0, 1.0))
                if set(estimates) <= {0.0, 1.0}:  # each problem is won or lost
                    interval = wilson_interval(round(sum(estimates)), len(estimates))
                share = share_and_span(fmean(estimates), interval)
                lines.append(f"  {in_words(metric)} pass@{k:<4} {share}  {model}")
    return [*lines, "  95 %, over problems: Wilson's interval if each is 0 or 1, else Student's"]
