"""A real run of a tiny model that is cut short or changed: it is resumed to the bit, or refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.launching import DENSE_REWARD, ROOT, TINY
from support.tiny_model import assert_same_weights, build_tiny_model

from recipes.common.data.recipe import import_recipe
from recipes.common.utils import machine
from recipes.common.utils.run_files import AFTER, read_evaluated, read_rows, write_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
# What the metric of the recipe looks for in a row.
ENTRY = json.dumps(
    {"dataset": "chain_sum", "parameters": {}, "question": "?", "answer": "?", "metadata": {}}
)
CODE = (ROOT / DENSE_REWARD.partition(":")[0]).read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, reward and rows of all runs here, and `whole`, a run of 4 steps."""
    place = tmp_path_factory.mktemp("resume")
    build_tiny_model(place / "model")
    (place / "mine.py").write_text(CODE)
    prompts = [[{"role": "user", "content": f"{n} + 1 ="}] for n in range(100, 108)]
    row = {"task": "sums", "answer": "?", "entry": ENTRY}
    write_rows(place / "rows.jsonl", [{"prompt": prompt, **row} for prompt in prompts])
    with pytest.MonkeyPatch.context() as patch:
        train(place / "whole", patch)
    return place


def train(folder: Path, patch: pytest.MonkeyPatch, *more: str) -> None:
    """Start the quickstart, made tiny, in a folder next to the model, the reward and the rows."""
    place = folder.parent
    settings = {
        **TINY,
        "bf16": "false",
        "num_eval_rows": 2,
        "max_steps": 4,
        "output_dir": folder,
        "model_name_or_path": place / "model",
        "reward_funcs": f"{place}/mine.py:letter_share",
        "reward_gates": "{}",
        "only_rows": place / "rows.jsonl",
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = ["recipes/arithmetic/train.py", "--config", str(QUICKSTART), *words, *more]
    patch.chdir(ROOT)
    patch.setattr(machine, "use_all_cores", lambda training: None)
    patch.setattr(sys, "argv", command)
    patch.setattr(sys, "excepthook", sys.excepthook)
    import_recipe(QUICKSTART).main()


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    """A copy of the run, and of all that it needs, as a kill in the save of step 4 leaves it."""
    shutil.copytree(place, tmp_path / "place")
    folder = tmp_path / "place" / "whole"
    after = "summary.json report.html table.txt model.safetensors trainer_state.json " + AFTER
    for name in [*after.split(), "checkpoint-4/manifest.json"]:
        (folder / name).unlink()
    config = folder / "run_config.json"  # the copy is at another place
    config.write_text(config.read_text().replace(str(place), str(folder.parent)))
    return folder


def test_a_run_cut_short_in_a_save_and_then_in_its_evaluation_ends_as_the_whole_run(
    run, place, monkeypatch, capsys
):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("recipes.common.watch.evaluate", interrupted)
        train(run, monkeypatch)
    printed = capsys.readouterr()
    assert f"{run / 'checkpoint-4'} is not whole (manifest.json, its last file" in printed.err
    assert f"Resuming from {run / 'checkpoint-2'}." in printed.out
    assert "Training from step 3 to 4" in printed.out
    train(run, monkeypatch)
    assert_same_weights(place / "whole", run)
    assert read_evaluated(run, AFTER) == read_evaluated(place / "whole", AFTER)


def test_a_resume_with_something_else_is_refused_before_the_model_loads_and_leaves_all_as_it_was(
    run, monkeypatch, capsys
):
    def files() -> set:
        paths = [path for path in run.rglob("*") if path.name != "run.lock"]
        return {(path, path.stat().st_mtime_ns) for path in paths}

    place, before = run.parent, files()
    rows = read_rows(place / "rows.jsonl")
    write_rows(place / "rows.jsonl", [*rows[1:], rows[0]])
    (place / "mine.py").write_text(CODE.replace("/ max(1,", "/ max(2,"))
    build_tiny_model(place / "model", seed=1)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(SystemExit) as stop:
        train(run, monkeypatch, "--num_eval_rows", "3")
    printed = capsys.readouterr().out
    for message in (
        "training rows: changed",
        "the code of 'letter_share': changed",
        "model and tokenizer: changed",
        "num_eval_rows: was 2, now 3",
        "engine: was 'one process', now 'FSDP2'",
    ):
        assert message in printed
    assert stop.value.code == 2 and "Loading the model" not in printed
    assert files() == before
