"""The curve of a run: on which rows it is drawn, that training does not notice it, and that it
chooses a checkpoint.
"""

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from support.launching import DENSE_REWARD, ROOT, TINY
from test_preflight import SETTINGS, make_rows, reference

from recipes.common.checks.preflight import preflight
from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.evaluate import add_line
from recipes.common.report.pushes import read_steps
from recipes.common.training.callbacks import Clock
from recipes.common.utils.run_files import VALIDATION, read_json, read_validation, write_rows
from rewards import load_rewards

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
CURVE = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "num_validation_rows": 5}
STEPS = {"max_steps": 5, "num_train_rows": 8, "use_cpu": "true", "learning_rate": 0.01}
STEPS["reward_funcs"] = [DENSE_REWARD, "xml_format", "reasoning_gym"]


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_validation_rows": 0}, "num_validation_rows is 0; eval_strategy needs at least 1"),
        ({"load_best_model_at_end": True}, "metric_for_best_model is None; a checkpoint is chosen"),
        ({"save_strategy": "best"}, "save_strategy is best; give steps, save_steps as eval_steps"),
        (
            {"save_total_limit": 1, "metric_for_best_model": "validation/a"},
            "save_total_limit is 1, so that transformers deletes all checkpoints but the best when "
            "a run ends or is",
        ),
        (
            {"early_stopping_patience": 5},
            "metric_for_best_model is None; a checkpoint is chosen, and a run stopped early",
        ),
        (
            {
                "load_best_model_at_end": True,
                "metric_for_best_model": "validation/strict",
                "save_steps": 4,
            },
            "with save_steps 4 and eval_steps 2 the best step may have no checkpoint. Set "
            "save_steps to 2",
        ),
    ],
)
def test_settings_by_which_no_checkpoint_could_be_chosen_are_refused(parse, settings, message):
    args = parse({**SETTINGS, **CURVE, **settings})
    rewards = load_rewards(args.recipe.reward_funcs)
    found = preflight(
        args, make_rows(*range(8)), make_rows(100), rewards, reference, [], make_rows(50)
    ).problems
    assert len(found) == 1 and message in found[0]


def test_preflight_says_what_is_evaluated_and_checks_the_rows(parse):
    args = parse({**SETTINGS, **CURVE})
    rewards = load_rewards(args.recipe.reward_funcs)
    every = (args, make_rows(*range(8)), make_rows(100), rewards, reference, [])
    result = preflight(*every, make_rows(50, 51))
    assert result.problems == [] and result.training.num_generations_eval == 1
    assert (
        "validation: 2 rows of the training side, evaluated every 2 steps and never trained on"
        in result.notes
    )
    (problem,) = preflight(*every, make_rows(50, 100)).problems
    assert "1 of 1 evaluation rows are also training rows" in problem


# The curve


