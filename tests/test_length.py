"""The length family counts tokens, not characters, and scores as TRL's own functions do."""

import pickle

import pytest
from trl.rewards import get_soft_overlong_punishment

from rewards import load_reward, load_rewards


def call(name: str, lengths: list[int], **parameters) -> list[float]:
    ids = [[1] * n for n in lengths]
    return load_reward(name, **parameters)(
        prompts=["p"] * len(ids), completions=["x"] * len(ids), completion_ids=ids
    )


def test_length_scores_in_full_within_the_tolerance_and_falls_to_nothing():
    assert call("length", [45, 50, 55, 75, 105, 500, 20], target=50, tolerance=5) == [
        1.0,
        1.0,
        1.0,
        0.6,
        0.0,
        0.0,
        0.5,
    ]


def test_length_does_not_look_at_the_text():
    reward = load_reward("length", target=2)
    assert reward(
        prompts=["p"], completions=["many more words than two"], completion_ids=[[7, 8]]
    ) == [1.0]


def test_soft_overlong_is_trls():
    parameters = {"max_completion_len": 100, "soft_punish_cache": 20}
    lengths = [0, 80, 90, 100, 101]
    assert call("soft_overlong", lengths, **parameters) == [0.0, 0.0, -0.5, -1.0, -1.0]
    ids = [[1] * n for n in lengths]
    assert call("soft_overlong", lengths, **parameters) == get_soft_overlong_punishment(
        **parameters
    )(ids)


@pytest.mark.parametrize(
    "name, parameters, message",
    [
        ("length", {"target": 0}, "target is 0"),
        ("length", {"target": 5, "tolerance": -1}, "tolerance -1"),
        ("length", {}, "missing 1 required positional argument: 'target'"),
        (
            "soft_overlong",
            {"max_completion_len": 10, "soft_punish_cache": 11},
            "soft_punish_cache is 11",
        ),
    ],
)
def test_parameters_that_mean_nothing_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        load_rewards([name], {name: parameters})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("length", {"target": 7}),
        ("soft_overlong", {"max_completion_len": 9, "soft_punish_cache": 5}),
    ],
)
def test_parameters_survive_pickling(name, parameters):
    reward = load_reward(name, **parameters)
    columns = {"prompts": ["p"], "completions": ["x"], "completion_ids": [[1] * 8]}
    assert pickle.loads(pickle.dumps(reward))(**columns) == reward(**columns) != [0.0]
