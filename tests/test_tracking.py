"""W&B gets before and after of a run, and a resumed run stays one run."""

import json
import os
import traceback
from types import SimpleNamespace

import pytest
import wandb
from support.launching import DENSE_REWARD, command, run
from support.wandb_log import read_runs
from transformers import TrainerCallback
from transformers.integrations import WandbCallback
from trl.trainer import grpo_trainer
from wandb.sdk.lib import exit_hooks

from recipes.common.training import tracking
from recipes.common.training.tracking import SUMMARIZED, TrackingCallback, continue_wandb_run
from recipes.common.utils.run_files import WANDB, read_json
from rewards import load_reward

SUMMARY = {"before": None, "after": None, "mcnemar_p": None, "minutes": 2.5, "steps": 6}


@pytest.mark.parametrize(
    ("checkpoint", "mine", "tracker", "expected"),
    [
        ("checkpoint-2", {}, "wandb", ("first", "allow")),
        (None, {}, "wandb", (None, None)),  # a start from step 0 is a run of its own
        ("checkpoint-2", {}, "tensorboard", (None, None)),
        ("checkpoint-2", {"WANDB_RUN_ID": "mine"}, "wandb", ("mine", None)),
        ("checkpoint-2", {"WANDB_RESUME": "never"}, "wandb", (None, "never")),
    ],
)
def test_only_a_resumed_run_goes_on_with_its_wandb_run_unless_the_user_decides(
    checkpoint, mine, tracker, expected, tmp_path, monkeypatch
):
    names, args = ("WANDB_RUN_ID", "WANDB_RESUME"), SimpleNamespace(report_to=[tracker])
    monkeypatch.setattr(os, "environ", dict(mine))
    continue_wandb_run(tmp_path, args, checkpoint)  # a folder without a record
    assert os.environ == mine
    (tmp_path / WANDB).write_text('{"id": "first"}')
    continue_wandb_run(tmp_path, args, checkpoint)
    assert tuple(os.environ.get(name) for name in names) == expected


def test_a_tracker_that_fails_is_reported_and_does_not_fail_the_run(tmp_path, monkeypatch, capsys):
    args = SimpleNamespace(report_to=["wandb"])
    monkeypatch.setattr(wandb, "run", SimpleNamespace(id="first"))  # takes nothing
    TrackingCallback(tmp_path, {}).on_train_begin(args, None, None)
    tracking.track_result(args, SUMMARY, tmp_path / "report.html")
    printed = capsys.readouterr().err
    assert "giving the settings to W&B failed: AttributeError" in printed
    assert f"it stands in {tmp_path}: AttributeError" in printed


