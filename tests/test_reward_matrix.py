"""Gates, and the shares of groups that teach nothing and that a verifier separates: exact values."""

import math

import pytest
import torch

from recipes.common.training.gates import apply_gates, group_spread

NAN = math.nan


def shares(
    rows: list[list[float]], kinds: str, weights: list[float] | None = None, group: int = 2
) -> tuple:
    """Groups without spread, groups with spread of a verifier; `kinds` has a letter for each reward, v for verifier."""
    is_verifier = torch.tensor([kind == "v" for kind in kinds])
    weights = torch.tensor(weights or [1.0] * len(kinds))
    differ, verified = (
        each.float().mean().item()
        for each in group_spread(torch.tensor(rows), weights, is_verifier, group)
    )
    return 1.0 - differ, verified


SHORT = {"short": ["right"]}
GATES = {
    "a gated reward counts only where its gate scored above 0": (
        [[2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.5, -0.25]],
        [[2.0, 1.0], [0.0, None], [-1.0, None], [0.5, -0.25]],
        ["right", "short"],
        SHORT,
    ),
    "a gate without a score opens nothing": (
        [[NAN, 1.0]],
        [[None, None]],
        ["right", "short"],
        SHORT,
    ),
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
    "without gates nothing changes": (
        [[0.0, 1.0], [NAN, 1.0]],
        [[0.0, 1.0], [None, 1.0]],
        ["right", "short"],
        {},
    ),
}


@pytest.mark.parametrize(("rows", "expected", "names", "gates"), GATES.values(), ids=GATES)
def test_gates(rows, expected, names, gates):
    given = torch.tensor(rows)
    kept = apply_gates(given, names, gates).tolist()
    assert [[None if math.isnan(x) else x for x in row] for row in kept] == expected
    torch.testing.assert_close(
        given, torch.tensor(rows), equal_nan=True
    )  # what was given is not modified


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.0, 0.0], [0.0, 0.5]], (0.0, 0.0)),  # shaping alone tells them apart
        ([[0.0, 0.5], [2.0, 0.5]], (0.0, 1.0)),  # the verifier does
        ([[0.0, 0.0], [2.0, 0.5]], (0.0, 1.0)),  # both do
        ([[2.0, 0.5], [2.0, 0.5]], (1.0, 0.0)),  # nothing does
        ([[0.5, 0.0], [0.0, 0.5]], (1.0, 1.0)),  # they differ, but not in total
        ([[2.0, NAN], [2.0, 0.5]], (0.0, 0.0)),  # without a score it counts as 0
        ([[2.0, NAN], [2.0, 0.0]], (1.0, 0.0)),
        ([[NAN, NAN], [2.0, 0.5]], (1.0, 0.0)),  # one row is left
        ([[NAN, NAN], [NAN, NAN]], (1.0, 0.0)),
        (
            [
                [0.0, 0.0],
                [0.0, 0.5],
                [2.0, 0.5],
                [2.0, 0.5],
                [0.0, 0.0],
                [1.0, 0.0],
                [0.0, 1.0],
                [0.0, 2.0],
            ],
            (0.25, 0.25),
        ),
    ],
)
def test_groups_without_spread_and_groups_with_spread_of_a_verifier(rows, expected):
    assert shares(rows, "vs") == pytest.approx(expected)


def test_a_row_without_any_reward_is_left_out_of_its_group():
    ungraded, graded = [NAN, NAN], [-1.0, -0.5]
    assert shares([ungraded, graded, graded, graded], "vs", group=4) == (
        1.0,
        0.0,
    )  # as 0 it would differ
    assert shares([ungraded, graded, graded, [-1.0, 0.0]], "vs", group=4) == (0.0, 0.0)


def test_rounding_is_not_spread():
    same_sum = torch.tensor([[100.1, 0.1, 0.7], [0.1, 0.7, 100.1]])
    assert torch.full((8,), -0.2).std() > 0 and same_sum[0].sum() != same_sum[1].sum(), (
        "the cases need rounding"
    )
    assert shares([[0.0, -0.2]] * 8, "vs", group=8) == (1.0, 0.0)
    assert shares(same_sum.tolist(), "vvv") == (1.0, 0.0)
    assert shares([[1000.0, 0.0], [1000.0, 0.01]], "vs") == (0.0, 0.0)


def test_weights_count():
    rows = [[0.0, 0.0], [2.0, 0.5]]
    assert shares(rows, "vs", weights=[0.0, 1.0]) == (0.0, 0.0)  # the verifier is only watched
    assert shares([[0.0, 0.0], [0.0, 0.5]], "vs", weights=[1.0, 0.0]) == (1.0, 0.0)


def test_only_a_verifier_is_one():
    for kind, expected in {
        "v": (0.0, 1.0),
        "s": (0.0, 0.0),
        "f": (0.0, 0.0),
        "c": (0.0, 0.0),
    }.items():
        assert shares([[0.0], [1.0]], kind) == expected
