"""Check that the engine in use (DDP, DeepSpeed, FSDP) is the engine the launcher was asked for.

accelerate falls back silently: FSDP without an accelerator becomes DDP, MULTI_CPU starts one
process, `--cpu` and (in some versions) `use_cpu: true` replace DeepSpeed, and without the training
argument `use_cpu` the ranks may not see each other. `accelerate launch` puts the requested engine
into environment variables. A run stops if another engine is in use.

Not covered: accelerate's own default file, and launchers other than `accelerate launch`.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from accelerate import DistributedType
from accelerate.utils import parse_flag_from_env
from torch.distributed import distributed_c10d
from transformers import TrainerCallback
from trl import GRPOTrainer


def world_size() -> int:
    """The number of processes that the launcher started for this run."""
    for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        if not (number := os.environ.get(name, "1")).isdecimal():
            raise ValueError(f"{name} is {number!r} in the environment, and no number: unset it.")
    return int(os.environ.get("WORLD_SIZE", "1"))


def asked_of_the_launcher() -> dict[str, Any]:
    """The engine requested from `accelerate launch`, as far as its variables tell.

    Example: `{"world_size": 2, "distributed_type": "DEEPSPEED", "zero_stage": 3}`
    """
    asked: dict[str, Any] = {"world_size": world_size()}
    if parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"):
        asked["distributed_type"] = DistributedType.DEEPSPEED.value
        if "ACCELERATE_DEEPSPEED_ZERO_STAGE" in os.environ:
            asked["zero_stage"] = int(os.environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"])
    elif parse_flag_from_env("ACCELERATE_USE_FSDP"):
        asked["distributed_type"] = DistributedType.FSDP.value
        if "FSDP_VERSION" in os.environ:
            asked["fsdp_version"] = int(os.environ["FSDP_VERSION"])
    return asked


def asked_engine() -> str:
    """The name of the engine that the launcher was asked for."""
    devices = {
        "optimizer": os.environ.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none"),
        "parameters": os.environ.get("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "none"),
    }
    return engine_name({**asked_of_the_launcher(), "offload": _offloaded(devices)})


def _offloaded(devices: dict[str, str]) -> str | None:
    """What is offloaded: `_offloaded({"optimizer": "cpu", "parameters": "none"}) == "optimizer"`"""
    return " and ".join(name for name, device in devices.items() if device != "none") or None


def engine_name(engine: dict[str, Any]) -> str:
    """Name it "one process", "DDP", "ZeRO-3, optimizer and parameters offloaded" or "FSDP2"."""
    kind = engine.get("distributed_type")
    if kind == DistributedType.DEEPSPEED.value:
        offload = f", {engine['offload']} offloaded" if engine.get("offload") else ""
        return f"ZeRO-{engine.get('zero_stage', '?')}{offload}"
    if kind == DistributedType.FSDP.value:
        return f"FSDP{engine.get('fsdp_version') or ''}"
    return "DDP" if engine["world_size"] > 1 else "one process"


def engine(trainer: GRPOTrainer) -> dict[str, Any]:
    """The engine in use, read from the trainer, by accelerate's names.

    Such as `{"distributed_type": "DEEPSPEED", "zero_stage": 3, "share_held": 0.5, ...}`, where this
    rank keeps half of the parameters.
    """
    accelerator, deepspeed, offload = trainer.accelerator, trainer.deepspeed, None
    if deepspeed:
        configs = {
            "optimizer": deepspeed.zero_offload_optimizer(),
            "parameters": deepspeed.zero_offload_param(),
        }
        devices = {name: getattr(config, "device", "none") for name, config in configs.items()}
        offload = _offloaded(devices)  # texts: DeepSpeed's enum is a text, too
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    return {
        "distributed_type": accelerator.distributed_type.value,
        "zero_stage": deepspeed.zero_optimization_stage() if deepspeed else None,
        "offload": offload,
        "fsdp_version": getattr(fsdp, "fsdp_version", None),
        "share_held": share_held(trainer.model.parameters()),
        "world_size": accelerator.num_processes,
        "mixed_precision": accelerator.mixed_precision,
        "device": accelerator.device.type,
    }


def share_held(parameters: Iterable[torch.nn.Parameter]) -> float:
    """The share of the parameters that this rank keeps between steps: 1.0 if it has them whole."""
    held = whole = 0
    for parameter in parameters:
        if hasattr(parameter, "ds_tensor"):  # ZeRO-3
            held += parameter.ds_tensor.numel()
            whole += parameter.ds_numel
        else:
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # FSDP
            held += local.numel()
            whole += parameter.numel()
    return round(held / whole, 3)


def check_engine(in_force: dict[str, Any]) -> None:
    """Raise ValueError that lists each difference from the requested engine.

    `in_force` has some or all of the entries of `engine()`; only these are compared.
    """
    wrong = [
        f"{name}: asked for {value}, in force is {in_force[name]}"
        for name, value in asked_of_the_launcher().items()
        if name in in_force and value != in_force[name]
    ]
    if wrong:
        raise ValueError(
            f"the engine is not the one the launcher was asked for ({'; '.join(wrong)}). On a "
            "CPU, DeepSpeed needs `use_cpu: false` in the launch file, DS_ACCELERATOR=cpu in the "
            "environment and --use_cpu true for the recipe; FSDP needs an accelerator."
        )


def engine_line(in_force: dict[str, Any]) -> str:
    """The result of `engine()` as a line: `"Engine: ZeRO-2, 2 processes, cpu, bf16."`"""
    parts = [engine_name(in_force)]
    if in_force["world_size"] > 1:
        parts.append(f"{in_force['world_size']} processes")
    precision = in_force["mixed_precision"].replace("no", "no mixed precision")
    return f"Engine: {', '.join([*parts, in_force['device'], precision])}."


class EngineCallback(TrainerCallback):
    """Print the engine in use; stop every rank if it is not the requested engine."""

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Check the engine here: before, it has not wrapped the model and the optimizer yet."""
        in_force = engine(self.trainer)
        if state.is_world_process_zero:
            print(engine_line(in_force), flush=True)
        check_engine(in_force)
        # Apply `ddp_timeout` to every process group, also to the groups that DeepSpeed made.
        if torch.distributed.is_initialized():
            for group in list(distributed_c10d._world.pg_map):
                distributed_c10d._set_pg_timeout(timedelta(seconds=args.ddp_timeout), group)
