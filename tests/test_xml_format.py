"""xml_format: 0.2 for each of four tags that stands once, in its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import full_reward, load_reward, reward_columns, reward_kind
from rewards.format import TAGS, is_xml_format, score_xml_format

FULL = "<reasoning>3 + 4 = 7</reasoning><answer>7</answer>"
AMOUNTS = [
    (FULL, 0.8),
    ("<reasoning>\nr\n</reasoning>\n<answer>\n7\n</answer>\n", 0.8),
    ("<reasoning></reasoning><answer></answer>", 0.8),
    (f"Sure! {FULL} Hope it helps.", 0.8),
    ("", 0.0),
    ("7", 0.0),
    # unclosed
    ("<reasoning>r</reasoning><answer>7", 0.6),
    ("<reasoning>r<answer>7</answer>", 0.6),
    ("<reasoning>r</reasoning>", 0.4),
    ("<reasoning>r", 0.2),
    ("<answer>7</answer>", 0.4),
    # closed and never opened
    ("r</reasoning><answer>7</answer>", 0.4),
    ("</reasoning></answer>", 0.0),
    # repeated
    ("<reasoning>r</reasoning><answer>7</answer><answer>7</answer>", 0.4),
    ("<reasoning>r<reasoning>r</reasoning><answer>7</answer>", 0.6),
    (f"{FULL}</answer>", 0.6),
    (FULL * 2, 0.0),
    # out of order
    ("<answer>7</answer><reasoning>r</reasoning>", 0.4),
    ("</reasoning><reasoning><answer>7</answer>", 0.6),
    ("</answer></reasoning><answer><reasoning>", 0.2),
    ("<reasoning><answer></reasoning></answer>", 0.6),
    # not the tags
    ("<Reasoning>r</Reasoning><Answer>7</Answer>", 0.0),
    ("<reasoning >r</reasoning ><answer >7</answer >", 0.0),
    ("＜reasoning＞r＜/reasoning＞＜answer＞7＜/answer＞", 0.0),
    ("<reas\u200boning>r</reasoning><answer>7</answer>", 0.4),
]


@pytest.mark.parametrize(("text", "amount"), AMOUNTS)
def test_each_tag_in_its_place_earns(text, amount):
    assert load_reward("xml_format")(prompts=["p"], completions=[text]) == [amount]


@pytest.mark.parametrize(("per_tag", "full"), [(0.2, 0.8), (0.1, 0.4), (0.25, 1.0), (1.0, 4.0)])
def test_the_amount_is_a_parameter(per_tag, full):
    reward = load_reward("xml_format", per_tag=per_tag)
    assert reward(prompts=["p"], completions=[FULL]) == [full] == [full_reward(reward)]


def test_it_is_a_format_reward_that_needs_no_column():
    reward = load_reward("xml_format")
    assert (reward_kind(reward), full_reward(reward), reward_columns(reward)) == ("format", 0.8, [])


def test_hostile_text_is_scored_in_50_ms(hostile, seconds):
    assert seconds(lambda: (score_xml_format(hostile), is_xml_format(hostile))) < 0.05


@settings(deadline=None)
@given(
    st.one_of(
        st.text(st.characters()),
        st.lists(st.sampled_from([*TAGS, " ", "7"]), max_size=9).map("".join),
    )
)
def test_any_text_earns_a_number_of_tags(text):
    earned = score_xml_format(text)
    assert earned in (0.0, 0.2, 0.4, 0.6, 0.8)
    assert earned == 0.8 or not is_xml_format(text)
    assert earned <= 0.2 * len([tag for tag in TAGS if text.count(tag) == 1]) + 1e-9


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        (FULL, True), (f"\n{FULL}\n", True), ("<reasoning>r</reasoning>\n\n<answer>7</answer>", True),
        (f"Sure! {FULL}", False), (f"{FULL} Hope it helps.", False), (f"{FULL}\nHope it helps.", False),
        ("<reasoning>r</reasoning> so <answer>7</answer>", False), ("<reasoning><answer></reasoning></answer>", False),
        ("<reasoning>r<answer>7</answer></reasoning>", False), (FULL * 2, False), ("", False),
    ],
)  # fmt: skip
def test_the_asked_format_is_the_whole_completion(text, formatted):
    assert is_xml_format(text) is formatted
