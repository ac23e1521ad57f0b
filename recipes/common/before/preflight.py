"""Preflight: what can be known to be wrong before any weight is loaded, all of it at once.

A run that passes has rows with the columns its rewards need, rewards that pay the reference answer in
full and an empty completion nothing, and a batch that divides. It says nothing of whether the model
will learn.
"""

import dataclasses
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from trl import GRPOConfig, ModelConfig

from recipes.common.before.arguments import Arguments, RecipeArguments
from recipes.common.before.batch import check_batch, completions_of_a_call
from recipes.common.before.loss import check_moving_reference, loss_notes
from recipes.common.before.only_rows import check_only_rows, only_rows_notes
from recipes.common.before.rows import Problem, check_gates, check_held_out, check_tasks, format_table, reward_table
from recipes.common.before.step_checks import check_step_rewards, step_notes
from recipes.common.during.engine import check_engine, check_launch_file, engine_ahead
from recipes.common.tools.machine import use_all_cores
from rewards import reward_name
from rewards.audit.audit import check_tricks
from rewards.contract import prepare_reward
from rewards.steps import SumOfSteps

STREAMED_ROWS = 1000


@dataclass
class Run:
    """A run that passed preflight: what the trainer call and the lifecycle need; `notes` are for the reader."""

    recipe: RecipeArguments
    training: GRPOConfig
    model: ModelConfig
    table: list[dict[str, Any]]
    notes: list[str]
    config: dict[str, Any]


def preflight(
    args: Arguments,
    train_rows: Dataset | IterableDataset | None,
    eval_rows: Dataset | None,
    rewards: list[Callable] | None,
    reference_completion: Callable[[dict], str | None],
    step_rewards: list[Callable] | None = None,
) -> Run:
    """Judge arguments, rows and rewards together; build TRL's dataclasses when nothing is wrong.

    Args:
        args: the arguments as read.
        train_rows, eval_rows: rows as the recipe made them; None where that failed (`args` holds why).
        rewards: the loaded rewards; None where that failed.
        reference_completion: row -> its own reference answer in the asked format, None where it has none.
        step_rewards: the loaded step rewards; judged by the sum that they pay a completion.

    Raises:
        SystemExit: status 2 with every problem, or status 0 after `--dry_run`.
    """
    rows = judged_rows(train_rows)
    whole = not isinstance(train_rows, IterableDataset)
    check_batch(args.training, _world_size(), train_rows, args.problems)
    _check_limits(args.recipe, args.problems)
    check_step_rewards(args, rewards or [], step_rewards)
    sums = [SumOfSteps(reward) for reward in step_rewards or []]
    _check_only_rows(args, rows, eval_rows)
    notes = [*args.notes, *_prepare_rewards(args, [*(rewards or []), *sums])]
    table = _check_rows(args, rows, eval_rows, rewards or [], reference_completion, whole, sums)
    _check_model(args.model, args.problems)
    check_moving_reference(args.training, args.model["use_peft"], args.problems)
    _check_example(args.recipe.example, args.problems)
    _check_aggregation(args)
    _choose_device(args.training)
    model = args.attempt(lambda: ModelConfig(**args.model))
    # Of what is wrong already GRPOConfig would speak in its own words, one problem at a time.
    training = None if args.problems else args.attempt(lambda: GRPOConfig(**args.training))
    if training is not None:
        notes += step_notes(rows, step_rewards or [], reference_completion)
        args.attempt(check_launch_file)
        args.attempt(check_engine, engine_ahead(training))
        notes += loss_notes(training)
    if int(os.environ.get("RANK", 0)) == 0:
        _print_report(table, notes, rows, train_rows, args)
    if args.problems:
        sys.exit(2)
    if args.recipe.dry_run:
        sys.exit(0)
    use_all_cores(training)
    _apply_model_arguments(training, model)
    if training.project != "huggingface":  # transformers reads W&B's project from the environment alone
        os.environ.setdefault("WANDB_PROJECT", training.project)
    return Run(args.recipe, training, model, table, notes, _resolved(args))


def judged_rows(train_rows: Dataset | IterableDataset | None) -> list[dict]:
    """All rows, or the first 1 000 of a stream."""
    if train_rows is None:
        return []
    if isinstance(train_rows, IterableDataset):
        return list(itertools.islice(train_rows, STREAMED_ROWS))
    return train_rows.to_list()


def _prepare_rewards(args: Arguments, rewards: list[Callable]) -> list[str]:
    """Let rewards that need it get ready, such as code rewards their sandbox; what they say of it."""
    notes = []
    completions = completions_of_a_call(args.training, _world_size()) or 0
    limit_s = args.recipe.reward_timeout_s if _is_number(args.recipe.reward_timeout_s) else math.inf
    for reward in rewards:
        try:
            said = prepare_reward(reward, completions, limit_s)
            notes += [f"{reward_name(reward)}: {said}"] if said else []
        except ValueError as problem:
            args.problems.append(f"reward {reward_name(reward)!r}: {problem}")
    return notes


