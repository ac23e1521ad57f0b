"""Stopping by validation rows: the option, patience, and the rule that may look as often as it likes."""

import doctest
import math

import numpy as np
import pytest

from recipes.common.training import stopping
from recipes.common.training.stopping import (
    ENOUGH,
    check_stop_when,
    evidence_against_gain,
    reason_to_stop,
)

PATIENCE = {"metric": "validation/strict", "patience": 2}


def evaluations(*rows_right: int, n: int = 100, metric: str = "strict"):
    """Evaluations at steps 0, 10, 20, ... of which so many of the first rows are right."""
    return [
        {"step": 10 * k, "metrics": {metric: [row < right for row in range(n)]}}
        for k, right in enumerate(rows_right)
    ]


def test_the_examples_of_the_docstrings_are_right():
    found = doctest.testmod(stopping)
    assert found.attempted >= 2 and found.failed == 0


@pytest.mark.parametrize(
    "good", [None, PATIENCE, {**PATIENCE, "min_gain": 0}, {**PATIENCE, "min_gain": 0.05}]
)
def test_what_can_be_asked_for(good):
    assert check_stop_when(good, evaluates=True) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            "validation/strict",
            "stop_when is 'validation/strict'; give {metric: validation/strict, patience: 5}",
        ),
        ({"metric": "validation/strict"}, "give {metric: validation/strict, patience: 5}"),
        ({**PATIENCE, "gain": 1}, "give {metric: validation/strict, patience: 5}"),
        (
            {**PATIENCE, "metric": "strict"},
            "metric is 'strict'; name one that is logged, such as validation/strict",
        ),
        ({**PATIENCE, "patience": 0}, "patience is 0; it is a number of evaluations, at least 1"),
        (
            {**PATIENCE, "min_gain": 5},
            "min_gain is 5; it is a share, at least 0 and below 1: 0.05 for 5 points",
        ),
        ({**PATIENCE, "min_gain": None}, "min_gain is None; it is a share"),
    ],
)
def test_what_cannot_be_asked_for_is_named_with_what_can(bad, message):
    (problem,) = check_stop_when(bad, evaluates=True)
    assert message in problem


def test_a_run_that_evaluates_nothing_cannot_be_stopped_by_it():
    (problem,) = check_stop_when(PATIENCE, evaluates=False)
    assert "set eval_strategy: steps and eval_steps" in problem


@pytest.mark.parametrize(
    ("rows_right", "stops"),
    [
        ([50], False),
        ([50, 50], False),
        ([50, 50, 50], True),  # as good as the best is not better
        ([50, 60, 55], False),
        ([50, 60, 55, 59], True),
        ([50, 60, 55, 61, 60], False),
    ],
)
def test_patience_counts_the_evaluations_since_the_best(rows_right, stops):
    assert (reason_to_stop(PATIENCE, evaluations(*rows_right)) is not None) is stops


def test_the_reason_names_the_best_step():
    reason = reason_to_stop(PATIENCE, evaluations(50, 60, 55, 59))
    assert reason == "validation/strict has not been better than at step 10 for 2 evaluations"


def test_a_fall_stops_from_the_evaluation_of_patience_on_and_not_before():
    stop_when = {**PATIENCE, "patience": 3, "min_gain": 0}
    curve = evaluations(60, 70, 30, 30)
    assert reason_to_stop(stop_when, curve[:3]) is None
    assert reason_to_stop(stop_when, curve) == (
        "the rows show a fall of validation/strict since step 0 (at most 5 % of such stops are wrong)"
    )


def test_a_gain_that_is_ruled_out_stops_and_one_that_is_not_does_not():
    flat = evaluations(50, 51, 50, n=1000)
    assert "rule out a gain of 10 points" in reason_to_stop(
        {**PATIENCE, "patience": 1, "min_gain": 0.1}, flat[:2]
    )
    few = evaluations(5, 6, n=20)
    assert reason_to_stop({**PATIENCE, "min_gain": 0.1}, few) is None


def test_rows_to_which_the_metric_does_not_apply_are_left_out():
    of_two_tasks = [
        {"step": 0, "metrics": {"strict": [True, None]}},
        {"step": 9, "metrics": {"strict": [True, False]}},
    ]
    assert stopping.changes([e["metrics"]["strict"] for e in of_two_tasks]) == [(0, 0, 1)]
    assert reason_to_stop(PATIENCE, of_two_tasks) is None


def test_a_metric_that_is_not_evaluated_is_an_error_with_those_that_are():
    with pytest.raises(
        ValueError, match="validation/strict, which is not evaluated; this run has validation/tests"
    ):
        reason_to_stop(PATIENCE, evaluations(5, 5, metric="tests"))


def test_the_evidence_of_one_evaluation_is_1_in_the_mean_where_the_gain_is_just_reached():
    """All outcomes of seven rows, weighted by their chance: the promise of one evaluation, without any simulation."""
    n, share_won, share_lost = 7, 0.3, 0.1
    first_weight = 1 / (stopping.EARLY + 1)
    total = 0.0
    for won in range(n + 1):
        for lost in range(n + 1 - won):
            unchanged = n - won - lost
            ways = math.comb(n, won) * math.comb(n - won, lost)
            chance = (
                ways * share_won**won * share_lost**lost * (1 - share_won - share_lost) ** unchanged
            )
            total += (
                chance
                * evidence_against_gain([(won, lost, n)], share_won - share_lost)[0]
                / first_weight
            )
    assert total == pytest.approx(1.0)


def test_all_weights_together_are_1():
    nothing_changed = evidence_against_gain([(0, 0, 10)] * 5000, 0.0)  # evidence 1 each time
    assert nothing_changed[9] == pytest.approx(0.5) and 0.99 < nothing_changed[-1] < 1.0


@pytest.mark.parametrize("redrawn", [0.1, 1.0], ids=["rows that stick", "coins"])
def test_fifty_looks_at_a_run_without_a_change_are_wrong_in_less_than_one_of_twenty(redrawn):
    random, stopped, runs, n = np.random.default_rng(0), 0, 200, 160
    for _ in range(runs):
        first, luck = random.random(n) < 0.5, random.random(n)
        counts = []
        for _ in range(50):
            luck = np.where(random.random(n) < redrawn, random.random(n), luck)
            changed = luck < 0.25  # as many of the right rows as of the wrong ones
            counts.append((int((changed & ~first).sum()), int((changed & first).sum()), n))
        stopped += evidence_against_gain(counts, 0.0)[-1] >= ENOUGH
    assert stopped / runs <= 0.05
