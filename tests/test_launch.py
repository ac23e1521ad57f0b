"""Every engine that a CPU can run, really launched with two processes: the one asked for is in force, and all agree.

The same rows, seed and model give the same tokens, rewards, gradient norms and parameters whatever the engine. The loss
is not compared: with equal lengths it is 0 on policy. What is the least agreement was fixed before the first run.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from support.launching import DENSE_REWARD, command, run
from support.tiny_model import build_tiny_model
from transformers import AutoModelForCausalLM

from recipes.common.tools.folder import read_rows

pytestmark = pytest.mark.slow

CONFIGS = Path(__file__).parents[1] / "accelerate_configs"
ENGINES = {  # launch file: type, ZeRO stage, offload, share of the parameters on each rank
    "ddp": ("MULTI_CPU", None, None, 1.0),
    "zero1": ("DEEPSPEED", 1, None, 1.0),
    "zero2": ("DEEPSPEED", 2, None, 1.0),
    "zero3": ("DEEPSPEED", 3, None, 0.5),
    "zero3_offload": ("DEEPSPEED", 3, "optimizer and parameters", 0.5),
}
KINDS = {"full": {"beta": 0.04}, "lora": {"use_peft": "true", "beta": 0.04, "merge_adapter": "true"}}
# Two prompts a step, one on each rank. float32, and an Adam whose steps follow the gradient down to its noise.
TRAINING = {"num_train_rows": 8, "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 4, "bf16": "false"}
TRAINING |= {"learning_rate": 0.01, "adam_epsilon": 0.001, "use_cpu": "true"}
TRAINING["reward_funcs"] = [DENSE_REWARD, "xml_format", "reasoning_gym"]
COLUMNS = ("prompt", "token_ids", "letter_share", "xml_format", "reasoning_gym", "advantage")
NORM_TOLERANCE, PARAMETER_TOLERANCE, LOGIT_TOLERANCE = 1e-3, 1e-4, 1e-3
ON_CPU = {"DS_ACCELERATOR": "cpu"}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def words_for(launch: str | Path, kind: str, model: Path, folder: Path, *script: str) -> list[str]:
    file = CONFIGS / f"{launch}.yaml" if isinstance(launch, str) else launch
    launcher = ["--num_processes=2", *script]
    return command("arithmetic", "quickstart", model, folder, str(file), launcher, **TRAINING, **KINDS[kind])


@pytest.fixture(scope="session")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory):
    """Run an engine once: (launch file, kind) -> run folder."""
    folders: dict[tuple[str, str], Path] = {}

    def train(launch: str, kind: str) -> Path:
        if (launch, kind) not in folders:
            folder = tmp_path_factory.mktemp("launched") / f"{launch}-{kind}"
            printed = run(words_for(launch, kind, model, folder), env=ON_CPU)
            (folder / "printed.txt").write_text(printed)
            folders[launch, kind] = folder
        return folders[launch, kind]

    return train


def steps_of(folder: Path) -> list[pd.DataFrame]:
    return [pd.read_parquet(file) for file in sorted((folder / "completions").glob("*.parquet"))]


def gradient_norms(folder: Path) -> list[float]:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry["grad_norm"] for entry in history if "grad_norm" in entry]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = [*folder.glob("model.safetensors"), *folder.glob("adapter_model.safetensors")]
    return load_file(file)


def assert_same_steps(one: Path, other: Path) -> None:
    assert len(steps_of(one)) == len(steps_of(other)) == 4
    for mine, theirs in zip(steps_of(one), steps_of(other), strict=True):
        for column in COLUMNS:
            assert mine[column].map(list_or_value).tolist() == theirs[column].map(list_or_value).tolist(), column


def list_or_value(value):
    return value.tolist() if hasattr(value, "tolist") else value


def assert_same_updates(one: Path, other: Path) -> None:
    assert gradient_norms(one) == pytest.approx(gradient_norms(other), rel=NORM_TOLERANCE)
    mine, theirs = parameters(one), parameters(other)
    assert mine.keys() == theirs.keys()
    assert max((mine[name] - theirs[name]).abs().max().item() for name in mine) < PARAMETER_TOLERANCE


# Trains


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", ENGINES)
def test_the_engine_that_was_asked_for_is_in_force(launch, kind, trained):
    engine = json.loads((trained(launch, kind) / "summary.json").read_text())["engine"]
    names = ("distributed_type", "zero_stage", "offload", "share_held")
    assert tuple(engine[name] for name in names) == pytest.approx(ENGINES[launch], abs=0.05)
    assert engine["world_size"] == 2
    line = next(
        line for line in (trained(launch, kind) / "printed.txt").read_text().splitlines() if line.startswith("Engine: ")
    )
    assert line.startswith("Engine: DDP" if launch == "ddp" else f"Engine: DeepSpeed ZeRO-{ENGINES[launch][1]}")
    assert "2 processes, cpu" in line


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", [name for name in ENGINES if name != "ddp"])
def test_every_engine_takes_the_steps_of_ddp(launch, kind, trained):
    assert_same_steps(trained(launch, kind), trained("ddp", kind))
    assert_same_updates(trained(launch, kind), trained("ddp", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_training_changes_the_parameters_by_more_than_engines_may_differ(kind, trained, model):
    assert len({len(set(map(str, step["letter_share"]))) for step in steps_of(trained("ddp", kind))} - {1}) > 0
    assert min(gradient_norms(trained("ddp", kind))) > 0.0
    if kind == "full":
        before, after = parameters(model), parameters(trained("ddp", kind))
        assert max((before[name] - after[name]).abs().max().item() for name in before) > 10 * PARAMETER_TOLERANCE


def test_a_lost_gradient_of_one_rank_does_not_pass_as_the_same(trained, model, tmp_path):
    run(words_for("ddp", "full", model, tmp_path / "run", "tests/support/lost_gradient.py"))
    with pytest.raises(AssertionError):
        assert_same_updates(tmp_path / "run", trained("ddp", "full"))


# Judges and saves


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", [name for name in ENGINES if name != "ddp"])
def test_before_and_after_every_row_gets_the_answer_it_gets_under_ddp(launch, kind, trained):
    for file in ("before.jsonl", "after.jsonl"):
        rows = [read_rows(trained(name, kind) / "evaluation" / file) for name in (launch, "ddp")]
        assert rows[0] == rows[1] and len({row["completion"] for row in rows[0]}) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", ENGINES)
def test_what_was_saved_loads_and_answers_as_under_ddp(launch, kind, trained):
    ids = torch.tensor([[5, 6, 7, 8]])
    folders = [trained(name, kind) / ("merged" if kind == "lora" else "") for name in (launch, "ddp")]
    with torch.no_grad():
        mine, theirs = (AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in folders)
    assert torch.allclose(mine, theirs, atol=LOGIT_TOLERANCE)


# Goes on


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", ["ddp", "zero2", "zero3"])
def test_a_run_that_goes_on_from_a_checkpoint_equals_the_one_that_was_not_interrupted(
    launch, kind, trained, model, tmp_path
):
    whole, folder = trained(launch, kind), tmp_path / "run"
    shutil.copytree(whole, folder)
    forget_after_step_2(folder)
    printed = run(words_for(launch, kind, model, folder), env=ON_CPU)
    assert (
        f"{folder / 'checkpoint-4'} was cut short" in printed and f"Resuming from {folder / 'checkpoint-2'}" in printed
    )
    assert_same_steps(folder, whole)
    assert_same_updates(folder, whole)


def forget_after_step_2(folder: Path) -> None:
    """As a run that was killed while it wrote its second checkpoint would have left it."""
    names = ("checkpoint-4/trainer_state.json", "completions/completions_00003.parquet")
    for name in (*names, "completions/completions_00004.parquet", "summary.json"):
        (folder / name).unlink()
    for file in [*folder.glob("*model.safetensors"), folder / "evaluation/after.jsonl", folder / "trainer_state.json"]:
        file.unlink()


# Refuses


def test_use_cpu_in_a_deepspeed_launch_file_is_refused(model, tmp_path):
    text = (CONFIGS / "zero2.yaml").read_text()
    assert "\nuse_cpu: false" in text
    (tmp_path / "planted.yaml").write_text(text.replace("\nuse_cpu: false", "\nuse_cpu: true"))
    printed = run(words_for(tmp_path / "planted.yaml", "full", model, tmp_path / "run"), env=ON_CPU, expect=1)
    assert "the launch file asks for DeepSpeed and for the CPU" in printed and "Set use_cpu: false" in printed
    assert "step 1/" not in printed


def test_one_process_for_multi_cpu_is_refused(model, tmp_path):
    text = (CONFIGS / "cpu_2proc.yaml").read_text()
    (tmp_path / "planted.yaml").write_text(text.replace("MULTI_GPU\n", "MULTI_CPU\n"))
    printed = run(words_for(tmp_path / "planted.yaml", "full", model, tmp_path / "run"), expect=1)
    assert "the launch file says MULTI_CPU, for which accelerate starts one process only" in printed


def test_without_an_accelerator_the_recipe_asks_for_the_cpu_itself(model, tmp_path):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    words = words_for("ddp", "full", model, tmp_path / "run")
    words[words.index("--use_cpu") + 1] = "false"
    assert "Engine: DDP, 2 processes, cpu" in run(words)


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="without an accelerator FSDP silently becomes DDP")
def test_fsdp2_is_in_force_on_an_accelerator(model, tmp_path):
    settings = {**TRAINING, "use_cpu": "false", "per_device_train_batch_size": 8}
    launch = str(CONFIGS / "fsdp2.yaml")
    run(command("arithmetic", "quickstart", model, tmp_path / "run", launch, ["--num_processes=1"], **settings))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["engine"]["distributed_type"] == "FSDP"


def test_fsdp_on_a_cpu_is_refused(model, tmp_path):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    printed = run(words_for("fsdp2", "full", model, tmp_path / "run"), expect=1)
    assert "the engine is not the one the launcher was asked for" in printed
