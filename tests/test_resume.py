"""A real run of a tiny model that is cut short is resumed to the bit."""

import shutil
import sys
from pathlib import Path

import pytest
from support.launching import DENSE_REWARD, ROOT, TINY
from support.tiny_model import assert_same_weights

from recipes.common.data.recipe import import_recipe
from recipes.common.utils import machine
from recipes.common.utils.run_files import AFTER, read_evaluated

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
# What a run that is killed in the save of step 4 has not written.
FORGOTTEN = [
    *("summary.json", "report.html", "table.txt", "model.safetensors", "trainer_state.json"),
    *(AFTER, "checkpoint-4/manifest.json"),
]


def train(folder: Path, model: Path, patch: pytest.MonkeyPatch) -> None:
    """Start the quickstart, made tiny, for four steps."""
    settings = {
        **TINY, "bf16": "false", "num_train_rows": 8, "num_eval_rows": 2, "max_steps": 4,
        "output_dir": folder, "model_name_or_path": model, "reward_funcs": DENSE_REWARD,
        "reward_gates": "{}",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    patch.chdir(ROOT)
    patch.setattr(machine, "use_all_cores", lambda training: None)
    patch.setattr(sys, "argv", ["recipes/arithmetic/train.py", "--config", str(QUICKSTART), *words])
    patch.setattr(sys, "excepthook", sys.excepthook)
    import_recipe(QUICKSTART).main()


def test_a_run_cut_short_in_a_save_and_then_in_its_evaluation_ends_as_the_whole_run(
    model, tmp_path, monkeypatch, capsys
):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    run, whole = tmp_path / "run", tmp_path / "whole"
    train(run, model, monkeypatch)
    shutil.copytree(run, whole)
    for name in FORGOTTEN:
        (run / name).unlink()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("recipes.common.watch.evaluate", interrupted)
        train(run, model, monkeypatch)
    printed = capsys.readouterr()
    assert f"{run / 'checkpoint-4'} is not whole (manifest.json, its last file" in printed.err
    assert f"Resuming from {run / 'checkpoint-2'}." in printed.out
    assert "Training from step 3 to 4" in printed.out
    train(run, model, monkeypatch)
    assert_same_weights(whole, run)
    assert read_evaluated(run, AFTER) == read_evaluated(whole, AFTER)
