"""The launch file of accelerate: what it starts, and what accelerate takes for something else than it says.

Refused where a run is planned: a `deepspeed_config_file` next to the launch file, FSDP version 1, Megatron, TPUs.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

DISTRIBUTED = {"NO": "one process", "MULTI_CPU": "one process", "MULTI_GPU": "DDP", "FSDP": "FSDP2"}
DEFAULT_ZERO_STAGE = 2  # accelerate's, for a file that names none
DEEPSPEED_ON_CPU = (
    "the launch file asks for DeepSpeed and for the CPU (use_cpu: true, or --cpu), and accelerate may run DDP instead. "
    "Set use_cpu: false; on a CPU export DS_ACCELERATOR=cpu and give --use_cpu true to the recipe."
)


@dataclass(frozen=True)
class Launch:
    """The start a launch file asks for: engine ("one process", "DDP", "ZeRO-1" to "ZeRO-3", "FSDP2") and processes."""

    engine: str
    processes: int
    distributed_type: str
    use_cpu: bool = False
    offload_optimizer: bool = False
    offload_weights: bool = False

    @property
    def zero(self) -> bool:
        """Whether DeepSpeed runs it."""
        return self.engine.startswith("ZeRO")

    @property
    def shards_weights(self) -> bool:
        """Whether each process holds a part of the weights only."""
        return self.engine in ("ZeRO-3", "FSDP2")


def read_launch(path: Path, num_processes: int | None = None) -> Launch:
    """Read an accelerate launch file; `num_processes` wins over the file, as on the command line.

    Example: `read_launch(Path("accelerate_configs/zero3.yaml"), 4)` is `Launch("ZeRO-3", 4, "DEEPSPEED")`. Raises
    ValueError for a file that cannot be read, or that asks for an engine that is not known here.
    """
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read --launch {path}: {error}") from error
    if not isinstance(values, dict) or "distributed_type" not in values:
        raise ValueError(f"{path} is not a launch file of accelerate: it has no distributed_type.")
    processes = num_processes or values.get("num_processes", 1)
    if not isinstance(processes, int) or processes < 1:
        raise ValueError(f"num_processes is {processes!r} in {path}; give --num_processes.")
    deepspeed = values.get("deepspeed_config") or {}
    return Launch(
        engine=_engine(values, deepspeed, path),
        processes=processes,
        distributed_type=_kind(values),
        use_cpu=bool(values.get("use_cpu")),
        offload_optimizer=deepspeed.get("offload_optimizer_device", "none") != "none",
        offload_weights=deepspeed.get("offload_param_device", "none") != "none",
    )


def launch_file_of(words: list[str]) -> dict[str, Any]:
    """The content of the launch file that a command line names; nothing where it names none that can be read."""
    joined = (word.partition("=")[2] for word in words if word.startswith("--config_file="))
    path = dict(pairwise(words)).get("--config_file") or next(joined, None)
    try:
        content = yaml.safe_load(Path(path).read_text()) if path else None
    except (OSError, yaml.YAMLError):  # then accelerate has not read it either
        content = None
    return content if isinstance(content, dict) else {}


def check_launch_file() -> list[str]:
    """Check the launch file of this process for what accelerate silently takes for something else."""
    parent = psutil.Process().parent()
    words = parent.cmdline() if parent else []
    launch = launch_file_of(words)
    problems = []
    if _kind(launch) == "DEEPSPEED" and (launch.get("use_cpu") or "--cpu" in words):
        problems.append(DEEPSPEED_ON_CPU)
    if _kind(launch) == "MULTI_CPU" and "WORLD_SIZE" not in os.environ:
        problems.append(
            "the launch file says MULTI_CPU, for which accelerate starts one process only. Say MULTI_GPU and give "
            "--use_cpu true to the recipe, as in accelerate_configs/cpu_2proc.yaml."
        )
    return problems


def _kind(launch: dict[str, Any]) -> str:
    return str(launch.get("distributed_type") or "NO").upper()  # YAML reads NO as False


def _engine(values: dict[str, Any], deepspeed: dict[str, Any], path: Path) -> str:
    kind = _kind(values)
    if kind == "DEEPSPEED":
        if "deepspeed_config_file" in deepspeed:
            raise ValueError(
                f"{path} points to a deepspeed_config_file; write its zero_stage into {path} to plan it."
            )
        stage = deepspeed.get("zero_stage", DEFAULT_ZERO_STAGE)
        if stage not in (1, 2, 3):
            raise ValueError(f"zero_stage is {stage!r} in {path}; it must be 1, 2 or 3.")
        return f"ZeRO-{stage}"
    if kind == "FSDP" and (values.get("fsdp_config") or {}).get("fsdp_version", 1) != 2:
        raise ValueError(f"{path} asks for FSDP version 1; set fsdp_version: 2 in its fsdp_config.")
    if kind not in DISTRIBUTED:
        raise ValueError(
            f"distributed_type {kind} of {path} is not planned here; known are {[*DISTRIBUTED]}, DEEPSPEED."
        )
    return DISTRIBUTED[kind]
