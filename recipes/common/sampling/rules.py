"""Checks before GPUs are rented: problems, which stop a run, and warnings; each with its remedy.

Not covered: whether `max_completion_length` is enough for the task, and what rows and rewards hold (preflight), and
whether the model will learn.
"""

from typing import Any

from recipes.common.checks.batch import check_batch
from recipes.common.checks.launch import DEEPSPEED_ON_CPU, Launch
from recipes.common.sampling.memory import USABLE, Memory, RunSettings
from recipes.common.sampling.sizes import ModelSizes

GIB = 2**30
# Full training in GRPO is done at 1e-6 to 1e-5, and LoRA needs ten times the rate of full training.
LORA_LEARNING_RATE = 1e-5
# Steps of so small a rate are lost in bf16 weights, which keep eight bits.
BF16_LEARNING_RATE = 1e-4
REMEDIES = {
    "activations": "lower per_device_train_batch_size (raise gradient_accumulation_steps), or set "
    "gradient_checkpointing: true",
    "logits": "lower per_device_train_batch_size and raise gradient_accumulation_steps",
    "KV cache": "lower steps_per_generation or max_completion_length, or use vLLM",
    "generation": "lower steps_per_generation",
    "gathered to generate": "set ds3_gather_for_generation: false, or use vLLM",
}
PARTS_OF = {
    "generating": (
        "weights",
        "optimizer",
        "reference model",
        "gathered to generate",
        "KV cache",
        "generation",
    ),
    "learning": (
        "weights",
        "optimizer",
        "reference model",
        "gradients",
        "casts",
        "activations",
        "logits",
    ),
    "optimizer step": ("weights", "optimizer", "gradients"),
}


def check_sizes(training: dict[str, Any], processes: int) -> list[str]:
    """Check the batch against the number of processes, and the length of a completion."""
    problems = check_batch(training, processes, None)
    length = training["max_completion_length"]
    if not isinstance(length, int) or length < 1:
        problems.append(
            f"max_completion_length is {length!r}; it must be a whole number of at least 1."
        )
    return problems


def check_launch(launch: Launch, on_cpu: bool) -> list[str]:
    """Check for what the launch file says and accelerate does not do."""
    alone = launch.engine == "one process" and launch.processes > 1
    ignored = launch.offload_weights and launch.engine in ("ZeRO-1", "ZeRO-2")
    rules = {
        f"distributed_type {launch.distributed_type} starts one process, silently, and not {launch.processes}: "
        "use accelerate_configs/ddp.yaml (on the CPU cpu_2proc.yaml), or --num_processes 1.": alone,
        DEEPSPEED_ON_CPU: launch.zero and launch.use_cpu,
        "FSDP needs an accelerator: on the CPU the processes would run DDP, or unconnected. Use "
        "accelerate_configs/zero3.yaml there, or drop use_cpu.": launch.engine == "FSDP2"
        and on_cpu,
        f"offload_param_device goes with zero_stage 3 only, not {launch.engine}: set it to none.": ignored,
    }
    return [text for text, holds in rules.items() if holds]


def check_model(training: dict[str, Any], model: ModelSizes, launch: Launch) -> list[str]:
    """Check that lengths and vLLM go with the model and the processes."""
    parallel, length = training["vllm_tensor_parallel_size"], training["max_completion_length"]
    no_room = model.positions and length >= model.positions
    apart = (
        training["use_vllm"]
        and launch.engine == "ZeRO-3"
        and not training["ds3_gather_for_generation"]
    )
    uneven = shares_gpu(training) and (parallel < 1 or launch.processes % parallel)
    rules = {
        f"max_completion_length {length} leaves no room for a prompt: the model has {model.positions} positions. Lower "
        "it, or take a model with a longer context.": no_room,
        "vLLM needs ds3_gather_for_generation: true under ZeRO-3; it is false.": apart,
        f"vllm_tensor_parallel_size {parallel} does not divide {launch.processes} processes: set it to 1 or to a "
        "divisor.": uneven,
    }
    return [text for text, holds in rules.items() if holds]


