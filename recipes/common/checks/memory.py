"""Estimate the memory of an update, and name the micro batch that fits into this machine."""

import math
import os
from typing import Any

import psutil
import torch
from transformers import PreTrainedModel
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE

from recipes.common.training.completion import VOCABULARY_PART
from recipes.common.training.engine import asked_engine
from recipes.common.utils.machine import fastest_dtype

PROCESS = 0.55e9  # bytes of Python and the packages
LOGITS_ON_CPU = VOCABULARY_PART, 9  # words of a part of the logits, float32 tensors of that size
LOGITS_ON_GPU = 32768, 1  # TRL's kernel writes the gradient over the logits


def memory_note(
    model: PreTrainedModel,
    settings: dict[str, Any],
    prompt_tokens: int,
    free: float | None = None,
) -> list[str]:
    """A note if an update needs more memory than is free; none for an engine that shards.

    `model` has its adapter and is on the meta device; `settings` has those of GRPOConfig and of
    ModelConfig; `prompt_tokens` is the length of the longest prompt; `free` are the bytes that one
    process may use, by default what this machine has, without vLLM's share of a GPU.
    """
    if asked_engine() not in ("one process", "DDP") or not settings["max_completion_length"]:
        return []
    if free is None and torch.cuda.is_available() and not settings["use_cpu"]:
        free, total = torch.cuda.mem_get_info()
        if settings["use_vllm"] and settings["vllm_mode"] == "colocate":
            sleeps = settings["vllm_enable_sleep_mode"]
            free -= 0 if sleeps else settings["vllm_gpu_memory_utilization"] * total
    elif free is None:
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        free = psutil.virtual_memory().available / processes
    if settings["dtype"] == "fastest":
        settings = {**settings, "dtype": fastest_dtype(settings["use_cpu"])[0]}
    asked = fitting = settings["per_device_train_batch_size"]
    needed = fitting_needs = update_bytes(model, settings, prompt_tokens, asked)
    if needed <= free:
        return []
    # Only divisors: then gradient_accumulation_steps can keep the size of the batch.
    while fitting > 1 and fitting_needs > free:
        fitting = max(size for size in range(1, fitting) if asked % size == 0)
        fitting_needs = update_bytes(model, settings, prompt_tokens, fitting)
    return [
        f"memory: an update of {asked} completions of {settings['max_completion_length']} tokens "
        f"(a vocabulary of {model.config.get_text_config().vocab_size:,} words) needs about "
        f"{needed / 1e9:.1f} GB in a process, and {free / 1e9:.1f} GB are free: "
        f"per_device_train_batch_size {fitting} needs {fitting_needs / 1e9:.1f} GB; raise "
        "gradient_accumulation_steps as much. steps_per_generation says how many of these are "
        "generated at once."
    ]


def update_bytes(
    model: PreTrainedModel, settings: dict[str, Any], prompt_tokens: int, completions: int
) -> float:
    """Estimate the peak of one process in bytes, for a micro batch of so many completions.

    Measured with Qwen2.5-Coder-0.5B in bfloat16 on a CPU, LoRA, shared prompts of 228 tokens and
    completions of 160: 4.4 to 4.8 GiB for 8 completions, 7.1 GiB for 16.
    """
    config = model.config.get_text_config()
    size = 4 if settings["dtype"] in ("float32", None) else 2  # bytes of a weight or an activation
    stored = 0.6 if settings["load_in_4bit"] else 1 if settings["load_in_8bit"] else size
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    # The KL term needs a reference model: a copy, or the same model without its adapter.
    copies = 2 if settings["beta"] and trained == model.num_parameters() else 1
    weights = copies * stored * model.num_parameters() + 12 * trained  # gradient, Adam: 3 float32

    is_checkpointed, layers = settings["gradient_checkpointing"], config.num_hidden_layers
    prompts = completions
    if settings["share_prompts"] and not is_checkpointed:
        prompts = math.ceil(completions / settings["num_generations"])  # one for each group
    written = completions * settings["max_completion_length"]
    tokens = written + prompts * prompt_tokens
    part, tensors = LOGITS_ON_CPU if settings["use_cpu"] else LOGITS_ON_GPU
    logits = min(written, TOKEN_CHUNK_SIZE) * min(part, config.vocab_size) * 4 * tensors
    # What a layer keeps of a token: four tensors of the MLP, eight others, norms in float32.
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    inner = max(inner) if isinstance(inner, list) else inner  # of each layer, in Gemma 3n
    layer = size * (4 * inner + 8 * config.hidden_size) + 12 * config.hidden_size  # bytes
    # Gradient checkpointing keeps only the input of each layer, and computes one layer at a time.
    kept_layers = 1 if is_checkpointed else layers
    inputs = layers * size * config.hidden_size if is_checkpointed else 0
    # Each completion has keys and values of its prompt, as many heads as queries.
    context = completions * (prompt_tokens + settings["max_completion_length"])
    attention = 2 * size * config.hidden_size * context * kept_layers
    return PROCESS + weights + logits + tokens * (inputs + kept_layers * layer) + attention
