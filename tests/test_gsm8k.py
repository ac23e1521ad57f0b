"""gsm8k_correctness and gsm8k_harness: exact amounts for the text of the answer tag."""

import pytest

from rewards import load_reward
from rewards.gsm8k import score_harness

AMOUNTS = [  # text of the answer tag, gold, amount
    ("18", "18", 2.0), ("\n18\n", " 18 ", 2.0), (r"\boxed{18}", "18", 2.0), ("#### 18", "18", 2.0),
    # The same value in another spelling; test_answer has all the spellings.
    ("18.0", "18", 1.5), ("18 eggs", "18", 1.5), ("0.5", "1/2", 1.5), ("1,000", "1000", 1.5),
    ("= 18", "18", 1.5), ("USD 18", "18", 1.5), ("=-18", "-18", 1.5), ("18%", "18", 1.5),
    # Another value, or none.
    ("19", "18", 0.0), ("", "18", 0.0), ("36/2", "18", 0.0), ("18 or 19", "18", 0.0),
    ("18.0000000001", "18", 0.0), ("18\u200b", "18", 0.0), ("18 thousand", "18", 0.0),
    ("~18", "18", 0.0), ("20 = 18", "18", 0.0), ("= 9*2", "18", 0.0),
    ("18%", "0.18", 0.0),  # GSM8K writes a percentage as a plain number
]  # fmt: skip


def score(text: str, gold: str | None, reward: str = "gsm8k_correctness", **parameters) -> float:
    (amount,) = load_reward(reward, **parameters)(prompts=["p"], completions=[text], answer=[gold])
    return amount


@pytest.mark.parametrize(("text", "gold", "amount"), AMOUNTS)
def test_the_answer_tag_is_scored_by_text_and_by_value(text, gold, amount):
    assert score(f"<reasoning>r</reasoning><answer>{text}</answer>", gold) == amount


READERS = [  # reward, options, answer
    ("gsm8k_correctness", {}, "<answer>18</answer>"),
    ("gsm8k_correctness", {"lenient": True}, r"\boxed{18}"),
    ("gsm8k_harness", {}, "<answer>#### 18</answer>"),
    ("boxed_math", {}, r"$\boxed{18}$"),
]
DENIED = [
    "Wrong answer: {}", "It is not {}.", "The answer isn't\n{}", "{} is wrong.",
    "{}. That is not the answer.",
]  # fmt: skip
OTHERS = ["It is not 17. {}", "Not 17 but {}", "{} is the answer.", "{}. It was not easy."]


@pytest.mark.parametrize(("reward", "options", "answer"), READERS)
def test_words_around_an_answer_deny_it_and_not_another(reward, options, answer):
    texts = {words: words.format(answer) for words in DENIED + OTHERS}
    unpaid = [words for words, text in texts.items() if score(text, "18", reward, **options) <= 0]
    assert unpaid == DENIED


THINKING = [reader for reader in READERS if reader[0] != "gsm8k_harness"]  # which has no option


@pytest.mark.parametrize(("reward", "options", "answer"), THINKING)
def test_an_answer_inside_the_thoughts_is_scored_only_where_asked(reward, options, answer):
    for text in (f"<think>{answer}</think>", f"<think>{answer}"):
        assert score(text, "18", reward, **options) <= 0.0
        assert score(text, "18", reward, **options, thoughts=True) > 0.0


@pytest.mark.parametrize("gold", ["", "many", "1/0", "18 or 19", "１８", None])
def test_a_gold_that_is_no_number_cannot_be_graded(gold):
    for text in ("<answer>18</answer>", "<answer>many</answer>", ""):
        assert score(text, gold) is score(text, gold, lenient=True) is None
        assert score(text, gold, "gsm8k_harness") is None


def test_the_amounts_are_parameters():
    assert score("<answer>18</answer>", "18", exact=1.0, numeric=0.5) == 1.0
    assert score("<answer>18.0</answer>", "18", exact=1.0, numeric=0.5) == 0.5
    assert score("It is 18.", "18", exact=1.0, lenient=True) == 1.0
    assert score("It is 18.", "18", exact=1.0) == 0.0, "it stands in no tag"
    amounts = {"exact": 1.0, "marker": 0.5, "per_character": 0.1, "max_penalty": 0.3}
    texts = ["<answer>#### 18</answer>", "<answer>18</answer>ab", "<answer>18</answer>abcdef"]
    assert [score(text, "18", "gsm8k_harness", **amounts) for text in texts] == [1.5, 0.8, 0.7]
    with pytest.raises(ValueError, match="markr"):
        load_reward("gsm8k_harness", markr=1.0)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("<answer>18</answer>", 2.0), ("<answer>#### 18</answer>", 2.2),
        ("<answer>\n#### 18.00\n</answer>\n", 1.7),
        # The strict filter would not find these two.
        ("<answer>#### $18</answer>", 1.5), ("<answer>####18</answer>", 2.0),
        ("<answer>#### 17</answer>", 0.0), ("#### 18", 0.0),  # the tag is asked for
        ("<answer></answer>####", -0.004), ("<answer>18</answer> " + "x" * 100, 1.9),
        ("<answer>18</answer> " + "x" * 10_000, 1.5), ("<answer>17</answer> " + "x" * 100, -0.1),
    ],
)  # fmt: skip
def test_the_harness_rewards_the_marker_and_fines_talking_on(text, amount):
    assert score_harness(text, "18") == amount
