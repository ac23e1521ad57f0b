"""The calculator recipe: what its tool works out, and what its rows ask for."""

import pytest

from recipes.calculator.calculator import Calculator, text_of, value_of
from recipes.calculator.train import RecipeArguments, load_rows, to_row


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(2 + 3) * 4", "20"),
        ("-7 + 2", "-5"),
        ("2.00001 * 1", "2"),  # at most four decimals
        (" 0.1 + 0.2", "0.3"),  # not a float's 0.30000000000000004
        (f"{10**39} * {10**21} / 8 + 0.5", "125" + "0" * 57),  # nor a float's overflow
    ],
)
def test_an_expression_is_worked_out_exactly(expression, result):
    assert text_of(value_of(expression)) == result


@pytest.mark.parametrize(
    "expression",
    ["", "1 / 0", "2 ** 9", "__import__('os')", "9" * 81, "(" * 40],  # the last two: too long, deep
)
def test_anything_else_is_an_error_that_the_model_reads(expression):
    with pytest.raises(ValueError):
        value_of(expression)


def test_the_last_result_of_the_row_is_scored():
    calculator = Calculator()
    calculator.reset(answer="20", task="calculator")
    assert calculator.get_reward() == 0.0
    calculator.calculate("(2 + 3) * 4")
    assert calculator.get_reward() == 1.0
    with pytest.raises(ValueError):
        calculator.calculate("2 +")
    assert calculator.get_reward() == 0.0
    calculator.calculate("20")
    calculator.reset(answer="20")
    assert calculator.get_reward() == 0.0, "a result of the row before"


@pytest.mark.parametrize(
    ("first", "steps", "expression", "answer"),
    [
        (47, [("+", 38), ("*", 6), ("-", 129)], "(47 + 38) * 6 - 129", "381"),
        (2, [("*", 3), ("*", 4)], "2 * 3 * 4", "24"),
    ],
)
def test_a_question_is_worked_out_from_left_to_right(first, steps, expression, answer):
    row = to_row(first, steps)
    assert (row["expression"], row["answer"]) == (expression, answer)
    assert row["prompt"][-1]["content"].startswith(f"Take {first}, ")


def test_held_out_questions_are_not_in_training_and_follow_from_the_seed():
    args = RecipeArguments(num_train_rows=300, num_eval_rows=20)
    train, held_out = (
        {row["prompt"][-1]["content"] for row in rows} for rows in load_rows(args, 0)
    )
    assert (len(train), len(held_out), len(train & held_out)) == (300, 20, 0)
    assert {row["prompt"][-1]["content"] for row in load_rows(args, 1)[1]} != held_out
