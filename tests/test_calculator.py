"""The calculator recipe: what its tool works out, and what its rows ask for."""

import pytest

from recipes.calculator.calculator import Calculator, text_of, value_of
from recipes.calculator.train import (
    RecipeArguments,
    load_rows,
    metric,
    reference_completion,
    to_row,
)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-7 + 2", "-5"),
        ("7 / 2", "3.5"),
        ("2.00001 * 1", "2"),
        ("1 / 100000", "0"),
        ("1e30 * 1e30 / 8 + 0.5", "125" + "0" * 57),
        (" 0.1 + 0.2", "0.3"),
    ],
)
def test_an_expression_is_worked_out_exactly(expression, result):
    assert text_of(value_of(expression)) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "2 +",
        "1 / 0",
        "2 ** 9",
        "x + 1",
        "f(1)",
        "True",
        "'a' * 9",
        "__import__('os')",
        "9" * 81,
        "(" * 40,
        "1j",
    ],
)
def test_anything_else_is_an_error_that_the_model_reads(expression):
    with pytest.raises(ValueError):
        value_of(expression)


def test_the_last_result_is_scored():
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


def test_a_question_is_worked_out_from_left_to_right():
    row = to_row(47, [("+", 38), ("*", 6), ("-", 129)])
    assert row["prompt"][-1]["content"] == "Take 47, add 38, multiply by 6, subtract 129."
    assert (row["expression"], row["answer"]) == ("(47 + 38) * 6 - 129", "381")
    assert to_row(2, [("*", 3), ("*", 4)])["expression"] == "2 * 3 * 4"
    assert to_row(2, [("+", 3), ("*", 4), ("*", 5)])["expression"] == "(2 + 3) * 4 * 5"


def test_held_out_questions_are_not_in_training_and_follow_from_the_seed():
    train, held_out = load_rows(RecipeArguments(num_train_rows=300, num_eval_rows=20), 0)
    assert (len(train), len(held_out)) == (300, 20)
    questions = [{row["prompt"][-1]["content"] for row in rows} for rows in (train, held_out)]
    assert [len(each) for each in questions] == [300, 20] and not questions[0] & questions[1]
    assert (
        load_rows(RecipeArguments(num_train_rows=300, num_eval_rows=20), 1)[1].to_list()
        != held_out.to_list()
    )


def test_the_metric_reads_the_answer():
    row = to_row(2, [("+", 3)])
    assert metric(row, reference_completion(row)[-1]["content"]) == {
        "strict": True,
        "lenient": True,
    }
    assert metric(row, "It is 5.") == {"strict": False, "lenient": True}
    assert metric(row, "<answer>6</answer>") == {"strict": False, "lenient": False}
