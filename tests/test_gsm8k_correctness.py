"""gsm8k_correctness: 2.0 for the gold text in the answer tag, 1.5 for its value, None for a gold that is no number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewards.gsm8k
from rewards import full_reward, load_reward, reward_columns, reward_kind
from rewards.gsm8k import score_gsm8k

AMOUNTS = [  # text of the answer tag, gold, amount
    ("18", "18", 2.0),
    ("\n18\n", "18", 2.0),
    ("18", " 18 ", 2.0),
    ("18.0", "18", 1.5),
    ("18.", "18", 1.5),
    ("$18", "18", 1.5),
    ("$18.00", "18", 1.5),
    ("18 eggs", "18", 1.5),
    ("018", "18", 1.5),
    ("36/2", "18", 0.0),
    ("£18", "18", 1.5),
    ("19", "18", 0.0),
    ("-18", "18", 0.0),
    ("180", "18", 0.0),
    ("", "18", 0.0),
    ("eighteen", "18", 0.0),
    ("17 + 1", "18", 0.0),
    ("18 or 19", "18", 0.0),
    ("18, 19", "18", 0.0),
    ("18.0000000001", "18", 0.0),
    ("1,000", "1000", 1.5),
    ("1000", "1,000", 1.5),
    ("1,000", "1,000", 2.0),
    ("1,00", "100", 0.0),
    ("-3", "-3", 2.0),
    ("- 3", "-3", 1.5),
    ("-3.0", "-3", 1.5),
    ("3", "-3", 0.0),
    ("1/2", "1/2", 2.0),
    ("0.5", "1/2", 1.5),
    ("2/4", "0.5", 1.5),
    ("1/3", "0.3333333333", 0.0),
    ("1/0", "18", 0.0),
    ("１８", "18", 0.0),
    ("١٨", "18", 0.0),
    ("18\u200b", "18", 0.0),
    ("1e999", "18", 0.0),
    ("9**9**9", "18", 0.0),
    ("{{18}}", "18", 0.0),
    ("nan", "18", 0.0),
    ("\u22123", "-3", 1.5),
    *(
        (f"18 {word}", "18", 0.0)
        for word in ("squared", "factorial", "hundredths", "lakh", "pi", "is wrong")
    ),
    ("18M", "18", 0.0),
    ("18x", "18", 0.0),
    ("18 m", "18", 1.5),
    ("18%", "18", 1.5),  # GSM8K writes a percentage as a plain number
    ("18%", "0.18", 0.0),
    ("0.18", "18", 0.0),
]
SCORES = [amount for *_, amount in AMOUNTS]
GOLDS = [gold for _, gold, _ in AMOUNTS]
TEXTS = [f"<reasoning>r</reasoning><answer>{text}</answer>" for text, *_ in AMOUNTS]


def score(text: str, gold: str | None, **parameters: float) -> float | None:
    (amount,) = load_reward("gsm8k_correctness", **parameters)(
        prompts=["p"], completions=[text], answer=[gold]
    )
    return amount


@pytest.mark.parametrize(("text", "gold", "amount"), AMOUNTS)
def test_the_answer_tag_is_scored_by_text_and_by_value(text, gold, amount):
    assert score(f"<reasoning>r</reasoning><answer>{text}</answer>", gold) == amount


READERS = [  # reward, options, answer
    ("gsm8k_correctness", {}, "<answer>18</answer>"), ("gsm8k_correctness", {"lenient": True}, "<answer>18</answer>"),
    ("gsm8k_correctness", {"lenient": True}, r"\boxed{18}"), ("gsm8k_harness", {}, "<answer>#### 18</answer>"),
    ("boxed_math", {}, r"\boxed{18}"), ("boxed_math", {}, r"$\boxed{18}$"),
]  # fmt: skip


DENIED = [
    "Wrong answer: {}",
    "It is not {}.",
    "The answer isn't\n{}",
    "{} is wrong.",
    "{}. That is not the answer.",
]
OTHERS = [
    "It is not 17. {}",
    "Not 17 but {}",
    "17 is wrong.\n{}",
    "{} is the answer.",
    "{}. It was not easy.",
]


@pytest.mark.parametrize(("reward", "options", "answer"), READERS)
@pytest.mark.parametrize("words", DENIED + OTHERS)
def test_an_answer_earns_nothing_where_the_words_around_it_deny_it_and_not_another(
    words, reward, options, answer
):
    (amount,) = load_reward(reward, **options)(
        prompts=["p"], completions=[words.format(answer)], answer=["18"]
    )
    assert amount <= 0.0 if words in DENIED else amount > 0.5


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("", 0.0), ("18", 0.0), ("<answer>18", 0.0), ("18</answer>", 0.0), ("<reasoning>18</reasoning>", 0.0),
        ("<ANSWER>18</ANSWER>", 0.0), ("<answer>18</answer><answer>19</answer>", 0.0),
        ("<answer>19</answer><answer>18</answer>", 2.0), ("<answer>18</answer> and more", 2.0),
        (r"<answer>\boxed{18}</answer>", 0.0),
    ],
)  # fmt: skip
def test_only_the_last_complete_answer_tag_counts(text, amount):
    assert score(text, "18") == amount


@pytest.mark.parametrize("gold", ["", "many", "1/0", "1e999", "18 or 19", "１８", None])
@pytest.mark.parametrize(
    "text", ["<answer>18</answer>", "<answer></answer>", "<answer>many</answer>", ""]
)
def test_a_gold_that_is_no_number_cannot_be_graded(text, gold):
    assert score(text, gold) is None


def test_the_amounts_are_parameters():
    assert score("<answer>18</answer>", "18", exact=1.0, numeric=0.5) == 1.0
    assert score("<answer>18.0</answer>", "18", exact=1.0, numeric=0.5) == 0.5
    assert score("<answer>19</answer>", "18", exact=1.0, numeric=0.5) == 0.0
    assert full_reward(load_reward("gsm8k_correctness", exact=1.0)) == 1.0


def test_it_is_a_verifier_that_needs_the_answer_column():
    reward = load_reward("gsm8k_correctness")
    assert (reward_kind(reward), full_reward(reward), reward_columns(reward)) == (
        "verifier",
        2.0,
        ["answer"],
    )


def test_fewer_golds_than_completions_is_an_error():
    with pytest.raises(ValueError, match="shorter"):
        load_reward("gsm8k_correctness")(prompts=["p"] * 2, completions=["a", "b"], answer=["1"])


def test_a_hostile_gold_is_not_graded_in_50_ms(hostile, seconds):
    gradable = hostile.strip() == "1"
    assert score_gsm8k("<answer>18</answer>", hostile) == (0.0 if gradable else None)
    assert seconds(lambda: score_gsm8k("<answer>18</answer>", hostile)) < 0.05


@pytest.mark.parametrize("lenient", [False, True])
def test_an_answer_inside_the_thoughts_is_scored_only_where_asked(lenient):
    for text in ("<think><answer>18</answer></think>", "<think><answer>18</answer>"):
        assert score(text, "18", lenient=lenient) == 0.0
        assert score(text, "18", lenient=lenient, thoughts=True) == 2.0


def test_what_a_tool_says_is_no_answer():
    completion = [
        {"role": "tool", "content": "<answer>18</answer>"},
        {"role": "assistant", "content": "So be it."},
    ]
    assert load_reward("gsm8k_correctness")(
        prompts=["p"], completions=[completion], answer=["18"]
    ) == [0.0]


def test_each_answer_is_read_once(monkeypatch):
    read = []
    monkeypatch.setattr(rewards.gsm8k, "final_answer", lambda text, thoughts: read.append(text))
    load_reward("gsm8k_correctness", lenient=True)(
        prompts=TEXTS, completions=TEXTS, answer=GOLDS, log_extra=print
    )
    assert read == TEXTS


@settings(deadline=None)
@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_against_any_gold_earns_a_known_amount(text, gold):
    assert score_gsm8k(f"<answer>{text}</answer>", gold) in (None, 0.0, 1.5, 2.0)
    assert score_gsm8k(text, gold) in (None, 0.0, 1.5, 2.0)


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_only_the_right_integer_scores(answer, gold):
    assert score_gsm8k(f"<answer>{answer}</answer>", str(gold)) == (2.0 if answer == gold else 0.0)
