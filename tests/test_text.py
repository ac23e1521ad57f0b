"""The text of a completion: what the assistant says, thoughts, tags, programs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.text import (
    after_thinking,
    answer_part,
    completion_text,
    tagged_answer,
    without_programs,
)

ANY_TEXT = st.text(st.characters())  # surrogates included


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "ab"),
        ([{"role": "assistant", "content": None}, {"role": "assistant"}], ""),
        ([], ""),
        ([{"role": "tool", "content": "18"}, {"role": "user", "content": "1"}], ""),
        ([{"content": "hi"}], "hi"),
    ],
)
def test_completion_text_is_what_the_assistant_says_in_both_forms(completion, text):
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("18", "18"),
        ("<think>17</think>18", "18"),
        ("17</think>18", "18"),  # the template wrote <think>
        ("<think>18", ""),  # left open
        ("<think>17</think>16</think>18", "18"),  # the last one closes
        ("<think>17</think>18<think>19", "18"),
        ("18<think>17</think>", ""),
    ],
)
def test_thoughts_are_no_answer(text, rest):
    assert after_thinking(text) == answer_part(text) == rest
    assert answer_part(text, thoughts=True) == text


@pytest.mark.parametrize("token", ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "<eos>"])
def test_nothing_behind_an_end_token_is_said(token):
    assert answer_part(f"18{token}19{token}20") == "18"


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("<answer>\n 4 \n</answer>", "4"),
        ("<answer></answer>", ""),
        ("<answer>4</answer> <answer>5</answer>", "5"),
        ("<answer>4</answer> <answer>5", "4"),  # the last complete one
        ("<answer>4</answer></answer>", "4"),
        ("<answer>4 <answer>5</answer>", "5"),
        ("<answer>4", None),
        ("</answer>4<answer>", None),
        ("<ANSWER>4</ANSWER>", None),
        ("< answer>4</answer>", None),
    ],
)
def test_tag_text_is_the_last_complete_tag(text, inside):
    pass
    assert tagged_answer(text) == inside


def test_a_box_in_the_answer_tag_is_the_answer():
    assert tagged_answer(r"<answer>It is \boxed{4}.</answer>") == "4"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("```python\nprint(1)\n``` 18", " 18"),
        ("```\nprint(1)\n``` 18", " 18"),  # no language, but it prints
        ("18 ```python\nprint(1)", "18 "),  # cut off
        ("```output\n18\n```", "```output\n18\n```"),
        ("```\n18\n```", "```\n18\n```"),
    ],
)
def test_programs_are_left_out_and_their_output_is_not(text, rest):
    assert without_programs(text) == rest


@settings(deadline=None)
@given(*[ANY_TEXT.filter(lambda text: "answer>" not in text)] * 2)
def test_what_is_written_in_a_tag_is_read_back(before, inside):
    assert tagged_answer(f"{before}<answer>{inside}</answer>") == inside.strip()
