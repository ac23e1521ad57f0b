"""Preflight: may this run start? Before any weight is loaded, it checks the settings, the rows, the
rewards, the model and its tokenizer, and the run's folder.

Every problem joins one list, `args.problems`, also an error raised by a library or a user's code.
So all problems are reported at once, and no input ends in a traceback. Preflight does not check
whether the model will learn.
"""

import contextlib
import importlib
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
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

from recipes.common.checks.model import open_model
from recipes.common.checks.rewards_on_rows import check_rewards
from recipes.common.data.split import first_rows
from recipes.common.limits import check_combinations, check_generation
from recipes.common.settings import Arguments, RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.callbacks import generation_period
from recipes.common.training.engine import announce_compiles, asked_engine, check_engine, world_size
from recipes.common.training.tools import tools_of
from recipes.common.training.vllm import notes_on_vllm
from recipes.common.utils.problems import collect_errors, true_messages
from recipes.common.utils.screen import OF_A_LAUNCHER, announce
from recipes.common.utils.secrets import hide_secrets, is_secret
from recipes.common.utils.stats import power_line
from recipes.common.utils.tables import format_table
from rewards.contract import UNDECLARED, Reward
from rewards.text import question_of

NUMBERS_OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "FSDP_VERSION")
NUMBERS_OF_A_LAUNCHER += ("ACCELERATE_DEEPSPEED_ZERO_STAGE",)
# Names that leave this machine, or that others see on it.
PUBLIC_NAMES = ("run_name", "project", "hub_model_id", "hub_revision", "output_dir", "logging_dir")
PUBLIC_VARIABLES = ("WANDB_NAME", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_NOTES", "WANDB_TAGS")
SHOWN_ROWS = 5


@dataclass
class Preflight:
    """The parts of a run; a part that could not be loaded or built is None or empty."""

    args: Arguments
    rewards: list[Reward] = field(default_factory=list)
    train_rows: Dataset | IterableDataset | None = None
    eval_rows: Dataset | None = None  # held out
    validation_rows: Dataset | None = None
    rows: list[dict] = field(default_factory=list)  # the training rows; the first rows of a stream
    lines: list[dict[str, Any]] = field(default_factory=list)  # the table of rewards
    training: GRPOConfig | None = None
    model: ModelConfig | None = None

    def record(self) -> dict[str, Any]:
        """The content of preflight.json."""
        return {"rewards": self.lines, "notes": self.args.notes}


def preflight(
    args: Arguments, parts: Sequence[Any], reference_completion: Callable[[dict], Any]
) -> Preflight:
    """Check a run by its settings and its loaded parts; add problems and notes to those of `args`.

    `parts` is the result of `load_parts`. `reference_completion` turns a row's own answer into a
    completion in the asked format, or returns None.
    """
    rewards, train_rows, eval_rows, validation_rows = parts
    result = Preflight(args, rewards or [], train_rows, eval_rows, validation_rows)
    problems = args.problems
    if not args.is_read:
        return result
    with collect_errors(problems, "the launch"):
        if check_launch(args, problems):
            build(result, problems)
    check_public_names(args.training, problems)
    with collect_errors(problems):
        problems += check_combinations({**vars(args.recipe), **args.training, **args.model})
    with collect_errors(problems):
        result.rows = first_rows(train_rows)
    held_out = eval_rows.to_list() if eval_rows else []
    validation = validation_rows.to_list() if validation_rows else []
    rows = result.rows + validation
    with collect_errors(problems):
        if result.training:
            check_batch(result.training, train_rows, problems)
            prepare(result, problems)
        is_stream = isinstance(train_rows, IterableDataset)
        result.lines = check_rewards(
            args, rows, held_out, result.rewards, reference_completion, is_stream
        )
    open_model(args, rows)
    with collect_errors(problems, f"output_dir {args.training['output_dir']!r}"):
        check_folder(args)
    add_notes(result, held_out, validation)
    return result


# --------------------------------------------------------------------------- settings


def build(result: Preflight, problems: list[str]) -> None:
    """Build TRL's dataclasses and what TRL makes of them; their errors become problems."""
    args, training = result.args, result.args.training
    if asked_engine().startswith("ZeRO"):
        if problems:
            return
        announce_compiles()
    # Without an accelerator `GRPOConfig` needs use_cpu; the report names the device.
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    on_cpu = training["use_cpu"] or on_cpu or not torch.accelerator.is_available()
    training["use_cpu"] = bool(on_cpu)
    if args.validates:  # TRL would evaluate whole groups; we evaluate one completion a row
        training["num_generations_eval"] = training["num_generations_eval"] or 1
    with collect_errors(problems):
        tools_of(training)
    with collect_errors(problems, "the model and LoRA settings"):
        result.model = ModelConfig(**args.model)
        get_peft_config(result.model)
    with collect_errors(problems, "the training settings"):
        result.training = GRPOConfig(**training)
        check_engine({"world_size": result.training.world_size})
    with collect_errors(problems, "generation_kwargs"):
        check_generation(training["generation_kwargs"] or {}, training["use_vllm"])
    if result.training and result.model:
        check_packages(result.training, result.model, problems)
        check_accounts(result.training, problems)
        if result.training.use_vllm:
            with collect_errors(problems, "use_vllm"):
                args.notes += notes_on_vllm(result.training, result.model.dtype)
        with collect_errors(problems, "optim, optim_args and lr_scheduler"):
            build_optimizer(result.training)


def build_optimizer(training: GRPOConfig) -> None:
    """Build the optimizer, for one weight, and the schedule, so that bad settings raise here."""
    weights, steps = [torch.nn.Parameter(torch.zeros(1))], max(training.max_steps, 1)
    kind, settings = torch.optim.SGD, {}
    if training.optim_target_modules is None and "lomo" not in training.optim.value:
        kind, settings = Trainer.get_optimizer_cls_and_kwargs(training)  # needs no model
    schedule, kwargs = training.lr_scheduler_type, training.lr_scheduler_kwargs
    get_scheduler(
        schedule, kind(weights, **settings), training.get_warmup_steps(steps), steps, kwargs
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


def check_accounts(training: GRPOConfig, problems: list[str]) -> None:
    """Add a problem if a run uses W&B or the Hub without a login: it would fail only later.

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
    problems += true_messages(table)


def check_public_names(training: dict[str, Any], problems: list[str]) -> None:
    """Add a problem for each name with a secret in it that trackers, the Hub or folders show."""
    names = {name: training.get(name) for name in PUBLIC_NAMES}
    names |= {name: os.environ.get(name) for name in PUBLIC_VARIABLES}
    problems += [
        f"{name} holds a token, a key or a password ({hide_secrets(value)}), and others see this "
        "name: take the secret out, and make a new one where the name was used before."
        for name, value in names.items()
        if isinstance(value, str) and hide_secrets(value) != value
    ]


def check_launch(args: Arguments, problems: list[str]) -> bool:
    """Whether this launch can start; adds a problem for one that accelerate would run otherwise.

    It cannot start where it would wait for processes that nobody started.
    """
    wrong = [
        f"{name} is {os.environ[name]!r} in the environment; it must be a whole number: unset it."
        for name in NUMBERS_OF_A_LAUNCHER
        if name in os.environ and not os.environ[name].isdecimal()
    ]
    if wrong:
        problems += wrong
        return False
    rank, world, fsdp = int(os.environ.get("RANK", 0)), world_size(), args.training["fsdp"]
    lacking = [name for name in OF_A_LAUNCHER if name not in os.environ]
    is_alone = bool(rank >= world or (world > 1 and lacking))
    if world > 1 and "TORCHELASTIC_RUN_ID" not in os.environ and not is_alone:
        announce(f"WORLD_SIZE is {world}: waiting for the other processes ...")
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
        # Only the process of rank 0 prints.
        f"RANK is {rank} in the environment and WORLD_SIZE {world}: there is no process of that "
        "rank, and nothing would be printed: unset RANK and WORLD_SIZE.": rank >= world,
        f"WORLD_SIZE is {world} in the environment, but no launcher set {', '.join(lacking)}: the "
        "run would wait for processes that nobody started. Use accelerate launch, or unset "
        "WORLD_SIZE.": world > 1 and lacking,
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
    problems += true_messages(table)
    return not is_alone


def check_batch(t: GRPOConfig, rows: Dataset | IterableDataset | None, problems: list[str]) -> None:
    """Add a problem if rows are too few for a generation, or a checkpoint would fall within one.

    TRL cannot resume in the middle of a generation (the rollouts that several steps share).
    """
    prompts = t.generation_batch_size // t.num_generations
    accumulation, steps = t.gradient_accumulation_steps, t.steps_per_generation
    period = generation_period(accumulation, steps, t.num_iterations)
    saves = period is not None and t.save_strategy == "steps"
    table = {
        f"the training rows are fewer than the {prompts} prompts of one generation.": (
            isinstance(rows, Dataset) and len(rows) < prompts
        ),
        "streamed data has no length: set max_steps.": (
            isinstance(rows, IterableDataset) and t.max_steps < 1
        ),
        f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x num_iterations "
        f"({steps} x {t.num_iterations}) do not divide one another, so no optimizer step ends a "
        "generation and the run could never be resumed. Make one a multiple of the other.": (
            period is None
        ),
        f"save_steps={t.save_steps:g} would save in the middle of a generation, which TRL cannot "
        f"resume: set it to a multiple of {period}.": (
            saves and (t.save_steps < 1 or t.save_steps % period)
        ),
    }
    problems += true_messages(table)


# --------------------------------------------------------------------------- the run's parts


def prepare(result: Preflight, problems: list[str]) -> None:
    """Call `prepare` of the rewards that have it, such as code rewards, for their sandbox."""
    training, notes = result.training, result.args.notes
    completions = -(-training.generation_batch_size // training.world_size)  # per process
    for reward in result.rewards:
        if reward.prepare is not None:
            with collect_errors(problems, f"reward {reward.name!r}"):
                note = reward.prepare(completions, training.reward_timeout_s)
                notes += [f"{reward.name}: {note}"] if note else []


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


# --------------------------------------------------------------------------- what is said


def add_notes(result: Preflight, held_out: list[dict], validation: list[dict]) -> None:
    """Add notes: what is not checked, which rows are evaluated, and which change they can show."""
    args, notes = result.args, result.args.notes
    for kind, words in (
        (UNDECLARED, "undeclared, so that no promise is checked; set .kind and .full under it"),
        ("model", "of the kind model, which neither preflight nor the cheat test call"),
    ):
        if names := [reward.name for reward in result.rewards if reward.kind == kind]:
            notes.append(f"{', '.join(names)}: {words}")
    if args.config_path and Path(args.config_path).with_name("train.py").is_file():
        words = shlex.join(["python", "scripts/audit_rewards.py", *hide_secrets(args.words)])
        notes.append(f"what each reward pays for each trick: {words}")
    if validation:
        steps = args.training["eval_steps"] or args.training["logging_steps"]
        by_steps = args.training["eval_strategy"] == "steps"
        notes.append(
            f"validation: {len(validation)} rows of the training side, evaluated "
            f"{f'every {steps:g} steps' if by_steps else 'after each epoch'} and never trained on"
        )
    if held_out:
        notes.append(power_line(len(held_out)))


def resolved(
    recipe: RecipeArguments, training: dict[str, Any], model: dict[str, Any], name: str
) -> dict[str, Any]:
    """All settings of a run as plain data, without secrets, to compare a later start with them."""
    values = {"recipe": name, **asdict(recipe), **training, **model, "world_size": world_size()}
    public = {name: value for name, value in values.items() if not is_secret(name)}
    return hide_secrets(json.loads(json.dumps(public, default=str)))


def report(result: Preflight) -> str:
    """The text that preflight prints: rewards, notes, and either the problems or the batch."""
    args, training = result.args, result.training
    lines = [f"Preflight of {args.config_path or 'the command line'}"]
    if isinstance(result.train_rows, IterableDataset):
        lines.append(
            f"  streamed data: only its first {len(result.rows)} rows were checked, and a second "
            "pass is not resumed exactly"
        )
    if result.lines and hasattr(args.recipe, "answer_column"):  # rows that a recipe reads itself
        lines.append("  The first questions, and their answers as they are read:")
        for row in result.rows[:SHOWN_ROWS]:
            question = " ".join(question_of(row["prompt"]).split())
            lines.append(f"    {question:.60} -> {row['answer']!r:.60}")
    lines.append(format_table(result.lines) if result.lines else "  (no rows or rewards to check)")
    lines += [f"  {note}" for note in args.notes]
    problems = [line for problem in args.problems for line in problem.split("\n")]
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        lines.append(f"\n{count}; nothing was loaded and nothing was written:")
        return "\n".join([*lines, *(f"  - {problem}" for problem in problems)])
    world, group = training.world_size, training.num_generations
    batch = training.per_device_train_batch_size * world * training.gradient_accumulation_steps
    device = "CPU" if training.use_cpu else "accelerator"
    lines += [
        f"  {len(result.rows)} rows; an optimizer step learns from {batch} completions "
        f"({batch / group:g} prompt{'s' * (batch != group)} x {group}) on {world} {device} "
        f"process{'es' * (world > 1)}.",
        "  Everything checked is as it should be.\n",
    ]
    return "\n".join(lines)
