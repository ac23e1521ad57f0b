"""The run folder: what a new start finds in it, and what it decides."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from support.scored_by_place import give, make_trainer
from transformers import SchedulerType, TrainerCallback

from recipes.common.checks.identity import differences, files_read, identity_of
from recipes.common.checks.run_folder import open_run_folder, why_not_whole
from recipes.common.report import record
from recipes.common.report.record import complete_card, push
from recipes.common.training.engine import asked_engine
from rewards import load_reward

IDENTITY = {
    "engine": "one process",
    "rows_held_out": 1,
    "versions": {"torch": "2.8"},
    "digests": {"training rows": "1", "held-out rows": "2", "model": "3", "the code of 'a'": "4"},
}


def start(folder: Path, digests: dict | None = None, world_size: int = 1, **settings) -> str | None:
    """Open a folder as a start with these settings does."""
    own = {"fresh": False, "extend": False, "num_eval_rows": 4, "accept_changed": []}
    recipe = {name: settings.pop(name, default) for name, default in own.items()}
    training = {
        "output_dir": str(folder),
        "process_index": 0,
        "world_size": world_size,
        "lr_scheduler_type": SchedulerType.LINEAR,
        "resume_from_checkpoint": settings.pop("resume_from_checkpoint", None),
        "sync_ref_model": settings.pop("sync_ref_model", False),
    }
    kept = {**IDENTITY, "digests": {**IDENTITY["digests"], **(digests or {})}}
    record = {"seed": 0, **kept, **settings}
    return open_run_folder(SimpleNamespace(**recipe), SimpleNamespace(**training), record)


def refused(folder: Path, *more, **settings) -> int:
    """The status with which a start ends."""
    with pytest.raises(SystemExit) as stop:
        start(folder, *more, **settings)
    return stop.value.code


def recorded(folder: Path) -> dict:
    return json.loads((folder / "run_config.json").read_text())


def add_checkpoint(folder: Path, step: int, world_size: int = 1) -> str:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for rank in range(world_size):
        name = "rng_state.pth" if world_size == 1 else f"rng_state_{rank}.pth"
        torch.save({"state": step}, path / name)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return str(path)


def add_before(folder: Path, name: str = "before.jsonl") -> None:
    (folder / "evaluation").mkdir(parents=True, exist_ok=True)
    (folder / "evaluation" / name).write_text("{}\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was evaluated and has a checkpoint of step 5."""
    start(tmp_path / "run")
    add_before(tmp_path / "run")
    add_checkpoint(tmp_path / "run", 5)
    return tmp_path / "run"


# Begin


def test_a_new_folder_starts_at_step_0_and_records_the_configuration(tmp_path):
    assert start(tmp_path) is None and recorded(tmp_path)["seed"] == 0
    assert start(tmp_path, seed=1) is None, "a start that left nothing may be repeated"
    assert recorded(tmp_path)["seed"] == 1 and recorded(tmp_path)["digests"] == IDENTITY["digests"]


@pytest.mark.parametrize("file", ["before.jsonl", "validation.jsonl"])
def test_a_start_that_saved_no_checkpoint_does_not_block_its_correction(file, tmp_path, capsys):
    start(tmp_path / "run", loss_type="gpro")
    add_before(tmp_path / "run", file)
    assert start(tmp_path / "run", loss_type="grpo") is None
    assert not (tmp_path / "run" / "evaluation").exists()
    assert "saved no checkpoint: it is now in" in capsys.readouterr().out


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert refused(tmp_path) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "run_config.json").exists()


def test_fresh_keeps_what_was_there(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.txt").write_text("kept")
    assert start(tmp_path / "run", fresh=True) is None
    (aside,) = [path for path in tmp_path.iterdir() if path.name != "run"]
    assert (aside / "old.txt").read_text() == "kept"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"run.lock", "run_config.json"}


