"""The run folder: what a new start finds in it, and what it decides."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from recipes.common.after import record
from recipes.common.after.record import complete_card, push
from recipes.common.before.resume import config_differences, last_whole_checkpoint, open_run_folder
from recipes.common.tools.machine import without_tokens


def make_run(folder: Path, config: dict | None = None, **recipe):
    training = SimpleNamespace(
        output_dir=str(folder), process_index=0, world_size=1, resume_from_checkpoint=None, sync_ref_model=False
    )
    recipe = SimpleNamespace(**{"fresh": False, "num_eval_rows": 4, **recipe})
    return SimpleNamespace(training=training, recipe=recipe, config=config or {"seed": 0})


def open_folder(run) -> str | None:
    return open_run_folder(run.recipe, run.training, run.config)


def add_checkpoint(folder: Path, step: int, world_size: int = 1) -> str:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for name in ["rng_state.pth"] if world_size == 1 else [f"rng_state_{rank}.pth" for rank in range(world_size)]:
        (path / name).touch()
    (path / "trainer_state.json").write_text("{}")
    return str(path)


def add_before(folder: Path) -> None:
    (folder / "evaluation").mkdir(parents=True, exist_ok=True)
    (folder / "evaluation" / "before.jsonl").write_text("{}\n")


def refusal(run) -> int:
    with pytest.raises(SystemExit) as stop:
        open_folder(run)
    return stop.value.code


def test_a_new_folder_starts_at_step_0_and_records_the_configuration(tmp_path):
    assert open_folder(make_run(tmp_path / "run")) is None
    assert json.loads((tmp_path / "run" / "run_config.json").read_text()) == {"seed": 0}
    assert open_folder(make_run(tmp_path / "run", {"seed": 1})) is None, "a start that left nothing may be repeated"
    assert json.loads((tmp_path / "run" / "run_config.json").read_text()) == {"seed": 1}


def test_a_run_goes_on_from_its_newest_whole_checkpoint(tmp_path):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    add_checkpoint(tmp_path, 9)
    newest = add_checkpoint(tmp_path, 10)
    (tmp_path / "checkpoint-11").mkdir()
    assert open_folder(make_run(tmp_path)) == newest


def test_a_checkpoint_cut_short_is_passed_over_with_a_warning(tmp_path, capsys):
    whole = add_checkpoint(tmp_path, 2)
    Path(add_checkpoint(tmp_path, 10), "trainer_state.json").write_text('{"global_st')
    assert last_whole_checkpoint(tmp_path, world_size=1) == whole
    assert "checkpoint-10 was cut short" in capsys.readouterr().err


def test_a_checkpoint_needs_the_random_state_of_every_rank(tmp_path):
    add_checkpoint(tmp_path, 2, world_size=1)
    assert last_whole_checkpoint(tmp_path, world_size=2) is None
    both = add_checkpoint(tmp_path, 4, world_size=2)
    assert last_whole_checkpoint(tmp_path, world_size=2) == both


def test_another_configuration_is_refused_and_its_differences_are_listed(tmp_path, capsys):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    assert refusal(make_run(tmp_path, {"seed": 1, "beta": 0.1})) == 2
    printed = capsys.readouterr().out
    assert "seed: was 0, now 1" in printed and "beta: was None, now 0.1" in printed


def test_another_number_of_processes_is_another_configuration(tmp_path, capsys, monkeypatch):
    open_folder(make_run(tmp_path, {"world_size": 1}, num_eval_rows=0))
    add_checkpoint(tmp_path, 5)
    run = make_run(tmp_path, {"world_size": 2}, num_eval_rows=0)
    run.training.world_size = 2
    monkeypatch.setattr("recipes.common.before.resume.broadcast_object_list", lambda decision: decision)
    assert refusal(run) == 2
    assert "world_size: was 1, now 2" in capsys.readouterr().out


def test_a_finished_run_without_evaluation_keeps_its_record(tmp_path):
    open_folder(make_run(tmp_path, num_eval_rows=0))
    (tmp_path / "summary.json").write_text("{}")
    assert refusal(make_run(tmp_path, {"seed": 1}, num_eval_rows=0)) == 2
    assert json.loads((tmp_path / "run_config.json").read_text()) == {"seed": 0}


def test_fresh_is_not_a_difference():
    assert config_differences({"seed": 0, "fresh": False}, {"seed": 0, "fresh": True}) == {}


def test_a_finished_run_prints_its_table_and_stops_well(tmp_path, capsys):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "table.txt").write_text("the table")
    assert refusal(make_run(tmp_path)) == 0
    assert "the table" in capsys.readouterr().out


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert refusal(make_run(tmp_path)) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine" and not (tmp_path / "run_config.json").exists()


def test_fresh_keeps_what_was_there(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.txt").write_text("kept")
    assert open_folder(make_run(tmp_path / "run", fresh=True)) is None
    (aside,) = [path for path in tmp_path.iterdir() if path.name != "run"]
    assert (aside / "old.txt").read_text() == "kept"
    assert [p.name for p in sorted((tmp_path / "run").iterdir())] == ["run.lock", "run_config.json"]


def test_a_folder_that_another_process_writes_is_refused(tmp_path, capsys):
    hold = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+'); fcntl.flock(f, fcntl.LOCK_EX); "
        "f.write('4711'); f.flush(); print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", hold, str(tmp_path / "run.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        try:
            assert refusal(make_run(tmp_path)) == 2
        finally:
            holder.kill()
    assert "still being written by process 4711" in capsys.readouterr().out


def test_a_checkpoint_from_elsewhere_needs_the_evaluation_of_its_untrained_model(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    run.training.resume_from_checkpoint = add_checkpoint(tmp_path / "other", 5)
    assert refusal(run) == 2
    assert "before.jsonl is missing" in capsys.readouterr().out
    run.recipe.num_eval_rows = 0
    assert open_folder(run) == run.training.resume_from_checkpoint


def with_moving_reference(folder: Path, elsewhere: str | None = None):
    run = make_run(folder, num_eval_rows=0)
    vars(run.training).update(sync_ref_model=True, fsdp=None, deepspeed_plugin=None, resume_from_checkpoint=elsewhere)
    return run


WITHOUT_REFERENCE = (
    "it holds no reference.safetensors (ZeRO-3 and FSDP keep none), so the reference would be another one. "
    "Start anew with --fresh, under ZeRO-2 or DDP to be able to resume."
)


def test_a_checkpoint_with_the_moving_reference_is_gone_on_with(tmp_path):
    open_folder(with_moving_reference(tmp_path))
    Path(add_checkpoint(tmp_path, 5), "reference.safetensors").touch()
    assert open_folder(with_moving_reference(tmp_path)) == str(tmp_path / "checkpoint-5")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_whole_checkpoint_without_the_moving_reference_is_refused_and_not_passed_over(elsewhere, tmp_path, capsys):
    """As ZeRO-3 leaves it behind, and ZeRO-2 finds it."""
    open_folder(with_moving_reference(tmp_path / "run"))
    checkpoint = add_checkpoint(tmp_path / ("other" if elsewhere else "run"), 5)
    assert refusal(with_moving_reference(tmp_path / "run", checkpoint if elsewhere else None)) == 2
    printed = capsys.readouterr()
    assert WITHOUT_REFERENCE in printed.out and "cut short" not in printed.err


@pytest.mark.parametrize("engine", ["zero3", "fsdp"])
def test_a_moving_reference_in_parts_is_not_resumed(engine, tmp_path, capsys, monkeypatch):
    run = with_moving_reference(tmp_path)
    if engine == "fsdp":
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    else:
        run.training.deepspeed_plugin = SimpleNamespace(zero_stage=3)
    open_folder(run)
    checkpoint = add_checkpoint(tmp_path, 5)
    assert refusal(run) == 2 and WITHOUT_REFERENCE in capsys.readouterr().out
    Path(checkpoint, "reference.safetensors").touch()  # written under ZeRO-2 or DDP
    assert refusal(run) == 2
    assert "ZeRO-3 and FSDP cannot put its reference.safetensors back" in capsys.readouterr().out


def test_tokens_are_left_out_of_the_recorded_command():
    words = ["train.py", "--hub_token", "secret", "--hub-token=secret", "--seed=1"]
    assert without_tokens(words) == ["train.py", "--hub_token", "...", "--hub-token=...", "--seed=1"]


def test_a_finished_run_is_pushed_without_its_checkpoints_or_says_how_to_repeat_it(tmp_path, monkeypatch, capsys):
    calls = []

    def upload(**options):
        calls.append(options)
        if len(calls) == 2:
            raise ConnectionError("no network")

    monkeypatch.setattr(record, "upload_folder", upload)
    push("me/model", tmp_path, "t", None)
    assert calls[0]["repo_id"] == "me/model" and calls[0]["folder_path"] == tmp_path
    assert "checkpoint-*" in calls[0]["ignore_patterns"]
    with pytest.raises(SystemExit) as stop:
        push("me/model", tmp_path, None, None)
    assert stop.value.code == 1 and f"hf upload me/model {tmp_path}" in capsys.readouterr().out


def test_the_model_card_names_a_base_model_of_a_local_folder_and_the_data(tmp_path):
    (tmp_path / "Base").mkdir()
    (tmp_path / "Base" / "README.md").write_text("Made from a 4-bit file.\n")
    config = {"model_name_or_path": str(tmp_path / "Base"), "output_dir": "runs/x", "recipe": "sums"}
    card = 'licence: license\nfine-tuned from [None](https://huggingface.co/None).\npipeline(model="None")\n'
    done = complete_card(card, {**config, "dataset_name": "chain_sum"}, "the table")
    assert "None" not in done and "licence: license" not in done and 'model="runs/x"' in done
    assert "## Base model\n\nMade from a 4-bit file.\n" in done and "`sums`: {'dataset_name': 'chain_sum'}" in done
    assert done.endswith("## Before and after\n\n```\nthe table\n```\n")
