"""Gates and the share of groups that shaping alone separates: exact values, NaN without a score."""

import math

import pytest
import torch

from recipes.common.during.matrix import apply_gates, shaping_only_share

NAN = math.nan


def share(rows: list[list[float]], kinds: str, weights: list[float] | None = None, group: int = 2) -> float:
    """`kinds` has a letter for each reward, s for shaping."""
    is_shaping = torch.tensor([kind == "s" for kind in kinds])
    return shaping_only_share(torch.tensor(rows), torch.tensor(weights or [1.0] * len(kinds)), is_shaping, group)


SHORT = {"short": ["right"]}
GATES = {
    "a gated reward counts only where its gate scored above 0": (
        [[2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.5, -0.25]],
        [[2.0, 1.0], [0.0, None], [-1.0, None], [0.5, -0.25]],
        ["right", "short"],
        SHORT,
    ),
    "a gate without a score opens nothing": ([[NAN, 1.0]], [[None, None]], ["right", "short"], SHORT),
    "one of several gates is enough": (
        [[1.0, NAN, 0.5], [NAN, 1.0, 0.5], [0.0, NAN, 0.5], [0.0, 0.0, 0.5]],
        [[1.0, None, 0.5], [None, 1.0, 0.5], [0.0, None, None], [0.0, 0.0, None]],
        ["maths", "code", "short"],
        {"short": ["maths", "code"]},
    ),
    "each gated reward has gates of its own": (
        [[1.0, 0.5, 0.0, 0.25], [0.0, 0.5, 1.0, 0.25]],
        [[1.0, 0.5, 0.0, None], [0.0, None, 1.0, 0.25]],
        ["maths", "short", "code", "terse"],
        {"short": ["maths"], "terse": ["code"]},
    ),
    "without gates nothing changes": ([[0.0, 1.0], [NAN, 1.0]], [[0.0, 1.0], [None, 1.0]], ["right", "short"], {}),
}


@pytest.mark.parametrize(("rows", "expected", "names", "gates"), GATES.values(), ids=GATES)
def test_gates(rows, expected, names, gates):
    given = torch.tensor(rows)
    kept = apply_gates(given, names, gates).tolist()
    assert [[None if math.isnan(x) else x for x in row] for row in kept] == expected
    torch.testing.assert_close(given, torch.tensor(rows), equal_nan=True)  # what was given is not modified


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.0, 0.0], [0.0, 0.5]], 1.0),  # shaping alone tells them apart
        ([[0.0, 0.5], [2.0, 0.5]], 0.0),  # the verifier does
        ([[0.0, 0.0], [2.0, 0.5]], 0.0),  # both do
        ([[2.0, 0.5], [2.0, 0.5]], 0.0),  # nothing does
        ([[0.5, 0.0], [0.0, 0.5]], 0.0),  # they differ, but not in total
        ([[2.0, NAN], [2.0, 0.5]], 1.0),  # without a score it counts as 0
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
