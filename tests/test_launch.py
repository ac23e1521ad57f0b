"""Every engine that a CPU can run, really launched with two processes: the one asked for is in
force, and all agree.

The loss is not compared: with equal lengths it is 0 on policy. `make test-gpu` runs what needs
accelerators.
"""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from support.launching import DENSE_REWARD, ROOT, command, run
from transformers import AutoModelForCausalLM

from recipes.common.utils.run_files import read_json, read_rows, read_validation, why_not_whole

pytestmark = pytest.mark.slow

CONFIGS = ROOT / "accelerate_configs"
QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
ENGINES = {  # launch file: type, ZeRO stage, offload, share of the parameters on each rank
    "ddp": ("MULTI_CPU", None, None, 1.0),
    "zero1": ("DEEPSPEED", 1, None, 1.0),
    "zero2": ("DEEPSPEED", 2, None, 1.0),
    "zero3": ("DEEPSPEED", 3, None, 0.5),
    "zero3_offload": ("DEEPSPEED", 3, "optimizer and parameters", 0.5),
    "fsdp2": ("FSDP", None, None, 0.5),
}
ON_ACCELERATORS = {
    "single_gpu": ("NO", None),
    "ddp": ("MULTI_GPU", None),
    "zero2": ("DEEPSPEED", 2),
    "zero3": ("DEEPSPEED", 3),
    "fsdp2": ("FSDP", None),
}
KINDS = {"full": {"beta": 0.04}, "lora": {"use_peft": "true", "beta": 0.04}}
# An adapter is sharded as weights are: it is run where that matters.
LORA_RUNS = [("ddp", "lora"), ("zero3", "lora"), ("fsdp2", "lora")]
RUNS = [*((launch, "full") for launch in ENGINES), *LORA_RUNS]
RESUMED = [("zero2", "full"), ("zero3", "lora"), ("fsdp2", "lora")]
# Two prompts a step, one on each rank. float32, and an Adam whose steps follow the gradient down to
# its noise.
TRAINING = {
    "num_train_rows": 8, "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 4,
    "bf16": "false", "learning_rate": 0.01, "adam_epsilon": 0.001, "use_cpu": "true",
    "eval_strategy": "steps", "eval_steps": 2, "num_validation_rows": 6,
    "reward_funcs": [DENSE_REWARD, "xml_format", "reasoning_gym"],
}  # fmt: skip
COLUMNS = ["prompt", "token_ids", "letter_share", "xml_format", "reasoning_gym", "advantage"]
NORM_TOLERANCE, PARAMETER_TOLERANCE, LOGIT_TOLERANCE = 1e-3, 1e-4, 1e-3
BF16_ROUNDING = 2**-7  # the most that saving weights below 2 in bf16 changes
PRINTED = "printed.txt"
FORGOTTEN = [  # by a run that is killed during its second save
    *("summary.json", "trainer_state.json", "evaluation/after.jsonl", PRINTED),
    "checkpoint-4/manifest.json",
    *(f"completions/completions_0000{step}.parquet" for step in (3, 4)),
]
ON_CPU = {"DS_ACCELERATOR": "cpu"}
ACCELERATOR = torch.accelerator.is_available()


def words_for(file, kind, model, folder, **settings):
    """The launch of a run by a launch file."""
    settings = {**TRAINING, **KINDS[kind], **settings}
    launcher = ["--num_processes=2"]
    launcher += ["tests/support/fsdp_on_cpu.py"] if file.stem == "fsdp2" else []
    return command("arithmetic", "quickstart", model, folder, str(file), launcher, **settings)


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory):
    """Launch a run once: launch file, kind and settings -> its folder, with what was printed."""
    base, folders = tmp_path_factory.mktemp("engines"), {}

    def folder_of(launch, kind, **settings):
        key = (launch, kind, *settings.items())
        if key not in folders:
            folder = base / str(len(folders))
            words = words_for(CONFIGS / f"{launch}.yaml", kind, model, folder, **settings)
            printed = run(words, env=ON_CPU, timeout_s=1200)
            (folder / PRINTED).write_text(printed)
            folders[key] = folder
        return folders[key]

    return folder_of


