"""The run folder: what a new start finds in it, and what it decides."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint import FileSystemWriter, save
from transformers import SchedulerType
from transformers.trainer_utils import rotate_checkpoints

from recipes.common.checks.identity import changes, identity_of
from recipes.common.checks.resume import config_differences, last_whole_checkpoint, open_run_folder
from recipes.common.checks.whole import checkpoint_problem
from recipes.common.report import record
from recipes.common.report.record import complete_card, push
from recipes.common.training.engine import asked_engine
from recipes.common.utils.machine import without_tokens
from rewards import load_reward

IDENTITY = {
    "engine": "one process",
    "training rows": "1",
    "held-out rows": "2",
    "rewards": {"mine": "3"},
    "model": "4",
}
IDENTITY |= {
    "versions": {"torch": "2.8"},
    "number of held-out rows": 1,
    "files of rewards": {"p.txt": "5"},
}


def make_run(folder: Path, config: dict | None = None, **recipe):
    training = SimpleNamespace(
        output_dir=str(folder),
        process_index=0,
        world_size=1,
        resume_from_checkpoint=None,
        sync_ref_model=False,
    )
    training.lr_scheduler_type = SchedulerType.LINEAR
    recipe = SimpleNamespace(**{"fresh": False, "extend": False, "num_eval_rows": 4, **recipe})
    return SimpleNamespace(
        training=training, recipe=recipe, config=config or {"seed": 0}, identity=dict(IDENTITY)
    )


def open_folder(run) -> str | None:
    return open_run_folder(run.recipe, run.training, run.config, run.identity)


def add_checkpoint(folder: Path, step: int, world_size: int = 1) -> str:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    ranks = (
        ["rng_state.pth"]
        if world_size == 1
        else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    )
    for name in [*ranks, "optimizer.pt", "scheduler.pt"]:
        torch.save({"state": step}, path / name)
    save_file({"weight": torch.ones(3)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
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
    assert open_folder(make_run(tmp_path / "run", {"seed": 1})) is None, (
        "a start that left nothing may be repeated"
    )
    assert json.loads((tmp_path / "run" / "run_config.json").read_text()) == {"seed": 1}


def test_a_run_goes_on_from_its_newest_whole_checkpoint(tmp_path):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    add_checkpoint(tmp_path, 9)
    newest = add_checkpoint(tmp_path, 10)
    (tmp_path / "checkpoint-11").mkdir()
    assert open_folder(make_run(tmp_path)) == newest


DAMAGE = {
    "rng_state.pth is missing": lambda path: (path / "rng_state.pth").unlink(),
    "optimizer.pt is missing": lambda path: (path / "optimizer.pt").unlink(),
    "scheduler.pt is missing": lambda path: (path / "scheduler.pt").unlink(),
    "optimizer.pt is cut short or damaged": lambda path: cut_short(path / "optimizer.pt"),
    "rng_state.pth is cut short or damaged": lambda path: (path / "rng_state.pth").write_bytes(b""),
    "model.safetensors has": lambda path: cut_short(path / "model.safetensors"),
    "there are no weights": lambda path: (path / "model.safetensors").unlink(),
    "model.safetensors.index.json is damaged": lambda path: (
        path / "model.safetensors.index.json"
    ).write_text("{"),
    "part-2.safetensors is missing": lambda path: (
        path / "model.safetensors.index.json"
    ).write_text('{"weight_map": {"a": "model.safetensors", "b": "part-2.safetensors"}}'),
    "trainer_state.json is missing": lambda path: (path / "trainer_state.json").unlink(),
    "trainer_state.json is damaged": lambda path: (path / "trainer_state.json").write_text(
        '{"global_st'
    ),
    "trainer_state.json is of step 7": lambda path: (path / "trainer_state.json").write_text(
        '{"global_step": 7}'
    ),
}


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_with_the_reason(
    reason, tmp_path, capsys
):
    before, newest = add_checkpoint(tmp_path, 9), add_checkpoint(tmp_path, 10)
    DAMAGE[reason](Path(newest))
    assert last_whole_checkpoint(tmp_path, world_size=1) == before
    assert f"{newest} was cut short or damaged: {reason}" in capsys.readouterr().err


def test_zero_needs_the_optimizer_state_of_every_process(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    path = Path(add_checkpoint(tmp_path, 10, world_size=2))
    (path / "optimizer.pt").unlink()
    (path / "latest").write_text("global_step10")
    (path / "global_step10").mkdir()
    torch.save({}, path / "global_step10" / "mp_rank_00_model_states.pt")
    torch.save({}, path / "global_step10" / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    assert last_whole_checkpoint(tmp_path, world_size=2) is None
    assert "holds the optim states of 1 of 2 processes" in capsys.readouterr().err
    torch.save({}, path / "global_step10" / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    assert last_whole_checkpoint(tmp_path, world_size=2) == str(path)
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    assert last_whole_checkpoint(tmp_path, world_size=2) is None
    assert "holds the model states of 1 of 2 processes" in capsys.readouterr().err


def as_fsdp(path: Path, in_parts: bool) -> None:
    """Replace weights and optimizer of a checkpoint by what accelerate writes under FSDP."""
    for name in ("model.safetensors", "optimizer.pt"):
        (path / name).unlink()
    for name in ("pytorch_model_fsdp", "optimizer"):
        if in_parts:
            save(
                {"state": torch.ones(100)},
                storage_writer=FileSystemWriter(path / f"{name}_0"),
                no_dist=True,
            )
        else:
            torch.save({"state": torch.ones(100)}, path / f"{name}.bin")


FSDP_DAMAGE = {
    "optimizer.bin is missing": (False, lambda path: (path / "optimizer.bin").unlink()),
    "pytorch_model_fsdp.bin is cut short": (
        False,
        lambda path: cut_short(path / "pytorch_model_fsdp.bin"),
    ),
    "optimizer.bin is missing ": (True, lambda path: shutil.rmtree(path / "optimizer_0")),
    "optimizer_0/__0_0.distcp is missing": (
        True,
        lambda path: (path / "optimizer_0" / "__0_0.distcp").unlink(),
    ),
    "pytorch_model_fsdp_0/__0_0.distcp is missing or cut short": (
        True,
        lambda path: cut_short(path / "pytorch_model_fsdp_0" / "__0_0.distcp"),
    ),
    "optimizer_0/.metadata is missing or damaged": (
        True,
        lambda path: cut_short(path / "optimizer_0" / ".metadata"),
    ),
    "scheduler.pt is missing": (True, lambda path: (path / "scheduler.pt").unlink()),
}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # by `no_dist`
@pytest.mark.parametrize("reason", FSDP_DAMAGE)
def test_the_states_of_fsdp_are_whole_or_named(reason, tmp_path):
    in_parts, damage = FSDP_DAMAGE[reason]
    path = Path(add_checkpoint(tmp_path, 10, world_size=2))
    as_fsdp(path, in_parts)
    assert checkpoint_problem(path, 2, "FSDP2") is None
    damage(path)
    assert checkpoint_problem(path, 2, "FSDP2").startswith(reason.strip())


def test_a_checkpoint_needs_the_random_state_of_every_rank(tmp_path):
    add_checkpoint(tmp_path, 2, world_size=1)
    assert last_whole_checkpoint(tmp_path, world_size=2) is None
    both = add_checkpoint(tmp_path, 4, world_size=2)
    assert last_whole_checkpoint(tmp_path, world_size=2) == both


def test_another_configuration_is_refused_and_its_differences_are_listed(tmp_path, capsys):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    add_checkpoint(tmp_path, 5)
    assert refusal(make_run(tmp_path, {"seed": 1, "beta": 0.1})) == 2
    printed = capsys.readouterr().out
    assert "seed: was 0, now 1" in printed and "beta: was None, now 0.1" in printed


def test_another_number_of_processes_is_another_configuration(tmp_path, capsys, monkeypatch):
    open_folder(make_run(tmp_path, {"world_size": 1}, num_eval_rows=0))
    add_checkpoint(tmp_path, 5)
    run = make_run(tmp_path, {"world_size": 2}, num_eval_rows=0)
    run.training.world_size = 2
    monkeypatch.setattr(
        "recipes.common.checks.resume.broadcast_object_list", lambda decision: decision
    )
    assert refusal(run) == 2
    assert "world_size: was 1, now 2" in capsys.readouterr().out


CHANGED = {
    "engine was one process, now ZeRO-2: start it with the launch file of before": {
        "engine": "ZeRO-2"
    },
    "training rows changed: restore the data of before": {"training rows": "x"},
    "held-out rows changed: restore the data of before": {"held-out rows": "x"},
    "the code of reward 'mine' changed: restore the file of the reward": {"rewards": {"mine": "x"}},
    "the file 'p.txt' changed: restore it; reward_kwargs names it": {
        "files of rewards": {"p.txt": "x"}
    },
    "model changed: restore the model that the run started from": {"model": "x"},
}


@pytest.mark.parametrize("message", CHANGED)
def test_a_resume_with_something_else_is_refused_with_what_and_what_to_do(
    message, tmp_path, capsys
):
    open_folder(make_run(tmp_path, num_eval_rows=0))
    add_checkpoint(tmp_path, 5)
    run = make_run(tmp_path, num_eval_rows=0)
    run.identity |= CHANGED[message]
    assert refusal(run) == 2
    assert message in capsys.readouterr().out
    assert open_folder(make_run(tmp_path, num_eval_rows=0)) == str(tmp_path / "checkpoint-5"), (
        "as it was"
    )


def test_what_is_not_known_and_other_versions_are_gone_on_with(tmp_path, capsys):
    open_folder(make_run(tmp_path, num_eval_rows=0))
    add_checkpoint(tmp_path, 5)
    run = make_run(tmp_path, num_eval_rows=0)
    run.identity |= {"model": None, "rewards": {"mine": None}, "versions": {"torch": "2.9"}}
    assert open_folder(run) == str(tmp_path / "checkpoint-5")
    assert "other versions than at the start (torch 2.8 -> 2.9)" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["before.jsonl", "validation.jsonl"])
def test_a_start_that_saved_no_checkpoint_does_not_block_its_correction(file, tmp_path, capsys):
    open_folder(make_run(tmp_path / "run", {"loss_type": "gpro"}))
    add_before(tmp_path / "run")
    (tmp_path / "run/evaluation/before.jsonl").rename(tmp_path / "run/evaluation" / file)
    assert open_folder(make_run(tmp_path / "run", {"loss_type": "grpo"})) is None
    assert not (tmp_path / "run" / "evaluation").exists()
    assert "saved no checkpoint: it is now in" in capsys.readouterr().out


def test_extend_raises_max_steps_of_a_finished_run_and_nothing_else(tmp_path, capsys):
    open_folder(make_run(tmp_path, {"max_steps": 5}, num_eval_rows=0))
    last = add_checkpoint(tmp_path, 5)
    for name in ("summary.json", "table.txt", "report.html"):
        (tmp_path / name).write_text("{}")
    assert refusal(make_run(tmp_path, {"max_steps": 9}, num_eval_rows=0)) == 2
    assert "To train on for more steps, give --extend." in capsys.readouterr().out
    assert refusal(make_run(tmp_path, {"max_steps": 3}, num_eval_rows=0, extend=True)) == 2
    assert "it was 5, now 3" in capsys.readouterr().out
    assert (
        refusal(make_run(tmp_path, {"max_steps": 9, "seed": 1}, num_eval_rows=0, extend=True)) == 2
    )
    assert open_folder(make_run(tmp_path, {"max_steps": 9}, num_eval_rows=0, extend=True)) == last
    assert "follows the schedule 'linear' over 9 steps" in capsys.readouterr().out
    assert open_folder(make_run(tmp_path, {"max_steps": 9}, num_eval_rows=0)) == last, (
        "from now on that is the run"
    )


@pytest.mark.parametrize("name", ["run_config.json", "identity.json", "evaluation/before.jsonl"])
@pytest.mark.parametrize("content", [b"", b'{"a": ', b"[1]", b"\xff\xfe{}", b"{}\n{}\n"])
def test_a_damaged_record_is_refused_by_name(name, content, tmp_path, capsys):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    add_checkpoint(tmp_path, 5)
    (tmp_path / name).write_bytes(content)
    assert refusal(make_run(tmp_path)) == 2
    assert f"{tmp_path / name} is damaged" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["versions.json", "minutes.json", "wandb_run.json", "summary.json"]
)
def test_a_damaged_file_that_is_written_again_is_moved_aside_by_name(name, tmp_path, capsys):
    open_folder(make_run(tmp_path))
    add_before(tmp_path)
    last = add_checkpoint(tmp_path, 5)
    (tmp_path / name).write_text("{}" if name == "minutes.json" else '{"minutes": 1')
    assert open_folder(make_run(tmp_path)) == last
    assert f"{tmp_path / name} was damaged" in capsys.readouterr().out
    assert (tmp_path / f"{name}.damaged").is_file() and not (tmp_path / name).exists()


def test_old_checkpoints_are_deleted_by_their_step_whatever_a_copy_did_to_their_times(tmp_path):
    open_folder(make_run(tmp_path, num_eval_rows=0))
    paths = [add_checkpoint(tmp_path, step) for step in (8, 10, 9)]  # as a copy may write them
    open_folder(make_run(tmp_path, num_eval_rows=0))
    rotate_checkpoints(str(tmp_path), save_total_limit=2, use_mtime=True)  # as the trainer does it
    assert [Path(path).is_dir() for path in paths] == [False, True, True]


def test_the_identity_follows_rows_rewards_and_the_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    file = tmp_path / "mine.py"

    def identity(code: str, rows: list[dict], held_out: list[dict] = ()) -> dict:
        file.write_text(code)
        return identity_of([load_reward(f"{file}:mine")], rows, held_out, str(tmp_path), None)

    code = "def mine(completions, **kwargs):\n    return [0.0] * len(completions)\n"
    first = identity(code, [{"prompt": "a"}])
    assert changes(first, identity("# a comment\n" + code, [{"prompt": "a"}])) == []
    assert [
        line.split(":")[0]
        for line in changes(first, identity(code.replace("0.0", "1.0"), [{"prompt": "b"}]))
    ] == [
        "training rows changed",
        "the code of reward 'mine' changed",
    ]
    (change,) = changes(first, identity(code, [{"prompt": "a"}], [{"prompt": "b"}]))
    assert change.startswith("held-out rows changed")
    save_file({"weight": torch.ones(3)}, tmp_path / "model.safetensors")
    (change,) = changes(first, identity(code, [{"prompt": "a"}]))
    assert change.startswith("model changed")
    unknown = identity_of([len], [], [{"prompt": "a"}, {"prompt": "b"}], "nobody/nothing", None)
    assert (unknown["model"], unknown["rewards"], unknown["number of held-out rows"]) == (
        None,
        {"len": None},
        2,
    )


def test_the_identity_follows_a_file_that_a_reward_is_given(tmp_path):
    file = tmp_path / "prompt.txt"
    kwargs = {
        "llm_judge": {"prompt_file": str(file), "model": "small", "request": {"stop": "x" * 5000}}
    }

    def identity(text: str) -> dict:
        file.write_text(text)
        return identity_of([], [], [], "nobody/nothing", None, reward_kwargs=kwargs)

    first = identity("Grade {completion}")
    assert changes(first, identity("Grade {completion}")) == []
    (change,) = changes(first, identity("Praise {completion}"))
    assert change == f"the file {str(file)!r} changed: restore it; reward_kwargs names it"
    file.unlink()
    missing = identity_of([], [], [], "nobody/nothing", None, reward_kwargs=kwargs)
    assert changes(missing, first) == [], "a file that the reward itself wrote stops a resume"


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
    assert refusal(make_run(tmp_path)) == 2
    assert f"scripts/report.py {tmp_path}" in capsys.readouterr().out
    last = add_checkpoint(tmp_path, 5)
    assert open_folder(make_run(tmp_path)) == last, "finished means that the report is there"
    (tmp_path / "report.html").touch()
    assert refusal(make_run(tmp_path)) == 0
    assert "the table" in capsys.readouterr().out


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert refusal(make_run(tmp_path)) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine" and not (
        tmp_path / "run_config.json"
    ).exists()


def test_fresh_keeps_what_was_there(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.txt").write_text("kept")
    assert open_folder(make_run(tmp_path / "run", fresh=True)) is None
    (aside,) = [path for path in tmp_path.iterdir() if path.name != "run"]
    assert (aside / "old.txt").read_text() == "kept"
    assert [p.name for p in sorted((tmp_path / "run").iterdir())] == [
        "identity.json",
        "run.lock",
        "run_config.json",
    ]


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


def test_a_run_with_a_moving_reference_is_not_resumed(tmp_path, capsys):
    run = make_run(tmp_path, num_eval_rows=0)
    run.training.sync_ref_model = True
    assert open_folder(run) is None
    add_checkpoint(tmp_path, 5)
    assert refusal(run) == 2
    assert (
        "TRL keeps a moving reference (sync_ref_model) in no checkpoint" in capsys.readouterr().out
    )


def test_tokens_are_left_out_of_the_recorded_command():
    words = ["train.py", "--hub_token", "secret", "--hub-token=secret", "--seed=1"]
    assert without_tokens(words) == [
        "train.py",
        "--hub_token",
        "...",
        "--hub-token=...",
        "--seed=1",
    ]


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
