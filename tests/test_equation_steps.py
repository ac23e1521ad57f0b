"""equation_steps: which equations it reads, what they earn, and that padding earns nothing."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import load_reward
from rewards.boundary import score
from rewards.contract import total
from rewards.process import MAX_CHARS, EquationSteps, equations, numbers_in


def read(text: str) -> list[bool]:
    """Of each equation that is read, whether it is right."""
    return [left.value == right.value for left, right in equations(text)]


# What is read


@pytest.mark.parametrize(
    "text",
    [
        "3 + 4 = 7", "3+4=7", "so 3 + 4 = 7 pens.", "(3 + 4 = 7)", "- 3 + 4 = 7", "$3 + $4 = $7.00",
        "1,000 * 5 = 5,000", "0.1 + 0.2 = 0.3", "2 * (3 + 4) = 14", "1 / 3 = 2 / 6", "-2 + 5 = 3",
        "2 - 5 = -3", "5 × 4 = 20", r"5 \times 4 = 20", "20 ÷ 4 = 5", "5 x 4 = 20", "7 − 2 = 5",
        "**3 + 4 = 7**", "3 + 4 = **7**", "* 3 + 4 = 7", "007 + 1 = 8", ".5 * 4 = 2",
        "6 / 2 = 3 - that is all",
    ],
)  # fmt: skip
def test_a_right_equation_is_read_as_right(text):
    assert read(text) == [True]
    assert read(text.replace("=", "= 1 + ")) == [False]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("3 + 4 = 7,7 - 2 = 5", [True, True]),
        ("3 + 4 = 7 - 2 = 5", [False, True]),  # a chain
        ("5 / 0 = 5 / 0", [False]),  # which equals nothing
        ("10 / 3 = 3.33", [False]),  # a rounded result is wrong
        ("(3 + 4 = 7", [True]),
    ],
)
def test_each_equation_is_right_or_wrong(text, right):
    assert read(text) == right


@pytest.mark.parametrize(
    "text",
    [
        "", "=", "3 + 4", "5 = 5", "Day 1 = 7", "total = 3 + 4", "x + 4 = 7", "5 apples + 3 = 8",
        "3 boxes * 4 pens = 12", "3 + 4 == 7", "3 + 4 != 8", "3 + 4 >= 5", "2(3) + 1 = 7",
        "8 x 1 1/2 = 12", "2x + 3 = 7", "50% * 2 = 1", "3 + 4 = 7%", "6:00 + 48 = 6:48",
        "2 ** 3 = 8", "7 // 2 = 3", "3 + = 7", "3 + +4 = 7", "3 + 4\n= 7", "A1 + 2 = 3",
        "１ + １ = ２", "1" * 16 + " + 1 = 2", "1 + " * 21 + "1 = 22", "3 + 4 = seven",
        "10 / 4 = 2.5kg", "25 / 200 = 12.5 %", r"25 / 200 = 12.5\%", "60 * 60 = 3,600m",
        "1 / 2 = 0.5000000000000000", "1) 3 + 4 = 7",
        # Of more than the four operations: right as they are meant.
        "3^2 + 4 = 13", "4 + 5 = 3^2", "4 + 5 = 3 squared", "10% of 200 + 5 = 25",
        "twice 4 + 3 = 11", "5 + 7 = 1 dozen", "1 + 5 = 2 times 3", "3 percent of 100 + 1 = 4",
        "√16 + 3 = 7", "3 + 4 = 7 thousandths", "3 + 4 = 7 factorial",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_no_equation(text):
    assert read(text) == []


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text(st.sampled_from("0123456789+-*/()=.,$ x\n\\aé½×"), max_size=80))
def test_an_equation_ends_in_its_text_behind_a_number(text):
    for left, right in equations(text):
        assert 0 < left.end < right.end <= len(text) and len(left.numbers) > 1
        assert text[right.end - 1] in "0123456789)"


# What is scored


def test_a_right_step_is_rewarded_and_a_wrong_one_is_fined_where_it_ends():
    assert EquationSteps().steps("3 + 4 - 2 =", "3 + 4 = 7, 7 - 2 = 6") == [(9, 1.0), (20, -1.0)]
    assert EquationSteps(right=2.0).steps("3 + 4 =", "3 + 4 = 7") == [(9, 2.0)]
    assert EquationSteps().steps("3 + 4 =", "no idea") == []
    row, text = {"prompt": "3 + 4 - 2 ="}, "3 + 4 = 7, 7 - 2 = 5"
    assert score(EquationSteps(), [row], [text])[0] == [2.0]  # outside training


def test_the_reasoning_is_scored_and_nothing_else():
    text = "3 + 4 = 8 <reasoning>3 + 4 = 7</reasoning><answer>3 + 4 = 9</answer>"
    assert EquationSteps().steps("3 + 4 =", text) == [(30, 1.0)]
    assert text[:30].endswith("3 + 4 = 7")
    assert len(EquationSteps().steps("3 + 4 =", text.replace("</reasoning>", ""))) == 3


@pytest.mark.parametrize(
    ("text", "question", "rewards"),
    [
        # Numbers that are not there earn nothing.
        ("5 + 6 = 11, 1 + 1 = 2, 1 + 1 = 3", "3 + 4 - 2 =", [-1.0]),
        # A right equation earns by a number alone on its right.
        ("3 + 4 = 3 + 4, 7 - 2 = 7 - 2", "3 + 4 - 2 =", []),
        ("3 + 4 = 4 + 3 = 7", "3 + 4 =", [1.0]), ("3 + 4 = 5 + 3", "3 + 4 - 2 =", [-1.0]),
        ("3 + 4 - 2 = 7 - 2 = 5", "3 + 4 - 2 =", []), ("1 / 6 = 1 / 6", "1 and 6", []),
        # A number is used as often as it is there.
        ("3 + 4 = 7, 4 + 3 = 7, 3 + 2 = 5", "3 + 4 - 2 =", [1.0]),
        ("3 + 3 = 6, 6 + 3 = 9", "3 + 3 + 3 =", [1.0, 1.0]),
        # A result may be used, a wrong one may not.
        ("3 + 4 = 7, 7 - 2 = 5", "3 + 4 - 2 =", [1.0, 1.0]),
        ("3 + 4 = 8, 8 - 2 = 6", "3 + 4 - 2 =", [-1.0]),
        ("3 + 4 = 8, no: 3 + 4 = 7, 7 - 2 = 5", "3 + 4 - 2 =", [-1.0, 1.0, 1.0]),
        ("3 - 5 = -2, -2 + 4 = 2", "3 - 5 + 4 =", [1.0, 1.0]),
    ],
)  # fmt: skip
def test_an_equation_earns_by_the_numbers_that_are_there(text, question, rewards):
    assert [reward for _, reward in EquationSteps().steps(question, text)] == rewards


def test_a_number_may_be_used_more_often_where_asked_which_is_farmable():
    assert len(EquationSteps(uses=2).steps("3 4 2", "3 * 4 = 12, 3 + 2 = 5")) == 2
    assert load_reward("equation_steps").farmable is None
    assert load_reward("equation_steps", uses=2).farmable


def test_steps_behind_the_limit_are_not_looked_at():
    wrong = "1 + 1 = 3. " * 50
    assert len(EquationSteps().steps("3 4 2", wrong)) == 16
    assert len(EquationSteps(max_steps=2).steps("3 4 2", wrong)) == 2
    assert EquationSteps().steps("3 + 4 =", " " * MAX_CHARS + "3 + 4 = 7") == []


def test_the_numbers_of_a_question_are_those_of_its_last_message():
    example = [{"role": "user", "content": "8 + 5 ="}, {"role": "assistant", "content": "13"}]
    asked = [*example, {"role": "user", "content": "3 + 4 ="}]
    texts = ["8 + 5 = 13", "3 + 4 = 7", "3 + 4 = 7"]
    steps = EquationSteps()(prompts=[asked, asked, "3 and 4"], completions=texts)
    assert steps == [[], [(9, 1.0)], [(9, 1.0)]]
    numbers = numbers_in("Half of 1,000 eggs, two dozen at $5.50 and 5.50, nine years old")
    assert numbers == {2: 2, 1000: 1, 12: 1, Fraction(11, 2): 2, 9: 1}


WRITTEN = ["3 + 4 = 7", "7 - 2 = 5", "3 * 4 = 12", "12 / 4 = 3", "2 + 2 = 4", "3 = 3"]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(WRITTEN), max_size=30).map(", ".join))
def test_no_text_earns_more_than_the_numbers_of_the_question_less_one(text):
    assert total(EquationSteps(max_steps=1000).steps("3 + 4 - 2 =", text)) <= 2.0