def test_a_folder_that_another_process_writes_is_refused(tmp_path, capsys):
    hold = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+'); fcntl.flock(f, fcntl.LOCK_EX); "
        "f.write('4711'); f.flush(); print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", hold, str(tmp_path / "run.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        try:
            assert refused(tmp_path) == 2
        finally:
            holder.kill()
    assert "still being written by process 4711" in capsys.readouterr().out


# Go on


def test_a_run_goes_on_from_its_newest_whole_checkpoint(run, capsys):
    newest = add_checkpoint(run, 10)
    (run / "checkpoint-11").mkdir()
    assert start(run) == newest
    assert f"{run / 'checkpoint-11'} was cut short" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("trainer_state.json", None),  # transformers writes it last: the save was cut short
        ("trainer_state.json", b'{"global_st'),
        ("trainer_state.json", b'{"global_step": 7}'),  # of another checkpoint
        ("rng_state_1.pth", None),  # the second rank was slower
        ("rng_state_1.pth", b"PK"),
        ("config.json", b""),
        ("config.json", b'{"model_type": "ll'),
    ],
)
def test_a_checkpoint_that_was_cut_short_is_not_whole(file, content, tmp_path):
    path = Path(add_checkpoint(tmp_path, 10, world_size=2))
    (path / "config.json").write_text('{"model_type": "llama"}')
    assert why_not_whole(path, world_size=2) is None
    (path / file).unlink()
    if content is not None:
        (path / file).write_bytes(content)
    assert file in why_not_whole(path, world_size=2)


@pytest.mark.slow
def test_old_checkpoints_are_deleted_by_their_step_whatever_the_clock_and_a_copy_say(
    model, tmp_path, one_thread
):
    class ClockSetBack(TrainerCallback):
        """What was saved lies an hour and more ahead of the clock, the oldest the most."""

        def on_save(self, args, state, control, **kwargs) -> None:
            step, now = state.global_step, time.time()
            os.utime(tmp_path / f"checkpoint-{step}", (now, now + 7200 - step))

    saving = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2, "max_steps": 4}
    trainer = make_trainer(model, tmp_path, [give("right", [1.0, 0.0])], ["math"] * 4, saving)
    trainer.add_callback(ClockSetBack())
    trainer.train()
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-3",
        "checkpoint-4",
    ]


def test_a_checkpoint_from_elsewhere_needs_the_evaluation_of_its_untrained_model(
    run, tmp_path, capsys
):
    new, elsewhere = tmp_path / "new", str(run / "checkpoint-5")
    assert refused(new, resume_from_checkpoint=elsewhere) == 2
    assert "before.jsonl is missing" in capsys.readouterr().out
    without = {"num_eval_rows": 0, "rows_held_out": 0, "resume_from_checkpoint": elsewhere}
    assert start(new, {"held-out rows": "none"}, **without) == elsewhere
    assert recorded(new)["resumed_from"] == elsewhere


@pytest.mark.parametrize(
    ("digests", "settings", "message"),
    [
        ({}, {"seed": 1}, "seed: was 0, now 1"),
        ({"the code of 'a'": "x"}, {}, "the code of 'a': changed"),
        ({}, {"max_steps": 9}, "max_steps: was None, now 9"),
    ],
)
def test_a_checkpoint_from_elsewhere_is_gone_on_with_by_the_same_run_alone(
    digests, settings, message, run, tmp_path, capsys
):
    elsewhere = {"num_eval_rows": 0, "resume_from_checkpoint": str(run / "checkpoint-5")}
    assert refused(tmp_path / "new", digests, **elsewhere, **settings) == 2
    printed = capsys.readouterr().out
    assert message in printed and f"{run} holds a run with another configuration" in printed


def test_a_checkpoint_of_which_no_record_tells_the_run_is_not_gone_on_with(run, tmp_path, capsys):
    (run / "run_config.json").unlink()
    elsewhere = {"num_eval_rows": 0, "resume_from_checkpoint": str(run / "checkpoint-5")}
    assert refused(tmp_path / "new", **elsewhere) == 2
    assert f"{run} has no run_config.json" in capsys.readouterr().out
    assert refused(run, {"the code of 'a'": "x"}) == 2


@pytest.mark.parametrize("lost", ["digests", "training rows", "the code of 'a'"])
def test_a_record_without_a_digest_is_not_taken_for_one_of_this_run(lost, run, capsys):
    record = recorded(run)
    record["digests"].pop(lost, None)
    record.pop(lost, None)
    (run / "run_config.json").write_text(json.dumps(record))
    assert refused(run) == 2
    assert "it is not in the record" in capsys.readouterr().out


