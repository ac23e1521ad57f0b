"""Recipes launched on a tiny random model: they train, log, evaluate, resume, stop on Ctrl-C."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import evaluate_model
import pytest
import torch
from peft import PeftModel
from support.launching import DENSE_REWARD, ROOT, command, kill_all, run, start, wait_for, warmed
from support.scored_by_place import completions
from support.tiny_model import same_weights
from transformers import AutoModelForCausalLM

from recipes.common.utils.run_files import read_evaluation, read_json, read_rows, read_validation

pytestmark = pytest.mark.slow

# 8 rows, 2 prompts a generation, 2 updates each: an epoch is 8 steps, so steps 9-14 are in the
# second.
RESUMED = {
    "num_train_rows": 8, "num_iterations": 2, "max_steps": 14, "eval_strategy": "steps",
    "eval_steps": 4, "num_validation_rows": 4,
    "reward_funcs": [DENSE_REWARD, "xml_format", "reasoning_gym"],
}  # fmt: skip
LORA = {
    "use_peft": "true", "max_steps": 2, "learning_rate": 0.01, "num_eval_samples": 2,
    "eval_strategy": "epoch", "num_validation_rows": 2,
    "reward_funcs": [DENSE_REWARD, "xml_format", "gsm8k_correctness"],
}  # fmt: skip
FILES = {
    *("run_config.json", "versions.json", "preflight.json", "trainer_state.json", "summary.json"),
    *("table.txt", "report.html", "README.md", "model.safetensors"),
    *("evaluation/before.jsonl", "evaluation/after.jsonl"),
    "completions/completions_00001.parquet",
}


@pytest.fixture(scope="module")
def uninterrupted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the quickstart."""
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    run(command("arithmetic", "quickstart", model, folder, **RESUMED))
    return folder


def test_a_run_folder_is_enough_to_repeat_the_run(uninterrupted: Path) -> None:
    files = {str(path.relative_to(uninterrupted)) for path in uninterrupted.rglob("*")}
    assert files >= FILES
    summary = read_json(uninterrupted / "summary.json")
    assert summary["before"]["n"] == summary["after"]["n"] == 6
    assert summary["mcnemar_p"].keys() == {"strict", "lenient", "format"}
    assert summary["minutes"] > 0 and summary["versions"]["trl"] and len(summary["commit"]) == 40


def test_the_glossary_has_every_metric_that_a_run_logs(uninterrupted: Path) -> None:
    glossary = (ROOT / "docs/running.md").read_text().partition("## Logged metrics")[2]
    names = [name for line in glossary.split("- ") for name in re.findall("`([^`]+)`", line)]
    explained = "|".join(re.sub("<.*?>", "[^/]+", name) for name in names)
    history = read_json(uninterrupted / "trainer_state.json")["log_history"]
    logged = {name for entry in history for name in entry}
    assert {"metrics/lenient", "push/lenient_low", "validation/strict"} <= logged
    assert [name for name in sorted(logged) if not re.fullmatch(explained, name)] == []


def test_killed_in_mid_run_and_resumed_in_the_second_epoch_equals_the_uninterrupted_run(
    model, uninterrupted, tmp_path
):
    folder, log = tmp_path / "run", tmp_path / "log"
    words = command("arithmetic", "quickstart", model, folder, **RESUMED)
    process = start(warmed(words), log)
    wait_for("step 11/14", log, process)
    kill_all(process)
    assert not (folder / "summary.json").exists()
    # Undo what was written after step 10: it does not matter how late the kill came.
    for later in [*folder.glob("checkpoint-*"), *folder.glob("completions/completions_*.parquet")]:
        if int(re.search(r"[0-9]+", later.name)[0]) > 10:
            shutil.rmtree(later) if later.is_dir() else later.unlink()
    before = (folder / "evaluation" / "before.jsonl").stat().st_mtime_ns
    printed = run(words)
    assert f"Resuming from {folder / 'checkpoint-10'}" in printed
    assert "share_prompts has no effect" not in printed, "the YAML asks for it"
    for step in (11, 13):
        resumed, whole = completions(folder, step), completions(uninterrupted, step)
        for column in ("prompt", "token_ids", "letter_share", "xml_format", "advantage"):
            assert list(map(str, resumed[column])) == list(map(str, whole[column])), (step, column)
    assert same_weights(uninterrupted, folder)
    assert (folder / "evaluation" / "before.jsonl").stat().st_mtime_ns == before
    curve = read_validation(folder)
    assert curve == read_validation(uninterrupted)
    assert [line["step"] for line in curve] == [0, 4, 8, 12, 14]


def test_ctrl_c_saves_a_checkpoint_on_two_ranks_and_says_how_to_go_on(
    model, uninterrupted, tmp_path
):
    folder, log = tmp_path / "run", tmp_path / "log"
    long = {"max_steps": 5000, "save_steps": 1000, "per_device_train_batch_size": 4}
    launch = "accelerate_configs/cpu_2proc.yaml"
    words = command("arithmetic", "quickstart", model, folder, launch, **{**RESUMED, **long})
    process = start(words, log)
    wait_for("step 3/5000", log, process)
    os.kill(process.pid, signal.SIGINT)  # the launcher alone; it is the recipe that must save
    process.wait(timeout=60)
    wait_for("Run the same command again", log)  # its child may still be saving
    assert log.read_text().count("Interrupted: a checkpoint is saved") == 1
    (checkpoint,) = folder.glob("checkpoint-*")
    assert int(checkpoint.name.split("-")[1]) % 2 == 0, "saved in the middle of a generation"
    assert read_json(checkpoint / "trainer_state.json")["global_step"] >= 4
    # The same rows get the same answers whatever the number of processes.
    before = read_rows(folder / "evaluation/before.jsonl")
    assert before == read_evaluation(uninterrupted)[0]
    assert len({row["completion"] for row in before}) > 2


def test_lora_leaves_an_adapter_that_has_learnt_and_the_script_evaluates_as_the_run_did(
    model, tmp_path, run_script
):
    for split, numbers in (("train", range(12)), ("test", range(12, 20))):
        answers = {f"What is {i} plus {i}?": f"It is {2 * i}.\n#### {2 * i}" for i in numbers}
        rows = [{"question": text, "answer": answer} for text, answer in answers.items()]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder, settings = tmp_path / "lora", {**LORA, "dataset_path": tmp_path}
    run(command("gsm8k", "smollm2-135m", model, folder, launch=None, **settings))

    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), folder)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        learnt = adapted(ids).logits
        with adapted.disable_adapter():
            assert not torch.allclose(learnt, adapted(ids).logits, atol=1e-5)

    words = ["--model", folder, "--config", ROOT / "recipes/gsm8k/smollm2-135m.yaml"]
    words += ["--dataset_path", tmp_path, "--output", tmp_path / "rows.jsonl", "--use_cpu"]
    words += ["--num_eval_rows", 6, "--max_completion_length", 12, "--dtype", "float32"]
    words += ["--per_device_eval_batch_size", 2]
    assert "6 test questions" in run_script(evaluate_model, *words)[1]
    alone, (_, within) = read_rows(tmp_path / "rows.jsonl"), read_evaluation(folder)
    for column in ("completion", "metrics"):
        assert [row[column] for row in alone] == [row[column] for row in within]
