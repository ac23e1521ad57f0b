"""The curve of a run: that training does not notice it, and that it chooses a checkpoint."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from support.launching import DENSE_REWARD, ROOT, TINY
from support.tiny_model import same_weights
from transformers import TrainerControl

from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.evaluate import add_line
from recipes.common.training.callbacks import Clock, InterruptCallback
from recipes.common.utils import machine
from recipes.common.utils.run_files import read_json, read_validation

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
CURVE = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "num_validation_rows": 5}
STEPS = {"max_steps": 5, "num_train_rows": 8, "use_cpu": "true", "learning_rate": 0.01}
STEPS["reward_funcs"] = [DENSE_REWARD, "xml_format", "reasoning_gym"]


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
def train(model, one_thread):
    """Train the tiny quickstart in this process: folder, metric, settings."""

    def trained(folder: Path, metric=None, **settings) -> Path:
        recipe = import_recipe(QUICKSTART)
        recipe.metric = metric or recipe.metric
        given = {**TINY, **STEPS, "model_name_or_path": model, "output_dir": folder, **settings}
        words = [str(QUICKSTART.with_name("train.py")), "--config", str(QUICKSTART)]
        for key, value in given.items():
            words += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(machine, "use_all_cores", lambda training: None)
            patch.setattr(sys, "argv", words)
            recipe.main()
        return folder

    return trained


@pytest.fixture(scope="module")
def without(train, tmp_path_factory):
    return train(tmp_path_factory.mktemp("without") / "run")


def metric_with_odd(row, completion):
    """The recipe's, and one by which even a random model's completions differ."""
    return import_recipe(QUICKSTART).metric(row, completion) | {"odd": len(completion) % 2 == 1}


@pytest.fixture(scope="module")
def curve(train, tmp_path_factory):
    return train(tmp_path_factory.mktemp("curve") / "run", metric_with_odd, **CURVE)


def log_of(folder: Path, key: str) -> dict[int, float]:
    history = read_json(folder / "trainer_state.json")["log_history"]
    return {entry["step"]: entry[key] for entry in history if key in entry}


@pytest.mark.slow
def test_the_untrained_model_every_second_step_and_the_last_are_evaluated_row_by_row(curve):
    lines = read_validation(curve)
    assert [line["step"] for line in lines] == [0, 2, 4, 5]
    assert {len(rows) for rows in lines[0]["metrics"].values()} == {5}
    assert {"strict", "lenient", "format"} <= lines[0]["metrics"].keys()
    assert len({line["rewards"]["letter_share"] for line in lines}) > 1
    lengths = {line["step"]: line["mean_length"] for line in lines}
    assert lengths == log_of(curve, "validation/mean_length")
    shares = {line["step"]: sum(line["metrics"]["odd"]) / 5 for line in lines}
    assert shares == log_of(curve, "validation/odd")
    phases = {"before and after", "validation", "generating", "scoring", "updating"}
    assert read_json(curve / "summary.json")["seconds"].keys() == phases


@pytest.mark.slow
def test_training_does_not_notice_that_it_is_watched(curve, without):
    tables = [
        {file.name: file for file in (run / "completions").glob("*.parquet")}
        for run in (curve, without)
    ]
    assert tables[0].keys() == tables[1].keys() and len(tables[0]) == 5
    for name in tables[0]:
        pd.testing.assert_frame_equal(*(pd.read_parquet(of_run[name]) for of_run in tables))
    assert same_weights(curve, without)
    assert log_of(curve, "reward") == log_of(without, "reward")


def right_at_the_second_evaluation(folder: Path):
    """A metric that the model passes at the second evaluation of the curve alone."""
    return lambda row, completion: {"planted": len(read_validation(folder)) == 1}


@pytest.fixture(scope="module")
def chosen(train, tmp_path_factory):
    """A run of which the best checkpoint is that of step 2, and how to start it again."""
    folder = tmp_path_factory.mktemp("best") / "run"
    settings = {"load_best_model_at_end": True, "metric_for_best_model": "validation/planted"}

    def start(folder: Path) -> Path:
        return train(folder, right_at_the_second_evaluation(folder), **CURVE, **settings)

    return start(folder), start


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_by_the_metric_and_named(chosen, without):
    folder, _ = chosen
    assert same_weights(folder, folder / "checkpoint-2") and not same_weights(folder, without)
    expected = {"step": 2, "metric": "validation/planted", "value": 1.0, "rows": 5}
    expected["untrained"] = 0.0
    assert read_json(folder / "summary.json")["best_checkpoint"] == expected
    line = "The model is that of step 2, the best checkpoint by planted: 1 over 5 validation rows."
    assert line in (folder / "table.txt").read_text()


@pytest.mark.slow
def test_a_run_killed_after_its_last_step_chooses_the_best_checkpoint_also_in_another_place(chosen):
    folder, start = chosen
    moved = folder.rename(folder.with_name("moved"))
    made = [moved / name for name in ("evaluation/after.jsonl", "model.safetensors")]
    contents = [file.read_bytes() for file in made]
    for file in (*made, moved / "summary.json"):
        file.unlink()
    start(moved)
    assert [file.read_bytes() for file in made] == contents
    assert read_json(moved / "summary.json")["best_checkpoint"]["step"] == 2
    moved.rename(folder)


@pytest.mark.slow
def test_a_run_stops_when_an_evaluation_is_no_better_and_a_later_start_does_not_go_on(
    train, tmp_path, capsys
):
    folder = tmp_path / "run"
    settings = {"early_stopping_patience": 1, "metric_for_best_model": "validation/planted"}
    train(folder, right_at_the_second_evaluation(folder), **CURVE, **settings)
    reason = "planted was no better for 1 evaluations"
    assert f"  Stopped early: {reason}.\n" in capsys.readouterr().out
    assert read_json(folder / "summary.json")["stopped"] == reason
    trained = (folder / "model.safetensors").read_bytes()
    for name in ("summary.json", "model.safetensors"):
        (folder / name).unlink()
    train(folder, right_at_the_second_evaluation(folder), **CURVE, **settings)
    assert read_json(folder / "summary.json")["steps"] == 4
    assert (folder / "model.safetensors").read_bytes() == trained
    assert [line["step"] for line in read_validation(folder)] == [0, 2, 4]


def test_a_signal_inside_an_epoch_saves_and_evaluates_no_second_time():
    interrupt = InterruptCallback(trainer=None)
    interrupt.requested = True
    for epoch, again in ((0.5, False), (1.0, True)):
        control = TrainerControl(should_save=True, should_evaluate=True)
        interrupt.on_epoch_end(None, SimpleNamespace(epoch=epoch), control)
        assert (control.should_save, control.should_evaluate) == (again, again)