def steps_of(folder):
    """The rows of each step: what was generated, scored and learnt from."""
    files = sorted((folder / "completions").glob("*.parquet"))
    return [pd.read_parquet(file)[COLUMNS].to_json() for file in files]


def gradient_norms(folder):
    history = read_json(folder / "trainer_state.json")["log_history"]
    return [entry["grad_norm"] for entry in history if "grad_norm" in entry]


def parameters(folder):
    (file,) = [*folder.glob("model.safetensors"), *folder.glob("adapter_model.safetensors")]
    return load_file(file)


def distance(one, other):
    return max((one[name] - other[name]).abs().max().item() for name in other)


def assert_same_training(one, other, generations=4):
    assert len(set(steps_of(one))) == generations and steps_of(one) == steps_of(other)
    norms = gradient_norms(one)
    assert norms == pytest.approx(gradient_norms(other), rel=NORM_TOLERANCE) and min(norms) > 0.0
    mine, theirs = parameters(one), parameters(other)
    assert mine.keys() == theirs.keys() and distance(mine, theirs) < PARAMETER_TOLERANCE
    curve = read_validation(one)
    assert [line["step"] for line in curve] == [0, 2, 4] and curve == read_validation(other)


@pytest.mark.parametrize(("launch", "kind"), RUNS)
def test_every_engine_is_in_force_trains_as_ddp_and_gives_its_answers_before_and_after(
    launch, kind, trained, model
):
    mine, theirs = trained(launch, kind), trained("ddp", kind)
    engine = read_json(mine / "summary.json")["engine"]
    names = ("distributed_type", "zero_stage", "offload", "share_held")
    assert tuple(engine[name] for name in names) == pytest.approx(ENGINES[launch], abs=0.05)
    assert engine["world_size"] == 2
    name = {"ddp": "DDP", "fsdp2": "FSDP2"}.get(launch, f"ZeRO-{ENGINES[launch][1]}")
    printed = (mine / PRINTED).read_text()
    assert f"\nEngine: {name}" in printed and "share_prompts has no effect" not in printed
    assert_same_training(mine, theirs)
    if kind == "full":  # it moves by more than engines may differ
        assert distance(parameters(model), parameters(mine)) > 10 * PARAMETER_TOLERANCE
    for file in ("evaluation/before.jsonl", "evaluation/after.jsonl"):
        rows = read_rows(mine / file)
        assert rows == read_rows(theirs / file)
        assert len({row["completion"] for row in rows}) > 1
    ids = torch.tensor([[5, 6, 7, 8]])
    load = (AutoPeftModelForCausalLM if kind == "lora" else AutoModelForCausalLM).from_pretrained
    with torch.no_grad():
        answer, expected = (load(folder)(ids).logits for folder in (mine, theirs))
    assert torch.allclose(answer, expected, atol=LOGIT_TOLERANCE)


@pytest.mark.parametrize(("launch", "kind"), RESUMED)
def test_a_run_resumed_from_a_checkpoint_equals_the_one_that_was_not_interrupted(
    launch, kind, trained, model, tmp_path
):
    """The run is copied as a kill during its second save leaves it."""
    whole, resumed = trained(launch, kind), tmp_path / "run"
    shutil.copytree(whole, resumed)
    for file in [*(resumed / name for name in FORGOTTEN), *resumed.glob("*model.safetensors")]:
        file.unlink()
    printed = run(words_for(CONFIGS / f"{launch}.yaml", kind, model, resumed), env=ON_CPU)
    assert f"{resumed / 'checkpoint-4'} is not whole (manifest.json" in printed
    assert f"Resuming from {resumed / 'checkpoint-2'}" in printed
    assert_same_training(resumed, whole)
    # The manifest holds what every process wrote: its random state, and its part of the optimizer.
    checkpoint = whole / "checkpoint-4"
    names = read_json(checkpoint / "manifest.json")
    (*_, part) = sorted(name for name in names if "optim" in name)
    assert {"rng_state_0.pth", "rng_state_1.pth"} < set(names) and why_not_whole(checkpoint) is None
    for name in ("rng_state_1.pth", part):
        content = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert why_not_whole(checkpoint) == f"{name} has another content than when it was saved"
        (checkpoint / name).write_bytes(content)


