"""The text of a completion: what the assistant says, thoughts, tags, boxes, programs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.answer import last_tag
from rewards.text import (
    after_thinking,
    answer_part,
    boxed_answer,
    completion_text,
    gold_answer,
    last_boxed,
    without_programs,
)

CASES = {  # what reads it: texts, and what is read
    completion_text: [
        ("hi", "hi"), ([{"role": "assistant", "content": "9*2"}, {"content": "18"}], "9*2\n18"),
        ([{"role": "assistant", "content": None}, {"role": "assistant"}], ""),
        ([{"role": "tool", "content": "18"}, {"role": "user", "content": "1"}], ""),
    ],
    after_thinking: [
        ("<think>17</think>18", "18"), ("17</think>18", "18"),  # the template wrote <think>
        ("<think>18", ""), ("<think>17</think>16</think>18", "18"), ("17</think>18<think>9", "18"),
    ],
    answer_part: [
        ("18<|im_end|>19<|im_end|>20", "18"), ("18</s>19", "18"), ("<think>17</think>18", "18"),
    ],
    without_programs: [
        ("```python\nprint(1)\n``` 18", " 18"), ("18 ```python\nprint(1)", "18 "),
        ("```output\n8", "```output\n8"), ("```json\n8", "```json\n8"), ("```\n8", "```\n8"),
    ],
    last_tag: [
        ("<answer>\n 4 \n</answer>", "4"), ("<answer></answer>", ""),
        # The last complete one.
        ("<answer>4</answer> <answer>5</answer>", "5"), ("<answer>4</answer> <answer>5", "4"),
        ("<answer>4</answer></answer>", "4"), ("<answer>4 <answer>5</answer>", "5"),
        ("</answer>4<answer>", None), ("<ANSWER>4</ANSWER>", None),
        (r"<answer>It is \boxed{4}.</answer>", "4"),
    ],
    last_boxed: [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."), (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{a\boxed{b}}", r"a\boxed{b}"), (r"} \boxed {1}", "1"), (r"$\boxed 5$", "5"),
        (r"\fbox{5}", "5"), ("boxed{1}", None),
    ],
    boxed_answer: [
        (r"\boxed{-2} \quad \text{and} \quad \boxed{1}", "-2 or 1"),
        (r"\boxed{1}\boxed{2}", "2"),  # a second answer, not a second half
        (r"\boxed{1}, \boxed{1}", "1"), (r"\boxed{1} thus \boxed{2} or \boxed{3}", "2 or 3"),
        (r"\boxed{1}, " + " " * 80 + r"\boxed{2}", "2"),
        (r"\boxed{1}," * 21 + r"\boxed{2}", "1 or 2"),
        (r"\boxed{" + "\\" * 10**5 + "7}", "\\" * 10**5 + "7"),  # not a minute of searching
    ],
    gold_answer: [
        ("$18$", "18"), (r"So $x = \boxed{18}$.", "18"), ("$125$ miles", "125 miles"),
        (r"\$18", r"\$18"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("read", CASES)
def test_a_text_is_read(read):
    for text, result in CASES[read]:
        assert read(text) == result, text


@settings(deadline=None)
@given(*[st.text(st.characters()).filter(lambda text: not set("<\\") & set(text))] * 2)
def test_what_is_written_in_a_tag_is_read_back(before, inside):
    text = f"{before}.{' ' * 80}<answer>{inside}</answer>."
    assert last_tag(text) == inside.strip()
