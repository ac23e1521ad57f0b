"""Which way an update pushes a metric that the reward does not see.

The covariance of advantage and metric within a group is the first-order change of the metric under
a step along these advantages, of a policy that is free at each prompt. docs/grpo.md says what it is
not.
"""

import math
from statistics import covariance, fmean

from recipes.common.utils.stats import t_interval

WINDOW = 20  # logged steps of the running interval
FEWEST_STEPS = 6
LEVEL = 0.05
Outcomes = dict[str, bool]  # of a completion, by metric; one that it does not have is left out


def push(groups: list[list[tuple[float, float]]]) -> float | None:
    """The mean over groups of the covariance of advantage and metric (divisor G - 1).

    A group has a pair for each completion whose metric is known; one of fewer than two is left out.
    None where no group is left. In units of the metric for an advantage of one standard deviation.

    >>> push([[(1.0, True), (-1.0, False)], [(0.0, True), (0.0, True)], [(1.0, True)]])
    0.5
    """
    told = [covariance(*zip(*group, strict=True)) for group in groups if len(group) > 1]
    return fmean(told) if told else None


def metric_names(outcomes: list[Outcomes]) -> list[str]:
    """The metrics that some completion has: those of other tasks may have others."""
    return list(dict.fromkeys(name for each in outcomes for name in each))


def pushes(outcomes: list[Outcomes], advantages: list[float], group: int) -> dict[str, float]:
    """The push of each metric over completions whose groups follow one another.

    >>> pushes([{"right": True}, {"right": False}], [0.5, -0.5], group=2)
    {'right': 0.5}
    """
    found = {}
    for name in metric_names(outcomes):
        pairs = [
            [(a, o[name]) for a, o in zip(advantages[i:j], outcomes[i:j], strict=True) if name in o]
            for i, j in ((i, i + group) for i in range(0, len(outcomes), group))
        ]
        value = push(pairs)
        if value is not None:
            found[name] = value
    return found


def running_interval(history: list[float], looks: int) -> tuple[float, float] | None:
    """The interval of the mean push of the last `WINDOW` logged steps; None of fewer than six.

    With 95 % it holds at every one of the `looks` of a run together (Bonferroni), so that a look at
    each step does not find a fall in a run that has none.
    """
    recent = history[-WINDOW:]
    if len(recent) < FEWEST_STEPS:
        return None
    return t_interval(recent, level=LEVEL / max(1, looks))


def figures(
    outcomes: list[Outcomes],
    advantages: list[float] | None,
    group: int,
    log: list[dict[str, float]],
    looks: int,
) -> dict[str, float]:
    """What is logged of a generation: `metrics/<name>`, and with advantages `push/<name>`.

    The running interval, `push/<name>_low` and `_high`, goes on from the `log` so far.
    """
    logged = {}
    for name in metric_names(outcomes):
        logged[f"metrics/{name}"] = fmean(each[name] for each in outcomes if name in each)
    for name, value in ({} if advantages is None else pushes(outcomes, advantages, group)).items():
        key = f"push/{name}"
        logged[key] = value
        before = [entry[key] for entry in log if is_number(entry.get(key))]
        if interval := running_interval([*before, value], looks):
            logged[f"{key}_low"], logged[f"{key}_high"] = interval
    return logged


def is_number(value: object) -> bool:
    """Tell a logged value from one that is missing: None, or NaN."""
    return isinstance(value, int | float) and math.isfinite(value)
