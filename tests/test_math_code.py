"""Several tasks in one run: mixed by weight, apart from held-out rows, each by its own rewards."""

import json

import pandas as pd
import pytest
from support.launching import ROOT, command, run

from recipes.common.data.recipe import import_recipe
from recipes.common.utils.run_files import read_json, write_rows


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/math_code/train.py")


def load(recipe, **settings):
    return recipe.load_rows(recipe.RecipeArguments(**{"num_eval_rows": 16, **settings}), seed=0)


def test_rows_are_mixed_by_weight_and_none_is_in_both_splits(recipe, tmp_path):
    for split, start in (("train", 0), ("test", 500)):
        answers = {f"Twice {i}?": f"Double it.\n#### {2 * i}" for i in range(start, start + 300)}
        items = [{"question": text, "answer": answer} for text, answer in answers.items()]
        write_rows(tmp_path / f"{split}.jsonl", items)
    gsm8k = {"path": str(tmp_path)}
    train, held_out = load(recipe, sources={"sums": {"weight": 3}, "gsm8k": gsm8k})
    of_gsm8k = [row["prompt"][-1]["content"].startswith("Twice") for row in train]
    assert 0.2 < sum(of_gsm8k) / len(train) < 0.3
    prompts = [{json.dumps(row["prompt"]) for row in rows} for rows in (train, held_out)]
    assert len(prompts[1]) == 16 and not prompts[0] & prompts[1]


@pytest.mark.parametrize(
    "sources", [None, {"sum": {}}, {"sums": {"wieght": 1}}, {"sums": {"weight": 0}}]
)
def test_sources_that_mean_nothing_are_refused(recipe, sources):
    with pytest.raises(ValueError, match="with names of sums, gsm8k, passages"):
        load(recipe, sources=sources)


@pytest.mark.parametrize(
    ("row", "completion", "metrics"),
    [
        ({"task": "math", "prompt": "9 + 9 =", "answer": "18"}, "18",
         {"math strict": False, "math lenient": True, "math format": False}),
        ({"task": "number_count", "answer": None}, "1 2 3 4 5", {"five numbers": True}),
        ({"task": "number_count", "answer": None}, "1 2 3 4", {"five numbers": False}),
    ],
)  # fmt: skip
def test_each_task_has_its_own_metric(recipe, row, completion, metrics):
    assert recipe.metric(row, completion) == metrics


@pytest.mark.slow
def test_each_reward_is_logged_over_its_own_rows_alone_and_each_task_has_a_line(model, tmp_path):
    folder = tmp_path / "run"
    settings = {"reward_funcs": ["boxed_math", "number_count", "random"], "max_steps": 3}
    settings["per_device_train_batch_size"] = 16  # 4 prompts a step: both tasks in most of them
    run(command("math_code", "smollm2-135m", model, folder, launch=None, **settings))
    tables = [pd.read_parquet(file) for file in (folder / "completions").glob("*.parquet")]
    assert len(tables) == 3
    table = pd.concat(tables)
    is_math = table["prompt"].map(lambda prompt: "boxed" in prompt[0]["content"])
    assert set(is_math) == {True, False}
    assert table["boxed_math"].notna().equals(is_math)
    assert table["number_count"].isna().equals(is_math)
    assert table["random"].notna().all()
    history = read_json(folder / "trainer_state.json")["log_history"]
    failures = {key: value for entry in history for key, value in entry.items() if "errors" in key}
    assert set(failures.values()) == {0.0} and len(failures) == 3
    table = (folder / "table.txt").read_text()
    assert "\n  math: correct in format " in table and "\n  five numbers " in table
