"""The push: whether an update raises or lowers a metric that the reward does not see.

The push is the covariance of advantage and metric within a group. To first order, this is the
change of the metric when a policy that is free at each prompt takes a step along the advantages.
docs/grpo.md lists the limits of this figure.
"""

import math
from statistics import covariance, fmean, stdev

from recipes.common.utils.stats import t_quantile

WINDOW = 20  # the running interval covers this many logged steps
FEWEST_STEPS = 6
MISS = 0.05  # the share of intervals that may miss the mean
Outcomes = dict[str, bool]  # one completion's metrics, by name


def push(groups: list[list[tuple[float, float]]]) -> float | None:
    """The mean over groups of the covariance of advantage and metric (divisor G - 1).

    A group has a pair (advantage, metric) for each completion whose metric is known. A group of
    fewer than two pairs is ignored; None if no group is left. The unit is that of the metric, for
    an advantage of one standard deviation.

    >>> push([[(1.0, True), (-1.0, False)], [(0.0, True), (0.0, True)], [(1.0, True)]])
    0.5
    """
    covariances = [covariance(*zip(*pairs, strict=True)) for pairs in groups if len(pairs) > 1]
    return fmean(covariances) if covariances else None


def metric_names(outcomes: list[Outcomes]) -> list[str]:
    """The names of all metrics: completions of different tasks may have different metrics."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome))


def pushes(outcomes: list[Outcomes], advantages: list[float], group: int) -> dict[str, float]:
    """The push of each metric: its mean covariance with the advantage inside a group.

    Groups of `group` completions follow one another.

    >>> pushes([{"right": True}, {"right": False}], [0.5, -0.5], group=2)
    {'right': 0.5}
    """
    completions = list(zip(advantages, outcomes, strict=True))
    by_metric = {}
    for name in metric_names(outcomes):
        groups = []
        for start in range(0, len(completions), group):
            members = completions[start : start + group]
            groups.append([(advantage, of[name]) for advantage, of in members if name in of])
        value = push(groups)
        if value is not None:
            by_metric[name] = value
    return by_metric


def running_interval(history: list[float], looks: int) -> tuple[float, float] | None:
    """The 95 % interval of the mean push (a covariance) of the last 20 logged steps; None before 6.

    The 95 % hold for so many intervals together as `looks` says (Bonferroni): alone, one in twenty
    would be wrong by chance. Their spread is at least that of the whole history: twenty pushes of a
    rare metric may all be small and below 0 by chance.
    """
    recent = history[-WINDOW:]
    if len(recent) < FEWEST_STEPS:
        return None
    spread = max(stdev(recent), stdev(history))
    half = t_quantile(len(recent), MISS / max(1, looks)) * spread / math.sqrt(len(recent))
    return fmean(recent) - half, fmean(recent) + half


def figures(
    outcomes: list[Outcomes],
    advantages: list[float],
    group: int,
    log: list[dict[str, float]],
    looks: int,
) -> dict[str, float]:
    """The values to log for a generation: `metrics/<name>` and `push/<name>`.

    `metrics/` is the share of True. `push/` is the mean covariance of metric and advantage inside
    groups of `group` completions: below 0 the update lowers the metric. Its 95 % interval over
    recent steps, `push/<name>_low` and `_high`, also uses the pushes in `log`, the entries of a
    trainer's log. The 95 % hold for `looks` of these intervals together: a run counts those of the
    independent metrics.
    """
    logged = {}
    for name in metric_names(outcomes):
        logged[f"metrics/{name}"] = fmean(of[name] for of in outcomes if name in of)
    for name, value in pushes(outcomes, advantages, group).items():
        key = f"push/{name}"
        logged[key] = value
        earlier = [entry.get(key) for entry in log]  # a number, None (not logged) or NaN
        history = [past for past in earlier if past is not None and math.isfinite(past)]
        if interval := running_interval([*history, value], looks):
            logged[f"{key}_low"], logged[f"{key}_high"] = interval
    return logged
