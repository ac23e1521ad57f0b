"""Preflight: may this run start? Before any weight is loaded, it checks the settings, the rows, the
rewards, the model and its tokenizer.

Every problem joins one list, `args.problems`, also an error raised by a library or a user's code.
So all problems are reported at once, and no input ends in a traceback. Preflight does not check
whether the model will learn.
"""

import json
import os
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import wandb
from accelerate.utils import gather_object, parse_flag_from_env
from datasets import Dataset, IterableDataset
from transformers import Trainer, get_scheduler
from transformers.integrations import get_reporting_integration_callbacks
from transformers.quantizers import AutoHfQuantizer
from trl import ModelConfig, get_peft_config, get_quantization_config

from recipes.common.checks.launch import check_launch, notes_on_gpus
from recipes.common.checks.model import check_model
from recipes.common.checks.rewards_on_rows import check_rewards
from recipes.common.checks.run_folder import check_output_dir
from recipes.common.data.split import first_rows
from recipes.common.limits import check_combinations, check_generation
from recipes.common.settings import Arguments, RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.callbacks import generation_period
from recipes.common.training.engine import asked_engine, check_engine, world_size
from recipes.common.training.tools import check_tools
from recipes.common.training.vllm import notes_on_vllm
from recipes.common.utils.problems import collect_errors
from recipes.common.utils.screen import announce, is_main
from recipes.common.utils.secrets import hide_secrets, is_secret
from recipes.common.utils.stats import power_line
from recipes.common.utils.tables import format_table
from rewards.boundary import starting
from rewards.contract import UNDECLARED, Reward
from rewards.text import completion_text, question_of

SHOWN_ROWS = 5
FORMAT_MARKS = ("####", "\\boxed", "<answer>", "Answer:")


@dataclass
class Preflight:
    """The parts of a run; a part that could not be loaded or built is None or empty."""

    args: Arguments
    rewards: list[Reward]
    train_rows: Dataset | IterableDataset | None
    eval_rows: Dataset | None  # held out
    validation_rows: Dataset | None
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
        check_launch()
        result.model, result.training = build(args)
    settings = {**vars(args.recipe), **args.training, **args.model}
    with collect_errors(problems):
        problems += check_combinations(settings)
    with collect_errors(problems, "output_dir"):
        check_output_dir(settings)
    with collect_errors(problems):
        result.rows = first_rows(train_rows)
    with collect_errors(problems):
        problems += check_tools(args.training, result.rows)
    held_out = eval_rows.to_list() if eval_rows else []
    validation = validation_rows.to_list() if validation_rows else []
    with collect_errors(problems):
        if result.training:
            problems += check_batch(result.training, train_rows)
            prepare_rewards(result)
        result.lines = check_rewards(
            args,
            result.rows + validation,
            held_out,
            result.rewards,
            reference_completion,
            is_stream=isinstance(train_rows, IterableDataset),
        )
    with collect_errors(problems, f"model_name_or_path {args.model['model_name_or_path']!r}"):
        check_model(args, result.rows + validation, reference_completion)
    with collect_errors(problems):
        if not problems:
            args.notes += format_notes(result.rows[:1], reference_completion)
    add_notes(result, held_out, validation)
    if result.training:  # all ranks start or none, and none downloads what another still looks for
        problems[:] = dict.fromkeys(gather_object(problems))
    return result


# --- The settings


def build(args: Arguments) -> tuple[ModelConfig | None, GRPOConfig | None]:
    """Build TRL's dataclasses and what is made of them; None for one whose settings are wrong.

    What they raise joins the problems of `args`.
    """
    training, problems = args.training, args.problems
    # Without an accelerator `GRPOConfig` needs use_cpu; the report names the device.
    on_cpu = training["use_cpu"] or parse_flag_from_env("ACCELERATE_USE_CPU")
    args.notes += notes_on_gpus(on_cpu)
    training["use_cpu"] = bool(on_cpu or not torch.accelerator.is_available())
    started, devices = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.accelerator.device_count()
    if started > devices and not training["use_cpu"]:  # accelerate would put two on one
        raise ValueError(
            f"{started} processes were started on this machine, and {devices} GPUs are visible: "
            "start one for each GPU, by accelerate launch --num_processes, or give --use_cpu true "
            "to the recipe."
        )
    if world_size() > 1:  # also with problems, which the others may not have: see `preflight`
        announce(f"Waiting for the other processes: WORLD_SIZE is {world_size()} ...")
        waits = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in os.environ
        if "TORCHELASTIC_RUN_ID" in os.environ and not (waits or training["use_cpu"]):
            args.notes.append(
                "Ctrl-C: 30 seconds later the launcher kills what has not saved. Before the "
                "launch, export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600"
            )
    elif problems and asked_engine().startswith("ZeRO"):
        return None, None  # GRPOConfig would start DeepSpeed, which may compile for minutes
    if args.validates:  # TRL would evaluate whole groups; we evaluate one completion a row
        training["num_generations_eval"] = training["num_generations_eval"] or 1
    model = config = None
    with collect_errors(problems, "the model and LoRA settings"):
        model = ModelConfig(**args.model)
        get_peft_config(model)
    with collect_errors(problems, "the training settings"):
        config = GRPOConfig(**training)
        if config.n_gpu > 1:
            raise ValueError(
                f"{config.n_gpu} GPUs are visible to one process, and TRL trains on one: start it "
                "by accelerate launch, or set CUDA_VISIBLE_DEVICES=0."
            )
        check_engine({"world_size": config.world_size})
    if config and model:
        with collect_errors(problems, "what the settings need"):
            build_parts(config, model)
        with collect_errors(problems, "report_to"):
            if "wandb" in config.report_to and is_main() and not args.recipe.dry_run:
                log_in()
        with collect_errors(problems, "use_vllm"):
            args.notes += notes_on_vllm(config, model.dtype) if config.use_vllm else []
    with collect_errors(problems, "generation_kwargs"):
        if training["generation_kwargs"] and not training["use_vllm"]:
            check_generation(training["generation_kwargs"])
    return model, config


