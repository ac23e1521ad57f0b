"""The planner: parameters and bytes counted exactly, activations as torch saves them, and each broken plan named."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import plan as script
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from support.tiny_model import build_tiny_model
from transformers import LlamaConfig, LlamaForCausalLM
from trl import ModelConfig

from recipes.common.checks.launch import Launch, read_launch
from recipes.common.data.recipe import load_recipe
from recipes.common.sampling import rules
from recipes.common.sampling.memory import (
    RunSettings,
    activations,
    plan_memory,
    saved_per_layer,
    settings_of,
)
from recipes.common.sampling.plan import plan_sizes
from recipes.common.sampling.sizes import ModelSizes, read_model

ROOT = Path(__file__).parents[1]
YAMLS = sorted(
    file for file in (ROOT / "recipes").rglob("*.yaml") if (file.parent / "train.py").is_file()
)
YAMLS = [
    file for file in YAMLS if "load_in_4bit" not in file.read_text()
]  # refused, by a test of its own
LAUNCH_FILES = sorted((ROOT / "accelerate_configs").glob("*.yaml"))
GIB = 2**30


def published(
    kind: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    keys: int,
    words: int,
    length: int,
):
    """The config.json of a model in the shipped YAMLs; its weights are not here."""
    widths = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    heads = {"num_attention_heads": heads, "num_key_value_heads": keys, "tie_word_embeddings": True}
    return {
        "model_type": kind,
        **widths,
        **heads,
        "vocab_size": words,
        "max_position_embeddings": length,
    }


QWEN = published("qwen2", 1536, 8960, 28, 12, 2, 151936, 32768)
SMOLLM2 = published("llama", 576, 1536, 30, 9, 3, 49152, 8192)
GPT2 = {"model_type": "gpt2"}
CONFIGS = dict.fromkeys(["Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct"], QWEN)
CONFIGS |= {"models/SmolLM2-135M-Instruct": SMOLLM2, "openai-community/gpt2": GPT2}
# Parameters, of them embeddings, trained; head trained, LoRA, its width; layers, widths; vocabulary, positions, bytes.
BILLION = ModelSizes(
    10**9, 10**8, 10**9, True, False, 0, 30, 2000, 5000, 2000, 500, 50_000, 4096, 4
)
RUN = RunSettings(micro_batch=8, rows_generated=16, prompt_tokens=100, completion_tokens=200)
ONE = Launch("one process", 1, "NO")


def config_folder(folder: Path, config: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "parameters", "embeddings"),
    [
        (QWEN, 1_543_714_304, 151936 * 1536),
        (SMOLLM2, 134_515_008, 49152 * 576),
        (GPT2, 124_439_808, 50257 * 768),
    ],
    ids=["qwen2.5-1.5b", "smollm2-135m", "gpt2"],
)
def test_parameters_are_those_of_the_published_model_and_without_a_dtype_its_weights(
    tmp_path, config, parameters, embeddings
):
    folder = str(config_folder(tmp_path, {**config, "dtype": "bfloat16"}))
    model = read_model(ModelConfig(model_name_or_path=folder, dtype="auto"))
    assert (model.parameters, model.embeddings, model.trainable) == (
        parameters,
        embeddings,
        parameters,
    )
    assert model.weight_bytes == 2
    assert (
        read_model(ModelConfig(model_name_or_path=folder)).weight_bytes == 4
    )  # TRL's default is float32


def test_an_adapter_is_counted_the_base_is_not_trained_and_widths_are_those_of_the_config(tmp_path):
    lora = {
        "use_peft": True,
        "lora_r": 16,
        "lora_target_modules": ["q_proj", "down_proj"],
        "dtype": "bfloat16",
    }
    model = read_model(
        ModelConfig(model_name_or_path=str(config_folder(tmp_path, SMOLLM2)), **lora)
    )
    assert model.trainable == 30 * 16 * ((576 + 576) + (1536 + 576))
    assert (model.parameters, model.lora_width, model.head_is_trained) == (
        134_515_008,
        576 + 1536,
        False,
    )
    assert (model.layers, model.hidden, model.intermediate, model.query, model.key) == (
        30,
        576,
        1536,
        576,
        192,
    )
    assert (model.vocabulary, model.positions, model.weight_bytes) == (49152, 8192, 2)


def test_there_is_a_launch_file_for_each_engine_and_accelerate_reads_it():
    from accelerate.commands.config.config_args import load_config_from_file

    launches = {file.stem: read_launch(file) for file in LAUNCH_FILES}
    zero = {
        "zero1": ("ZeRO-1", 8),
        "zero2": ("ZeRO-2", 8),
        "zero3": ("ZeRO-3", 8),
        "zero3_offload": ("ZeRO-3", 8),
    }
    small = {"cpu": ("one process", 1), "cpu_2proc": ("DDP", 2), "single_gpu": ("one process", 1)}
    started = {name: (launch.engine, launch.processes) for name, launch in launches.items()}
    assert started == {**small, **zero, "ddp": ("DDP", 8), "fsdp2": ("FSDP2", 8)}
    offloads = {
        name: (launch.offload_optimizer, launch.offload_weights)
        for name, launch in launches.items()
    }
    assert offloads == {name: (name == "zero3_offload",) * 2 for name in launches}
    assert (
        read_launch(ROOT / "accelerate_configs/zero3.yaml", 4).processes == 4
    )  # the command line wins
    for file in LAUNCH_FILES:
        assert load_config_from_file(str(file)).mixed_precision == "no"
        header = "".join(line for line in file.read_text().splitlines() if line.startswith("#"))
        assert "Memory" in header and "Override: " in header


@pytest.mark.parametrize(
    ("engine", "expected"),  # weights, casts, reference model, gradients, communication, optimizer
    [
        ("one process", (4e9, 1.8e9, 4e9, 4e9, 0, 8e9)),
        ("DDP", (4e9, 1.8e9, 4e9, 4e9, 4e9, 8e9)),
        ("ZeRO-1", (2e9, 0, 2e9, 2e9, 1e9, 3e9)),
        ("ZeRO-2", (2e9, 0, 2e9, 0.5e9, 1e9, 3e9)),
        ("ZeRO-3", (0.5e9, 0, 0.5e9, 0.5e9, 1e9, 3e9)),
        ("FSDP2", (1e9, 0, 1e9, 1e9, 0, 2e9)),
    ],
)
def test_full_training_is_shared_out_as_the_engine_does(engine, expected):
    parts = plan_memory(BILLION, replace(RUN, reference=True), Launch(engine, 4, "")).parts
    names = ("weights", "casts", "reference model", "gradients", "communication", "optimizer")
    assert tuple(parts[name] for name in names) == expected


LORA_SIZES = {"lora": True, "trainable": 10**6, "head_is_trained": False, "weight_bytes": 2}
ZERO2, ZERO3 = (Launch(f"ZeRO-{stage}", 4, "DEEPSPEED") for stage in (2, 3))
OFFLOADED = replace(ZERO3, offload_optimizer=True, offload_weights=True)
LORA_PARTS = {
    "weights": 2e9 + 4e6,
    "gradients": 4e6,
    "optimizer": 8e6,
    "reference model": 0,
    "casts": 0,
}
CACHED = 16 * 300 * 30 * 500  # keys and values each: rows, tokens, layers, width


@pytest.mark.parametrize(
    ("model", "run", "launch", "expected"),
    [
        (LORA_SIZES, {"reference": True}, ONE, LORA_PARTS),
        ({}, {}, ONE, {"reference model": 0, "KV cache": CACHED * (4 + 2)}),
        ({}, {}, ZERO2, {"KV cache": CACHED * (2 + 2)}),
        ({}, {"vllm": True}, ONE, {"KV cache": 0}),
        ({}, {}, OFFLOADED, {"weights": 0, "gradients": 0, "optimizer": 0}),
        (
            {"parameters": 3 * 10**9},
            {},
            ZERO3,
            {"gathered to generate": 6e9, "gathered to learn": 2e9},
        ),
        (
            {"parameters": 3 * 10**9},
            {"gathers_to_generate": False},
            ZERO3,
            {"gathered to generate": 2e9},
        ),
        ({}, {}, ONE, {"logits": 1600 * 32768 * 2 + 4 * 1600 * 2000 + 4 * 50_000 * 2000}),
        (
            {},
            {"micro_batch": 800},
            ONE,
            {"logits": 4096 * 32768 * 2 + 4 * 160_000 * 2000 + 4 * 50_000 * 2000},
        ),
    ],
    ids=[
        *(
            "LoRA trains little in fp32 and needs no reference model",
            "keys in the weights type, values in bf16",
        ),
        *(
            "keys and values in bf16",
            "vLLM has its own cache",
            "offload leaves neither weights nor optimizer",
        ),
        *("ZeRO-3 gathers all to generate and a billion to learn", "ZeRO-3 need not gather all"),
        *("logits and the gradient of the head", "logits of one tile"),
    ],
)
def test_a_part_by_hand(model, run, launch, expected):
    parts = plan_memory(replace(BILLION, **model), replace(RUN, **run), launch).parts
    assert {name: parts[name] for name in expected} == expected


def test_gradients_count_on_top_of_activations_only_where_they_accumulate():
    # Without accumulation they grow while the activations are freed.
    for accumulates in (False, True):
        parts, moments = plan_memory(BILLION, replace(RUN, accumulates=accumulates), ONE)
        both = 4e9, parts["activations"] + parts["logits"]
        assert moments["learning"] == 4e9 + 8e9 + 1.8e9 + (sum(both) if accumulates else max(both))


def test_checkpointing_keeps_the_input_of_each_layer_and_all_of_one():
    layer = saved_per_layer(BILLION, RUN, ONE)
    assert activations(BILLION, RUN, ONE) == 8 * 300 * (layer + 30 * 2000 * 4)
    assert activations(BILLION, replace(RUN, checkpointing=False), ONE) == 8 * 300 * layer * 30


@pytest.mark.parametrize(
    ("words", "checkpointing"),
    [
        ([], True),  # TRL's default
        (["--gradient_checkpointing", "false"], False),
        (["--activation_checkpointing", "false"], False),
        (["--gradient_checkpointing", "false", "--activation_checkpointing", "true"], True),
    ],
)
def test_the_newer_name_of_checkpointing_wins(words, checkpointing):
    args = load_recipe(ROOT / "recipes/gsm8k/qwen2.5-1.5b-full.yaml", words, rows=False).args
    assert settings_of(args.training, ONE, 200).checkpointing is checkpointing


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SEQUENCES, TOKENS = 2, 128
SMALL = {
    key: value for key, value in published("llama", 256, 640, 0, 8, 4, 97, 512).items() if value
}


def saved_bytes(layers: int, dtype: torch.dtype, targets: list[str] | None, autocast: bool) -> int:
    """Bytes that torch keeps for the backward pass of a small Llama, but for its parameters."""
    config = LlamaConfig(**{**SMALL, "num_hidden_layers": layers}, attn_implementation="sdpa")
    model = LlamaForCausalLM(config).to(dtype)
    if targets:
        model = get_peft_model(
            model, LoraConfig(r=4, target_modules=targets, lora_dropout=0.0)
        ).get_base_model()
    own, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}
    ids = torch.zeros(SEQUENCES, TOKENS, dtype=torch.long)
    mask = torch.ones_like(ids).index_fill(
        1, torch.tensor([0, 1]), 0
    )  # padded on the left, as prompts are

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with saved, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model.model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(
        tensor.untyped_storage().nbytes() for pointer, tensor in kept.items() if pointer not in own
    )


@pytest.mark.parametrize(
    ("dtype", "targets", "autocast", "engine"),
    [
        (torch.float32, None, True, "one process"),
        (torch.float32, None, False, "one process"),
        (torch.bfloat16, None, False, "ZeRO-2"),
        (torch.bfloat16, PROJECTIONS, True, "one process"),
        (torch.bfloat16, ["q_proj", "v_proj", "down_proj"], True, "one process"),
        (torch.float32, PROJECTIONS, True, "one process"),
    ],
    ids=["fp32 autocast", "fp32", "bf16", "LoRA", "LoRA on three", "LoRA on fp32"],
)
def test_a_layer_saves_what_the_rule_says(dtype, targets, autocast, engine):
    hidden, intermediate = SMALL["hidden_size"], SMALL["intermediate_size"]
    matrices = (
        3 * hidden**2 + 3 * hidden * intermediate
    )  # query, output; key and value are half as wide; the MLP
    sizes = {"parameters": matrices, "embeddings": 0, "layers": 1, "weight_bytes": dtype.itemsize}
    widths = {"hidden": hidden, "intermediate": intermediate, "query": hidden, "key": hidden // 2}
    lora_width = sum(intermediate if name == "down_proj" else hidden for name in targets or [])
    model = replace(BILLION, **sizes, **widths, lora=bool(targets), lora_width=lora_width)
    half = autocast or dtype == torch.bfloat16
    run = RunSettings(
        SEQUENCES, SEQUENCES, 28, TOKENS - 28, half_precision=half, checkpointing=False
    )
    parts = plan_memory(model, run, Launch(engine, 1, "")).parts
    saved = saved_bytes(3, dtype, targets, autocast) - saved_bytes(2, dtype, targets, autocast)
    assert parts["activations"] + parts["casts"] == pytest.approx(saved, rel=0.02)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """A folder with a config.json for each model of the shipped YAMLs."""
    root = tmp_path_factory.mktemp("configs")
    return {
        name: str(config_folder(root / str(i), config))
        for i, (name, config) in enumerate(CONFIGS.items())
    }


@pytest.mark.parametrize("file", YAMLS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_shipped_yaml_is_planned_with_every_launch_file(file, folders, capsys):
    args = load_recipe(file, [], rows=False).args
    model = read_model(
        ModelConfig(
            **{**args.model, "model_name_or_path": folders[args.model["model_name_or_path"]]}
        )
    )
    for launch in map(read_launch, LAUNCH_FILES):
        problems, _ = plan_sizes(args.training, model, launch, None, 200)
        assert (
            problems + rules.check_launch(launch, args.training["use_cpu"] or launch.use_cpu) == []
        )
        assert "  <- the peak" in capsys.readouterr().out


@pytest.fixture
def planned(tmp_path, folders, capsys, monkeypatch):
    """Plan a recipe with settings of a test and a launch file with options, or its values; status and output."""

    def plan_it(settings: dict, launch: str | dict = "single_gpu") -> tuple[int, str]:
        folder = tmp_path / "recipe"
        folder.mkdir()
        (folder / "train.py").write_text((ROOT / "recipes/gsm8k/train.py").read_text())
        good = {
            "model_name_or_path": folders["Qwen/Qwen2.5-1.5B-Instruct"],
            "dataset_path": "nowhere",
        }
        good |= {"reward_funcs": ["gsm8k_correctness"], "per_device_train_batch_size": 8}
        (folder / "run.yaml").write_text(
            yaml.safe_dump({**good, "save_steps": 10, "max_steps": 100, **settings})
        )
        (tmp_path / "launch.yaml").write_text(yaml.safe_dump(launch))
        name, *options = launch.split() if isinstance(launch, str) else [tmp_path / "launch"]
        file = ROOT / "accelerate_configs" / f"{name}.yaml"
        monkeypatch.setattr(
            sys, "argv", ["plan.py", f"--config={folder}/run.yaml", f"--launch={file}", *options]
        )
        with pytest.raises(SystemExit) as ended:
            script.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out + printed.err

    return plan_it


LORA = {"use_peft": True, "dtype": "bfloat16", "learning_rate": 1e-5}
DEEPSPEED = {
    "distributed_type": "DEEPSPEED",
    "num_processes": 2,
    "deepspeed_config": {"zero_stage": 3},
}
COLOCATED = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.9}
MULTI_CPU = {"distributed_type": "MULTI_CPU", "num_processes": 2, "use_cpu": True}
OFFLOAD = {**DEEPSPEED, "deepspeed_config": {"zero_stage": 2, "offload_param_device": "cpu"}}
LONG = {**LORA, "per_device_train_batch_size": 64, "gradient_checkpointing": False}


@pytest.mark.parametrize(
    ("status", "settings", "launch", "named"),
    [  # status 1: it cannot work; 0: it can, and will be regretted; 2: it cannot be read
        (
            1,
            {"num_generations": 3},
            "ddp --num_processes=2",
            "size to 6 or 9, or num_generations to 2 or 4",
        ),
        (
            2,
            {"max_completion_length": 0},
            "ddp",
            "max_completion_length is 0; it must be a whole number of at least 1",
        ),
        (
            1,
            {},
            "single_gpu --num_processes=8",
            "distributed_type NO starts one process, silently, and not 8",
        ),
        (1, {}, MULTI_CPU, "distributed_type MULTI_CPU starts one process, silently, and not 2"),
        (
            1,
            {},
            {**DEEPSPEED, "use_cpu": True},
            "the launch file asks for DeepSpeed and for the CPU",
        ),
        (1, {"use_cpu": True}, "fsdp2", "FSDP needs an accelerator"),
        (1, {}, OFFLOAD, "offload_param_device goes with zero_stage 3 only, not ZeRO-2"),
        (
            1,
            {},
            "single_gpu --gpu_memory_gib=24",
            "90% of 24 GiB: the largest part is optimizer; shard more",
        ),
        (
            1,
            LONG,
            "single_gpu --gpu_memory_gib=40",
            "is activations; lower per_device_train_batch_size",
        ),
        (1, COLOCATED, "single_gpu --gpu_memory_gib=80", "vllm_gpu_memory_utilization 0.9 and"),
        (
            1,
            {"max_completion_length": 40_000},
            "ddp",
            "no room for a prompt: the model has 32768 positions",
        ),
        (
            1,
            {**COLOCATED, "vllm_tensor_parallel_size": 3},
            "ddp",
            "vllm_tensor_parallel_size 3 does not divide 8",
        ),
        (
            1,
            {**COLOCATED, "ds3_gather_for_generation": False},
            "zero3",
            "vLLM needs ds3_gather_for_generation: true",
        ),
        (0, LORA, "single_gpu", ""),  # sound
        (0, LORA, "zero3", "ZeRO-3 with LoRA gathers weights that never change"),
        (0, {"beta": 0.04}, "zero3", "beta with ZeRO-3 keeps a second sharded model"),
        (
            0,
            {**LORA, "learning_rate": 5e-6},
            "ddp",
            "learning_rate 5e-06 is one of full training (1e-6 to 1e-5)",
        ),
        (0, {**LORA, "dtype": "float32"}, "ddp", "frozen weights in fp32 take twice the memory"),
        (0, {"dtype": "bfloat16"}, "ddp", "updates of 1e-06 are rounded away. Set dtype: float32"),
        (
            0,
            {"max_completion_length": 32_000},
            "ddp --prompt_tokens=1000",
            "max_completion_length to at most 31768",
        ),
        (
            0,
            {"per_device_train_batch_size": 1},
            "ddp",
            "8 processes share a generation of 1 prompt: each makes part",
        ),
        (
            0,
            {"save_steps": 500},
            "ddp",
            "no checkpoint before the end (save_strategy steps, save_steps 500",
        ),
        (0, {"optim": "adafactor"}, "ddp", "the memory of the optimizer is counted as Adam's"),
        (2, {"num_generation": 8}, "ddp", "did you mean 'num_generations'?"),
        (
            2,
            {"model_name_or_path": "models/none"},
            "ddp",
            "no config.json. Run `python scripts/prepare_model.py`",
        ),
        (2, {"model_name_or_path": "nobody/nothing"}, "ddp", "Put that one file into a folder"),
        (2, {**LORA, "lora_target_modules": ["no_such"]}, "ddp", "no_such"),
        (2, {**LORA, "load_in_4bit": True}, "ddp", "quantised weights are not planned here"),
        (2, {"attn_implementation": "eager"}, "ddp", "eager attention is not planned here"),
        (2, {}, "none", "cannot read --launch"),
        (
            2,
            {},
            {"num_processes": 2},
            "is not a launch file of accelerate: it has no distributed_type",
        ),
        (2, {}, {"distributed_type": "FSDP"}, "asks for FSDP version 1; set fsdp_version: 2"),
        (2, {}, {**DEEPSPEED, "deepspeed_config": {"zero_stage": 4}}, "zero_stage is 4"),
        (2, {}, "ddp --prompt_tokens=0", "--prompt_tokens is 0; it must be more than 0"),
        (2, {}, "ddp --effect=5", "--effect is 5.0; it must be between 0 and 1"),
    ],
)
def test_a_plan_names_what_is_wrong(planned, monkeypatch, status, settings, launch, named):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ended, printed = planned(settings, launch)
    assert ended == status and named in printed
    assert named or ("Problems" not in printed and "Warnings" not in printed)
    assert ("It cannot work as it is." in printed, "  Launch\n" in printed) == (
        status == 1,
        status == 0,
    )


def test_the_plan_tells_which_change_the_rows_show_and_how_many_rows_show_a_change(planned):
    _, printed = planned({**LORA, "num_eval_rows": 160}, "ddp --effect=0.05 --power=0.9")
    assert (
        "  160 held-out rows show a change of 13.0 points or more (90 % power, if a quarter of "
        in printed
    )
    assert "    a change of 5 points takes 1078 held-out rows (--num_eval_rows)\n" in printed


def test_the_plan_counts_a_step_and_its_launch_command_carries_what_was_planned(planned):
    words = "zero2 --num_processes=4 --use_cpu true --run_name a*b"
    _, printed = planned({**LORA, "gradient_accumulation_steps": 4}, words)
    assert "A generation makes 128 completions (16 prompts x 8), 32 on each process." in printed
    assert (
        "learns from 128 completions (16 prompts x 8): 4 processes x 4 micro batches of 8."
        in printed
    )
    assert "    DS_ACCELERATOR=cpu accelerate launch --config_file" in printed
    assert "zero2.yaml --num_processes 4 " in printed
    assert printed.rstrip().endswith("run.yaml --use_cpu true --run_name 'a*b'")


# Memory of the process itself: the kernel takes file pages, such as libraries, away as it likes.
MEASURE = """
import sys, threading, time
from pathlib import Path
from recipes.common.data.recipe import import_recipe
from recipes.common.trainer import GRPOTrainer

