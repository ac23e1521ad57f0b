"""Preflight: problems that show before any weight is loaded, all of them at once.

A run that passes has rows with the columns that its rewards need, rewards that give the reference
answer their full amount and an empty completion nothing, and a batch that divides. Whether the
model will learn is not checked.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from trl import ModelConfig

from recipes.common.checks.batch import check_batch, completions_of_a_call
from recipes.common.checks.combinations import (
    check_accounts,
    check_launch_file,
    check_optimizer,
    check_settings,
)
from recipes.common.checks.model import check_model, check_reward_model
from recipes.common.checks.model_files import length_notes, model_folder
from recipes.common.checks.notes import (
    cost_notes,
    notes_on_rewards,
    notes_on_settings,
    only_rows_notes,
    shared_prompt_notes,
    validation_notes,
)
from recipes.common.checks.rewards_on_rows import (
    RewardLine,
    check_columns,
    check_every_reward_scores,
    check_every_task_is_scored,
    check_gates,
    reward_lines,
)
from recipes.common.data.overlap import check_duplicates, check_held_out
from recipes.common.data.recipe import check_reference
from recipes.common.data.split import first_rows
from recipes.common.settings import Arguments, RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine, check_engine, world_size
from recipes.common.training.tools import takes_environments, tools_of
from recipes.common.utils.problems import collected
from recipes.common.utils.screen import announce
from recipes.common.utils.secrets import blank, is_secret
from recipes.common.utils.stats import power_line
from recipes.common.utils.tables import format_table
from rewards import reward_name
from rewards.audit.audit import try_tricks
from rewards.contract import prepare_reward, reward_of


@dataclass
class Preflight:
    """Problems, the table of rewards, notes, and TRL's dataclasses where nothing is wrong."""

    problems: list[str]
    lines: list[RewardLine]
    notes: list[str]
    rows: list[dict] = field(repr=False)
    streamed: bool = False
    training: GRPOConfig | None = None
    model: ModelConfig | None = None

    def record(self) -> dict[str, Any]:
        """The content of preflight.json."""
        return {"rewards": [line.cells() for line in self.lines], "notes": self.notes}


def preflight(
    args: Arguments,
    train_rows: Dataset | IterableDataset | None,
    eval_rows: Dataset | None,
    rewards: list[Callable] | None,
    reference_completion: Callable[[dict], str | None],
    problems: list[str] | None = None,
    validation_rows: Dataset | None = None,
) -> Preflight:
    """Check arguments, rows and rewards together; build TRL's dataclasses when nothing is wrong.

    Rows and rewards that could not be loaded are None, and `problems` says why.
    `reference_completion` gives a row's own reference answer in the asked format, or None.
    """
    if not args.is_read:  # the rest would only be told to be missing
        return Preflight([*args.problems, *(problems or [])], [], args.notes, [])
    rows, rewards = first_rows(train_rows), rewards or []
    held_out = eval_rows.to_list() if eval_rows else []
    validation = validation_rows.to_list() if validation_rows else []
    seen, streamed = rows + validation, isinstance(train_rows, IterableDataset)
    ready, notes = _prepare_rewards(args, rewards)
    lines, row_problems = check_rows(args, seen, held_out, rewards, reference_completion, streamed)
    tools, unusable = [], []
    with collected(unusable):
        tools = tools_of(args.training)
    wrong_model, tokenizer = check_model(args.model, args.training, seen, tools)
    found = [
        *args.problems,
        *(problems or []),
        *check_batch(args.training, world_size(), train_rows),
        *check_settings(args, rewards),
        *ready,
        *row_problems,
        *wrong_model,
        *check_launch_file(),
        *check_accounts(args.training),
    ]
    for reward in map(reward_of, rewards):
        if isinstance(reward.call, str):
            found += check_reward_model(reward.call, args.training, seen)
    found += [each for each in unusable if each not in found]
    notes = [*args.notes, *notes, *notes_on_rewards(args, rewards)]
    if not check_columns([*seen, *held_out], bool(args.training["environment_factory"])):
        notes += cost_notes(args, rows, len(held_out), len(validation), rewards)
    notes += validation_notes(args, validation)
    notes += only_rows_notes(rows, held_out) if args.recipe.only_rows else []
    if held_out:
        notes.append(power_line(len(held_out), 0.25, "if a quarter of the rows change"))
    result = Preflight(found, lines, notes, rows, streamed)
    # Else TRL's dataclasses would report what is known already, one problem at a time.
    if not found:
        _build(args, result)
    if result.training is not None:
        if tokenizer is not None:
            asked = args.training["max_completion_length"]
            result.notes += length_notes(tokenizer, asked, rows, reference_completion)
        result.notes += notes_on_settings(result.training)
        model = model_folder(result.model.model_name_or_path, result.model.model_revision)
        result.notes += shared_prompt_notes(result.training, model)
    return result