def log_in() -> None:
    """Ask for the key of W&B on a terminal; elsewhere raise UsageError if there is none."""
    try:
        if wandb.setup().settings.mode == "online":
            wandb.login(verify=False)
            # A terminal can choose offline, which the teardown below would forget.
            os.environ["WANDB_MODE"] = wandb.setup().settings.mode
    finally:
        wandb.teardown()  # W&B reads the environment once, and the run still changes it


def build_parts(training: GRPOConfig, model: ModelConfig) -> None:
    """Build trackers, quantizer, optimizer and schedule: they would raise after the model loads."""
    for tracker in get_reporting_integration_callbacks(training.report_to):
        tracker()
    dtype = "bfloat16" if model.dtype == "fastest" else model.dtype
    if config := get_quantization_config(replace(model, dtype=dtype)):
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
    elif saved_every is not None and saved_every < 1:
        problems.append(f"save_steps is {saved_every:g}: set it to at least 1, in whole steps.")
    elif saved_every is not None and saved_every % period:
        problems.append(
            f"save_steps={saved_every:g} would save in the middle of a generation, which TRL "
            f"cannot resume: set it to a multiple of {period}."
        )
    return problems


# --- Rewards that get ready, and notes


def prepare_rewards(result: Preflight) -> None:
    """Call `prepare` of the rewards that have it, such as code rewards, for their sandbox."""
    training, args = result.training, result.args
    completions = training.generation_batch_size // training.world_size  # TRL: no remainder
    for reward in result.rewards:
        if reward.prepare is not None:
            title = f"reward {reward.name!r}"
            with collect_errors(args.problems, title), starting(f"{title} to prepare"):
                if note := reward.prepare(completions, training.reward_timeout_s):
                    args.notes.append(f"{reward.name}: {note}")


def format_notes(rows: list[dict], reference_completion: Callable[[dict], Any]) -> list[str]:
    """Notes on a format that a question asks for and its reference answer does not have."""
    return [
        f"the first question holds {mark!r}, which its reference answer does not: if it asks for "
        "that format, no reward pays it. Name a column without instructions, or change the prompt"
        for row in rows
        if (answer := reference_completion(row))
        for mark in FORMAT_MARKS
        if mark in question_of(row["prompt"]) and mark not in completion_text(answer)
    ]


def add_notes(result: Preflight, held_out: list[dict], validation: list[dict]) -> None:
    """Add notes: what is not checked, which rows are evaluated, and which change they can show."""
    args, notes = result.args, result.args.notes
    for reward in result.rewards:
        if reward.kind == UNDECLARED or (reward.kind == "verifier" and reward.full is None):
            notes.append(
                f"{reward.name}: it is not checked that a right answer earns its full score; write "
                f'below it {reward.name}.kind = "verifier" and {reward.name}.full = that score'
            )
        if reward.kind == "model":
            notes.append(f"{reward.name}: a model, which neither preflight nor the cheat test call")
    if args.config_path and Path(args.config_path).with_name("train.py").is_file():
        words = shlex.join(["python", "scripts/audit_rewards.py", *hide_secrets(args.words)])
        notes.append(f"what each reward pays for each trick: {words}")
    if validation:
        when = "after each epoch"
        if args.training["eval_strategy"] == "steps":
            steps = args.training["eval_steps"] or args.training["logging_steps"]
            when = f"every {steps:g} steps"
        notes.append(
            f"validation: {len(validation)} rows of the training side, evaluated {when} and never "
            "trained on"
        )
    if held_out:
        notes.append(power_line(len(held_out)))


# --- The result


def resolved(
    recipe: RecipeArguments, training: dict[str, Any], model: dict[str, Any], name: str
) -> dict[str, Any]:
    """All settings of a run as plain data, without secrets, to compare a later start with them.

    `name` is the recipe's: the name of its folder.
    """
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
            asked = textwrap.shorten(question_of(row["prompt"]), 60, placeholder=" ...")
            lines.append(f"    {asked} -> {row['answer']!r:.60}")
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
