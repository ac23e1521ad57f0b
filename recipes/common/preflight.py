"""Preflight: what can be known to be wrong before any weight is loaded, all of it at once.

A run that passes has rows with the columns its rewards need, rewards that pay the reference answer in
full and an empty completion nothing, and a batch that divides. It says nothing of whether the model
will learn.
"""

import dataclasses
import inspect
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from trl import GRPOConfig, ModelConfig

from recipes.common.arguments import Arguments, RecipeArguments
from recipes.common.cpu import use_all_cores
from rewards import full_reward, reward_columns, reward_kind, reward_name

STREAMED_ROWS = 1000
SHOWN_ROWS = 3
COUNTS = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations", "num_generations")
OPTIONAL_COUNTS = ("generation_batch_size", "steps_per_generation")


@dataclass
class Run:
    """A run that passed preflight: what the trainer call and the lifecycle need."""

    recipe: RecipeArguments
    training: GRPOConfig
    model: ModelConfig
    table: list[dict[str, Any]]
    config: dict[str, Any]


def preflight(
    args: Arguments,
    train_rows: Dataset | IterableDataset | None,
    eval_rows: Dataset | None,
    rewards: list[Callable] | None,
    reference_completion: Callable[[dict], str],
) -> Run:
    """Judge arguments, rows and rewards together; build TRL's dataclasses when nothing is wrong.

    Args:
        args: the arguments as read.
        train_rows, eval_rows: rows as the recipe made them; None where that failed (`args` holds why).
        rewards: the loaded rewards; None where that failed.
        reference_completion: row -> its own reference answer in the asked format, or raises KeyError.

    Raises:
        SystemExit: status 2 with every problem, or status 0 after `--dry_run`.
    """
    problems = list(args.problems)
    rows = _judged_rows(train_rows)
    table = _reward_table(rows, rewards or [], reference_completion, args, problems)
    if train_rows is not None and eval_rows is not None:
        _check_held_out(rows, eval_rows, problems)
    _check_model(args.model, problems)
    _check_batch(args.training, _world_size(), train_rows, problems)
    _choose_device(args.training)
    training = None if problems else args.attempt(_build, GRPOConfig, args.training)
    model = None if problems else args.attempt(_build, ModelConfig, args.model)
    problems += [problem for problem in args.problems if problem not in problems]
    if _is_main_process():
        _print_report(table, rows, train_rows, args, problems)
    if problems:
        sys.exit(2)
    if args.recipe.dry_run:
        sys.exit(0)
    use_all_cores(training)
    _apply_model_arguments(training, model)
    if args.training["project"] != "huggingface":  # transformers reads W&B's project from the environment alone
        os.environ.setdefault("WANDB_PROJECT", args.training["project"])
    return Run(args.recipe, training, model, table, _resolved(args))


def _judged_rows(train_rows: Dataset | IterableDataset | None) -> list[dict]:
    """All rows, or the first 1 000 of a stream."""
    if train_rows is None:
        return []
    if isinstance(train_rows, IterableDataset):
        return list(itertools.islice(train_rows, STREAMED_ROWS))
    return train_rows.to_list()


def _reward_table(
    rows: list[dict], rewards: list[Callable], reference: Callable[[dict], str], args: Arguments, problems: list[str]
) -> list[dict[str, Any]]:
    """One line per task and reward: rows scored, what the reference and the empty completion earn."""
    weights = args.training.get("reward_weights") or [1.0] * len(rewards)
    if len(weights) != len(rewards) and rewards:
        problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards: {_names(rewards)}.")
        weights = [1.0] * len(rewards)
    usable = [row for row in rows if _has_row_columns(row, rows, problems)]
    table = []
    for task in sorted({row["task"] for row in usable}):
        of_task = [row for row in usable if row["task"] == task]
        lines = [
            {"task": task, "weight": weight, **_reward_line(of_task, reward, reference, problems)}
            for reward, weight in zip(rewards, weights, strict=True)
        ]
        if rewards and not any(line["rows scored"] for line in lines):
            problems.append(f"task {task!r}: none of the rewards {_names(rewards)} scores its {len(of_task)} rows.")
        table += lines
    return table


def _has_row_columns(row: dict, rows: list[dict], problems: list[str]) -> bool:
    missing = [name for name in ("prompt", "task") if not row.get(name)]
    message = f"rows lack {', '.join(missing)}: every row has a prompt and a task (its columns: {sorted(rows[0])})."
    if missing and message not in problems:
        problems.append(message)
    return not missing


