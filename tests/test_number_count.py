"""number_count counts whole numbers of the completion, and nothing that merely has digits in it."""

import pytest

from rewards import load_reward
from rewards.number_count import count_whole_numbers, score_number_count


@pytest.mark.parametrize(
    "text, count",
    [
        ("", 0),
        ("no digits here", 0),
        ("3 cats and 12 dogs", 2),
        ("1,000 ships", 1),
        ("1,2,3", 3),
        ("1,0000", 2),  # no thousands: two numbers
        ("pi is 3.14", 0),
        ("$1,234.56", 0),
        ("route66 and a4", 0),
        ("It was 1902.", 1),
        ("-5 and +6", 2),
        ("(7) [8] 9%", 3),
        ("2013-07-25", 3),
        ("1 2 3 4 5 6 7", 7),
        ("１８ and ١٨", 0),  # full-width and Arabic digits
        ("v1.2.3", 0),
    ],
)
def test_whole_numbers_are_counted(text, count):
    assert count_whole_numbers(text) == count


@pytest.mark.parametrize(
    "text, amount", [("none", -0.2), ("1", 0.2), ("1 2 3", 0.6), ("1 2 3 4 5", 1.0), ("1 2 3 4 5 6", 1.0)]
)
def test_each_number_pays_up_to_the_cap(text, amount):
    assert score_number_count(text) == amount


def test_parameters_set_what_is_paid():
    reward = load_reward("number_count", per_number=0.5, cap=2.0, none=0.0)
    assert reward(prompts=["a", "a", "a"], completions=["1 2 3", "1 2 3 4 5 6", "x"]) == [1.5, 2.0, 0.0]


def test_numbers_in_the_prompt_do_not_count():
    prompt = [{"role": "user", "content": "1 2 3 4 5"}]
    completion = [{"role": "assistant", "content": "one 6"}]
    assert load_reward("number_count")(prompts=[prompt], completions=[completion]) == [0.2]


def test_a_hostile_completion_is_counted_in_linear_time(hostile, seconds):
    assert seconds(lambda: score_number_count(hostile)) < 0.05