def _check_rows(
    args: Arguments,
    rows: list[dict],
    eval_rows: Dataset | None,
    rewards: list[Callable],
    reference: Callable[[dict], str | None],
    whole: bool,
    sums: list[Callable],
) -> list[dict[str, Any]]:
    """Judge training and evaluation rows; the table is of the training rows. `sums` are the step rewards."""
    problems: list[Problem] = []
    table = reward_table(rows, rewards, args.training.get("reward_weights"), reference, problems)
    step_weights = args.recipe.step_reward_weights or []  # whose number is checked by now
    table += reward_table(rows, sums, step_weights if len(step_weights) == len(sums) else None, reference, problems)
    if whole:  # what stands later in a stream is not known
        check_tasks(rows, [*rewards, *sums], problems)
    check_gates(args.recipe.reward_gates or {}, rows, rewards, problems)
    check_tricks(rows, [*rewards, *sums], reference, problems)
    args.problems += [problem.text for problem in problems]
    if eval_rows:
        held_out: list[Problem] = []
        reward_table(eval_rows.to_list(), rewards, None, reference, held_out)
        blamed = {problem.subject for problem in problems}
        check_held_out(rows, eval_rows, held_out)
        args.problems += [f"evaluation rows: {text}" for subject, text in held_out if subject not in blamed]
    return table


def _check_only_rows(args: Arguments, rows: list[dict], eval_rows: Dataset | None) -> None:
    """Whether the recipe trains on the rows that the run names, and asks them as it asks the held-out ones."""
    if args.recipe.only_rows is not None:
        args.attempt(check_only_rows, Path(args.recipe.only_rows), rows, args.problems)
        args.notes += args.attempt(only_rows_notes, rows, eval_rows or []) or []


def _choose_device(training: dict[str, Any]) -> None:
    """Without an accelerator `GRPOConfig` wants to be told that the CPU is meant; the report says which it is."""
    asked = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    training["use_cpu"] = bool(training["use_cpu"] or asked or not torch.accelerator.is_available())


def _check_model(model: dict[str, Any], problems: list[str]) -> None:
    name = model.get("model_name_or_path")
    if not name:
        problems.append("model_name_or_path is missing: give a Hub id or the path of a checkpoint.")
    elif name.startswith((".", "/", "~", "models/")) and not os.path.isdir(name):
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        problems.append(f"model_name_or_path {name!r} is no folder.{hint}")


def _check_example(example: list[str], problems: list[str]) -> None:
    if len(example) not in (0, 2):
        problems.append(f"example has {len(example)} entries; give a question and its completion, or none.")


def _check_limits(recipe: RecipeArguments, problems: list[str]) -> None:
    rate, limit_s = recipe.max_reward_error_rate, recipe.reward_timeout_s
    if not (_is_number(rate) and 0.0 <= rate <= 1.0):
        problems.append(f"max_reward_error_rate is {rate}; it is a share, from 0 to 1.")
    if not (_is_number(limit_s) and limit_s > 0.0):
        problems.append(f"reward_timeout_s is {limit_s}; it must be more than 0 seconds.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _check_aggregation(args: Arguments) -> None:
    """What is normalised over the right answers alone would count a wrong one as their mean."""
    if args.recipe.reward_gates and args.training["multi_objective_aggregation"] == "normalize_then_sum":
        said = (
            "reward_gates do not go with multi_objective_aggregation: normalize_then_sum: a wrong answer would get the"
        )
        args.problems.append(f"{said} mean of the gated reward. Use sum_then_normalize.")


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def _apply_model_arguments(training: GRPOConfig, model: ModelConfig) -> None:
    """Hand the model's arguments to the trainer, as `trl/scripts/grpo.py` does."""
    given = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
    }
    training.model_init_kwargs = {
        **{name: value for name, value in given.items() if value is not None},
        **(training.model_init_kwargs or {}),
    }


def _resolved(args: Arguments) -> dict[str, Any]:
    """Every value of the run as plain data, secrets left out: what a later start is compared with."""
    values = {**dataclasses.asdict(args.recipe), **args.training, **args.model, "world_size": _world_size()}
    open_values = {name: value for name, value in values.items() if not name.endswith("_token")}
    return json.loads(json.dumps(open_values, default=lambda value: getattr(value, "value", str(value))))


def _print_report(table: list[dict], notes: list[str], rows: list[dict], train_rows: Any, args: Arguments) -> None:
    print(f"Preflight of {args.config_path or 'the command line'}")
    if isinstance(train_rows, IterableDataset):
        print(f"  streamed data: only its first {len(rows)} rows were judged, and a second pass is not resumed exactly")
    print("\n".join([format_table(table), *(f"  {note}" for note in notes)]))
    if args.problems:
        count = len(args.problems)
        print(f"\n{count} problem{'s' * (count > 1)}; nothing was loaded and nothing was written:")
        for problem in args.problems:
            print("  - " + problem.replace("\n", "\n  - "))
    else:
        print(_batch_sentence(args.training, len(rows)), flush=True)


def _batch_sentence(training: dict[str, Any], rows: int) -> str:
    group, world = training["num_generations"], _world_size()
    batch = training["per_device_train_batch_size"] * world * training["gradient_accumulation_steps"]
    device = "CPU" if training["use_cpu"] else "accelerator"
    return (
        f"  {rows} rows; an optimizer step learns from {batch} completions ({batch / group:g} prompts x {group}) on "
        f"{world} {device} process{'es' * (world > 1)}.\n  Everything checked is as it should be.\n"
    )
