"""The start of a run: every problem at once, exit statuses, and tracebacks that stay."""

import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from support.launching import ROOT
from test_preflight import SETTINGS, make_rows, reference
from trl import ModelConfig

from recipes.common.data.recipe import import_recipe, load_recipe
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.run import RecipeArguments, start, train_and_save
from recipes.common.trainer import GRPOConfig
from recipes.common.utils.screen import refuse


@pytest.mark.parametrize(("settings", "status"), [({}, 0), ({"num_generations": 1}, 2)])
def test_a_dry_run_stops_after_preflight_and_writes_nothing(
    settings, status, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(yaml.safe_dump({**SETTINGS, "output_dir": "out", **settings}))
    words = ["recipes/sums/train.py", "--config", "run.yaml", "--dry_run"]
    monkeypatch.setattr(sys, "argv", words)
    rows = make_rows(*range(8)), make_rows(100, 101)
    with pytest.raises(SystemExit) as stop:
        start(RecipeArguments, lambda args, seed: rows, reference)
    assert (stop.value.code, Path("out").exists()) == (status, False)
    assert "Preflight of run.yaml" in capsys.readouterr().out


def test_other_ranks_wait_in_silence_until_the_main_one_has_refused(capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("recipes.common.utils.screen.time.sleep", sys.exit)  # ended by the launcher
    with pytest.raises(SystemExit) as stop:
        refuse("a problem")
    assert (stop.value.code, capsys.readouterr().out) == (70, "")  # the first of a node waits 60
    monkeypatch.delenv("MASTER_ADDR")  # left over: nobody launched the others
    with pytest.raises(SystemExit) as stop:
        refuse("a problem")
    assert (stop.value.code, capsys.readouterr().out) == (2, "a problem\n")


def test_rows_follow_the_prompt_of_the_recipe_as_it_stands(tmp_path):
    """`datasets` caches by the function's name: rows of an earlier prompt would come back."""
    folder = tmp_path / "recipe"
    shutil.copytree(ROOT / "recipes/gsm8k", folder)
    shipped = (folder / "train.py").read_text()
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "1 + 1?", "answer": "2 #### 2"}\n')
    for prompt in ("First.", "Second."):
        pattern, own = r'SYSTEM_PROMPT = """.*?"""', f'SYSTEM_PROMPT = "{prompt}"'
        code = re.sub(pattern, own, shipped, flags=re.S)
        (folder / "train.py").write_text(code)
        recipe = load_recipe(folder / "smollm2-135m.yaml", ["--dataset_path", str(tmp_path)])
        for rows in (recipe.train_rows, recipe.eval_rows):
            assert rows[0]["prompt"][0]["content"] == prompt


@pytest.mark.parametrize("name", ["gsm8k", "math", "math_code"])  # three ways to declare
def test_help_names_every_setting_and_imports_neither_torch_nor_trl(name):
    file = ROOT / f"recipes/{name}/train.py"
    words = [sys.executable, "-X", "importtime", str(file), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("usage: train.py --config FILE [--option VALUE ...]\n")
    kinds = (import_recipe(file).RecipeArguments, GRPOConfig, ModelConfig)
    settings = {field.name for kind in kinds for field in fields(kind) if field.init}
    assert set(re.findall(r"^  --(\w+) ", done.stdout, re.MULTILINE)) == settings
    assert "--seed int: Random seed that will be set" in done.stdout
    assert "%%" not in done.stdout  # as TRL writes % for argparse
    assert re.findall(r"\| (?:torch|trl|transformers|datasets)$", done.stderr, re.MULTILINE) == []


def test_a_metric_to_choose_by_that_no_evaluation_will_have_is_refused_in_words(capsys):
    training = SimpleNamespace(metric_for_best_model="validation/strickt")
    run = SimpleNamespace(training=training, validation_rows=make_rows(1).to_list())
    with pytest.raises(SystemExit):
        train_and_save(None, run, answer_metric)
    there = "validation/format, validation/lenient, validation/strict."
    assert f"'validation/strickt'; the validation rows have {there}" in capsys.readouterr().out


def test_a_metric_that_fails_is_refused_before_the_training(capsys):
    training, rows = SimpleNamespace(metric_for_best_model=None), make_rows(1).to_list()
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
