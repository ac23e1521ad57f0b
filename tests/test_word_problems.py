"""Generated word problems: right answers, templates held out, GSM8K's short questions apart."""

import itertools
import json
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
def test_each_calculation_is_right_and_the_last_one_is_the_answer(template):
    for item in itertools.islice(word_problems([template], seed=0), 20):
        *steps, last = item["answer"].split("\n")
        results = []
        for step in steps:
            calculation = re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)", step)
            first, sign, second, result = calculation.groups()
            assert OPERATORS[sign](int(first), int(second)) == int(result)
            results.append(int(result))
        assert last == f"#### {results[-1]}" and 0 < results[-1] <= 60
        assert "{" not in item["question"] and len(steps) == len(template) - 1


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


def test_only_the_short_questions_of_gsm8k_are_evaluated_and_apart(tmp_path):
    answers = ["3*4=<<3*4=12>>12\n#### 12", "<<1+1=2>>2 <<2+2=4>>4 <<4+4=8>>8\n#### 8"]
    lines = [
        json.dumps({"question": f"How many? {i}", "answer": text}) for i, text in enumerate(answers)
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    recipe = load_recipe(
        CONFIG, ["--num_train_rows", "4", "--num_eval_rows", "2", "--dataset_path", str(tmp_path)]
    )
    (row,) = [row for row in recipe.eval_rows if row["source"] == "gsm8k"]
    assert (row["answer"], recipe.module.metric(row, "It is 12.")) == (
        "12",
        {"gsm8k lenient": True},
    )
    with pytest.raises(ValueError, match="there is no file"):
        load_recipe(CONFIG, ["--dataset_path", str(tmp_path / "nothing")])


def test_more_problems_than_a_template_gives_are_refused(recipe):
    with pytest.raises(ValueError, match="distinct problems: ask for fewer rows"):
        recipe.module.distinct([("What is {a} plus {b}?", "a + b")], 0, 400, 0)
