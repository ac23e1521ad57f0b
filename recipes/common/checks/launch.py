"""Checks of how a run is launched and of TRL's settings, by building what TRL builds of them."""

import contextlib
import importlib
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml
from datasets import Dataset, IterableDataset
from huggingface_hub import get_token
from requests.utils import get_netrc_auth
from transformers import Trainer, get_scheduler
from transformers.integrations import get_reporting_integration_callbacks
from transformers.quantizers import AutoHfQuantizer
from trl import ModelConfig, get_peft_config, get_quantization_config

from recipes.common.limits import check_generation
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.callbacks import generation_period
from recipes.common.training.engine import announce_compiles, asked_engine, check_engine, world_size
from recipes.common.training.tools import tools_of
from recipes.common.training.vllm import notes_on_vllm
from recipes.common.utils.problems import collect_errors, true_messages
from recipes.common.utils.screen import OF_A_LAUNCHER, announce
from recipes.common.utils.secrets import hide_secrets

WHOLE_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "FSDP_VERSION")
WHOLE_NUMBERS += ("ACCELERATE_DEEPSPEED_ZERO_STAGE",)
# Names that leave this machine, or that others see on it.
PUBLIC_NAMES = ("run_name", "project", "hub_model_id", "hub_revision", "output_dir", "logging_dir")
PUBLIC_VARIABLES = ("WANDB_NAME", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_NOTES", "WANDB_TAGS")


# --- How it is launched


def check_processes() -> list[str]:
    """Problems of a launcher's variables, with which a run would wait for ever or print nothing."""
    env = os.environ
    wrong = [
        f"{name} is {env[name]!r} in the environment; it must be a whole number: unset it."
        for name in WHOLE_NUMBERS
        if name in env and not env[name].isdecimal()
    ]
    if wrong:
        return wrong
    rank, world = int(env.get("RANK", 0)), world_size()
    lacking = [name for name in OF_A_LAUNCHER if name not in env]
    table = {
        # Only the process of rank 0 prints.
        f"RANK is {rank} in the environment and WORLD_SIZE {world}: there is no process of that "
        "rank, and nothing would be printed: unset RANK and WORLD_SIZE.": rank >= world,
        f"WORLD_SIZE is {world} in the environment, but no launcher set {', '.join(lacking)}: the "
        "run would wait for processes that nobody started. Use accelerate launch, or unset "
        "WORLD_SIZE.": world > 1 and lacking,
    }
    return true_messages(table)


def check_launch_file(args: Arguments) -> list[str]:
    """Problems of a launch that accelerate would silently run in another way."""
    fsdp = args.training["fsdp"]
    parent = psutil.Process().parent()
    words = parent.cmdline() if parent else []
    options = dict(pairwise(words)) | dict(word.split("=", 1) for word in words if "=" in word)
    launch: Any = {}
    if file := options.get("--config_file"):
        with contextlib.suppress(OSError, yaml.YAMLError):  # accelerate cannot read it either
            launch = yaml.safe_load(Path(file).read_text()) or {}
    kind = str(launch.get("distributed_type") or "NO").upper()  # YAML reads NO as False
    on_cpu = launch.get("use_cpu") or "--cpu" in words
    table = {
        f"fsdp is {fsdp!r}, but this launch is {asked_engine()}: give accelerate launch "
        "--config_file accelerate_configs/fsdp2.yaml, and leave fsdp out.": (
            fsdp and not asked_engine().startswith("FSDP")
        ),
        "the launch file asks for DeepSpeed and for the CPU (use_cpu: true, or --cpu), and "
        "accelerate may run DDP instead. Set use_cpu: false; on a CPU export "
        "DS_ACCELERATOR=cpu and give --use_cpu true to the recipe.": (
            kind == "DEEPSPEED" and on_cpu
        ),
        "the launch file says MULTI_CPU, for which accelerate starts one process only. Say "
        "MULTI_GPU and give --use_cpu true to the recipe, as in "
        "accelerate_configs/cpu_2proc.yaml.": (
            kind == "MULTI_CPU" and "WORLD_SIZE" not in os.environ
        ),
    }
    return true_messages(table)


# --- What TRL and transformers make of the settings


def build(args: Arguments) -> tuple[ModelConfig | None, GRPOConfig | None]:
    """Build TRL's dataclasses and what is made of them; None for one whose settings are wrong.

    What they raise joins the problems of `args`.
    """
    training, problems = args.training, args.problems
    if asked_engine().startswith("ZeRO"):
        if problems:
            return None, None
        announce_compiles()
    elif world_size() > 1:
        announce(f"Waiting for the other processes: WORLD_SIZE is {world_size()} ...")
    # Without an accelerator `GRPOConfig` needs use_cpu; the report names the device.
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    on_cpu = training["use_cpu"] or on_cpu or not torch.accelerator.is_available()
    training["use_cpu"] = bool(on_cpu)
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
        check_packages(config, model, problems)
        problems += check_accounts(config)
        if config.use_vllm:
            with collect_errors(problems, "use_vllm"):
                args.notes += notes_on_vllm(config, model.dtype)
        with collect_errors(problems, "optim, optim_args and lr_scheduler"):
            build_optimizer(config)
    return model, config


def build_optimizer(training: GRPOConfig) -> None:
    """Build the optimizer, for one weight, and the schedule, so that bad settings raise here."""
    optimizer_type, settings = torch.optim.SGD, {}
    if training.optim_target_modules is None and "lomo" not in training.optim.value:
        # Without a model, which the other optimizers need.
        optimizer_type, settings = Trainer.get_optimizer_cls_and_kwargs(training)
    steps = max(training.max_steps, 1)
    get_scheduler(
        training.lr_scheduler_type,
        optimizer_type([torch.nn.Parameter(torch.zeros(1))], **settings),
        training.get_warmup_steps(steps),
        steps,
        training.lr_scheduler_kwargs,
    )


def check_packages(training: GRPOConfig, model: ModelConfig, problems: list[str]) -> None:
    """Import the packages that the settings need; add a problem for each that fails."""
    if training.use_liger_kernel:
        with collect_errors(problems, "use_liger_kernel"):
            importlib.import_module("liger_kernel")
    with collect_errors(problems, "load_in_4bit, load_in_8bit"):
        if config := get_quantization_config(model):
            AutoHfQuantizer.from_config(config).validate_environment(device_map=None)
    with collect_errors(problems, "report_to"):
        for tracker in get_reporting_integration_callbacks(training.report_to):
            tracker()


def check_accounts(training: GRPOConfig) -> list[str]:
    """Problems of a run that uses W&B or the Hub without a login: it would fail only later.

    For W&B this reads what W&B reads: the offline mode, the environment's key, and .netrc.
    """
    env, uses_wandb = os.environ, "wandb" in training.report_to
    has_key = (
        env.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
        or env.get("WANDB_DISABLED", "").lower() in ("1", "true")
        or env.get("WANDB_API_KEY")
        or env.get("WANDB_IDENTITY_TOKEN_FILE")
        or get_netrc_auth(env.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    )
    table = {
        "report_to is wandb, and W&B has no key: run `wandb login`, set WANDB_MODE=offline, or "
        "give --report_to none.": uses_wandb and not has_key,
        "push_to_hub is set, and nobody is logged in to the Hub: run `hf auth login`, or set "
        "HF_TOKEN.": training.push_to_hub and not (training.hub_token or get_token()),
    }
    return true_messages(table)


def check_batch(training: GRPOConfig, rows: Dataset | IterableDataset | None) -> list[str]:
    """Problems: rows too few for a generation, or a checkpoint that would fall within one.

    TRL cannot resume in the middle of a generation (the rollouts that several steps share).
    """
    prompts = training.generation_batch_size // training.num_generations
    accumulation, steps = training.gradient_accumulation_steps, training.steps_per_generation
    period = generation_period(accumulation, steps, training.num_iterations)
    saves = period is not None and training.save_strategy == "steps"
    table = {
        f"the training rows are fewer than the {prompts} prompts of one generation.": (
            isinstance(rows, Dataset) and len(rows) < prompts
        ),
        "streamed data has no length: set max_steps.": (
            isinstance(rows, IterableDataset) and training.max_steps < 1
        ),
        f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x num_iterations "
        f"({steps} x {training.num_iterations}) do not divide one another, so no optimizer step "
        "ends a generation and the run could never be resumed. Make one a multiple of the other.": (
            period is None
        ),
        f"save_steps={training.save_steps:g} would save in the middle of a generation, which TRL "
        f"cannot resume: set it to a multiple of {period}.": (
            saves and (training.save_steps < 1 or training.save_steps % period)
        ),
    }
    return true_messages(table)


# --- Names and folders


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


def check_folder(args: Arguments) -> None:
    """Raise ValueError if the output folder is that of the model or data, or cannot be written."""
    folder = Path(args.training["output_dir"] or "trainer_output").absolute()
    taken = {"model": args.model["model_name_or_path"], "data": args.recipe.dataset_path}
    for what, other in taken.items():
        if other and Path(other).is_dir() and folder == Path(other).absolute():
            raise ValueError(f"it is the folder of the {what}: give one of its own.")
    above = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    if not above.is_dir():
        raise ValueError(f"{above} is a file: give another folder.")
    try:
        with tempfile.TemporaryDirectory(dir=above) as beside:
            Path(beside, folder.relative_to(above)).mkdir(parents=True, exist_ok=True)
    except OSError as error:  # os.access would not do: for root it allows /proc
        raise ValueError(f"nothing can be written there: {error.strerror}.") from error
