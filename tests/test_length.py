"""The length family counts tokens, not characters, and pays what TRL's own functions pay."""

import pickle

import pytest
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment

from rewards import load_reward, load_rewards


def paid(name: str, lengths: list[int], **parameters) -> list[float]:
    ids = [[1] * n for n in lengths]
    return load_reward(name, **parameters)(prompts=["p"] * len(ids), completions=["x"] * len(ids), completion_ids=ids)


def test_length_pays_in_full_within_the_tolerance_and_falls_to_nothing():
    assert paid("length", [45, 50, 55, 75, 105, 500, 20], target=50, tolerance=5) == [1.0, 1.0, 1.0, 0.6, 0.0, 0.0, 0.5]


def test_length_does_not_look_at_the_text():
    reward = load_reward("length", target=2)
    assert reward(prompts=["p"], completions=["many more words than two"], completion_ids=[[7, 8]]) == [1.0]


def test_soft_overlong_is_trls():
    parameters = {"max_completion_len": 100, "soft_punish_cache": 20}
    lengths = [0, 80, 90, 100, 101]
    assert paid("soft_overlong", lengths, **parameters) == [0.0, 0.0, -0.5, -1.0, -1.0]
    ids = [[1] * n for n in lengths]
    assert paid("soft_overlong", lengths, **parameters) == get_soft_overlong_punishment(**parameters)(ids)


def test_repetition_penalty_is_trls():
    ids = [[1, 2, 3, 4], [5, 5, 5, 5, 5], [1]]
    reward = load_reward("repetition_penalty", ngram_size=2, max_penalty=-2.0)
    assert reward(prompts=["p"] * 3, completions=["x"] * 3, completion_ids=ids) == [0.0, -1.5, 0.0]
    assert get_repetition_penalty_reward(2, -2.0)(ids) == [0.0, -1.5, 0.0]


def test_cosine_scaled_reads_the_answer_column_in_both_forms_of_a_completion():
    reward = load_reward("cosine_scaled", max_len=100)
    texts = [r"\boxed{\frac{1}{3}}", r"\boxed{\frac{1}{2}}"]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    for completions in (texts, chats):
        arguments = {"completion_ids": [[1] * 50] * 2, "answer": [r"\frac{1}{3}"] * 2}
        assert reward(prompts=["p"] * 2, completions=completions, **arguments) == [0.75, -0.75]


def test_cosine_scaled_does_not_grade_by_an_unusable_gold():
    logged = {}
    reward = load_reward("cosine_scaled", max_len=100)
    arguments = {"completion_ids": [[1]] * 2, "answer": ["", "2"], "log_extra": logged.__setitem__}
    assert reward(prompts=["p"] * 2, completions=[r"\boxed{2}"] * 2, **arguments)[0] is None
    assert logged["outcome/cosine_scaled"] == ["unparsed", "right"]


def test_cosine_scaled_pays_a_right_answer_at_least_its_full_amount():
    reward = load_reward("cosine_scaled", max_len=100, min_value_correct=0.3)
    paid = reward(prompts=["p"], completions=[r"\boxed{2}"], completion_ids=[[1] * 1000], answer=["2"])
    assert paid == [0.3] and reward.full == 0.3


@pytest.mark.parametrize(
    "name, parameters, said",
    [
        ("length", {"target": 0}, "target is 0"),
        ("length", {"target": 5, "tolerance": -1}, "tolerance -1"),
        ("length", {}, "missing 1 required positional argument: 'target'"),
        ("soft_overlong", {"max_completion_len": 10, "soft_punish_cache": 11}, "soft_punish_cache is 11"),
        ("repetition_penalty", {"max_penalty": 1.0}, "max_penalty 1.0 should not be positive"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(name, parameters, said):
    with pytest.raises(ValueError, match=said):
        load_rewards([name], {name: parameters})


@pytest.mark.parametrize("name", ["length", "soft_overlong", "repetition_penalty", "cosine_scaled"])
def test_parameters_survive_pickling(name):
    parameters = {
        "length": {"target": 7},
        "soft_overlong": {"max_completion_len": 9, "soft_punish_cache": 5},
        "repetition_penalty": {"ngram_size": 1},
        "cosine_scaled": {"max_len": 3},
    }[name]
    reward = load_reward(name, **parameters)
    ids = [[1] * 8]
    columns = {"prompts": ["p"], "completions": [r"\boxed{2}"], "completion_ids": ids, "answer": ["2"]}
    assert pickle.loads(pickle.dumps(reward))(**columns) == reward(**columns) != [0.0]
