"""Checks of how a run is launched and of TRL's settings, by building what TRL builds of them."""

import contextlib
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml
from datasets import Dataset, IterableDataset
from transformers import Trainer, get_scheduler
from transformers.integrations import get_reporting_integration_callbacks
from transformers.quantizers import AutoHfQuantizer
from trl import ModelConfig, get_peft_config, get_quantization_config

from recipes.common.limits import check_generation
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.callbacks import generation_period
from recipes.common.training.engine import asked_engine, check_engine, world_size
from recipes.common.training.tools import tools_of
from recipes.common.training.vllm import notes_on_vllm
from recipes.common.utils.problems import collect_errors
from recipes.common.utils.screen import OF_A_LAUNCHER, announce
from recipes.common.utils.secrets import hide_secrets

# Names that leave this machine, or that others see on it.
PUBLIC_NAMES = ("run_name", "project", "hub_model_id", "hub_revision", "output_dir", "logging_dir")
PUBLIC_VARIABLES = ("WANDB_NAME", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_NOTES", "WANDB_TAGS")

# --- How it is launched


def check_processes() -> list[str]:
    """A problem if WORLD_SIZE is left over in the environment: the run would wait for ever."""
    lacking = [name for name in OF_A_LAUNCHER if name not in os.environ]
    if world_size() == 1 or not lacking:
        return []
    return [
        f"WORLD_SIZE is {world_size()} in the environment, but no launcher set "
        f"{', '.join(lacking)}: the run would wait for processes that nobody started. Use "
        "accelerate launch, or unset WORLD_SIZE."
    ]


def check_launch_file() -> list[str]:
    """Problems of a launch that accelerate would silently run in another way.

    The launch file is read from the command line of the launcher, which started this process.
    """
    problems = []
    parent = psutil.Process().parent()
    words = parent.cmdline() if parent else []
    options = dict(pairwise(words)) | dict(word.split("=", 1) for word in words if "=" in word)
    launch: Any = {}
    if file := options.get("--config_file"):
        with contextlib.suppress(OSError, yaml.YAMLError):  # accelerate cannot read it either
            launch = yaml.safe_load(Path(file).read_text()) or {}
    kind = str(launch.get("distributed_type") or "NO").upper()  # YAML reads NO as False
    if kind == "DEEPSPEED" and (launch.get("use_cpu") or "--cpu" in words):
        problems.append(
            "the launch file asks for DeepSpeed and for the CPU (use_cpu: true, or --cpu), and "
            "accelerate may run DDP instead. Set use_cpu: false; on a CPU export "
            "DS_ACCELERATOR=cpu and give --use_cpu true to the recipe."
        )
    if kind == "MULTI_CPU" and "WORLD_SIZE" not in os.environ:
        problems.append(
            "the launch file says MULTI_CPU, for which accelerate starts one process only. Say "
            "MULTI_GPU and give --use_cpu true to the recipe, as in "
            "accelerate_configs/cpu_2proc.yaml."
        )
    return problems


# --- What TRL and transformers make of the settings


def build(args: Arguments) -> tuple[ModelConfig | None, GRPOConfig | None]:
    """Build TRL's dataclasses and what is made of them; None for one whose settings are wrong.

    What they raise joins the problems of `args`.
    """
    training, problems = args.training, args.problems
    if asked_engine().startswith("ZeRO"):
        if problems:
            return None, None
    elif world_size() > 1:
        announce(f"Waiting for the other processes: WORLD_SIZE is {world_size()} ...")
    # Without an accelerator `GRPOConfig` needs use_cpu; the report names the device.
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    training["use_cpu"] = bool(
        training["use_cpu"] or on_cpu or not torch.accelerator.is_available()
    )
    if args.validates:  # TRL would evaluate whole groups; we evaluate one completion a row
        training["num_generations_eval"] = training["num_generations_eval"] or 1
    model = config = None
    with collect_errors(problems):
        tools_of(training)
    with collect_errors(problems, "the model and LoRA settings"):
        model = ModelConfig(**args.model)
        get_peft_config(model)
    with collect_errors(problems, "the training settings"):
        config = GRPOConfig(**training)
        check_engine({"world_size": config.world_size})
    with collect_errors(problems, "generation_kwargs"):
        check_generation(training["generation_kwargs"] or {}, training["use_vllm"])
    if config and model:
        with collect_errors(problems, "what the settings need"):
            build_parts(config, model)
        if config.use_vllm:
            with collect_errors(problems, "use_vllm"):
                args.notes += notes_on_vllm(config, model.dtype)
    return model, config


def build_parts(training: GRPOConfig, model: ModelConfig) -> None:
    """Build trackers, quantizer, optimizer and schedule; they would raise after the model loads."""
    for tracker in get_reporting_integration_callbacks(training.report_to):
        tracker()
    if config := get_quantization_config(model):
        AutoHfQuantizer.from_config(config).validate_environment(device_map=None)
    optimizer_type, settings = torch.optim.SGD, {}
    if training.optim_target_modules is None and "lomo" not in training.optim.value:
        # The other optimizers need a model.
        optimizer_type, settings = Trainer.get_optimizer_cls_and_kwargs(training)
    optimizer = optimizer_type([torch.nn.Parameter(torch.zeros(1))], **settings)
    steps = max(training.max_steps, 1)
    warmup, more = training.get_warmup_steps(steps), training.lr_scheduler_kwargs
    get_scheduler(training.lr_scheduler_type, optimizer, warmup, steps, more)


def check_batch(training: GRPOConfig, rows: Dataset | IterableDataset | None) -> list[str]:
    """Problems: rows too few for a generation, or a checkpoint that would fall within one.

    TRL cannot resume in the middle of a generation (the rollouts that several steps share).
    """
    problems = []
    prompts = training.generation_batch_size // training.num_generations
    if isinstance(rows, Dataset) and len(rows) < prompts:
        problems.append(
            f"the training rows are fewer than the {prompts} prompts of one generation."
        )
    if isinstance(rows, IterableDataset) and training.max_steps < 1:
        problems.append("streamed data has no length: set max_steps.")
    accumulation, steps = training.gradient_accumulation_steps, training.steps_per_generation
    period = generation_period(accumulation, steps, training.num_iterations)
    saved_every = training.save_steps if training.save_strategy == "steps" else None
    if period is None:
        problems.append(
            f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x "
            f"num_iterations ({steps} x {training.num_iterations}) do not divide one another, so "
            "no optimizer step ends a generation and the run could never be resumed. Make one a "
            "multiple of the other."
        )
    elif saved_every is not None and (saved_every < 1 or saved_every % period):
        problems.append(
            f"save_steps={saved_every:g} would save in the middle of a generation, which TRL "
            f"cannot resume: set it to a multiple of {period}."
        )
    return problems


def check_public_names(training: dict[str, Any]) -> list[str]:
    """A problem for each name with a secret in it that trackers, the Hub or folders show."""
    names = {name: training.get(name) for name in PUBLIC_NAMES}
    names |= {name: os.environ.get(name) for name in PUBLIC_VARIABLES}
    return [
        f"{name} holds a token, a key or a password ({hide_secrets(value)}), and others see this "
        "name: take the secret out, and make a new one where the name was used before."
        for name, value in names.items()
        if isinstance(value, str) and hide_secrets(value) != value
    ]
