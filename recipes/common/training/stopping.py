"""When to stop a run early, by its validation rows: `stop_when` in the YAML.

    stop_when: {metric: validation/strict, patience: 5}                  # no better for five evaluations in a row
    stop_when: {metric: validation/strict, patience: 5, min_gain: 0.05}  # or: a gain of 5 points is ruled out

**patience**: so many evaluations in a row without a new best share stop a run; step 0 counts as the first best. This is
not a test and promises nothing.

**min_gain** stops a run, from evaluation number `patience` on, when its rows rule out that the share has gained so much
since step 0; `min_gain: 0` stops it when they show a fall. Promised: *a run whose true gain is at least `min_gain` at
each of these evaluations is stopped with a chance of at most 5 %, however many evaluations there are.* The true gain is
that over all rows like these: the validation rows are a random sample of them, and never trained on.

A test at each evaluation would not do: fifty tests at 5 % stop far more than 5 % of the runs. Nor would a product of
evidence over evaluations (a test martingale with Ville's inequality), which wants new rows each time: these are the
same rows, and the luck of their draw would count again and again. What holds whatever binds the evaluations together:

- One evaluation (Waudby-Smith and Ramdas 2024, JRSS B 86:1-27; for `min_gain: 0` it is the binomial mixture of Robbins
  1970, Ann. Math. Stat. 41:1397-1409). A row that was won has d = 1, one that was lost d = -1, any other d = 0. For a
  stake s from 0 to 1 / (1 - g), where g is `min_gain`, the product over the rows of 1 + s (g - d) is never negative,
  and its mean is at most 1 where the true gain is at least g. So it is with its average over all stakes: the evidence.
- All evaluations (Vovk and Wang 2021, Ann. Stat. 49:1736-1754: weighted means of e-values that depend on one another).
  The sum of weight x evidence never falls, and its mean stays within 1, as the weights' sum does; so the chance that it
  ever comes to 20 is at most 5 % (Markov). The weights are c / ((k + c - 1) (k + c)) for k = 1, 2, ..., c = 10: any
  number of evaluations will do, and half of the weight is left after ten.
"""

from typing import Any

import numpy as np

from recipes.common.utils.stats import share

KEYS = ("metric", "patience", "min_gain")
PREFIX = "validation/"
ENOUGH = 20.0  # evidence: 1 / 0.05
EARLY = 10  # half of the weight is spent on so many evaluations
STAKES = (np.arange(400) + 0.5) / 400  # of the largest stake

Outcomes = list[bool | None]


def check_stop_when(stop_when: Any, evaluates: bool) -> list[str]:
    """Check the keys and values of `stop_when`, and that the run evaluates validation rows at all."""
    if stop_when is None:
        return []
    example = "give {metric: validation/strict, patience: 5}, and min_gain: 0.05 if you like"
    if not isinstance(stop_when, dict) or not {"metric", "patience"} <= stop_when.keys() <= {*KEYS}:
        return [f"stop_when is {stop_when!r}; {example}."]
    metric, patience, gain = (stop_when.get(name) for name in KEYS)
    problems = []
    if not (isinstance(metric, str) and metric.startswith(PREFIX)):
        problems.append(
            f"stop_when: metric is {metric!r}; name one that is logged, such as validation/strict."
        )
    if not (isinstance(patience, int) and not isinstance(patience, bool) and patience >= 1):
        problems.append(
            f"stop_when: patience is {patience!r}; it is a number of evaluations, at least 1."
        )
    if "min_gain" in stop_when and not (_is_number(gain) and 0 <= gain < 1):
        problems.append(
            f"stop_when: min_gain is {gain!r}; it is a share, at least 0 and below 1: 0.05 for 5 points."
        )
    if not evaluates:
        problems.append(
            "stop_when needs evaluations while training: set eval_strategy: steps and eval_steps."
        )
    return problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def reason_to_stop(stop_when: dict[str, Any], validation: list[dict[str, Any]]) -> str | None:
    """Return the reason to stop after these evaluations, the first of them at step 0, or None.

    `ValueError`: the metric is not evaluated.
    """
    name, patience = stop_when["metric"].removeprefix(PREFIX), stop_when["patience"]
    if any(name not in evaluation["metrics"] for evaluation in validation):
        there = ", ".join(PREFIX + metric for metric in validation[-1]["metrics"])
        raise ValueError(
            f"stop_when: metric is {PREFIX}{name}, which is not evaluated; this run has {there}."
        )
    curve = [evaluation["metrics"][name] for evaluation in validation]
    shares = list(map(share, curve))
    best = shares.index(max(shares))
    if len(curve) - 1 - best >= patience:
        step = validation[best]["step"]
        return f"{PREFIX}{name} has not been better than at step {step} for {patience} evaluations"
    gain = stop_when.get("min_gain")
    if (
        gain is not None
        and (evidence_against_gain(changes(curve[:1] + curve[patience:]), gain) >= ENOUGH).any()
    ):
        shown = (
            f"the rows rule out a gain of {100 * gain:g} points" if gain else "the rows show a fall"
        )
        return f"{shown} of {PREFIX}{name} since step 0 (at most 5 % of such stops are wrong)"
    return None


def changes(curve: list[Outcomes]) -> list[tuple[int, int, int]]:
    """Rows won, rows lost and all rows of each evaluation after the first, against the first.

    >>> changes([[True, False, None], [True, True, True]])
    [(1, 0, 2)]
    """
    first, *later = curve
    pairs = [
        [(a, b) for a, b in zip(first, outcomes, strict=True) if None not in (a, b)]
        for outcomes in later
    ]
    return [(sum(b > a for a, b in rows), sum(b < a for a, b in rows), len(rows)) for rows in pairs]


def evidence_against_gain(of_evaluations: list[tuple[int, int, int]], gain: float) -> np.ndarray:
    """Sum up the evidence that the true gain is not `gain` or more, after each of the evaluations in `changes`.

    >>> evidence_against_gain([(0, 20, 20)], 0.0).round()  # twenty rows lost, at the first evaluation
    array([9078.])
    """
    weighted, stakes = [], STAKES / (1 - gain)
    of_won, of_lost, of_others = (np.log1p(stakes * (gain - d)) for d in (1, -1, 0))
    for k, (won, lost, n) in enumerate(of_evaluations, start=1):
        logs = won * of_won + lost * of_lost + (n - won - lost) * of_others
        weighted.append(
            EARLY / ((k + EARLY - 1) * (k + EARLY)) * np.exp(np.minimum(logs, 700.0)).mean()
        )
    return np.cumsum(weighted)