def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024

def watch():
    while True:
        seen["peak"] = max(seen["peak"], own())
        time.sleep(0.005)

def build(self, *args, **kwargs):
    seen["before"] = own()
    create(self, *args, **kwargs)

def generate(self, *args, **kwargs):
    rows = score(self, *args, **kwargs)
    seen["prompt"] = max(seen["prompt"], rows["prompt_ids"].shape[1])
    return rows

seen = {"peak": 0, "prompt": 0}
create, GRPOTrainer.__init__ = GRPOTrainer.__init__, build
score, GRPOTrainer._generate_and_score_completions = GRPOTrainer._generate_and_score_completions, generate
threading.Thread(target=watch, daemon=True).start()
import_recipe(Path("recipes/arithmetic/quickstart.yaml")).main()
print("MEASURED", seen["prompt"], seen["peak"] - seen["before"])
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc"
)
def test_the_planned_peak_is_within_a_quarter_of_the_measured(tmp_path):
    hidden, intermediate, layers = 512, 1536, 12  # 54 million parameters
    folder = build_tiny_model(tmp_path / "model")
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    heads = {
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 128,
        "vocab_size": 32768,
    }
    config = LlamaConfig(
        **sizes,
        **heads,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(
        folder
    )  # loaded as fp32: else the file is mapped
    words = ["--config", "recipes/arithmetic/quickstart.yaml", "--model_name_or_path", str(folder)]
    words += [
        "--output_dir",
        str(tmp_path / "run"),
        "--use_cpu",
        "true",
        "--dtype",
        "float32",
        "--use_peft",
        "false",
    ]
    words += [
        "--max_steps",
        "2",
        "--num_eval_rows",
        "0",
        "--num_train_rows",
        "100",
        "--save_strategy",
        "no",
    ]
    words += [
        "--num_generations",
        "4",
        "--per_device_train_batch_size",
        "4",
        "--max_completion_length",
        "8",
    ]
    words += [
        "--skip_zero_advantages",
        "false",
    ]  # planned is a step in which every completion counts
    how = {"cwd": ROOT, "env": {**os.environ, "HF_HUB_OFFLINE": "1"}, "timeout": 900}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, **how
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    prompt, measured = (int(word) for word in done.stdout.split("MEASURED")[1].split()[:2])
    args = load_recipe(ROOT / "recipes/arithmetic/quickstart.yaml", words[2:], rows=False).args
    launch = read_launch(ROOT / "accelerate_configs/cpu.yaml")
    planned = plan_memory(
        read_model(ModelConfig(**args.model)), settings_of(args.training, launch, prompt), launch
    )
    print(
        f"\nplanned {planned.peak / GIB:.2f} GiB, measured {measured / GIB:.2f} GiB, prompts of {prompt} tokens"
    )
    assert planned.peak == pytest.approx(measured, rel=0.25)
