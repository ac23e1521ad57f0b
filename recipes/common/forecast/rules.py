"""What is known to go wrong before GPUs are paid for: problems, which stop a run, and warnings; each with its remedy.

Not covered: whether `max_completion_length` is enough for the task, and what rows and rewards hold (preflight), and
whether the model will learn.
"""

from typing import Any

from recipes.common.before.batch import check_batch
from recipes.common.before.launch import DEEPSPEED_ON_CPU, Launch
from recipes.common.forecast.memory import USABLE, Memory, RunSettings
from recipes.common.forecast.sizes import ModelSizes

GIB = 2**30
# Full training in GRPO is done at 1e-6 to 1e-5, and LoRA wants ten times the rate of full training.
LORA_LEARNING_RATE = 1e-5
# Steps of so small a rate are lost in bf16 weights, which keep eight bits.
BF16_LEARNING_RATE = 1e-4


def batch_problems(training: dict[str, Any], launch: Launch) -> list[str]:
    """What of the batch does not go with the number of processes, with the nearest values that do."""
    problems: list[str] = []
    check_batch(training, launch.processes, None, problems)
    length = training["max_completion_length"]
    if not isinstance(length, int) or length < 1:
        problems.append(f"max_completion_length is {length!r}; it must be a whole number of at least 1.")
    return problems


def launch_problems(launch: Launch, on_cpu: bool) -> list[str]:
    """What the launch file says and accelerate does not do."""
    problems = []
    if launch.engine == "one process" and launch.processes > 1:
        problems.append(
            f"distributed_type {launch.distributed_type} starts one process, silently, and not {launch.processes}: "
            "use accelerate_configs/ddp.yaml (on the CPU cpu_2proc.yaml), or --num_processes 1."
        )
    if launch.zero and launch.use_cpu:
        problems.append(DEEPSPEED_ON_CPU)
    if launch.engine == "FSDP2" and on_cpu:
        problems.append(
            "FSDP needs an accelerator: on the CPU the processes would run DDP, or unconnected. Use "
            "accelerate_configs/zero3.yaml there, or drop use_cpu."
        )
    if launch.zero and launch.engine != "ZeRO-3" and launch.offload_weights:
        problems.append(f"offload_param_device goes with zero_stage 3 only, not {launch.engine}: set it to none.")
    return problems


def model_problems(training: dict[str, Any], model: ModelSizes, launch: Launch) -> list[str]:
    """What the model, or the way it generates, does not allow."""
    problems = []
    if model.positions and training["max_completion_length"] >= model.positions:
        problems.append(
            f"max_completion_length {training['max_completion_length']} leaves no room for a prompt: the model has "
            f"{model.positions} positions. Lower it, or take a model with a longer context."
        )
    if training["use_vllm"] and launch.engine == "ZeRO-3" and not training["ds3_gather_for_generation"]:
        problems.append("vLLM needs ds3_gather_for_generation: true under ZeRO-3; it is false.")
    tensor_parallel = training["vllm_tensor_parallel_size"]
    if shares_gpu(training) and (tensor_parallel < 1 or launch.processes % tensor_parallel):
        problems.append(
            f"vllm_tensor_parallel_size {tensor_parallel} does not divide {launch.processes} processes: set it to 1 "
            "or to a divisor."
        )
    return problems


def fit_problems(training: dict[str, Any], memory: Memory, gib: float | None) -> list[str]:
    """Whether a GPU of `gib` GiB holds the peak, and vLLM's share besides."""
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
    if peak > USABLE * gib * (1.0 - share):
        moment = max(memory.moments, key=memory.moments.__getitem__)
        return [f"{peak:.1f} GiB ({moment}) do not fit {USABLE:.0%} of {gib:g} GiB: {_remedy(memory, moment)}."]
    return []


def shares_gpu(training: dict[str, Any]) -> bool:
    """Whether vLLM runs on the GPUs that train."""
    return bool(training["use_vllm"]) and training["vllm_mode"] == "colocate"


def warnings(training: dict[str, Any], model: ModelSizes, run: RunSettings, launch: Launch) -> list[str]:
    """What a run can do and will regret."""
    return [
        *_engine_warnings(model.lora, run, launch),
        *_schedule_warnings(training, run, launch),
        *_length_warnings(model, run),
        *_precision_warnings(training, model, run, launch),
    ]


