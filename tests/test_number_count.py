"""number_count counts whole numbers of the completion, and nothing that merely has digits in it."""

import pytest

from rewards import load_reward
from rewards.number_count import count_whole_numbers, score_number_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("no digits here", 0), ("3 cats and 12 dogs", 2), ("1,000 ships", 1), ("1,2,3", 3),
        ("1,0000", 2),  # not thousands: two numbers
        ("pi is 3.14", 0), ("$1,234.56", 0), ("route66 and a4", 0), ("It was 1902.", 1),
        ("-5 and +6", 2), ("(7) [8] 9%", 3), ("2013-07-25", 3), ("v1.2.3", 0),
        ("１８ and ١٨", 0),  # full-width and Arabic digits
    ],
)  # fmt: skip
def test_whole_numbers_are_counted(text, count):
    assert count_whole_numbers(text) == count


def test_each_number_earns_up_to_the_cap_and_none_costs():
    texts = ["none", "1", "1 2 3", "1 2 3 4 5", "1 2 3 4 5 6"]
    assert [score_number_count(text) for text in texts] == [-0.2, 0.2, 0.6, 1.0, 1.0]
    reward = load_reward("number_count", per_number=0.5, cap=2.0, none=0.0)
    assert reward(prompts=["1 2"] * 3, completions=["1 2 3", "1 2 3 4 5 6", "x"]) == [1.5, 2.0, 0.0]
