"""Generated word problems: right answers, templates held out."""

import itertools
import operator
import re
from pathlib import Path

import pytest

from recipes.common.data.recipe import load_recipe
from recipes.word_problems.templates import NEW, TRAINED, word_problems

OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
CONFIG = Path(__file__).parents[1] / "recipes/word_problems/smollm2-135m.yaml"


@pytest.fixture(scope="module")
def recipe():
    return load_recipe(CONFIG, ["--num_train_rows", "300", "--num_eval_rows", "41"])


@pytest.mark.parametrize("template", [*TRAINED, *NEW], ids=lambda template: template[0][:30])
def test_each_calculation_is_right_and_its_result_is_the_answer(template):
    for item in itertools.islice(word_problems([template], seed=0), 20):
        calculation = re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)", item["calculation"])
        first, sign, second, result = calculation.groups()
        assert OPERATORS[sign](int(first), int(second)) == int(result)
        assert item["answer"] == result and 0 < int(result) <= 60
        assert "{" not in item["question"] and {first, second} <= set(
            re.findall(r"\d+", item["question"])
        )


def test_held_out_rows_are_half_of_old_and_half_of_new_templates_and_none_is_trained_on(recipe):
    sources = [row["source"] for row in recipe.eval_rows]
    assert (sources.count("trained"), sources.count("new")) == (21, 20)
    questions = [
        {row["prompt"][-1]["content"] for row in rows}
        for rows in (recipe.train_rows, recipe.eval_rows)
    ]
    assert (len(questions[0]), len(questions[1]), len(questions[0] & questions[1])) == (300, 41, 0)
    assert set(recipe.train_rows["source"]) == {"trained"}


def test_the_reference_earns_all_and_counts_for_the_metrics_of_its_source(recipe):
    metrics = {
        row["source"]: recipe.module.metric(row, recipe.module.reference_completion(row))
        for row in recipe.eval_rows
    }
    everything = {"strict": True, "lenient": True, "format": True}
    assert metrics == {"trained": everything, "new": everything | {"new lenient": True}}


def test_more_problems_than_a_template_gives_are_refused(recipe):
    with pytest.raises(ValueError, match="distinct problems: ask for fewer rows"):
        recipe.module.distinct([("What is {a} plus {b}?", "a + b")], 0, 400, 0)
