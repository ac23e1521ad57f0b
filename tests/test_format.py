"""xml_format: 0.2 for each tag in its place; think_answer_format: the whole text or nothing."""

import pytest

from rewards import load_reward
from rewards.format import TAGS, THINK_TAGS, is_think_answer, is_xml_format

FULL = "<reasoning>3 + 4 = 7</reasoning><answer>7</answer>"
AMOUNTS = [
    (FULL, 0.8), ("<reasoning></reasoning><answer></answer>", 0.8), ("7", 0.0),
    # not the whole text
    (f"Sure! {FULL}", 0.6), (f"{FULL}<rem>7</rem>", 0.6),
    # unclosed
    ("<reasoning>r</reasoning><answer>7", 0.6),
    ("<reasoning>r<answer>7</answer>", 0.6), ("<reasoning>r", 0.2),
    # closed and never opened
    ("r</reasoning><answer>7</answer>", 0.4), ("</reasoning></answer>", 0.0),
    # repeated
    ("<reasoning>r</reasoning><answer>7</answer><answer>7</answer>", 0.4),
    (f"{FULL}</answer>", 0.6), (FULL * 2, 0.0),
    # out of order
    ("<answer>7</answer><reasoning>r</reasoning>", 0.2),
    ("</answer></reasoning><answer><reasoning>", 0.2),
    ("<reasoning><answer></reasoning></answer>", 0.6),
    # not the tags
    ("<Reasoning>r</Reasoning><answer >7</answer >", 0.0),
    ("＜reasoning＞r＜/reasoning＞＜answer＞7＜/answer＞", 0.0),
    ("<reas\u200boning>r</reasoning><answer>7</answer>", 0.4),
]  # fmt: skip
# With the tags of either format.
WHOLE = ["{0}r{1}{2}7{3}", "\n{0}\nr\n{1}\n\n{2}\n7\n{3}\n", "{0}{1}{2}{3}"]
NOT_WHOLE = [
    "", "r{1}{2}7{3}", "{0}r{1}", "Sure! {0}r{1}{2}7{3}", "{0}r{1}{2}7{3} Bye",
    "{0}r{1} so {2}7{3}", "{2}7{3}{0}r{1}", "{0}r{2}7{3}{1}", "{0}{2}{1}{3}",
    "{0}r{1}{2}7{3}" * 2, "{0}r{1}{2}7{3}\nBye\n{0}", "{0}{0}r{1}{2}7{3}",
]  # fmt: skip


@pytest.mark.parametrize(("text", "amount"), AMOUNTS)
def test_each_tag_in_its_place_earns(text, amount):
    assert load_reward("xml_format")(prompts=["p"], completions=[text]) == [amount]


@pytest.mark.parametrize(("check", "tags"), [(is_xml_format, TAGS), (is_think_answer, THINK_TAGS)])
def test_a_format_is_the_whole_completion(check, tags):
    assert [text for text in WHOLE + NOT_WHOLE if check(text.format(*tags))] == WHOLE


def test_where_the_prompt_opens_the_thoughts_the_completion_starts_in_them():
    text = "a</think><answer>b</answer>"
    assert not is_think_answer("<think>" + text, prefilled=True)
    reward = load_reward("think_answer_format", full=0.5)
    assert reward(prompts=["Q <think>\n", "Q"], completions=[text, text]) == [0.5, 0.0]
    # A chat prompt does not show what its template writes: it is declared.
    chat = {"prompts": [[{"role": "user", "content": "Q"}]], "completions": [[{"content": text}]]}
    assert reward(**chat) == [0.0]
    assert load_reward("think_answer_format", prefilled=True)(**chat) == [1.0]
