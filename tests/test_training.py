"""Recipes really launched on a tiny random model: they train, log, evaluate, resume, and stop on
Ctrl-C.
"""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import PeftModel
from support.launching import DENSE_REWARD, command, kill_all, run, start, wait_for, warmed
from support.tiny_model import assert_same_weights
from transformers import AutoModelForCausalLM

from recipes.common.utils.run_files import read_rows, read_validation

pytestmark = pytest.mark.slow

# 8 rows, 2 prompts a generation, 2 updates each: an epoch is 8 steps, so steps 9-14 are in the
# second.
RESUMED = {"num_train_rows": 8, "num_iterations": 2, "max_steps": 14}
RESUMED |= {"eval_strategy": "steps", "eval_steps": 4, "num_validation_rows": 4}
RESUMED["reward_funcs"] = [DENSE_REWARD, "xml_format", "reasoning_gym"]
GSM8K_ROWS = [
    {"question": f"What is {i} plus {i}?", "answer": f"It is {2 * i}.\n#### {2 * i}"}
    for i in range(20)
]


@pytest.fixture(scope="session")
def gsm8k_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gsm8k")
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GSM8K_ROWS[:12]))
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GSM8K_ROWS[12:]))
    return folder


@pytest.fixture(scope="session")
def runs(model: Path, gsm8k_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs.

    `uninterrupted`, and `lora`: two steps of the GSM8K recipe.
    """
    base = tmp_path_factory.mktemp("runs")
    settings = {
        "dataset_path": gsm8k_folder,
        "use_peft": "true",
        "max_steps": 2,
        "learning_rate": 0.01,
    }
    settings |= {
        "reward_funcs": [DENSE_REWARD, "xml_format", "gsm8k_correctness"],
        "num_eval_samples": 2,
    }
    settings |= {"eval_strategy": "epoch", "num_validation_rows": 2}
    whole = command("arithmetic", "quickstart", model, base / "uninterrupted", **RESUMED)
    lora = command("gsm8k", "smollm2-135m", model, base / "lora", **settings)
    run(lora)
    run(whole)
    return base


@pytest.fixture(scope="session")
def uninterrupted(runs: Path) -> Path:
    return runs / "uninterrupted"


@pytest.fixture(scope="session")
def gsm8k_lora(runs: Path) -> Path:
    return runs / "lora"


def log_of(folder: Path) -> list[dict]:
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def test_a_run_folder_is_enough_to_repeat_the_run(uninterrupted: Path) -> None:
    files = {
        str(path.relative_to(uninterrupted)) for path in uninterrupted.rglob("*") if path.is_file()
    }
    expected = {
        "run_config.json",
        "versions.json",
        "preflight.json",
        "summary.json",
        "table.txt",
        "curves.png",
    }
    expected |= {
        "README.md",
        "trainer_state.json",
        "evaluation/before.jsonl",
        "evaluation/after.jsonl",
        "report.html",
    }
    assert expected | {"completions/completions_00001.parquet", "model.safetensors"} <= files


def test_the_summary_holds_before_after_and_p(uninterrupted: Path) -> None:
    summary = json.loads((uninterrupted / "summary.json").read_text())
    assert summary["before"]["n"] == summary["after"]["n"] == 6
    assert summary["mcnemar_p"].keys() == {"strict", "lenient", "format"}
    assert summary["minutes"] > 0 and summary["versions"]["trl"] and len(summary["commit"]) == 40


def test_killed_in_mid_run_and_resumed_in_the_second_epoch_equals_the_uninterrupted_run(
    model: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    words, log = (
        command("arithmetic", "quickstart", model, tmp_path / "run", **RESUMED),
        tmp_path / "log",
    )
    process = start(warmed(words), log)
    wait_for("step 11/14", log, process)
    kill_all(process)
    assert not (tmp_path / "run" / "summary.json").exists()
    forget_after(tmp_path / "run", 10)
    before = (tmp_path / "run" / "evaluation" / "before.jsonl").stat().st_mtime_ns
    printed = run(words)
    assert f"Resuming from {tmp_path / 'run' / 'checkpoint-10'}" in printed
    assert "share_prompts has no effect" not in printed, "the YAML asks for it"
    for step in (11, 13):
        for column in ("prompt", "token_ids", "letter_share", "xml_format", "advantage"):
            resumed, whole = (
                completions(folder, step)[column] for folder in (tmp_path / "run", uninterrupted)
            )
            assert list(map(list_or_value, resumed)) == list(map(list_or_value, whole)), (
                step,
                column,
            )
    assert_same_weights(uninterrupted, tmp_path / "run")
    assert (tmp_path / "run" / "evaluation" / "before.jsonl").stat().st_mtime_ns == before
    curve = read_validation(tmp_path / "run")
    assert curve == read_validation(uninterrupted) and [line["step"] for line in curve] == [
        0,
        4,
        8,
        12,
        14,
    ]


def assert_same_answers(file: str, one: Path, other: Path) -> list[dict]:
    mine, theirs = (read_rows(folder / "evaluation" / file) for folder in (one, other))
    assert mine == theirs
    return mine


def forget_after(folder: Path, step: int) -> None:
    """Undo what was written after `step`, so that it does not matter how late the kill came."""
    for later in [*folder.glob("checkpoint-*"), *folder.glob("completions/completions_*.parquet")]:
        if int(re.search(r"[0-9]+", later.name)[0]) > step:
            shutil.rmtree(later) if later.is_dir() else later.unlink()


def test_a_run_killed_after_its_last_step_is_evaluated_and_trains_no_further(
    model: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    shutil.copytree(uninterrupted, tmp_path / "run")
    for name in ("summary.json", "model.safetensors", "evaluation/after.jsonl"):
        (tmp_path / "run" / name).unlink()
    run(command("arithmetic", "quickstart", model, tmp_path / "run", **RESUMED))
    assert_same_weights(uninterrupted, tmp_path / "run")
    assert_same_answers("after.jsonl", uninterrupted, tmp_path / "run")
    # The learning rate ends at 0, so a step too many would change no parameter: it is counted.
    assert json.loads((tmp_path / "run" / "trainer_state.json").read_text())["global_step"] == 14


def completions(folder: Path, step: int) -> pd.DataFrame:
    return pd.read_parquet(folder / "completions" / f"completions_{step:05d}.parquet")


def list_or_value(value):
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(
    ("launch", "per_device"),
    [("accelerate_configs/cpu.yaml", 8), ("accelerate_configs/cpu_2proc.yaml", 4)],
)
def test_ctrl_c_saves_a_checkpoint_and_says_how_to_go_on(
    launch: str, per_device: int, model: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    arguments = {
        **RESUMED,
        "max_steps": 5000,
        "save_steps": 1000,
        "per_device_train_batch_size": per_device,
    }
    log = tmp_path / "log"
    process = start(
        command("arithmetic", "quickstart", model, tmp_path / "run", launch=launch, **arguments),
        log,
    )
    wait_for("step 3/5000", log, process)
    os.kill(process.pid, signal.SIGINT)  # the launcher alone; it is the recipe that must save
    process.wait(timeout=60)
    wait_for(
        "Run the same command again", log
    )  # the launcher is gone; its child may still be saving
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*")
    assert int(checkpoint.name.split("-")[1]) % 2 == 0, "saved in the middle of a generation"
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] >= 4
    # The same rows get the same answers whatever the number of processes.
    answers = assert_same_answers("before.jsonl", tmp_path / "run", uninterrupted)
    assert len({row["completion"] for row in answers}) > 2


def test_lora_leaves_an_adapter_that_has_learnt(gsm8k_lora: Path, model: Path) -> None:
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), gsm8k_lora)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        learnt = adapted(ids).logits
        with adapted.disable_adapter():
            assert not torch.allclose(learnt, adapted(ids).logits, atol=1e-5)


def test_the_standalone_script_evaluates_as_the_run_did(
    gsm8k_lora: Path, gsm8k_folder: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "scripts/evaluate_model.py", "--model", str(gsm8k_lora)]
    words += ["--config", "recipes/gsm8k/smollm2-135m.yaml", "--dataset_path", str(gsm8k_folder)]
    words += [
        "--max_completion_length",
        "12",
        "--num_eval_rows",
        "6",
        "--per_device_eval_batch_size",
        "2",
    ]
    words += ["--dtype", "float32", "--output", str(tmp_path / "rows.jsonl")]
    assert "6 held-out rows" in run(words)
    alone, within = (
        read_rows(tmp_path / "rows.jsonl"),
        read_rows(gsm8k_lora / "evaluation" / "after.jsonl"),
    )
    assert [row["completion"] for row in alone] == [row["completion"] for row in within]
    assert [row["metrics"] for row in alone] == [row["metrics"] for row in within]