def _reward_line(rows: list[dict], reward: Callable, reference: Callable, problems: list[str]) -> dict[str, Any]:
    """What one reward pays on the rows of one task; a promise of its kind that it breaks is a problem."""
    name, kind, full = reward_name(reward), reward_kind(reward), full_reward(reward)
    line = {"reward": name, "kind": kind, "rows scored": 0, "reference earns": None, "full": full, "empty earns": None}
    missing = [column for column in reward_columns(reward) if any(row.get(column) is None for row in rows)]
    if missing:
        without = next(i for i, row in enumerate(rows) if row.get(missing[0]) is None)
        problems.append(
            f"reward {name!r} needs the column {', '.join(missing)}, which row {without} lacks "
            f"(its columns: {sorted(k for k, v in rows[without].items() if v is not None)})."
        )
        return line
    try:
        golds = [reference(row) for row in rows]
        paid = score(reward, rows, golds)
        empty = score(reward, rows[:SHOWN_ROWS], [""] * len(rows[:SHOWN_ROWS]))
    except Exception as error:
        problems.append(f"reward {name!r} fails on the reference answers: {type(error).__name__}: {error}")
        return line
    scored = [amount for amount in paid if amount is not None]
    line["rows scored"] = len(scored)
    line["reference earns"] = min(scored, default=None)
    line["empty earns"] = max((amount for amount in empty if amount is not None), default=None)
    _check_promises(line, rows, golds, paid, problems)
    return line


def _check_promises(line: dict, rows: list[dict], golds: list[str], paid: list[float | None], problems: list) -> None:
    if line["kind"] == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(f"reward {line['reward']!r} is a verifier but pays {line['empty earns']} for an empty answer.")
    if line["kind"] not in ("verifier", "format") or line["full"] is None:
        return
    short = [i for i, amount in enumerate(paid) if amount is None or amount < line["full"]]
    if line["kind"] == "format":
        short = [i for i in short if paid[i] is not None]
    if short:
        first = short[0]
        problems.append(
            f"reward {line['reward']!r} pays {paid[first]} instead of {line['full']} for the reference answer of "
            f"{len(short)} of {len(rows)} rows of task {line['task'] if 'task' in line else rows[0]['task']!r}; "
            f"the first is row {first}: {golds[first]!r}."
        )


