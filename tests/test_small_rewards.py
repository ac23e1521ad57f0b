"""Length counts tokens, prose counts words, and control arms know nothing of the answer."""

import pytest
from transformers import TrainerState

from rewards import load_reward


def score(name: str, texts: list[str], tokens: list[int] = (), step: int = 0, **parameters):
    return load_reward(name, **parameters)(
        prompts=["p"] * len(texts),
        completions=texts,
        completion_ids=[[1] * count for count in tokens],
        trainer_state=TrainerState(global_step=step),
    )


def test_length_scores_tokens_near_the_target():
    tokens = [45, 55, 75, 20, 105, 500]
    amounts = score("length", [""] * 6, tokens, target=50, tolerance=5)
    assert amounts == [1.0, 1.0, 0.6, 0.5, 0.0, 0.0]


def test_soft_overlong_punishes_the_last_tokens_before_the_limit():
    limits = {"max_completion_len": 100, "soft_punish_cache": 20}
    amounts = score("soft_overlong", [""] * 5, [0, 80, 90, 100, 101], **limits)
    assert amounts == [0.0, 0.0, -0.5, -1.0, -1.0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("length", {"target": 0}),
        ("length", {"target": 5, "tolerance": -1}),
        ("equation_steps", {"uses": 0}),
        ("soft_overlong", {"max_completion_len": 1, "soft_punish_cache": 2}),
    ],
)
def test_parameters_that_mean_nothing_are_refused(name, parameters):
    with pytest.raises(ValueError, match=f"^{name}: "):
        load_reward(name, **parameters)


def test_prose_scores_from_its_share_of_words_on():
    texts = ["Don't go, 2013-07-25: (well)", "état naïve", "a b 1 2", "a 1 2", "1 2 3", ""]
    amounts = score("prose", texts, min_words=0.5, full=2.0)
    assert amounts == [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]


def test_random_is_uniform_and_the_same_for_the_same_seed_step_and_text_alone():
    drawn = score("random", ["a", "\ud800"])
    assert drawn == score("random", ["a", "\ud800"]) == score("random", ["\ud800", "a"])[::-1]
    others = score("random", ["a"], step=1) + score("random", ["a"], seed=1)
    assert len({*drawn, *others}) == 4
    assert load_reward("random")(prompts=["p"], completions=["a"]) == drawn[:1]  # without a trainer
    many = score("random", [str(i) for i in range(2000)])
    assert 0.0 <= min(many) < 0.01 and 0.99 < max(many) <= 1.0
    assert abs(sum(many) / 2000 - 0.5) < 0.02


def test_constant_gives_its_value():
    assert score("constant", ["a", ""], value=0.3) == [0.3, 0.3]


@pytest.mark.parametrize(
    ("completions", "expected"),
    [
        (["<answer>7</answer>", "It is 8.", "#### 7.0", "no idea"], [1, 0, 1, 0]),  # by its value
        (["1", "2", "2", "1"], [1, 1, 1, 1]),  # two answers are equally common
        ([r"\boxed{x+1}", r"\boxed{x}", r"\boxed{x+1}"], [1, 0, 1]),  # no number: its text
        (["", "none", ""], [0, 0, 0]),  # nothing to agree on
    ],
)
def test_majority_pays_the_most_common_final_answer_of_a_group(completions, expected):
    assert score("majority", completions) == expected


def test_majority_counts_each_prompt_apart():
    prompts = ["p", "p", "q", "q", "p"]
    amounts = load_reward("majority")(prompts=prompts, completions=["1", "1", "2", "3", "2"])
    assert amounts == [1, 1, 1, 1, 0]
