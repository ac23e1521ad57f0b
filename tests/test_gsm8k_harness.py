"""gsm8k_harness rewards `####` only with a right answer behind it, and talking on costs."""

import pytest

from rewards import full_reward, load_reward
from rewards.gsm8k import score_harness


@pytest.mark.parametrize(
    "text, amount",
    [
        ("<answer>18</answer>", 2.0),
        ("<answer>#### 18</answer>", 2.2),
        ("<answer>\n#### 18.00\n</answer>\n", 1.7),
        ("<answer>#### $18</answer>", 1.5),  # the strict filter would not find these two
        ("<answer>####18</answer>", 2.0),
        ("<answer>#### 17</answer>", 0.0),
        ("#### 18", 0.0),  # the tag is asked for
        ("<answer>####</answer>", 0.0),
        ("<answer></answer>####", -0.004),
        ("<answer>18</answer> " + "x" * 100, 1.9),
        ("<answer>18</answer> " + "x" * 10_000, 1.5),
        ("<answer>17</answer> " + "x" * 100, -0.1),
        ("no tag " + "x" * 100, 0.0),
        ("<answer>18</answer>" + " blah" * 500 + "</answer>", 1.5),
    ],
)
def test_exact_amounts(text, amount):
    assert score_harness(text, "18") == amount


def test_a_gold_that_is_not_a_number_cannot_be_graded():
    reward = load_reward("gsm8k_harness")
    assert reward(prompts=["p"], completions=["<answer>18</answer>"], answer=["eighteen"]) == [None]


def test_parameters_set_the_scores():
    reward = load_reward("gsm8k_harness", exact=1.0, marker=0.5, per_character=0.1, max_penalty=0.3)
    texts = ["<answer>#### 18</answer>", "<answer>18</answer>ab", "<answer>18</answer>" + "abcdef"]
    assert reward(prompts=["p"] * 3, completions=texts, answer=["18"] * 3) == [1.5, 0.8, 0.7]
    assert full_reward(reward) == 1.0