def score(reward: Callable, rows: list[dict], texts: list[str]) -> list[float | None]:
    """Call a reward as TRL does: prompts, completions and every column of the rows, by keyword."""
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name != "prompt"}
    prompts = [row["prompt"] for row in rows]
    completions = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    silent = {"trainer_state": None, "log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
    amounts = reward(prompts=prompts, completions=completions, completion_ids=[[]] * len(rows), **columns, **silent)
    if inspect.isawaitable(amounts):
        amounts = _await(amounts)
    if len(amounts) != len(rows):
        raise ValueError(f"it returned {len(amounts)} rewards for {len(rows)} completions")
    return amounts


def _await(amounts: Any) -> list[float | None]:
    import asyncio

    async def finish() -> list[float | None]:
        return await amounts

    return asyncio.run(finish())


def _check_held_out(rows: list[dict], eval_rows: Dataset, problems: list[str]) -> None:
    """No evaluation row may be a training row: what is compared is the prompt."""
    trained = {json.dumps(row["prompt"]) for row in rows if "prompt" in row}
    leaked = [i for i, prompt in enumerate(eval_rows["prompt"]) if json.dumps(prompt) in trained] if eval_rows else []
    if leaked:
        problems.append(
            f"{len(leaked)} of {len(eval_rows)} evaluation rows are also training rows (the first is row {leaked[0]}): "
            "accuracy on them would measure memory. Give the evaluation rows of its own."
        )


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


def _check_batch(training: dict[str, Any], world_size: int, rows: Any, problems: list[str]) -> None:
    """The arithmetic that `GRPOConfig` and the resume of a run depend on, with the nearest values that work."""
    if not _are_counts(training, problems):
        return
    group = training["num_generations"]
    if group < 2:
        problems.append(f"num_generations is {group}; GRPO compares completions of one prompt: at least 2.")
        return
    accumulation = training["gradient_accumulation_steps"]
    per_step = training["per_device_train_batch_size"] * world_size
    batch = training["generation_batch_size"] or per_step * (training["steps_per_generation"] or accumulation)
    if batch % group:
        problems.append(
            f"a generation batch of {batch} completions (per_device_train_batch_size x {world_size} processes x steps "
            f"per generation) does not divide by num_generations={group}: "
            f"{_batches_that_divide(training, world_size, batch)}{_groups_that_divide(batch, group)}."
        )
    if batch % per_step:
        problems.append(f"generation_batch_size {batch} does not divide by {per_step} (per device x processes).")
        return
    if isinstance(rows, Dataset) and len(rows) * group < batch:
        problems.append(f"{len(rows)} training rows are fewer than the {batch // group} prompts of one generation.")
    _check_boundaries(training, batch // per_step, problems)


def _are_counts(training: dict[str, Any], problems: list[str]) -> bool:
    """Whether the values that the arithmetic divides by are whole numbers from 1; some may be left out."""
    given = {name: training[name] for name in COUNTS}
    given.update({name: training[name] for name in OPTIONAL_COUNTS if training[name] is not None})
    wrong = [name for name, value in given.items() if not isinstance(value, int) or value < 1]
    problems += [f"{name} is {given[name]!r}; it must be a whole number of at least 1." for name in wrong]
    return not wrong


def generation_period(gradient_accumulation_steps: int, steps_per_generation: int, num_iterations: int) -> int | None:
    """Optimizer steps between two moments at which TRL's generation buffer is used up; None where they never align.

    Only there can a run be saved and resumed: TRL does not put the buffer into a checkpoint.

    Example: `generation_period(1, 4, 2) == 8`; `generation_period(4, 4, 1) == 1`
    """
    generate_every = steps_per_generation * num_iterations
    if gradient_accumulation_steps % generate_every == 0:
        return 1
    if generate_every % gradient_accumulation_steps == 0:
        return generate_every // gradient_accumulation_steps
    return None


def _check_boundaries(training: dict[str, Any], steps_per_generation: int, problems: list[str]) -> None:
    accumulation, iterations = training["gradient_accumulation_steps"], training["num_iterations"]
    period = generation_period(accumulation, steps_per_generation, iterations)
    if period is None:
        problems.append(
            f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x num_iterations "
            f"({steps_per_generation} x {iterations}) do not divide one another, so no optimizer step ends a "
            "generation and the run could never be resumed. Make one a multiple of the other."
        )
        return
    saves = str(getattr(training["save_strategy"], "value", training["save_strategy"]))
    steps = training["save_steps"]
    if saves == "steps" and (steps < 1 or steps % period):
        problems.append(
            f"save_steps={steps} would save in the middle of a generation, which TRL cannot resume: set it to "
            f"{_nearest_multiples(int(steps), period)} (a multiple of {period})."
        )


def _batches_that_divide(training: dict[str, Any], world_size: int, batch: int) -> str:
    """The setting that fixes the generation batch, and its nearest values that hold whole groups."""
    group, per_device = training["num_generations"], training["per_device_train_batch_size"]
    if training["generation_batch_size"]:
        return f"set generation_batch_size to {_nearest_multiples(batch, math.lcm(group, per_device * world_size))}"
    step = group // math.gcd(group, batch // per_device)
    return f"set per_device_train_batch_size to {_nearest_multiples(per_device, step)}"


def _groups_that_divide(batch: int, group: int) -> str:
    divisors = [d for d in range(2, batch + 1) if batch % d == 0]
    nearest = sorted(sorted(divisors, key=lambda d: abs(d - group))[:2])
    return f", or num_generations to {' or '.join(map(str, nearest))}" if nearest else ""


def _nearest_multiples(value: int, step: int) -> str:
    """The multiples of `step` on both sides of `value`, without 0: `_nearest_multiples(10, 4) == "8 or 12"`."""
    below = value // step * step
    return " or ".join(str(multiple) for multiple in (below, below + step) if multiple)


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def _names(rewards: list[Callable]) -> str:
    return ", ".join(reward_name(reward) for reward in rewards)


def _build(dataclass_type: type, values: dict[str, Any]) -> Any:
    return dataclass_type(**values)


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
    """Every value of the run as plain data: what a later start is compared with."""
    values = {**dataclasses.asdict(args.recipe), **args.training, **args.model, "world_size": _world_size()}
    return json.loads(json.dumps(values, default=lambda value: getattr(value, "value", str(value))))


def _print_report(table: list[dict], rows: list[dict], train_rows: Any, args: Arguments, problems: list[str]) -> None:
    print(f"Preflight of {args.config_path or 'the command line'}")
    if isinstance(train_rows, IterableDataset):
        print(f"  streamed data: only its first {len(rows)} rows were judged")
    print(format_table(table))
    if problems:
        print(f"\n{len(problems)} problem{'s' * (len(problems) > 1)}; nothing was loaded and nothing was written:")
        for problem in problems:
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


def format_table(table: list[dict[str, Any]]) -> str:
    """Plain text columns, as wide as their widest cell."""
    if not table:
        return "  (no rows or rewards to judge)"
    names = list(table[0])
    cells = [names] + [["-" if row[name] is None else str(row[name]) for name in names] for row in table]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)