# Two updates a generation, two micro batches each, a clipped gradient, the best of the checkpoints.
SEVERAL_UPDATES = {
    "num_iterations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
    "max_grad_norm": 0.5, "load_best_model_at_end": "true", "beta": 0.0,
    "metric_for_best_model": "validation/format", "skip_zero_advantages": "true",
}  # fmt: skip


def test_fsdp2_takes_several_updates_and_chooses_a_checkpoint_as_ddp_does(trained):
    mine, theirs = (trained(launch, "full", **SEVERAL_UPDATES) for launch in ("fsdp2", "ddp"))
    assert_same_training(mine, theirs, generations=2)
    assert max(gradient_norms(mine)) > 0.5, "the gradient was clipped"
    states = [read_json(run / "trainer_state.json") for run in (mine, theirs)]
    chosen = [Path(state["best_model_checkpoint"]).name for state in states]
    assert chosen[0] == chosen[1]


def test_two_ranks_that_share_prompts_take_the_first_step_of_plain_trl(trained):
    """The first alone: TRL shuffles by random numbers, so that the next completions are others."""
    plain = trained("ddp", "full", share_prompts="false", max_steps=1)
    for launch in ("ddp", "zero2", "zero3", "fsdp2"):
        shared = trained(launch, "full")
        assert "share_prompts has no effect" not in (shared / PRINTED).read_text()
        assert steps_of(shared)[:1] == steps_of(plain)
        assert gradient_norms(shared)[0] == pytest.approx(gradient_norms(plain)[0], rel=1e-4)


@pytest.mark.parametrize(
    ("launch", "kind", "message"),
    [
        ("cpu_2proc", "MULTI_CPU", "for which accelerate starts one"),
        pytest.param(
            *("fsdp2", "FSDP", "the engine is not the one the launcher was asked for"),  # as it is
            marks=pytest.mark.skipif(ACCELERATOR, reason="there is an accelerator"),
        ),
    ],
)
def test_a_launch_file_that_accelerate_takes_for_something_else_is_refused(
    launch, kind, message, model, tmp_path
):
    text, named = (CONFIGS / f"{launch}.yaml").read_text(), "distributed_type:"
    (tmp_path / "planted.yaml").write_text(re.sub(rf"{named} \w+", f"{named} {kind}", text))
    words = words_for(tmp_path / "planted.yaml", "full", model, tmp_path / "run")
    # A recipe finds its launch file in the words of the process that started it; what FSDP was
    # asked for, it finds in its environment.
    printed = run(words, env=ON_CPU, expect=1, warm=launch == "fsdp2")
    assert message in printed and "step 1/" not in printed


@pytest.mark.gpu
@pytest.mark.skipif(not ACCELERATOR, reason="no accelerator here")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", ON_ACCELERATORS)
def test_every_engine_trains_in_bf16_on_the_accelerators_that_are_there(
    launch, kind, model, tmp_path
):
    devices = 1 if launch == "single_gpu" else torch.accelerator.device_count()
    if launch == "ddp" and devices == 1:
        pytest.skip("one accelerator: DDP needs two")
    folder, file = tmp_path / "run", str(CONFIGS / f"{launch}.yaml")
    settings = {**TRAINING, **KINDS[kind], "use_cpu": "false", "bf16": "true"}
    launcher = [f"--num_processes={devices}"]
    run(command("arithmetic", "quickstart", model, folder, file, launcher, **settings))
    engine = read_json(folder / "summary.json")["engine"]
    assert (engine["distributed_type"], engine["zero_stage"]) == ON_ACCELERATORS[launch]
    assert (engine["world_size"], engine["mixed_precision"]) == (devices, "bf16")
    assert engine["device"] != "cpu" and min(gradient_norms(folder)) > 0.0
    before, after = parameters(model) if kind == "full" else {}, parameters(folder)
    names = [name for name in after if "lora_A" not in name]
    changes = [after[name].float() - before.get(name, 0.0) for name in names]
    assert max(change.abs().max().item() for change in changes) > BF16_ROUNDING
