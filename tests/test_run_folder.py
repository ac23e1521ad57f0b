"""The run folder: what a new start finds in it, and what it decides."""

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from recipes.common.checks import run_folder
from recipes.common.checks.run_folder import differences, identity_of, open_run_folder
from recipes.common.report import record
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import why_not_whole, write_json
from rewards import load_reward

DIGESTS = {"training rows": "1", "held-out rows": "2", "model": "3", "the code of 'a'": "4"}
RECORD = {"seed": 0, "engine": "one process", "versions": {"torch": "2.8"}, "digests": DIGESTS}
OPTIONS = {
    "fresh": False, "accept_changed": [], "sync_ref_model": False, "process_index": 0,
    "world_size": 1, "digests": {}, "load_best_model_at_end": False, "push_to_hub": False,
    "hub_model_id": "me/mine", "hub_revision": "v1",
}  # fmt: skip


def start(folder: Path, **settings) -> str | None:
    """Open a folder as a start with these settings does; `digests` are those that differ."""
    options = {name: settings.pop(name, default) for name, default in OPTIONS.items()}
    settings = {**RECORD, **settings, "digests": DIGESTS | options.pop("digests")}
    args = SimpleNamespace(output_dir=str(folder), **options)
    held_out = [{"prompt": "1 + 1 ="}, {"prompt": "1 + 2 ="}]
    return open_run_folder(args, args, settings, held_out)


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """What a start prints that ends with status 2."""

    def message(folder: Path, **settings) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            start(folder, **settings)
        assert stop.value.code == 2
        return capsys.readouterr().out

    return message


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ((True, "1"), None),
        ((False, "1"), "not every node sees"),
        ((True, "2"), "the nodes read different training rows"),
    ],
)
def test_nodes_see_one_folder_and_the_same_rows(theirs, message, tmp_path, monkeypatch):
    (tmp_path / files.LOCK).touch()
    monkeypatch.setattr(run_folder, "gather_object", lambda own: [*own, theirs])
    problem = run_folder.what_nodes_lack(tmp_path, "1")
    assert problem is None if message is None else message in problem


def recorded(folder: Path) -> dict:
    return files.read_json(folder / "run_config.json")


def add_checkpoint(folder: Path, step: int, **state) -> str:
    """A whole checkpoint, with a file in a folder of its own as ZeRO and FSDP write them."""
    path = folder / f"checkpoint-{step}"
    (path / "global_step").mkdir(parents=True)
    for name in ("optimizer.pt", "scheduler.pt", "adapter.safetensors", "global_step/rank_1.pt"):
        (path / name).write_bytes(b"of step %d" % step)
    write_json(path / "trainer_state.json", {"global_step": step, **state})
    files.write_manifest(path)
    return str(path)