def test_a_phase_does_not_count_the_phases_inside_it(monkeypatch, tmp_path):
    phase, now = Clock(tmp_path), iter([0.0, 1.0, 4.0, 6.0, 10.0, 11.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    with phase("outer"), phase("inner"):
        pass  # from second 1 to 4 of 0 to 6
    with phase("inner"):
        pass
    assert phase.seconds == {"outer": 3.0, "inner": 4.0}


def test_an_evaluation_of_a_step_replaces_what_an_earlier_start_left_of_it_and_after_it(tmp_path):
    for step in (0, 4, 8, 12, 8):
        add_line(tmp_path, {"step": step, "metrics": {}})
    assert [line["step"] for line in read_validation(tmp_path)] == [0, 4, 8]
    assert read_validation(tmp_path / "none") == []


@pytest.fixture(scope="module")
def train(model, tmp_path_factory, one_thread):
    """Train the tiny quickstart in this process: settings -> the run's folder."""

    def trained(name: str, metric=None, **settings) -> Path:
        folder = tmp_path_factory.mktemp("runs") / name
        recipe = import_recipe(QUICKSTART)
        recipe.metric = metric or recipe.metric
        return go(recipe, folder, **settings)

    def go(recipe, folder, **settings):
        given = {**TINY, **STEPS, "model_name_or_path": model, "output_dir": folder, **settings}
        words = ["--config", str(QUICKSTART)]
        for key, value in given.items():
            words += [f"--{key}", *(map(str, value) if isinstance(value, list) else [str(value)])]
        argv, sys.argv = sys.argv, [str(QUICKSTART.with_name("train.py")), *words]
        try:
            recipe.main()
        finally:
            sys.argv = argv
        return folder

    trained.again = go
    return trained


@pytest.fixture(scope="module")
def without(train):
    return train("without")


def odd(row, completion):
    return {"odd": len(completion) % 2 == 1}


def recipe_with_odd():
    """The recipe with one more metric, of which even a random model's completions differ."""
    recipe = import_recipe(QUICKSTART)
    own = recipe.metric
    recipe.metric = lambda row, completion: own(row, completion) | odd(row, completion)
    return recipe


@pytest.fixture(scope="module")
def curve(train):
    return train("curve", metric=recipe_with_odd().metric, **CURVE)


def log_of(folder: Path, key: str) -> dict[int, float]:
    history = read_json(folder / "trainer_state.json")["log_history"]
    return {entry["step"]: entry[key] for entry in history if key in entry}


@pytest.mark.slow
def test_the_untrained_model_every_second_step_and_the_last_are_evaluated_row_by_row(curve):
    lines = read_validation(curve)
    assert [line["step"] for line in lines] == [0, 2, 4, 5]
    assert {len(rows) for rows in lines[0]["metrics"].values()} == {5}
    assert {"strict", "lenient", "format"} <= lines[0]["metrics"].keys()
    assert [line["rewards"]["letter_share"] for line in lines] != [
        lines[0]["rewards"]["letter_share"]
    ] * 4
    assert {line["step"]: line["mean_length"] for line in lines} == log_of(
        curve, "validation/mean_length"
    )
    shares = {line["step"]: sum(line["metrics"]["lenient"]) / 5 for line in lines}
    assert shares == log_of(curve, "validation/lenient")


@pytest.mark.slow
def test_each_step_has_the_push_of_the_advantages_that_it_trains_on(curve):
    steps = read_steps(curve / "completions", odd, [])
    logged = log_of(curve, "push/odd")
    assert list(logged) == [1, 2, 3, 4, 5] and len(set(logged.values())) > 1
    trained = steps[steps["pushed by"] == "advantage"]
    assert trained["push"].tolist() == pytest.approx(list(logged.values()))
    assert log_of(curve, "metrics/odd").keys() == log_of(curve, "metrics/lenient").keys()


@pytest.mark.slow
def test_a_run_killed_between_two_evaluations_and_resumed_draws_the_same_curve(
    curve, train, tmp_path
):
    """Killed after the evaluation of step 4, before its checkpoint: that of step 2 is the last."""
    folder = shutil.copytree(curve, tmp_path / "run")
    for name in (
        "summary.json",
        "trainer_state.json",
        "model.safetensors",
        "evaluation/after.jsonl",
    ):
        (folder / name).unlink()
    for step in (4, 5):
        shutil.rmtree(folder / f"checkpoint-{step}")
    first, second, third, _ = read_validation(folder)
    write_rows(folder / VALIDATION, [first, second, {**third, "truncated": -1.0}])
    train.again(recipe_with_odd(), folder, **CURVE)
    assert read_validation(folder) == read_validation(curve)
    assert log_of(folder, "validation/mean_length") == log_of(curve, "validation/mean_length")


@pytest.mark.slow
def test_training_does_not_notice_that_it_is_watched(curve, without):
    files = sorted(path.name for path in (without / "completions").glob("*.parquet"))
    assert len(files) == 5 and files == sorted(
        path.name for path in (curve / "completions").glob("*.parquet")
    )
    for file in files:
        pd.testing.assert_frame_equal(
            *(pd.read_parquet(run / "completions" / file) for run in (curve, without))
        )
    mine, theirs = (load_file(run / "model.safetensors") for run in (curve, without))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert log_of(curve, "reward") == log_of(without, "reward")


@pytest.mark.slow
def test_the_time_of_a_run_is_known_by_phase(curve):
    summary = read_json(curve / "summary.json")
    assert summary["seconds"].keys() == {
        "before and after",
        "validation",
        "generating",
        "scoring",
        "updating",
    }
    assert 0.0 < sum(summary["seconds"].values()) <= 60 * summary["minutes"] + 1


def right_at_the_second_evaluation(folder: list[Path]):
    """A metric that the model passes at the second evaluation of the curve alone."""
    return lambda row, completion: {"planted": len(read_validation(folder[0])) == 1}


@pytest.fixture(scope="module")
def chosen(train, tmp_path_factory):
    """A run of which the best checkpoint is that of step 2."""
    place = [tmp_path_factory.mktemp("best") / "run"]
    recipe = import_recipe(QUICKSTART)
    recipe.metric = right_at_the_second_evaluation(place)
    best = {"load_best_model_at_end": "true", "metric_for_best_model": "validation/planted"}
    return train.again(recipe, place[0], **CURVE, **best), recipe, best


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_by_the_metric_and_named(chosen, without):
    folder, _, _ = chosen
    weights = load_file(folder / "model.safetensors")
    best, last = (
        load_file(run / "model.safetensors") for run in (folder / "checkpoint-2", without)
    )
    assert all(torch.equal(weights[name], best[name]) for name in weights)
    assert not all(torch.equal(weights[name], last[name]) for name in weights)
    expected = {"step": 2, "metric": "validation/planted", "value": 1.0, "rows": 5}
    assert read_json(folder / "summary.json")["best_checkpoint"] == expected
    line = "The model is that of step 2, the best by validation/planted: 1 over 5 validation rows."
    assert line in (folder / "table.txt").read_text()


@pytest.mark.slow
def test_a_run_killed_after_its_last_step_chooses_the_best_checkpoint_all_the_same(chosen, train):
    folder, recipe, best = chosen
    after = (folder / "evaluation/after.jsonl").read_bytes()
    weights = (folder / "model.safetensors").read_bytes()
    for name in ("summary.json", "evaluation/after.jsonl", "model.safetensors"):
        (folder / name).unlink()
    train.again(recipe, folder, **CURVE, **best)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert (folder / "evaluation/after.jsonl").read_bytes() == after


@pytest.mark.slow
def test_a_run_stops_when_an_evaluation_is_no_better_and_a_later_start_does_not_go_on(
    train, tmp_path, capsys
):
    recipe, folder = import_recipe(QUICKSTART), tmp_path / "run"
    recipe.metric = right_at_the_second_evaluation([folder])
    settings = {"early_stopping_patience": 1, "metric_for_best_model": "validation/planted"}
    train.again(recipe, folder, **CURVE, **settings)
    reason = "validation/planted was no better for 1 evaluations"
    assert f"  Stopped early: {reason}.\n" in capsys.readouterr().out
    assert read_json(folder / "summary.json")["stopped"] == reason
    (folder / "summary.json").unlink()
    train.again(recipe, folder, **CURVE, **settings)
    assert read_json(folder / "summary.json")["steps"] == 4
    assert [line["step"] for line in read_validation(folder)] == [0, 2, 4]