def _engine_warnings(lora: bool, run: RunSettings, launch: Launch) -> list[str]:
    found = []
    if launch.engine == "ZeRO-3" and lora:
        found.append(
            "ZeRO-3 with LoRA gathers weights that never change, again and again, and TRL forces reentrant "
            "checkpointing and adapters in the weights' type. Use ddp.yaml or zero2.yaml where the weights fit a GPU."
        )
    if launch.engine == "ZeRO-3" and run.reference and not lora:
        found.append(
            "beta with ZeRO-3 keeps a second sharded model and gathers all of it for each batch. Set beta to 0, use "
            "LoRA (the adapter is switched off instead), or zero2.yaml where weights and reference fit."
        )
    return found


def _schedule_warnings(training: dict[str, Any], run: RunSettings, launch: Launch) -> list[str]:
    found = []
    prompts = run.rows_generated * launch.processes // max(1, training["num_generations"])
    if 0 < prompts < launch.processes:
        found.append(
            f"{launch.processes} processes share a generation of {prompts} prompt{'s' * (prompts > 1)}: each makes "
            "part of one group, and a step learns from few prompts. Raise per_device_train_batch_size or "
            "gradient_accumulation_steps, or start fewer processes."
        )
    saves = str(getattr(training["save_strategy"], "value", training["save_strategy"]))
    if saves == "no" or (saves == "steps" and 0 < training["max_steps"] < training["save_steps"]):
        found.append(
            f"no checkpoint before the end (save_strategy {saves}, save_steps {training['save_steps']:g}, max_steps "
            f"{training['max_steps']}): a run that is interrupted starts anew. Set save_steps below max_steps."
        )
    if not str(getattr(training["optim"], "value", training["optim"])).startswith("adamw_torch"):
        found.append("the memory of the optimizer is counted as Adam's; that of another is not known here.")
    return found


def _length_warnings(model: ModelSizes, run: RunSettings) -> list[str]:
    if not model.positions or not run.tokens > model.positions > run.completion_tokens:
        return []
    return [
        f"prompts of {run.prompt_tokens} and completions of {run.completion_tokens} tokens exceed the model's "
        f"{model.positions} positions: what stands beyond is noise. Set max_completion_length to at most "
        f"{max(1, model.positions - run.prompt_tokens)}."
    ]


def _precision_warnings(training: dict[str, Any], model: ModelSizes, run: RunSettings, launch: Launch) -> list[str]:
    found, rate = [], training["learning_rate"]
    if model.lora and rate < LORA_LEARNING_RATE:
        found.append(
            f"learning_rate {rate:g} is one of full training (1e-6 to 1e-5); LoRA wants ten times as much: at least "
            f"{LORA_LEARNING_RATE:g}, or it hardly moves."
        )
    if model.lora and model.weight_bytes == 4 and run.half_precision and not launch.zero:
        found.append("frozen weights in fp32 take twice the memory for nothing under LoRA: set dtype: bfloat16.")
    keeps_fp32 = launch.zero or launch.engine == "FSDP2"  # the weights that the optimizer works on
    if not model.lora and model.weight_bytes == 2 and not keeps_fp32 and rate < BF16_LEARNING_RATE:
        found.append(
            f"full training of bf16 weights: updates of {rate:g} are rounded away. Set dtype: float32 (the forward "
            "pass stays bf16), or use ZeRO, which keeps fp32 weights beside them."
        )
    return found


def _remedy(memory: Memory, moment: str) -> str:
    """What to change, by the largest part of the moment that does not fit."""
    advice = {
        "activations": "lower per_device_train_batch_size (raise gradient_accumulation_steps), or set "
        "gradient_checkpointing: true",
        "logits": "lower per_device_train_batch_size and raise gradient_accumulation_steps",
        "KV cache": "lower steps_per_generation or max_completion_length, or use vLLM",
        "generation": "lower steps_per_generation",
        "gathered to generate": "set ds3_gather_for_generation: false, or use vLLM",
    }
    of_moment = {
        "generating": ("weights", "optimizer", "reference model", "gathered to generate", "KV cache", "generation"),
        "learning": ("weights", "optimizer", "reference model", "gradients", "casts", "activations", "logits"),
    }.get(moment, ("weights", "optimizer", "gradients"))
    largest = max(of_moment, key=memory.parts.__getitem__)
    general = "shard more (zero2.yaml, zero3.yaml, zero3_offload.yaml), start more processes, or use LoRA"
    return f"the largest part is {largest}; {advice.get(largest, general)}"
