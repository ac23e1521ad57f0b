"""The start of a run: every problem at once, exit statuses, and tracebacks that stay."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets import Dataset
from support.launching import ROOT
from test_preflight import SETTINGS, make_rows, reference
from trl import ModelConfig

from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.run import RecipeArguments, start, train_and_save
from recipes.common.trainer import GRPOConfig
from recipes.common.utils.screen import refuse


def rows_of(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    return make_rows(*range(8)), make_rows(100, 101)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Start a run with good settings, changed as a test asks."""
    monkeypatch.setenv("WANDB_PROJECT", "none")  # a start may set it
    monkeypatch.chdir(tmp_path)

    def run(*words: str, load_rows=rows_of, **settings):
        Path("run.yaml").write_text(yaml.safe_dump({**SETTINGS, "output_dir": "out", **settings}))
        monkeypatch.setattr(sys, "argv", ["recipes/sums/train.py", "--config", "run.yaml", *words])
        return start(RecipeArguments, load_rows, reference)

    return run


def test_a_good_start_opens_the_folder(begin):
    run = begin()
    assert (run.checkpoint, run.config["recipe"], run.config["world_size"]) == (None, "sums", 1)
    assert [reward.__name__ for reward in run.rewards] == ["xml_format", "gsm8k_correctness"]
    assert Path("out/run_config.json").is_file()


@pytest.mark.parametrize(("settings", "status"), [({}, 0), ({"num_generations": 1}, 2)])
def test_a_dry_run_stops_after_preflight_and_writes_nothing(begin, capsys, settings, status):
    with pytest.raises(SystemExit) as stop:
        begin("--dry_run", **settings)
    assert (stop.value.code, Path("out").exists()) == (status, False)
    assert "Preflight of run.yaml" in capsys.readouterr().out


def test_other_ranks_wait_in_silence_until_the_main_one_has_refused(capsys, monkeypatch):
    def ended_by_the_launcher(seconds):
        raise SystemExit(-15)

    launched = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    launched |= {"MASTER_ADDR": "", "MASTER_PORT": ""}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("recipes.common.utils.screen.time.sleep", ended_by_the_launcher)
    with pytest.raises(SystemExit) as stop:
        refuse("a problem")
    assert (stop.value.code, capsys.readouterr().out) == (-15, "")
    monkeypatch.delenv("MASTER_ADDR")  # left over: nobody launched the others
    with pytest.raises(SystemExit) as stop:
        refuse("a problem")
    assert (stop.value.code, capsys.readouterr().out) == (2, "a problem\n")


@pytest.mark.parametrize("name", ["arithmetic", "gsm8k", "math"])
def test_help_names_every_setting_and_imports_neither_torch_nor_trl(name):
    file = ROOT / f"recipes/{name}/train.py"
    words = [sys.executable, "-X", "importtime", str(file), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[:3] == [
        "usage: train.py --config FILE [--option VALUE ...]",
        "",
        "the recipe:",
    ]
    kinds = (import_recipe(file).RecipeArguments, GRPOConfig, ModelConfig)
    settings = {field.name for kind in kinds for field in fields(kind) if field.init}
    assert set(re.findall(r"^  --(\w+) ", done.stdout, re.MULTILINE)) == settings
    assert "--seed int: Random seed that will be set" in done.stdout
    assert re.findall(r"\| (?:torch|trl|transformers|datasets)$", done.stderr, re.MULTILINE) == []


def test_a_metric_to_choose_by_that_no_evaluation_will_have_is_refused_in_words(capsys):
    training = SimpleNamespace(metric_for_best_model="validation/strickt")
    rows = [{"task": "sums", "prompt": "1 + 1 =", "answer": "2"}]
    run = SimpleNamespace(training=training, validation_rows=rows)
    with pytest.raises(SystemExit):
        train_and_save(None, run, answer_metric)
    there = "validation/format, validation/lenient, validation/mean_length, validation/strict, "
    assert f"'validation/strickt'; the validation rows have {there}" in capsys.readouterr().out


def test_a_metric_that_fails_is_refused_before_the_training(capsys):
    rows = [{"task": "sums", "prompt": "1 + 1 =", "answer": "2"}]
    training = SimpleNamespace(metric_for_best_model=None)
    run = SimpleNamespace(training=training, validation_rows=None, eval_rows=rows)
    for metric, message in (
        (lambda row, text: {"right": row["gold"] in text}, "'gold' (test_run.py, line "),
        (lambda row, text: 1.0, "ValueError: it returned 1.0; allowed: a mapping of names to True"),
    ):
        with pytest.raises(SystemExit):
            train_and_save(None, run, metric)
        printed = capsys.readouterr().out
        assert "error: the metric fails on an empty completion of a row of task 'sums'" in printed
        assert message in printed