def _build(args: Arguments, result: Preflight) -> None:
    """Build TRL's dataclasses; a refusal, or an engine that was not asked for, is a problem."""
    asked = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    # Without an accelerator `GRPOConfig` wants use_cpu; the report says which device it is.
    on_cpu = args.training["use_cpu"] or asked or not torch.accelerator.is_available()
    args.training["use_cpu"] = bool(on_cpu)
    if args.validates:  # TRL would ask for whole groups; an evaluation has one completion a row
        args.training["num_generations_eval"] = args.training["num_generations_eval"] or 1
    if asked_engine().startswith("ZeRO"):
        announce("Starting DeepSpeed, which compiles parts of itself at its first use: minutes ...")
    with collected(result.problems):
        model = ModelConfig(**args.model)
        training = GRPOConfig(**args.training)
        check_engine({"world_size": training.world_size})
        result.training, result.model = training, model
        result.problems += check_optimizer(training)


def _prepare_rewards(args: Arguments, rewards: list[Callable]) -> tuple[list[str], list[str]]:
    """Let rewards that need it get ready, such as code rewards their sandbox: problems, notes."""
    problems, notes = [], []
    completions = completions_of_a_call(args.training, world_size())
    for reward in rewards:
        try:
            note = prepare_reward(reward, completions, args.training["reward_timeout_s"])
            notes += [f"{reward_name(reward)}: {note}"] if note else []
        except ValueError as problem:
            problems.append(f"reward {reward_name(reward)!r}: {problem}")
    return problems, notes


def check_rows(
    args: Arguments,
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Callable],
    reference: Callable[[dict], str | None],
    streamed: bool = False,
) -> tuple[list[RewardLine], list[str]]:
    """Check training rows, whose lines are returned, and evaluation rows by the sound rewards."""
    has_environment = bool(args.training["environment_factory"])
    if problems := check_columns(rows, has_environment) or check_reference(rows, reference):
        return [], problems
    gates = check_gates(args.training["reward_gates"] or {}, rows, rewards)
    # Outside a rollout there are no environments.
    rewards = [reward for reward in rewards if not takes_environments(reward)]
    weights = args.training["reward_weights"] or []
    fitting = weights if len(weights) == len(rewards) else None
    lines = reward_lines(rows, rewards, fitting, reference)
    problems = [problem for line in lines for problem in line.problems]
    problems += [] if has_environment else check_every_task_is_scored(lines, rows)
    if not streamed:  # the tasks of a stream's later rows are not known
        problems += check_every_reward_scores(lines, rewards)
    problems += gates
    broken = {line.reward for line in lines if line.problems}
    sound = [reward for reward in rewards if reward_name(reward) not in broken]
    cheats = [try_tricks(reward_of(reward), rows, reference) for reward in sound]
    problems += [each.problem for each in cheats if each.problem]
    found = check_columns(eval_rows, has_environment)
    if not found:
        eval_lines = reward_lines(eval_rows, sound, None, reference)
        found = [problem for line in eval_lines for problem in line.problems]
        tasks = {row["task"] for row in rows}  # theirs are reported of the training rows
        others = [row for row in eval_rows if tasks and row["task"] not in tasks]
        found += check_every_task_is_scored(eval_lines, others)
        problems += check_held_out(rows, eval_rows, args.model["model_name_or_path"])
        problems += check_duplicates(rows, eval_rows)
    problems += [f"evaluation rows: {each}" for each in found if each not in problems]
    return lines, problems


def resolved(
    recipe: RecipeArguments, training: dict[str, Any], model: dict[str, Any], name: str
) -> dict[str, Any]:
    """Every value of the run as plain data, without secrets: a later start is compared with it."""
    values = {"recipe": name, **asdict(recipe), **training, **model, "world_size": world_size()}
    public = {name: value for name, value in values.items() if not is_secret(name)}
    return blank(json.loads(json.dumps(public, default=str)))


def report(result: Preflight, args: Arguments) -> str:
    """The text of preflight: the table of rewards, notes, and the problems or the batch."""
    lines = [f"Preflight of {args.config_path or 'the command line'}"]
    if result.streamed:
        seen = f"only its first {len(result.rows)} rows were checked"
        lines.append(f"  streamed data: {seen}, and a second pass is not resumed exactly")
    table = [line.cells() for line in result.lines]
    lines.append(format_table(table) if table else "  (no rows or rewards to check)")
    lines += [f"  {note}" for note in result.notes]
    problems = [line for problem in result.problems for line in problem.split("\n")]
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        lines.append(f"\n{count}; nothing was loaded and nothing was written:")
        return "\n".join([*lines, *(f"  - {problem}" for problem in problems)])
    training, world = args.training, world_size()
    per_device, group = training["per_device_train_batch_size"], training["num_generations"]
    batch = per_device * world * training["gradient_accumulation_steps"]
    device = "CPU" if training["use_cpu"] else "accelerator"
    return "\n".join(
        [
            *lines,
            f"  {len(result.rows)} rows; an optimizer step learns from {batch} completions "
            f"({batch / group:g} prompt{'s' * (batch != group)} x {group}) on {world} {device} "
            f"process{'es' * (world > 1)}.",
            "  Everything checked is as it should be.\n",
        ]
    )
