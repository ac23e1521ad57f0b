"""Check how a run is launched: before it waits for ever, or runs in another way than asked for."""

import contextlib
import os
from itertools import pairwise
from pathlib import Path

import psutil
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
