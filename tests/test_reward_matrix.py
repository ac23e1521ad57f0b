"""Voids, gates, spread and hits: exact values. Shapes in names: see training/advantages.py."""

import math

import pytest
import torch

from recipes.common.training.advantages import group_spread, has_spread, is_correct, void_and_gate

NAN = math.nan
RIGHT_SHORT, SHORT = ["right", "short"], {"short": ["right"]}
EITHER, CHAIN = {"short": ["maths", "code"]}, {"b": ["a"], "c": ["b"]}


def plain(rewards_CR: torch.Tensor) -> list[list[float | None]]:
    return [[None if math.isnan(x) else x for x in row] for row in rewards_CR.tolist()]


@pytest.mark.parametrize(
    ("names", "gates", "rewards", "expected"),
    [
        (RIGHT_SHORT, SHORT, [2.0, 1.0], [2.0, 1.0]),  # its gate scored above 0
        (RIGHT_SHORT, SHORT, [0.0, 1.0], [0.0, None]),
        (RIGHT_SHORT, SHORT, [-1.0, 1.0], [-1.0, None]),
        (RIGHT_SHORT, SHORT, [NAN, 1.0], [None, None]),  # a gate without a score opens nothing
        (["maths", "code", "short"], EITHER, [1.0, NAN, 0.5], [1.0, None, 0.5]),  # one is enough
        (["maths", "code", "short"], EITHER, [0.0, 1.0, 0.5], [0.0, 1.0, 0.5]),
        (["maths", "code", "short"], EITHER, [0.0, NAN, 0.5], [0.0, None, None]),
        (["a", "b", "c"], CHAIN, [0.0, 1.0, 1.0], [0.0, None, 1.0]),  # b opens by what it scored
        (RIGHT_SHORT, {}, [0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_a_gated_reward_counts_only_where_its_gate_scored(names, gates, rewards, expected):
    rewards_CR = torch.tensor([rewards])
    none_failed = torch.zeros(1, dtype=torch.bool)
    assert plain(void_and_gate(rewards_CR, none_failed, names, gates)) == [expected]
    torch.testing.assert_close(rewards_CR, torch.tensor([rewards]), equal_nan=True)  # a copy


def test_a_row_that_failed_is_void_and_its_gates_open_nothing():
    failed = torch.tensor([True, False])
    kept = void_and_gate(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), failed, RIGHT_SHORT, SHORT)
    assert plain(kept) == [[None, None], [2.0, 1.0]]


UNGRADED, GRADED = [NAN, NAN], [-1.0, -0.5]


@pytest.mark.parametrize(
    ("rows", "weights", "group", "differ"),
    [
        ([[0.0, 0.0], [0.0, 0.5]], [1, 1], 2, [True]),
        ([[0.5, 0.0], [0.0, 0.5]], [1, 1], 2, [False]),  # they differ, but not in total
        ([[0.5, 0.0], [0.0, 0.5]], [1, 2], 2, [True]),
        ([[0.0, 0.0], [2.0, 0.0]], [0, 1], 2, [False]),  # the first is only watched
        ([[2.0, NAN], [2.0, 0.5]], [1, 1], 2, [True]),  # without a score it counts as 0
        ([[2.0, NAN], [2.0, 0.0]], [1, 1], 2, [False]),
        ([UNGRADED, [2.0, 0.5]], [1, 1], 2, [False]),  # one row is left
        ([UNGRADED, GRADED, GRADED, GRADED], [1, 1], 4, [False]),  # as 0 it would differ
        ([UNGRADED, GRADED, GRADED, [-1.0, 0.0]], [1, 1], 4, [True]),
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [1, 1], 2, [True, False]),
        ([[0.0, -0.2]] * 8, [1, 1], 8, [False]),  # its deviation in float32 is 1.6e-8
        ([[100.1, 0.1, 0.7], [0.1, 0.7, 100.1]], [1, 1, 1], 2, [False]),  # another order of a sum
        ([[1000.0, 0.0], [1000.0, 0.01]], [1, 1], 2, [True]),
    ],
)
def test_spread_of_the_weighted_total_of_each_group(rows, weights, group, differ):
    weights = torch.tensor(weights, dtype=torch.float32)
    found = group_spread(torch.tensor(rows), weights, group, "sum_then_normalize")
    assert found.tolist() == differ


def test_rewards_that_are_normalised_alone_may_differ_where_their_total_does_not():
    rewards = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-0.2, torch.nan], [-0.2, torch.nan]])
    for aggregation, differ in (("sum_then_normalize", False), ("normalize_then_sum", True)):
        found = group_spread(rewards, torch.tensor([1.0, 2.0]), 2, aggregation)
        assert found.tolist() == [differ, False]


def test_rounding_is_no_spread_and_a_small_difference_is():
    assert torch.full((8,), -0.2).std() > 0.0, "the case needs rounding"
    for amounts in ([-0.2] * 8, [0.1 + 0.2 - 0.3, 0.0], [1e9, 1e9 + 100], [None, 1.0], []):
        assert not has_spread(amounts)
    assert has_spread([0.0, 1e-5])
    assert has_spread([1e6 - 0.5, 1e6 + 0.5])  # TRL trains on it: float32 has steps of 0.06 there


def test_a_hit_is_the_full_amount_or_more_than_0_where_none_is_declared():
    assert is_correct(0.1 + 0.2, 0.3) and not is_correct(0.29, 0.3)
    assert is_correct(0.1, None) and not is_correct(0.0, None)