def test_a_tracker_that_fails_while_training_costs_one_warning(monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise ConnectionResetError("the service is gone")

    broken = WandbCallback()
    broken.on_log = broken.on_save = broken.on_train_end = fail
    own = TrainerCallback()  # the user's: its errors are no tracker's
    own.on_log = fail
    args = SimpleNamespace(report_to=["wandb"])
    monkeypatch.setattr(tracking, "WARNED", set())
    monkeypatch.setattr(exit_hooks, "traceback", traceback)  # is replaced, and restored
    monkeypatch.setattr(wandb, "log", fail)
    handler = SimpleNamespace(callbacks=[broken, own])
    tracking.outlive_trackers(SimpleNamespace(args=args, callback_handler=handler))
    for _ in range(2):
        broken.on_log(args, None, None, logs={})
        broken.on_save(args, None, None)
        broken.on_train_end(args, None, None)
        with tracking.outlive_table():
            grpo_trainer.wandb.log({"completions": None})
    warning = "warning: a tracker fails, and training goes on: "
    assert capsys.readouterr().err == f"{warning}ConnectionResetError: the service is gone\n"
    with pytest.raises(ConnectionResetError):
        own.on_log()


def test_wandb_prints_no_traceback_of_its_own_in_which_secrets_would_stand(monkeypatch, capsys):
    args, handler = SimpleNamespace(report_to=["wandb"]), SimpleNamespace(callbacks=[])
    monkeypatch.setattr(exit_hooks, "traceback", traceback)
    tracking.outlive_trackers(SimpleNamespace(args=args, callback_handler=handler))
    hooks, ours = exit_hooks.ExitHooks(), []
    hooks._orig_excepthook = lambda *error: ours.append(error)  # screen.explain_endings
    error = RuntimeError("key sk-123")
    hooks.exc_handler(RuntimeError, error, None)
    assert capsys.readouterr().err == ""
    assert (ours, hooks.exit_code) == ([(RuntimeError, error, None)], 1)


ENTRY = json.dumps(
    {"dataset": "chain_sum", "parameters": {}, "question": "2 + 2 =", "answer": "4", "metadata": {}}
)


@pytest.mark.parametrize(
    ("name", "parameters", "column", "text", "parsed"),
    [
        ("gsm8k_correctness", {}, {"answer": ["4"]}, "<answer>$5</answer>", "$5"),
        ("gsm8k_correctness", {"lenient": True}, {"answer": ["4"]}, "So it is 4.0 in all.", "4"),
        ("boxed_math", {}, {"answer": ["4"]}, r"\boxed{2^2}", "2^2"),
        ("reasoning_gym", {}, {"entry": [ENTRY]}, "<answer>4</answer>", "4"),
    ],
)
def test_verifiers_log_the_gold_and_the_answer_they_read(name, parameters, column, text, parsed):
    logged = {}
    columns = {key: values * 2 for key, values in {"prompts": ["p"], **column}.items()}
    columns |= {"completions": [text, "no answer"]}
    load_reward(name, **parameters)(**columns, log_extra=logged.__setitem__)
    assert (logged[f"gold/{name}"], logged[f"parsed/{name}"]) == (["4", "4"], [parsed, None])


# A run, interrupted and resumed

STOPS_ONCE = """
import os, signal
from pathlib import Path

def stops_once(prompts, completions, trainer_state, **kwargs):
    if getattr(trainer_state, "global_step", 0) == 2 and not Path({mark!r}).exists():
        Path({mark!r}).touch()
        os.kill(os.getpid(), signal.SIGINT)
    return [float(len(completion[0]["content"])) for completion in completions]

stops_once.farmable = "any long text earns it"
"""


@pytest.mark.slow
def test_a_resumed_run_is_one_wandb_run_with_the_summary_and_the_report(model, tmp_path):
    """A run of 6 steps, 2 a generation, interrupted after step 4 and resumed; in W&B offline."""
    folder = tmp_path / "run"
    (tmp_path / "my_reward.py").write_text(STOPS_ONCE.format(mark=str(tmp_path / "stopped")))
    settings = {
        "num_train_rows": 8, "num_iterations": 2, "max_steps": 6, "run_name": "the-run",
        "report_to": "wandb", "project": "the-project", "eval_strategy": "steps", "eval_steps": 2,
        "num_validation_rows": 2,
        "reward_funcs": [DENSE_REWARD, f"{tmp_path}/my_reward.py:stops_once"],
    }  # fmt: skip
    words = command("arithmetic", "quickstart", model, folder, launch=None, **settings)
    env = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_RUN_GROUP": "seeds"}
    assert "Stopped after step 4 of 6" in run(words, env=env, expect=1)
    assert f"Resuming from {folder / 'checkpoint-4'}" in run(words, env=env)
    interrupted, finished = read_runs(tmp_path)
    known = read_json(folder / WANDB)["id"]
    for start in (interrupted, finished):
        assert (start["id"], start["group"], start["name"]) == (known, "seeds", "the-run")
        assert start["config"]["recipe"]["recipe"] == "arithmetic"
        assert start["project"] == "the-project"
        assert "completions/_type" in start["history"]  # TRL's table
        names = {f"train/rewards/letter_share/{each}" for each in ("mean", "std")}
        assert names | {"train/validation/strict"} <= start["history"]
    summary = read_json(folder / "summary.json")
    assert summary["after"]["n"] == 6
    for name in SUMMARIZED:
        assert finished["summary"][name] == summary[name]
    report = {"type": "report", "files": ["report.html"]}
    assert finished["artifacts"][f"report-{known}"] == [report]
    assert not interrupted["summary"].keys() & {*SUMMARIZED}
    assert "report" not in str(interrupted["artifacts"])