def check_fit(training: dict[str, Any], memory: Memory, gib: float | None) -> list[str]:
    """Check that a GPU of `gib` GiB holds the peak, and vLLM's share next to it."""
    if gib is None:
        return []
    share = training["vllm_gpu_memory_utilization"] if shares_gpu(training) else 0.0
    peak = memory.peak / GIB
    if share and peak / gib + share > 1.0:
        return [
            f"vllm_gpu_memory_utilization {share:g} and {peak:.1f} GiB of training are {peak / gib + share:.2f} of "
            f"{gib:g} GiB, more than 1: set it to at most {max(0.0, int(100 * (USABLE - peak / gib)) / 100):g}, use "
            "vllm_enable_sleep_mode, or a vLLM server on GPUs of its own (vllm_mode: server)."
        ]
    if peak <= USABLE * gib * (1.0 - share):
        return []
    moment = max(memory.moments, key=memory.moments.__getitem__)
    largest = max(PARTS_OF[moment], key=memory.parts.__getitem__)
    general = (
        "shard more (zero2.yaml, zero3.yaml, zero3_offload.yaml), start more processes, or use LoRA"
    )
    return [
        f"{peak:.1f} GiB ({moment}) do not fit {USABLE:.0%} of {gib:g} GiB: the largest part is {largest}; "
        f"{REMEDIES.get(largest, general)}."
    ]


def shares_gpu(training: dict[str, Any]) -> bool:
    """Whether vLLM runs on the GPUs that train."""
    return bool(training["use_vllm"]) and training["vllm_mode"] == "colocate"


def warnings(
    training: dict[str, Any], model: ModelSizes, run: RunSettings, launch: Launch
) -> list[str]:
    """Warnings about settings that work and cost time or memory."""
    rate, lora, bits, zero3 = (
        training["learning_rate"],
        model.lora,
        8 * model.weight_bytes,
        launch.engine == "ZeRO-3",
    )
    saves, optimizer = (
        str(getattr(training[n], "value", training[n])) for n in ("save_strategy", "optim")
    )
    prompts = run.rows_generated * launch.processes // max(1, training["num_generations"])
    gathers_lora, gathers_reference = zero3 and lora, zero3 and run.reference and not lora
    few_prompts = 0 < prompts < launch.processes
    never_saved = saves == "no" or (
        saves == "steps" and 0 < training["max_steps"] < training["save_steps"]
    )
    not_adam = not optimizer.startswith("adamw_torch")
    too_long = model.positions and run.tokens > model.positions > run.completion_tokens
    timid = lora and rate < LORA_LEARNING_RATE
    wide_base = lora and bits == 32 and run.half_precision and not launch.zero
    fp32_copy = (
        launch.zero or launch.engine == "FSDP2"
    )  # of the weights that the optimizer works on
    rounded = not lora and bits == 16 and not fp32_copy and rate < BF16_LEARNING_RATE
    rules = {
        "ZeRO-3 with LoRA gathers weights that never change, again and again, and TRL forces reentrant checkpointing "
        "and adapters in the weights' type. Use ddp.yaml or zero2.yaml where the weights fit a GPU.": gathers_lora,
        "beta with ZeRO-3 keeps a second sharded model and gathers all of it for each batch. Set beta to 0, use LoRA "
        "(the adapter is switched off instead), or zero2.yaml where weights and reference fit.": gathers_reference,
        f"{launch.processes} processes share a generation of {prompts} prompt{'s' * (prompts > 1)}: each makes part of "
        "one group, and a step learns from few prompts. Raise per_device_train_batch_size or "
        "gradient_accumulation_steps, or start fewer processes.": few_prompts,
        f"no checkpoint before the end (save_strategy {saves}, save_steps {training['save_steps']:g}, max_steps "
        f"{training['max_steps']}): an interrupted run starts anew. Set save_steps below max_steps.": never_saved,
        "the memory of the optimizer is counted as Adam's; that of another is not known here.": not_adam,
        f"prompts of {run.prompt_tokens} and completions of {run.completion_tokens} tokens exceed the model's "
        f"{model.positions} positions: what is beyond is noise. Set max_completion_length to at most "
        f"{max(1, (model.positions or 0) - run.prompt_tokens)}.": too_long,
        f"learning_rate {rate:g} is one of full training (1e-6 to 1e-5); LoRA wants ten times as much: at least "
        f"{LORA_LEARNING_RATE:g}, or it hardly moves.": timid,
        "frozen weights in fp32 take twice the memory for nothing under LoRA: set dtype: bfloat16.": wide_base,
        f"full training of bf16 weights: updates of {rate:g} are rounded away. Set dtype: float32 (the forward pass "
        "stays bf16), or use ZeRO, which keeps fp32 weights as well.": rounded,
    }
    return [text for text, holds in rules.items() if holds]