def test_a_resume_may_change_how_many_errors_of_a_reward_are_borne_and_how_long_it_may_take(
    run, capsys
):
    changed = {"max_reward_error_rate": 0.2, "reward_timeout_s": 600.0}
    assert start(run, **changed) == str(run / "checkpoint-5")
    assert "max_reward_error_rate: was None, now 0.2" in capsys.readouterr().out
    assert recorded(run)["max_reward_error_rate"] == 0.2
    assert start(run, **changed) and "max_reward_error_rate" not in capsys.readouterr().out


def test_changed_code_of_a_reward_is_gone_on_with_where_it_is_named_and_is_recorded(run, capsys):
    other = {"the code of 'a'": "9"}
    assert refused(run, other) == 2
    assert "--accept_changed reward_code" in capsys.readouterr().out
    accepted = {"accept_changed": ["reward_code"]}
    assert refused(run, {**other, "training rows": "x"}, **accepted) == 2
    assert start(run, other, **accepted) == str(run / "checkpoint-5")
    assert recorded(run)["accepted"] == [{"from_step": 5, "the code of 'a'": ["4", "9"]}]
    assert start(run, other) == str(run / "checkpoint-5"), "from now on that is the run"
    assert refused(run) == 2, "and the code before is another"


def test_a_run_with_a_moving_reference_is_not_resumed(run, capsys):
    assert refused(run, sync_ref_model=True) == 2
    words = "TRL keeps a moving reference (sync_ref_model) in no checkpoint"
    assert words in capsys.readouterr().out


def test_extend_raises_max_steps_of_a_finished_run_and_nothing_else(tmp_path, capsys):
    start(tmp_path, max_steps=5, num_eval_rows=0)
    last = add_checkpoint(tmp_path, 5)
    for name in ("summary.json", "table.txt", "report.html"):
        (tmp_path / name).write_text("{}")
    assert refused(tmp_path, max_steps=9, num_eval_rows=0) == 2
    assert "To train on for more steps, give --extend." in capsys.readouterr().out
    assert refused(tmp_path, max_steps=3, num_eval_rows=0, extend=True) == 2
    assert "it was 5, now 3" in capsys.readouterr().out
    assert refused(tmp_path, max_steps=9, seed=1, num_eval_rows=0, extend=True) == 2
    assert start(tmp_path, max_steps=9, num_eval_rows=0, extend=True) == last
    assert "follows the schedule 'linear' over 9 steps" in capsys.readouterr().out
    assert start(tmp_path, max_steps=9, num_eval_rows=0) == last, "from now on that is the run"


def test_a_finished_run_prints_its_table_and_stops_well(run, capsys):
    for name, text in (("summary.json", "{}"), ("table.txt", "the table")):
        (run / name).write_text(text)
    assert start(run) == str(run / "checkpoint-5"), "finished means that the report is there"
    (run / "report.html").touch()
    assert refused(run) == 0
    assert "the table" in capsys.readouterr().out


def test_a_finished_run_without_checkpoint_and_report_says_how_to_write_it(tmp_path, capsys):
    start(tmp_path, num_eval_rows=0)
    (tmp_path / "summary.json").write_text("{}")
    assert refused(tmp_path, num_eval_rows=0) == 2
    assert f"scripts/report.py {tmp_path}" in capsys.readouterr().out
    assert refused(tmp_path, seed=1, num_eval_rows=0) == 2 and recorded(tmp_path)["seed"] == 0


# Refuse


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1, "beta": 0.1}, "seed: was 0, now 1"),
        ({"engine": "ZeRO-2"}, "engine: was 'one process', now 'ZeRO-2'"),
        ({"digests": {"model": "x"}}, "model: changed"),
    ],
)
def test_another_configuration_is_refused_with_what_differs(changed, message, run, capsys):
    assert refused(run, **changed) == 2
    assert message in capsys.readouterr().out
    assert start(run) == str(run / "checkpoint-5"), "as it was"


