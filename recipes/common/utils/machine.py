"""The machine a run is on: its cores, versions and hardware.

`use_all_cores` and `make_head_input_contiguous` make a CPU run faster (measured in RESULTS.md) and
do not change what it computes.
"""

import contextlib
import functools
import os
import platform
import subprocess
import sys
import timeit
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PreTrainedModel, TrainingArguments

from recipes.common.utils.secrets import hide_secrets

PACKAGES = (
    "torch", "trl", "transformers", "accelerate", "peft", "deepspeed", "datasets", "reasoning-gym",
    "wandb",
)  # fmt: skip
DTYPES = ("float32", "bfloat16")


def usable_cores() -> int:
    """Count the cores that this process may use, by affinity and by a container's quota."""
    from joblib.externals.loky import cpu_count  # takes a third of a second

    return cpu_count()


def use_all_cores(training: TrainingArguments) -> None:
    """Use all cores of a CPU if torch has one thread, as `accelerate launch` sets by default."""
    if training.use_cpu and torch.get_num_threads() == 1:
        torch.set_num_threads(max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def fastest_dtype(use_cpu: bool) -> tuple[str, float]:
    """The faster of bfloat16 and float32 where a run computes, and how many times faster it is.

    On a CPU this measures matrix products for a fraction of a second: bfloat16 is twice as fast as
    float32 on one CPU and half as fast on another. On an accelerator nothing is measured (1.0):
    bfloat16 wins if the hardware has it; older GPUs and Apple's emulate it.
    """
    if not use_cpu:
        has_bfloat16 = not torch.backends.mps.is_available()
        if torch.cuda.is_available():
            has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bfloat16" if has_bfloat16 else "float32"), 1.0
    seconds = {name: _seconds_of_products(getattr(torch, name)) for name in DTYPES}
    fastest = min(DTYPES, key=seconds.get)
    return fastest, max(seconds.values()) / seconds[fastest]


def _seconds_of_products(dtype: torch.dtype) -> float:
    """The best time of five: hidden states of 256 tokens times one layer of a small model."""
    states, layer = torch.ones(256, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
    multiply = functools.partial(torch.nn.functional.linear, states, layer)
    return min(timeit.repeat(multiply, number=10))


def make_head_input_contiguous(model: PreTrainedModel) -> None:
    """Make the LM head of a model on a CPU multiply the whole batch at once after the prompts.

    `generate` passes the head a strided slice: the last position of each prompt. For such a slice
    torch multiplies each sequence separately and copies the weights for each: 56 MB times the batch
    size for a vocabulary of 49 152.
    """
    if model.device.type == "cpu":
        model.get_output_embeddings().register_forward_pre_hook(
            lambda module, inputs: (inputs[0].contiguous(),)
        )


def versions() -> dict[str, Any]:
    """Python, packages, commit, hardware and command of this process, without secrets."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    machines = max(1, processes // int(os.environ.get("LOCAL_WORLD_SIZE", processes)))
    changes, cores = _git("status", "--porcelain"), machines * usable_cores()
    hardware = f"{cores} CPU core{'s' * (cores != 1)}"
    if (device := PartialState().device.type) != "cpu":
        name = torch.cuda.get_device_name(0) if device == "cuda" else device
        hardware = f"{machines * torch.accelerator.device_count()} x {name}"
    return {
        "versions": package_versions(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if changes is None else bool(changes),
        "hardware": hardware,
        "command": hide_secrets([sys.executable, *sys.argv]),
    }


def package_versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that affect results; None if not installed."""
    found = {"python": platform.python_version(), **dict.fromkeys(PACKAGES)}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _git(*words: str) -> str | None:
    """What a git command prints in this repository; None without git or a repository."""
    command = ["git", "-C", str(Path(__file__).resolve().parents[3]), *words]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    return None