def add_evaluation(folder: Path) -> None:
    (folder / "evaluation").mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": prompt, "metrics": {}} for prompt in ("1 + 1 =", "1 + 2 =")]
    files.write_rows(folder / "evaluation" / "before.jsonl", rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was evaluated and has a checkpoint of step 5."""
    start(tmp_path / "run")
    add_evaluation(tmp_path / "run")
    add_checkpoint(tmp_path / "run", 5)
    return tmp_path / "run"


# Begin


def test_a_new_folder_starts_at_step_0_and_records_the_configuration(tmp_path):
    assert start(tmp_path) is None and recorded(tmp_path) == RECORD
    assert start(tmp_path, seed=1) is None, "a start that left nothing may be repeated"
    assert recorded(tmp_path)["seed"] == 1


def test_an_evaluation_of_another_configuration_is_not_used(tmp_path, refused):
    start(tmp_path / "run", loss_type="gpro")
    add_evaluation(tmp_path / "run")
    assert "loss_type: was 'gpro', now 'grpo'" in refused(tmp_path / "run", loss_type="grpo")
    assert start(tmp_path / "run", loss_type="gpro") is None, "the same run evaluates once"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, refused):
    assert refused(tmp_path / ("a" * 300)).startswith("error: [Errno")


def test_a_start_whose_record_was_half_written_is_repeated(tmp_path):
    (tmp_path / "run_config.partial").write_text("{")
    assert start(tmp_path) is None


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path, refused):
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty and not a run" in refused(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "run_config.json").exists()


def test_fresh_moves_aside_what_was_there(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.txt").write_text("mine")
    assert start(tmp_path / "run", fresh=True) is None
    (aside,) = [path for path in tmp_path.iterdir() if path.name != "run"]
    assert (aside / "old.txt").read_text() == "mine" and not (tmp_path / "run/old.txt").exists()


def test_a_folder_that_another_process_writes_is_refused(tmp_path, refused, monkeypatch):
    with (tmp_path / "run.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "still being written by another process" in refused(tmp_path)
        for number in (errno.ENOSYS, errno.ENOLCK):  # Lustre, or NFS, without locks
            monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, "no locks")))
            assert start(tmp_path) is None


# Resume


def test_a_manifest_that_a_kill_cut_short_does_not_spoil_the_next_save_of_its_step(run):
    (run / "checkpoint-10").mkdir()
    (run / "checkpoint-10" / "manifest.partial").write_text("{")
    assert start(run).endswith("checkpoint-5")
    path = run / "checkpoint-10"
    write_json(path / "trainer_state.json", {"global_step": 10})
    files.write_manifest(path)
    assert start(run) == str(path)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("manifest.json", b"[]", "manifest.json is damaged"),
        ("manifest.json", None, "manifest.json, its last file, is missing"),
        ("optimizer.pt", None, "optimizer.pt is missing"),
        ("global_step/rank_1.pt", b"of step 1x", "global_step/rank_1.pt has another content"),
        ("trainer_state.json", b"{", "trainer_state.json is damaged"),
    ],
)
def test_a_checkpoint_with_a_file_missing_or_changed_is_passed_over_and_the_file_named(
    file, content, reason, run, capsys
):
    newest = Path(add_checkpoint(run, 10))
    assert why_not_whole(newest) is None
    (newest / file).unlink() if content is None else (newest / file).write_bytes(content)
    assert reason in why_not_whole(newest)
    assert start(run) == str(run / "checkpoint-5")
    printed = capsys.readouterr()
    assert f"{newest} is not whole" in printed.err and reason in printed.err
    assert f"Resuming from {run / 'checkpoint-5'}." in printed.out


def test_a_checkpoint_under_the_name_of_another_step_is_not_whole(run):
    (run / "checkpoint-5").rename(run / "checkpoint-50")
    assert why_not_whole(run / "checkpoint-50") == "trainer_state.json is of step 5"


def test_a_run_whose_only_checkpoint_was_damaged_does_not_begin_anew_in_silence(run, refused):
    (run / "checkpoint-5" / "optimizer.pt").unlink()
    printed = refused(run)
    for part in ("no checkpoint in", "optimizer.pt is missing", "--fresh to begin at step 0"):
        assert part in printed
    (run / "checkpoint-5" / "manifest.json").unlink()  # as an older version saved it
    assert "no checkpoint in" in refused(run)
    (run / "checkpoint-5" / "trainer_state.json").unlink()  # never whole: nothing is lost
    assert start(run) is None


def test_the_best_checkpoint_must_be_whole_where_the_run_ends_with_it(run, refused):
    add_checkpoint(run, 10, best_model_checkpoint="elsewhere/run/checkpoint-5")
    (run / "checkpoint-5" / "adapter.safetensors").unlink()
    assert start(run) == str(run / "checkpoint-10")
    printed = refused(run, load_best_model_at_end=True)
    assert "checkpoint-5, the best checkpoint so far, is not whole" in printed


def test_a_file_of_completions_that_a_kill_cut_short_is_written_again(run):
    tables = [run / "completions" / f"completions_0000{step}.parquet" for step in (5, 6)]
    tables[0].parent.mkdir()
    for table in tables:  # at the checkpoint, and behind it
        table.write_bytes(b"PAR1")
    assert start(run) == str(run / "checkpoint-5")
    assert [table.exists() for table in tables] == [True, False]


def test_a_resume_may_change_what_is_borne_of_a_reward(run, capsys):
    changed = {"max_reward_error_rate": 0.2, "reward_timeout_s": 600.0, "ddp_timeout": 600}
    assert start(run, **changed) == str(run / "checkpoint-5")
    assert "max_reward_error_rate: was None, now 0.2" in capsys.readouterr().out
    assert recorded(run) == {**RECORD, **changed}


def test_corrected_code_of_a_reward_is_accepted_where_it_is_named(run, refused):
    other = {"the code of 'a'": "9"}
    assert "--accept_changed reward_code" in refused(run, digests=other)
    accept = {"accept_changed": ["reward_code"]}
    printed = refused(run, digests={**other, "training rows": "x"}, **accept)
    assert "training rows: changed" in printed
    assert start(run, digests=other, **accept) == str(run / "checkpoint-5")
    assert start(run, digests=other) == str(run / "checkpoint-5"), "from now on that is the run"
    assert "the code of 'a': changed" in refused(run, digests={"the code of 'a'": "8"})


def test_a_finished_run_prints_its_table_and_stops_well(run, capsys):
    for name, text in (("summary.json", "{}"), ("table.txt", "the table")):
        (run / name).write_text(text)
    assert start(run) == str(run / "checkpoint-5"), "finished means that the report is there"
    (run / "report.html").touch()
    assert start(run) == str(run / "checkpoint-5"), "and that the summary is"
    (run / "summary.json").write_text('{"config": {}}')
    with pytest.raises(SystemExit) as stop:
        start(run)
    assert stop.value.code == 0 and "the table" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        start(run, push_to_hub=True)
    command = f"hf upload me/mine {run} --exclude 'checkpoint-*' --revision v1"
    assert f"It is not pushed again. To push it: {command}" in capsys.readouterr().out


# Refuse


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1, "beta": 0.1}, "beta: was None, now 0.1\n  seed: was 0, now 1"),
        ({"digests": {"the code of 'b'": "5"}}, "the code of 'b': it is not in the record"),
        # what no checkpoint holds
        ({"sync_ref_model": True}, "TRL keeps a moving reference (sync_ref_model) in no"),
    ],
)
def test_what_is_not_this_run_is_refused_with_what_differs(changed, message, run, refused):
    assert message in refused(run, **changed)
    assert start(run) == str(run / "checkpoint-5") and recorded(run) == RECORD, "as it was"


EVALUATED = "evaluation/before.jsonl"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (EVALUATED, None, f"{EVALUATED} does not hold the 2 test questions, and the untrained"),
        (EVALUATED, '{"prompt": "1 + 1 =", "metrics": {}}', "does not hold the 2 test questions"),
        (EVALUATED, '{"a": ', f"{EVALUATED} is damaged"),
        ("run_config.json", "[1]", "run_config.json is damaged: it holds no mapping"),
    ],
)
def test_a_file_that_nothing_can_make_again_must_be_whole(name, content, message, run, refused):
    (run / name).unlink() if content is None else (run / name).write_text(content)
    assert message in refused(run)


# Which run it is


def test_the_identity_follows_rows_code_and_the_model(tmp_path):
    file = tmp_path / "mine.py"
    (tmp_path / "config.json").write_text("{}")

    def identity(code="0.0", rows="a", held_out="b", weights=0.0, template="t", top="", other="o"):
        file.write_text(f"{top}def mine(completions, **kwargs):\n    return [{code}]\n")
        save_file({"weight": torch.full((3,), weights)}, tmp_path / "model.safetensors")
        (tmp_path / "chat_template.jinja").write_text(template)
        mine = load_reward(f"{file}:mine")
        (given := tmp_path / "of_chats").write_text(other)
        rows, held_out = [{"prompt": rows}], [{"prompt": held_out}]
        return identity_of([mine], rows, held_out, tmp_path, str(given))

    first = identity()
    assert differences(first, identity(top="# a comment\n\n")) == {}
    for name, changed in (
        ("the code of 'mine'", identity(code="1.0")),
        ("training rows", identity(rows="c")),
        ("held-out rows", identity(held_out="c")),
        ("model and tokenizer", identity(weights=1.0)),
        ("model and tokenizer", identity(template="u")),
        ("chat template", identity(other="p")),
    ):
        assert differences(first, changed).keys() == {name}


# What is published of it


def test_a_finished_run_is_pushed_without_its_checkpoints_or_says_how_to_repeat_it(
    tmp_path, monkeypatch, capsys
):
    calls = []

    def upload(**options):
        calls.append(options)
        if len(calls) == 2:
            raise ConnectionError("no network")

    monkeypatch.setattr(record, "upload_folder", upload)
    record.push("me/model", tmp_path, "t", None)
    assert calls[0]["repo_id"] == "me/model" and calls[0]["folder_path"] == tmp_path
    assert "checkpoint-*" in calls[0]["ignore_patterns"]
    with pytest.raises(SystemExit) as stop:
        record.push("me/model", tmp_path, None, None)
    assert stop.value.code == 1 and f"hf upload me/model {tmp_path}" in capsys.readouterr().out
