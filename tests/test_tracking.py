"""W&B and TensorBoard get before and after of a run, and a resumed run stays one run."""

import importlib.util
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import wandb
from support.launching import DENSE_REWARD, ROOT, command, run
from support.wandb_log import read_runs

from recipes.common.training import tracking
from recipes.common.training.tracking import TrackingCallback, continue_wandb_run, flat_summary
from recipes.common.utils.run_files import TABLE, WANDB
from rewards import load_reward

SUMMARY = {
    "before": {
        "n": 8,
        "strict": {"share": 0.25, "interval": [0.125, 0.5]},
        "truncated": 0.5,
        "rewards": {"right": None, "tidy": 0.75},
    },
    "after": {
        "n": 8,
        "strict": {"share": 0.75, "interval": [0.5, 0.875]},
        "truncated": 0.0,
        "rewards": {"tidy": 1.0},
    },
    "mcnemar_p": {"strict": 0.125},
    "minutes": 2.5,
    "steps": 6,
}
FLAT = {
    "before/n": 8,
    "before/strict": 0.25,
    "before/strict_low": 0.125,
    "before/strict_high": 0.5,
    "before/truncated": 0.5,
    "before/rewards/tidy": 0.75,
    "after/n": 8,
    "after/strict": 0.75,
    "after/strict_low": 0.5,
    "after/strict_high": 0.875,
    "after/truncated": 0.0,
    "after/rewards/tidy": 1.0,
    "change/strict": 0.5,
    "p/strict": 0.125,
    "minutes": 2.5,
    "steps": 6,
}


def test_before_and_after_are_single_figures_and_absent_without_evaluation_rows():
    assert flat_summary(SUMMARY) == FLAT
    nothing = {"before": None, "after": None, "mcnemar_p": None}
    assert flat_summary({**SUMMARY, **nothing}) == {"minutes": 2.5, "steps": 6}


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


