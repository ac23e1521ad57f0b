"""Every engine that a CPU can run, really launched with two processes: the one asked for is in
force, and all agree.

The same rows, seed and model give the same tokens, rewards, gradient norms and parameters whatever
the engine. The loss is not compared: with equal lengths it is 0 on policy. The tolerances were
fixed before the first run.

`make test-gpu` runs what needs accelerators.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from support.launching import DENSE_REWARD, command, run
from support.tiny_model import build_tiny_model
from transformers import AutoModelForCausalLM

from recipes.common.data.recipe import load_recipe
from recipes.common.evaluation.evaluate import evaluate, validation_line
from recipes.common.sampling.idle import idle_trainer
from recipes.common.utils.run_files import read_rows, read_validation

pytestmark = pytest.mark.slow

CONFIGS = Path(__file__).parents[1] / "accelerate_configs"
QUICKSTART = Path(__file__).parents[1] / "recipes/arithmetic/quickstart.yaml"
ENGINES = {  # launch file: type, ZeRO stage, offload, share of the parameters on each rank
    "ddp": ("MULTI_CPU", None, None, 1.0),
    "zero1": ("DEEPSPEED", 1, None, 1.0),
    "zero2": ("DEEPSPEED", 2, None, 1.0),
    "zero3": ("DEEPSPEED", 3, None, 0.5),
    "zero3_offload": ("DEEPSPEED", 3, "optimizer and parameters", 0.5),
}
KINDS = {"full": {"beta": 0.04}, "lora": {"use_peft": "true", "beta": 0.04}}
# An adapter is sharded as weights are: it is run where that matters.
RUNS = [(launch, "full") for launch in ENGINES]
RUNS += [("ddp", "lora"), ("zero2", "lora"), ("zero3", "lora")]
RESUMED = [("ddp", "full"), ("zero2", "full"), ("zero3", "lora")]
# Two prompts a step, one on each rank. float32, and an Adam whose steps follow the gradient down to
# its noise.
TRAINING = {
    "num_train_rows": 8,
    "max_steps": 4,
    "save_steps": 2,
    "per_device_train_batch_size": 4,
    "bf16": "false",
}
TRAINING |= {"learning_rate": 0.01, "adam_epsilon": 0.001, "use_cpu": "true"}
TRAINING |= {"eval_strategy": "steps", "eval_steps": 2, "num_validation_rows": 6}
TRAINING["reward_funcs"] = [DENSE_REWARD, "xml_format", "reasoning_gym"]
ON_ACCELERATORS = {
    "single_gpu": ("NO", None),
    "ddp": ("MULTI_GPU", None),
    "zero2": ("DEEPSPEED", 2),
    "zero3": ("DEEPSPEED", 3),
    "fsdp2": ("FSDP", None),
}
COLUMNS = ("prompt", "token_ids", "letter_share", "xml_format", "reasoning_gym", "advantage")
NORM_TOLERANCE, PARAMETER_TOLERANCE, LOGIT_TOLERANCE = 1e-3, 1e-4, 1e-3
BF16_ROUNDING = 2**-7  # the most that saving weights below 2 in bf16 changes
PRINTED = "printed.txt"
ONE_STEP = ("plain", "shared")  # prompts
FORGOTTEN = (  # by a run that is killed during its second save
    *("summary.json", "trainer_state.json", "evaluation/after.jsonl", PRINTED),
    "checkpoint-4/trainer_state.json",
    *(f"completions/completions_0000{step}.parquet" for step in (3, 4)),
)
ON_CPU = {"DS_ACCELERATOR": "cpu"}
ACCELERATOR = torch.accelerator.is_available()
without_accelerator = pytest.mark.skipif(ACCELERATOR, reason="there is an accelerator")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def words_for(launch: str | Path, kind: str, model: Path, folder: Path, **settings) -> list[str]:
    file = CONFIGS / f"{launch}.yaml" if isinstance(launch, str) else launch
    settings = {**TRAINING, **KINDS[kind], **settings}
    words = ["--num_processes=2"]
    return command("arithmetic", "quickstart", model, folder, str(file), words, **settings)


@pytest.fixture(scope="session")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory):
    """Launch a run once: launch file and kind -> its folder, which holds what was printed, too."""
    base = tmp_path_factory.mktemp("engines")

    def folder_of(launch: str, kind: str) -> Path:
        folder = base / launch / kind
        if not folder.exists():
            kind, _, how = kind.partition("-")
            settings = {}
            if how in ONE_STEP:
                settings = {"share_prompts": how == "shared", "max_steps": 1}
            if how == "resumed":
                cut_short(folder_of(launch, kind), folder)
            words = words_for(launch, kind, model, folder, **settings)
            printed = run(words, env=ON_CPU, timeout_s=600)
            (folder / PRINTED).write_text(printed)
        return folder

    return folder_of


def cut_short(finished: Path, copy: Path) -> None:
    """Copy a finished run as a kill during its second save leaves it."""
    shutil.copytree(finished, copy)
    for file in [*(copy / name for name in FORGOTTEN), *copy.glob("*model.safetensors")]:
        file.unlink()


def printed_by(folder: Path) -> str:
    return (folder / PRINTED).read_text()


def engine_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())["engine"]


def steps_of(folder: Path) -> list[pd.DataFrame]:
    return [pd.read_parquet(file) for file in sorted((folder / "completions").glob("*.parquet"))]


def gradient_norms(folder: Path) -> list[float]:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry["grad_norm"] for entry in history if "grad_norm" in entry]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = [*folder.glob("model.safetensors"), *folder.glob("adapter_model.safetensors")]
    return load_file(file)


def assert_same_steps(one: Path, other: Path, steps: int = 4) -> None:
    assert len(steps_of(one)) == len(steps_of(other)) == steps
    for mine, theirs in zip(steps_of(one), steps_of(other), strict=True):
        for column in COLUMNS:
            ours, other = (list(map(list_or_value, table[column])) for table in (mine, theirs))
            assert ours == other, column


def list_or_value(value):
    return value.tolist() if hasattr(value, "tolist") else value


def assert_same_updates(one: Path, other: Path) -> None:
    assert gradient_norms(one) == pytest.approx(gradient_norms(other), rel=NORM_TOLERANCE)
    mine, theirs = parameters(one), parameters(other)
    assert mine.keys() == theirs.keys()
    apart = max((mine[name] - theirs[name]).abs().max().item() for name in mine)
    assert apart < PARAMETER_TOLERANCE


@pytest.mark.parametrize(("launch", "kind"), RUNS)
def test_the_engine_that_was_asked_for_is_in_force(launch, kind, trained):
    engine = engine_of(trained(launch, kind))
    names = ("distributed_type", "zero_stage", "offload", "share_held")
    assert tuple(engine[name] for name in names) == pytest.approx(ENGINES[launch], abs=0.05)
    assert engine["world_size"] == 2
    name = "DDP" if launch == "ddp" else f"ZeRO-{ENGINES[launch][1]}"
    assert f"\nEngine: {name}" in printed_by(trained(launch, kind))


@pytest.mark.parametrize(("launch", "kind"), [run for run in RUNS if run[0] != "ddp"])
def test_every_engine_trains_as_ddp_and_gives_its_answers_before_between_and_after(
    launch, kind, trained
):
    mine, theirs = trained(launch, kind), trained("ddp", kind)
    assert_same_steps(mine, theirs)
    assert_same_updates(mine, theirs)
    assert read_validation(mine) == read_validation(theirs)
    for file in ("before.jsonl", "after.jsonl"):
        rows = read_rows(mine / "evaluation" / file)
        assert rows == read_rows(theirs / "evaluation" / file)
        assert len({row["completion"] for row in rows}) > 1


@pytest.mark.parametrize("launch", ["ddp", "zero2"])
def test_two_ranks_that_share_prompts_take_the_step_of_plain_trl(launch, trained, model):
    """One step: TRL draws random numbers to shuffle what is kept in order where prompts are shared,
    so the next completions are others.
    """
    plain, shared = (trained(launch, f"full-{how}") for how in ONE_STEP)
    assert "share_prompts has no effect" not in printed_by(shared)
    assert_same_steps(plain, shared, steps=1)
    (one,), (other,) = gradient_norms(plain), gradient_norms(shared)
    assert other == pytest.approx(one, rel=1e-4) and one > 0.0
    before, after, ours = map(parameters, (model, plain, shared))
    moved, apart = (
        max((some[name] - after[name]).abs().max().item() for name in after)
        for some in (before, ours)
    )
    assert moved > 1e-3 and apart < 1e-3 * moved


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_has_a_point_before_between_and_after(kind, trained):
    curve = read_validation(trained("ddp", kind))
    assert [line["step"] for line in curve] == [0, 2, 4]
    assert len({str(line["rewards"]) for line in curve}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_under_zero_3_evaluate_the_validation_rows_as_one_process_does(
    kind, trained, model
):
    folder = trained("zero3", kind)
    words = words_for("zero3", kind, model, folder)
    recipe = load_recipe(QUICKSTART, words[words.index("--config") + 2 :])
    rows, metric = recipe.validation_rows.to_list(), recipe.module.metric
    evaluated = evaluate(idle_trainer(recipe, str(folder)), rows, metric)
    assert read_validation(folder)[-1] == validation_line(4, evaluated)


@pytest.mark.parametrize("kind", KINDS)
def test_training_changes_the_parameters_by_more_than_engines_may_differ(kind, trained, model):
    shares = [step["letter_share"] for step in steps_of(trained("ddp", kind))]
    assert any(len(set(map(str, of_step))) > 1 for of_step in shares)
    assert min(gradient_norms(trained("ddp", kind))) > 0.0
    if kind == "full":
        before, after = parameters(model), parameters(trained("ddp", kind))
        moved = max((before[name] - after[name]).abs().max().item() for name in before)
        assert moved > 10 * PARAMETER_TOLERANCE


@pytest.mark.parametrize(("launch", "kind"), RUNS)
def test_what_was_saved_loads_and_answers_as_under_ddp(launch, kind, trained):
    ids = torch.tensor([[5, 6, 7, 8]])
    load = (AutoPeftModelForCausalLM if kind == "lora" else AutoModelForCausalLM).from_pretrained
    with torch.no_grad():
        mine, theirs = (load(trained(name, kind))(ids).logits for name in (launch, "ddp"))
    assert torch.allclose(mine, theirs, atol=LOGIT_TOLERANCE)


@pytest.mark.parametrize(("launch", "kind"), RESUMED)
def test_a_run_resumed_from_a_checkpoint_equals_the_one_that_was_not_interrupted(
    launch, kind, trained
):
    whole, resumed = trained(launch, kind), trained(launch, f"{kind}-resumed")
    printed = printed_by(resumed)
    assert f"{resumed / 'checkpoint-4'} was cut short" in printed
    assert f"Resuming from {resumed / 'checkpoint-2'}" in printed
    assert_same_steps(resumed, whole)
    assert_same_updates(resumed, whole)
    assert read_validation(resumed) == read_validation(whole)


@pytest.mark.parametrize(
    ("launch", "line", "planted", "message"),
    [
        (
            "zero2",
            "use_cpu: false",
            "use_cpu: true",
            "the launch file asks for DeepSpeed and for the CPU",
        ),
        (
            *("cpu_2proc", "distributed_type: MULTI_GPU", "distributed_type: MULTI_CPU"),
            "the launch file says MULTI_CPU, for which accelerate starts one process only",
        ),
    ],
)
def test_a_launch_file_that_accelerate_takes_for_something_else_is_refused(
    launch, line, planted, message, model, tmp_path
):
    text = (CONFIGS / f"{launch}.yaml").read_text()
    assert text.count(f"\n{line}\n") == 1
    (tmp_path / "planted.yaml").write_text(text.replace(f"\n{line}\n", f"\n{planted}\n"))
    words = words_for(tmp_path / "planted.yaml", "full", model, tmp_path / "run")
    # A recipe finds its launch file in the words of the process that started it.
    printed = run(words, env=ON_CPU, expect=1, warm=False)
    assert message in printed and "step 1/" not in printed


@without_accelerator
def test_fsdp_on_a_cpu_is_refused(model, tmp_path):
    printed = run(words_for("fsdp2", "full", model, tmp_path / "run"), expect=1)
    assert "the engine is not the one the launcher was asked for" in printed


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
    engine = engine_of(folder)
    assert (engine["distributed_type"], engine["zero_stage"]) == ON_ACCELERATORS[launch]
    assert (engine["world_size"], engine["mixed_precision"]) == (devices, "bf16")
    assert engine["device"] != "cpu"
    assert min(gradient_norms(folder)) > 0.0
    before, after = parameters(model) if kind == "full" else {}, parameters(folder)
    changes = [
        after[name].float() - before.get(name, 0.0) for name in after if "lora_A" not in name
    ]
    assert max(change.abs().max().item() for change in changes) > BF16_ROUNDING
