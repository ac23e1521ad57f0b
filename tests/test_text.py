"""Reading a completion: tags, numbers, exact values; nothing raises and nothing is slow."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.answer import parse_number
from rewards.text import after_thinking, completion_text, tag_text

GSM8K = Path(__file__).parents[2] / "shared" / "data" / "gsm8k"
ANY_TEXT = st.text(st.characters())  # surrogates included


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        ([{"role": "assistant", "content": "hi"}], "hi"),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "ab"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant"}], ""),
        ([], ""),
        (
            [
                {"role": "tool", "content": "18"},
                {"role": "user", "content": "19"},
                {"content": "hi"},
            ],
            "hi",
        ),
    ],
)
def test_completion_text_is_what_the_assistant_says_in_both_forms(completion, text):
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("18", "18"), ("<think>17</think>18", "18"), ("17</think>18", "18"), ("<think>18", ""),
        ("<think>17</think>18<think>19", "18"), ("18<think>17</think>", ""),
    ],
)  # fmt: skip
def test_thoughts_are_no_answer(text, rest):
    assert after_thinking(text) == rest


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("<answer>4</answer>", "4"), ("<answer>\n 4 \n</answer>", "4"), ("<answer></answer>", ""),
        ("<answer>4</answer> <answer>5</answer>", "5"), ("<answer>4</answer> <answer>5", "4"),
        ("<answer>4</answer></answer>", "4"), ("<answer>4 <answer>5</answer>", "5"), ("<answer>4", None),
        ("4</answer>", None), ("</answer>4<answer>", None), ("<ANSWER>4</ANSWER>", None), ("< answer>4</answer>", None),
        ("", None),
    ],
)  # fmt: skip
def test_tag_text_is_the_last_complete_tag(text, inside):
    assert tag_text(text, "answer") == inside


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18), (" 18\n", 18), ("1,000", 1000), ("1,234,567.5", Fraction(2469135, 2)), ("$18", 18), ("$ 18", 18),
        ("-$18", -18), ("$-18", -18), ("18.0", 18), ("18.", 18), ("18 eggs", 18), ("18 eggs.", 18),
        ("3 dollars/hour", 3), ("50%", 50), ("-3", -3), ("- 3", -3), ("+3", 3), ("0", 0), ("007", 7),
        (".5", Fraction(1, 2)), ("1/2", Fraction(1, 2)), ("-1/2", Fraction(-1, 2)), ("2 / 4", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)), ("€ 18", 18), ("-£1.50", Fraction(-3, 2)),
    ],
)  # fmt: skip
def test_parse_number_is_exact(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "eggs", "eggs 18", "18 and 3", "17 + 1", "17+1", "18 = 18", "--3", "-$-3", "1,00", "1,0000", "1 000",
        "1/0", "1/000", "36/2", "4/1", "1/-2", "1e999", "1e3", "9**9**9", "inf", "nan", "0x12", "１８", "١٨", "½",
        "18\u200b", "{18}", "**18**", "1" * 65,
    ],
)  # fmt: skip
def test_parse_number_refuses_what_is_not_one_number(text):
    assert parse_number(text) is None


def test_parse_number_reads_up_to_64_characters():
    assert parse_number("1" * 64) == int("1" * 64)


def test_hostile_text_is_read_in_50_ms(hostile, seconds):
    assert seconds(lambda: (tag_text(hostile, "answer"), parse_number(hostile))) < 0.05


@pytest.mark.parametrize("letter", ["a", "1", "<", "-", "\u200b"])
def test_a_million_characters_take_ten_times_as_long_at_most(letter, seconds):
    text = letter * 1_000_000
    assert seconds(lambda: (tag_text(text, "answer"), parse_number(text))) < 0.5


@settings(deadline=None)
@given(ANY_TEXT)
def test_any_text_is_read(text):
    assert isinstance(parse_number(text), Fraction | None)
    assert tag_text(text, "answer") is None or "<answer>" in text


@settings(deadline=None)
@given(
    ANY_TEXT.filter(lambda text: "answer>" not in text),
    ANY_TEXT.filter(lambda text: "answer>" not in text),
)
def test_what_is_written_in_a_tag_is_read_back(before, inside):
    assert tag_text(f"{before}<answer>{inside}</answer>", "answer") == inside.strip()


@settings(deadline=None)
@given(st.integers(-(10**15), 10**15))
def test_an_integer_is_read_back_in_every_spelling(number):
    sign, size = "-" if number < 0 else "", abs(number)
    for text in (f"{number}", f"{number:,}", f"{sign}${size}", f"{number}.0", f"{number} eggs"):
        assert parse_number(text) == number


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"the real GSM8K is not at {GSM8K}")
@pytest.mark.parametrize(("split", "rows"), [("train", 7473), ("test", 1319)])
def test_every_real_gold_is_a_number(split, rows):
    lines = (GSM8K / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    golds = [json.loads(line)["answer"].split("####")[1].strip() for line in lines]
    assert len(golds) == rows
    assert [gold for gold in golds if parse_number(gold) is None] == []