def test_tensorboard_gets_before_and_after_as_scalars_of_the_last_step(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from transformers.integrations import TensorBoardCallback

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    trainer = SimpleNamespace(
        args=SimpleNamespace(report_to=["tensorboard"]),
        state=SimpleNamespace(global_step=6, is_world_process_zero=True),
        control=None,
        callback_handler=SimpleNamespace(callbacks=[TensorBoardCallback()]),
    )
    tracking.track_summary(trainer, SUMMARY)
    assert scalars_of(tmp_path) == {f"train/{name}": [(6, value)] for name, value in FLAT.items()}


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: tag -> (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_a_tracker_that_fails_is_reported_and_does_not_fail_the_run(tmp_path, monkeypatch, capsys):
    args = SimpleNamespace(report_to=["wandb"])
    monkeypatch.setattr(wandb, "run", SimpleNamespace(id="first"))  # takes nothing
    TrackingCallback(tmp_path, {}).on_train_begin(args, None, None)
    tracking.track_summary(SimpleNamespace(args=args), SUMMARY)
    tracking.track_report(args, tmp_path / "report.html")
    printed = capsys.readouterr().err
    assert "giving the settings to W&B failed: AttributeError" in printed
    assert "it stands in summary.json: AttributeError" in printed
    assert f"it stands in {tmp_path / 'report.html'}: ValueError" in printed


ENTRY = json.dumps(
    {"dataset": "chain_sum", "parameters": {}, "question": "2 + 2 =", "answer": "4", "metadata": {}}
)


@pytest.mark.parametrize(
    ("name", "parameters", "column", "text", "parsed"),
    [
        ("gsm8k_correctness", {}, {"answer": ["4"]}, "<answer>$5</answer>", "$5"),
        ("gsm8k_correctness", {"lenient": True}, {"answer": ["4"]}, "So it is 4.0 in all.", "4"),
        ("gsm8k_harness", {}, {"answer": ["4"]}, "<answer>#### 4</answer>", "#### 4"),
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


# --------------------------------------------------------------------------- a run, interrupted and
# resumed

STOPS_ONCE = """
import os, signal
from pathlib import Path

def stops_once(prompts, completions, trainer_state, **kwargs):
    if getattr(trainer_state, "global_step", 0) == 2 and not Path({mark!r}).exists():
        Path({mark!r}).touch()
        os.kill(os.getpid(), signal.SIGINT)
    return [float(len(completion[0]["content"])) for completion in completions]
"""


@pytest.fixture(scope="module")
def resumed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps, 2 a generation, interrupted after step 4 and resumed; logged to W&B offline
    and TensorBoard.
    """
    base = tmp_path_factory.mktemp("tracking")
    (base / "my_reward.py").write_text(STOPS_ONCE.format(mark=str(base / "stopped")))
    trackers = "[wandb, tensorboard]" if importlib.util.find_spec("tensorboard") else "wandb"
    shipped = (ROOT / "recipes/arithmetic/quickstart.yaml").read_text()
    assert "report_to: none" in shipped
    (base / "both.yaml").write_text(shipped.replace("report_to: none", f"report_to: {trackers}"))
    settings = {"num_train_rows": 8, "num_iterations": 2, "max_steps": 6, "run_name": "the-run"}
    settings["reward_funcs"] = [DENSE_REWARD, f"{base}/my_reward.py:stops_once"]
    words = command("arithmetic", "quickstart", model, base / "run", **settings)
    words[words.index("--config") + 1] = str(base / "both.yaml")  # only a YAML can list trackers
    env = {"WANDB_MODE": "offline", "WANDB_DIR": str(base), "WANDB_RUN_GROUP": "seeds"}
    assert "Stopped after step 4 of 6" in run(words, env=env, expect=1)
    assert f"Resuming from {base / 'run' / 'checkpoint-4'}" in run(words, env=env)
    return base


@pytest.mark.slow
def test_a_resumed_run_is_one_wandb_run_with_the_summary_and_the_report(resumed: Path) -> None:
    interrupted, finished = read_runs(resumed)
    known = json.loads((resumed / "run" / WANDB).read_text())["id"]
    for start in (interrupted, finished):
        assert (start["id"], start["group"], start["name"]) == (known, "seeds", "the-run")
        assert start["config"]["recipe"]["recipe"] == "arithmetic"
        assert "completions/_type" in start["history"]  # TRL's table
    flat = flat_summary(json.loads((resumed / "run" / "summary.json").read_text()))
    assert flat["after/n"] == 6 and {"before/strict", "change/strict", "p/strict"} < flat.keys()
    assert {name: finished["summary"][name] for name in flat} == flat
    report = {"type": "report", "files": ["report.html"]}
    assert finished["artifacts"][f"report-{known}"] == [report]
    assert not interrupted["summary"].keys() & flat.keys()
    assert "report" not in str(interrupted["artifacts"])


@pytest.mark.slow
def test_tensorboard_holds_the_rewards_of_both_starts_and_before_and_after(resumed: Path) -> None:
    pytest.importorskip("tensorboard")
    starts = [scalars_of(folder) for folder in (resumed / "run" / "runs").iterdir()]  # any order
    steps = sorted(step for scalars in starts for step, _ in scalars["train/reward"])
    assert len(starts) == 2 and steps[-1] == 5 and steps == sorted(set(steps))
    finished = [scalars["train/after/n"] for scalars in starts if "train/after/n" in scalars]
    assert finished == [[(6, 6.0)]]


@pytest.mark.slow
def test_the_rows_of_the_summary_are_those_that_completions_were_generated_for(resumed: Path):
    files = (resumed / "run" / "completions").glob("*.parquet")
    prompts = {str(prompt) for file in files for prompt in pd.read_parquet(file)["prompt"]}
    found = json.loads((resumed / "run" / "summary.json").read_text())["rows_trained_on"]
    assert found == len(prompts)
    assert f"Trained on {found} distinct rows." in (resumed / "run" / TABLE).read_text()
