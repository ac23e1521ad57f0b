"""Several tasks in one run: mixed by weight, apart from held-out rows, each by its own rewards."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from support.launching import command, run

from recipes.common.data.recipe import import_recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/math_code/train.py")


@pytest.fixture(scope="module")
def gsm8k_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gsm8k")
    for split, start in (("train", 0), ("test", 500)):
        items = [
            {"question": f"Twice {i}?", "answer": f"Double it.\n#### {2 * i}"}
            for i in range(start, start + 300)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


def load(recipe, **settings):
    return recipe.load_rows(recipe.RecipeArguments(**{"num_eval_rows": 16, **settings}), seed=0)


def test_rows_are_mixed_by_weight(recipe, gsm8k_folder):
    train, held_out = load(
        recipe, sources={"sums": {"weight": 3}, "gsm8k": {"path": str(gsm8k_folder)}}
    )
    of_gsm8k = [row["prompt"][-1]["content"].startswith("Twice") for row in train]
    assert 0.2 < sum(of_gsm8k) / len(train) < 0.3
    assert len(held_out) == 16 and set(held_out["task"]) == {"math"}


def test_no_row_is_in_both_splits(recipe, gsm8k_folder):
    sources = {"sums": {}, "gsm8k": {"path": str(gsm8k_folder)}, "passages": {}}
    train, held_out = (
        {json.dumps(row["prompt"]) for row in rows}
        for rows in load(recipe, sources=sources, num_eval_rows=16)
    )
    assert len(train) > 50 and len(held_out) == 16 and not train & held_out


def test_more_rows_than_there_are_are_refused(recipe):
    with pytest.raises(ValueError, match="and 1000 were asked for"):
        load(recipe, sources={"passages": {}}, num_eval_rows=1000)


def test_a_row_carries_what_its_task_needs(recipe):
    _, rows = load(recipe, sources={"sums": {}, "passages": {}})
    for row in rows:
        assert (row["task"], row["answer"] is None) in (("math", False), ("number_count", True))
        assert ("\\boxed{}" in row["prompt"][0]["content"]) == (row["task"] == "math")


@pytest.mark.parametrize(
    "sources",
    [None, {}, {"sum": {}}, {"sums": 1.0}, {"sums": {"wieght": 1}}, {"sums": {"weight": 0}}],
)
def test_sources_that_mean_nothing_are_refused(recipe, sources):
    with pytest.raises(ValueError, match="with names of sums, gsm8k, passages"):
        load(recipe, sources=sources)


def test_each_task_has_its_own_metric(recipe):
    maths = {"task": "math", "prompt": "9 + 9 =", "answer": "18"}
    wanted = {"math strict": False, "math lenient": True, "math format": False}
    assert recipe.metric(maths, "18") == wanted
    passage = {"task": "number_count", "answer": None}
    assert recipe.metric(passage, "1 2 3 4 5") == {"five numbers": True}
    assert recipe.metric(passage, "1 2 3 4") == {"five numbers": False}


@pytest.fixture(scope="module")
def mixed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of the shipped YAML on a tiny model."""
    folder = tmp_path_factory.mktemp("mixed") / "run"
    rewards = {"reward_funcs": ["boxed_math", "number_count", "random"], "max_steps": 3}
    # 4 prompts a step: enough for both tasks in most of them.
    settings = {"per_device_train_batch_size": 16, **rewards}
    run(command("math_code", "smollm2-135m", model, folder, **settings))
    return folder


@pytest.mark.slow
def test_each_reward_is_logged_over_its_own_rows_alone_and_its_failures_in_every_step(mixed):
    history = json.loads((mixed / "trainer_state.json").read_text())["log_history"]
    log, seen = [entry for entry in history if "reward" in entry], set()
    tables = [pd.read_parquet(file) for file in sorted((mixed / "completions").glob("*.parquet"))]
    assert len(log) == len(tables) == 3
    for entry, table in zip(log, tables, strict=True):
        is_math = table["prompt"].map(lambda prompt: "boxed" in prompt[0]["content"])
        seen |= set(is_math)
        assert table["boxed_math"].notna().equals(is_math)
        assert table["number_count"].isna().equals(is_math)
        assert table["random"].notna().all()
        for name in ("boxed_math", "number_count", "random"):
            mean, logged = table[name].mean(), entry[f"rewards/{name}/mean"]
            assert (math.isnan(mean) and logged is None) or logged == pytest.approx(mean, abs=1e-6)
            assert not any(entry[f"{rate}/{name}"] for rate in ("errors", "unparsed", "timeouts"))
    assert seen == {True, False}


@pytest.mark.slow
def test_the_final_table_has_a_line_for_each_task(mixed):
    table = (mixed / "table.txt").read_text()
    assert "\n  math strict " in table and "\n  five numbers " in table