def test_what_is_not_known_and_other_versions_are_gone_on_with(run, capsys):
    unknown = {"model": None, "the code of 'a'": None}
    assert start(run, unknown, versions={"torch": "2.9"}) == str(run / "checkpoint-5")
    assert "other versions than at the start: torch 2.8 -> 2.9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run_config.json", b'{"a": '),
        ("run_config.json", b"[1]"),
        ("evaluation/before.jsonl", b""),
        ("evaluation/before.jsonl", b"{}\n{}\n"),  # there was one row
        ("evaluation/before.jsonl", b'{"a": '),
        ("evaluation/validation.jsonl", b'{"step": 0}\n{"st'),
        ("completions/completions_00005.parquet", b"PAR1\x15"),
        ("minutes.json", b'{"minutes": 1'),
        ("summary.json", b""),
    ],
)
def test_a_damaged_file_is_refused_by_name(name, content, run, capsys):
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(content)
    assert refused(run) == 2
    assert f"{run / name} is damaged" in capsys.readouterr().out


def test_a_file_of_completions_that_a_kill_cut_short_is_written_again(run, capsys):
    file = run / "completions" / "completions_00006.parquet"  # behind the checkpoint of step 5
    file.parent.mkdir()
    file.write_bytes(b"PAR1")
    assert start(run) == str(run / "checkpoint-5")
    assert not file.exists()


# Which run it is


def test_the_identity_follows_rows_code_files_and_the_model(tmp_path):
    file = tmp_path / "mine.py"
    (tmp_path / "config.json").write_text("{}")

    def identity(
        code="0.0", rows="a", held_out="b", weights=0.0, text="x", top="", template="t"
    ) -> dict:
        file.write_text(f"{top}def mine(completions, **kwargs):\n    return [{code}]\n")
        save_file({"weight": torch.full((3,), weights)}, tmp_path / "model.safetensors")
        (tmp_path / "chat_template.jinja").write_text(template)
        (tmp_path / "prompt.txt").write_text(text)
        mine, rows = load_reward(f"{file}:mine"), [{"prompt": rows}]
        read = [str(tmp_path / "prompt.txt")]
        return identity_of([mine], rows, [{"prompt": held_out}], tmp_path, read)

    first = identity()
    assert differences(first, identity(top="# a comment\n\n")) == {}
    for name, changed in {
        "the code of 'mine'": identity(code="1.0"),
        "training rows": identity(rows="c"),
        "held-out rows": identity(held_out="c"),
        "model": identity(weights=1.0),
        "tokenizer, chat template and generation config": identity(template="u"),
        f"the file {str(tmp_path / 'prompt.txt')!r}": identity(text="y"),
    }.items():
        assert differences(first, changed).keys() == {name}
    assert identity_of([len], [], [], None)["digests"]["the code of 'len'"] is None


def test_the_files_that_a_reward_and_the_template_read_are_those_that_are_there(tmp_path):
    (tmp_path / "prompt.txt").touch()
    given = {"prompt_file": str(tmp_path / "prompt.txt"), "model": "small", "limit": 5}
    recipe = SimpleNamespace(reward_kwargs={"judge": {**given, "long": "x" * 5000}})
    training = SimpleNamespace(chat_template_path=None)
    assert files_read(recipe, training) == [given["prompt_file"]]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "one process"),
        ({"WORLD_SIZE": "2"}, "DDP"),
        ({"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, "ZeRO-3"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "FSDP2"),
    ],
)
def test_the_engine_is_named_as_the_launcher_was_asked(environment, name, monkeypatch):
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert asked_engine() == name


def test_a_finished_run_is_pushed_without_its_checkpoints_or_says_how_to_repeat_it(
    tmp_path, monkeypatch, capsys
):
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
    config = {
        "model_name_or_path": str(tmp_path / "Base"),
        "output_dir": "runs/x",
        "recipe": "sums",
    }
    card = 'licence: license\nfine-tuned from [None](https://huggingface.co/None).\npipeline(model="None")\n'
    done = complete_card(card, {**config, "dataset_name": "chain_sum"}, "the table")
    assert "None" not in done and "licence: license" not in done and 'model="runs/x"' in done
    assert (
        "## Base model\n\nMade from a 4-bit file.\n" in done
        and "`sums`: {'dataset_name': 'chain_sum'}" in done
    )
    assert done.endswith("## Before and after\n\n```\nthe table\n```\n")
