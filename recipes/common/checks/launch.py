"""Check how a run is launched: before it waits for ever, or runs in another way than asked for."""

import contextlib
import os
import shutil
import sysconfig
from itertools import pairwise
from pathlib import Path

import psutil
import torch
import yaml
from accelerate.utils import PrecisionType, parse_flag_from_env

from recipes.common.training.engine import world_size
from recipes.common.utils.screen import OF_A_LAUNCHER

ENGINES = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP")  # whose processes find each other


def check_launch() -> None:
    """Raise ValueError if a launcher's variables are set but none started this process, or if
    accelerate may start something else than the launch file says.

    The launch file is named on the command line of the launcher: this process's parent.
    """
    lacking = [name for name in OF_A_LAUNCHER if name not in os.environ]
    left_over = [*filter(parse_flag_from_env, ENGINES)]
    left_over += ["WORLD_SIZE"] if world_size() > 1 else []
    if not (left_over and lacking) and "WORLD_SIZE" not in os.environ:  # a rank, but of how many?
        lacking = ["WORLD_SIZE"]
        left_over = ["LOCAL_RANK"] if os.environ.get("LOCAL_RANK", "-1") != "-1" else []
    if left_over and lacking:
        raise ValueError(
            f"{left_over[0]} is {os.environ[left_over[0]]} in the environment, but no launcher set "
            f"{', '.join(lacking)}: the run would wait for processes that nobody started. Use "
            f"accelerate launch, or unset {', '.join(left_over)}."
        )
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision not in PrecisionType.list():
        raise ValueError(
            f"mixed_precision is {precision!r} in the launch file or the environment; allowed: "
            f"{', '.join(PrecisionType.list())}."
        )
    parent = psutil.Process().parent()
    words = parent.cmdline() if parent else []  # a word may be an option, and the next its value
    options = dict(pairwise(words)) | dict(word.split("=", 1) for word in words if "=" in word)
    launch = None
    if file := options.get("--config_file"):
        with contextlib.suppress(OSError, yaml.YAMLError):  # accelerate cannot read it either
            launch = yaml.safe_load(Path(file).read_text())
    if not isinstance(launch, dict):
        return
    if parent and "--gpu_ids" not in options and launch.get("gpu_ids", "all") != "all":
        asked = parent.environ().get("CUDA_VISIBLE_DEVICES")
        if asked is not None and not {*str(launch["gpu_ids"]).split(",")} <= {*asked.split(",")}:
            raise ValueError(
                f"CUDA_VISIBLE_DEVICES is {asked!r}, and the launch file makes gpu_ids "
                f"{launch['gpu_ids']!r} of it: give --gpu_ids before the recipe."
            )
    kind = str(launch.get("distributed_type")).upper()
    if kind == "DEEPSPEED" and (launch.get("use_cpu") or "--cpu" in words):
        raise ValueError(
            "the launch file asks for DeepSpeed and for the CPU (use_cpu: true, or --cpu), and "
            "accelerate may run DDP instead. Set use_cpu: false; on a CPU export "
            "DS_ACCELERATOR=cpu and give --use_cpu true to the recipe."
        )
    if kind == "MULTI_CPU" and "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "the launch file says MULTI_CPU, for which accelerate starts one process only. Say "
            "MULTI_GPU and give --use_cpu true to the recipe, as in "
            "accelerate_configs/cpu_2proc.yaml."
        )


def notes_on_gpus(asked_for_cpu: bool) -> list[str]:
    """Note a GPU that torch does not see, and what TRL's loss on a GPU is built with."""
    if asked_for_cpu:
        return []
    if not torch.accelerator.is_available():
        are_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        if are_hidden or not shutil.which("nvidia-smi"):
            return []
        return [
            f"an NVIDIA driver is installed, and torch {torch.__version__} sees no GPU: the run is "
            "on the CPU. Either this torch is the CPU's (remove .venv, install without "
            "PIP_EXTRA_INDEX_URL), or the driver is older than it wants."
        ]
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if compiler and Path(sysconfig.get_path("include"), "Python.h").is_file():
        return []
    return [
        "no C compiler or no headers of Python (Debian: gcc, python3-dev) are found, with which "
        "Triton builds TRL's loss on a GPU"
    ]
