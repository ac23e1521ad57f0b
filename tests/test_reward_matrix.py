"""Gates and the share of groups that shaping alone separates: exact values, NaN where nothing was paid."""

import math

import pytest
import torch

from recipes.common.during.matrix import apply_gates, shaping_only_share

NAN = math.nan


def gated(rows: list[list[float]], names: list[str], gates: dict[str, list[str]]) -> list[list[float]]:
    return [
        [None if math.isnan(x) else x for x in row] for row in apply_gates(torch.tensor(rows), names, gates).tolist()
    ]


def share(rows: list[list[float]], kinds: str, weights: list[float] | None = None, group: int = 2) -> float:
    """`kinds` has a letter for each reward, s for shaping."""
    is_shaping = torch.tensor([kind == "s" for kind in kinds])
    return shaping_only_share(torch.tensor(rows), torch.tensor(weights or [1.0] * len(kinds)), is_shaping, group)


def test_a_gated_reward_is_paid_only_where_its_gate_paid_more_than_0():
    rows = [[2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.5, -0.25]]
    assert gated(rows, ["right", "short"], {"short": ["right"]}) == [
        [2.0, 1.0],
        [0.0, None],
        [-1.0, None],
        [0.5, -0.25],
    ]


def test_a_gate_that_paid_nothing_opens_nothing():
    assert gated([[NAN, 1.0]], ["right", "short"], {"short": ["right"]}) == [[None, None]]


def test_one_of_several_gates_is_enough():
    rows = [[1.0, NAN, 0.5], [NAN, 1.0, 0.5], [0.0, NAN, 0.5], [0.0, 0.0, 0.5]]
    paid = gated(rows, ["maths", "code", "short"], {"short": ["maths", "code"]})
    assert [row[2] for row in paid] == [0.5, 0.5, None, None]


def test_each_gated_reward_has_gates_of_its_own():
    rows = [[1.0, 0.5, 0.0, 0.25], [0.0, 0.5, 1.0, 0.25]]
    paid = gated(rows, ["maths", "short", "code", "terse"], {"short": ["maths"], "terse": ["code"]})
    assert paid == [[1.0, 0.5, 0.0, None], [0.0, None, 1.0, 0.25]]


def test_without_gates_nothing_changes():
    assert gated([[0.0, 1.0], [NAN, 1.0]], ["right", "short"], {}) == [[0.0, 1.0], [None, 1.0]]


def test_the_rewards_given_are_not_modified():
    rewards = torch.tensor([[0.0, 1.0]])
    apply_gates(rewards, ["right", "short"], {"short": ["right"]})
    assert rewards.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.0, 0.0], [0.0, 0.5]], 1.0),  # shaping alone tells them apart
        ([[0.0, 0.5], [2.0, 0.5]], 0.0),  # the verifier does
        ([[0.0, 0.0], [2.0, 0.5]], 0.0),  # both do
        ([[2.0, 0.5], [2.0, 0.5]], 0.0),  # nothing does
        ([[0.5, 0.0], [0.0, 0.5]], 0.0),  # they differ, but not in total
        ([[2.0, NAN], [2.0, 0.5]], 1.0),  # what is not paid counts as 0
        ([[2.0, NAN], [2.0, 0.0]], 0.0),
        ([[NAN, 0.0], [NAN, 0.5]], 1.0),
        ([[NAN, NAN], [2.0, 0.5]], 0.0),  # one row is left
        ([[NAN, NAN], [NAN, NAN]], 0.0),
        ([[0.0, 0.0], [0.0, 0.5], [2.0, 0.5], [2.0, 0.5], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]], 0.5),
    ],
)
def test_the_share_is_of_groups_that_differ_in_shaping_alone(rows, expected):
    assert share(rows, "vs") == expected


def test_a_row_without_any_reward_is_left_out_of_its_group():
    ungraded, graded = [NAN, NAN], [-1.0, -0.5]
    assert share([ungraded, graded, graded, graded], "vs", group=4) == 0.0  # as 0 it would differ from the others
    assert share([ungraded, graded, graded, [-1.0, 0.0]], "vs", group=4) == 1.0
    assert share([ungraded, graded, [0.0, 0.0], graded], "vs", group=4) == 0.0


SAME_SUM = torch.tensor([[100.1, 0.1, 0.7], [0.1, 0.7, 100.1]])


def test_rounding_is_no_difference():
    assert torch.full((8,), -0.2).std() > 0 and SAME_SUM[0].sum() != SAME_SUM[1].sum(), "the cases need rounding"
    assert share([[0.0, -0.2]] * 8, "vs", group=8) == 0.0
    assert share(SAME_SUM.tolist(), "sss") == 0.0
    assert share([[1000.0, 0.0], [1000.0, 0.01]], "vs") == 1.0


def test_rewards_besides_shaping_that_differ_by_rounding_do_not_hide_the_shaping():
    assert share([[*SAME_SUM[0].tolist(), 0.0], [*SAME_SUM[1].tolist(), 1.0]], "vvvs") == 1.0


def test_weights_count():
    rows = [[0.0, 0.0], [2.0, 0.5]]
    assert share(rows, "vs", weights=[0.0, 1.0]) == 1.0  # the verifier is only watched
    assert share([[0.0, 0.0], [0.0, 0.5]], "vs", weights=[1.0, 0.0]) == 0.0
    assert share([[0.0, 1.0], [1.0, 0.0]], "vs", weights=[1.0, 1.0]) == 0.0  # they cancel
    assert share([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "vss", weights=[1.0, 0.5, 0.5]) == 0.0
    assert share([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "vss", weights=[1.0, 0.5, 0.25]) == 1.0


def test_only_shaping_is_shaping():
    assert share([[0.0], [1.0]], "s") == 1.0
    for kind in "vfc":
        assert share([[0.0], [1.0]], kind) == 0.0
