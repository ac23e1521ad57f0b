"""A real run of a tiny model that is cut short, damaged, changed or extended: it goes on as it was,
or is refused.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.launching import DENSE_REWARD, ROOT, TINY
from support.tiny_model import assert_same_weights, build_tiny_model

from recipes.common import run as life
from recipes.common.checks.run_folder import why_not_whole
from recipes.common.data.recipe import import_recipe
from recipes.common.utils.run_files import read_rows, write_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
# What the metric of the recipe looks for in a row.
ENTRY = json.dumps(
    {"dataset": "chain_sum", "parameters": {}, "question": "?", "answer": "?", "metadata": {}}
)
CODE = (ROOT / DENSE_REWARD.partition(":")[0]).read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, reward and rows of all runs here, and with `whole`, a run of four
    steps.
    """
    place = tmp_path_factory.mktemp("resume")
    build_tiny_model(place / "model")
    (place / "mine.py").write_text(CODE)
    prompts = [[{"role": "user", "content": f"{n} + 1 ="}] for n in range(100, 108)]
    write_rows(
        place / "rows.jsonl",
        [{"prompt": prompt, "task": "sums", "answer": "?", "entry": ENTRY} for prompt in prompts],
    )
    with pytest.MonkeyPatch.context() as patch:
        train(place / "whole", patch)
    return place


def train(folder: Path, patch: pytest.MonkeyPatch, *more: str, max_steps: int = 4) -> None:
    """Start the quickstart, made tiny, in a folder next to the model, the reward and the rows."""
    place = folder.parent
    settings = {**TINY, "bf16": "false", "num_eval_rows": 2, "max_steps": max_steps}
    settings |= {"output_dir": folder, "model_name_or_path": place / "model", "save_steps": 2}
    settings |= {"reward_funcs": f"{place}/mine.py:letter_share", "reward_gates": "{}"}
    settings |= {"only_rows": place / "rows.jsonl"}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    patch.chdir(ROOT)
    patch.setattr(life, "use_all_cores", lambda training: None)
    patch.setattr(
        sys, "argv", ["recipes/arithmetic/train.py", "--config", str(QUICKSTART), *words, *more]
    )
    patch.setattr(sys, "excepthook", sys.excepthook)
    import_recipe(QUICKSTART).main()


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    """A copy of the run, and of all that it needs, as it was after step 2."""
    shutil.copytree(place, tmp_path / "place")
    folder = tmp_path / "place" / "whole"
    after = "summary.json report.html table.txt model.safetensors trainer_state.json"
    for name in after.split():
        (folder / name).unlink()
    (folder / "evaluation" / "after.jsonl").unlink()
    config = folder / "run_config.json"  # the copy is at another place
    config.write_text(config.read_text().replace(str(place), str(folder.parent)))
    return folder


def test_a_run_goes_on_from_the_checkpoint_before_to_the_same_weights_and_answers(
    run, place, monkeypatch, capsys
):
    """As a kill in the middle of a save leaves it: trainer_state.json is written last."""
    assert why_not_whole(run / "checkpoint-4", world_size=1) is None
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    train(run, monkeypatch)
    printed = capsys.readouterr().out
    assert (
        f"Resuming from {run / 'checkpoint-2'}." in printed
        and "Training from step 3 to 4" in printed
    )
    assert_same_weights(place / "whole", run)
    assert read_rows(run / "evaluation" / "after.jsonl") == read_rows(
        place / "whole" / "evaluation" / "after.jsonl"
    )


def test_a_resume_with_something_else_is_refused_before_the_model_loads_and_leaves_all_as_it_was(
    run, monkeypatch, capsys
):
    def files() -> set:
        found = [file for file in run.rglob("*") if file.name != "run.lock"]
        return {(file, file.stat().st_mtime_ns) for file in found}

    place, before = run.parent, files()
    rows = read_rows(place / "rows.jsonl")
    write_rows(place / "rows.jsonl", [*rows[1:], rows[0]])
    (place / "mine.py").write_text(CODE.replace("/ max(1,", "/ max(2,"))
    build_tiny_model(place / "model", seed=1)
    template = place / "model" / "chat_template.jinja"
    template.write_text(template.read_text() + "{# another #}")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(SystemExit) as stop:
        train(run, monkeypatch, "--num_eval_rows", "3")
    printed = capsys.readouterr().out
    for message in (
        "training rows: changed",
        "the code of 'letter_share': changed",
        "model: changed",
        "tokenizer, chat template and generation config: changed",
        "num_eval_rows: was 2, now 3",
        "engine: was 'one process', now 'FSDP2'",
    ):
        assert message in printed
    assert stop.value.code == 2 and "Loading the model" not in printed
    assert files() == before


def test_a_corrected_reward_goes_on_where_it_is_named_and_the_record_keeps_from_which_step_on(
    run, monkeypatch, capsys
):
    (run / "checkpoint-4" / "config.json").write_text('{"model_type": "ll')
    (run.parent / "mine.py").write_text(CODE.replace("/ max(1,", "/ max(2,"))
    train(run, monkeypatch, "--accept_changed", "reward_code", "--max_reward_error_rate", "0.5")
    printed = capsys.readouterr()
    assert f"{run / 'checkpoint-4'} was cut short (config.json cannot be read" in printed.err
    assert f"Resuming from {run / 'checkpoint-2'}." in printed.out
    record = json.loads((run / "run_config.json").read_text())
    (accepted,) = record["accepted"]
    changed = {"from_step", "the code of 'letter_share'", "max_reward_error_rate"}
    assert accepted.keys() == changed
    assert (accepted["from_step"], record["max_reward_error_rate"]) == (2, 0.5)
    assert json.loads((run / "summary.json").read_text())["steps"] == 4


def test_an_evaluation_that_ctrl_c_ends_is_made_again(run, place, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("recipes.common.watch.evaluate", interrupted)
        train(run, monkeypatch)
    train(run, monkeypatch)
    assert read_rows(run / "evaluation" / "after.jsonl") == read_rows(
        place / "whole" / "evaluation" / "after.jsonl"
    )


def test_extend_trains_on_with_the_schedule_of_a_longer_run(run, place, monkeypatch, capsys):
    train(run, monkeypatch)
    train(run, monkeypatch, "--extend", max_steps=6)
    assert "follows the schedule 'linear' over 6 steps" in capsys.readouterr().out
    log = json.loads((run / "trainer_state.json").read_text())["log_history"]
    rates = {entry["step"]: entry["learning_rate"] for entry in log if "learning_rate" in entry}
    assert rates == pytest.approx(
        {step: 5e-4 * (1 - (step - 1) / (4 if step <= 4 else 6)) for step in range(1, 7)}
    )
    assert json.loads((run / "summary.json").read_text())["steps"] == 6
    assert json.loads((run / "summary.json.4_steps").read_text())["steps"] == 4
    assert re.search(r"6 steps in", (run / "table.txt").read_text())
    with pytest.raises(AssertionError):
        assert_same_weights(place / "whole", run)
