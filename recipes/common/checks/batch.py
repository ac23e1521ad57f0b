"""The arithmetic of a batch: what `GRPOConfig` demands, and where a run can be saved and resumed."""

import math
from typing import Any

from datasets import Dataset, IterableDataset

from recipes.common.training.interrupt import generation_period

COUNTS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_iterations",
    "num_generations",
)
OPTIONAL_COUNTS = ("generation_batch_size", "steps_per_generation")
# What a checkpoint must hold, or a resume must do, to go on to the same tokens.
UNRESUMABLE = {
    "ignore_data_skip": "a resumed run would train on rows that it has had",
    "save_only_model": "a checkpoint would hold no optimizer and no random state",
}


def check_batch(
    training: dict[str, Any], world_size: int, rows: Dataset | IterableDataset | None
) -> list[str]:
    """Find what does not divide, with the nearest values that do, and what could not be resumed."""
    if problems := _not_counts(training):
        return problems
    group = training["num_generations"]
    if group < 2:
        return [f"num_generations is {group}; GRPO compares completions of one prompt: at least 2."]
    per_step = training["per_device_train_batch_size"] * world_size
    steps = training["steps_per_generation"] or training["gradient_accumulation_steps"]
    batch = training["generation_batch_size"] or per_step * steps
    if batch % group:
        problems.append(
            f"a generation batch of {batch} completions (per_device_train_batch_size x {world_size} processes x steps "
            f"per generation) does not divide by num_generations={group}: "
            f"{_batches_that_divide(training, world_size, batch)}{_groups_that_divide(batch, group)}."
        )
    if batch % per_step:
        return [
            *problems,
            f"generation_batch_size {batch} does not divide by {per_step} (per device x processes).",
        ]
    prompts = batch // group
    if isinstance(rows, Dataset) and len(rows) < prompts:
        problems.append(
            f"{len(rows)} training rows are fewer than the {prompts} prompts of one generation."
        )
    if isinstance(rows, IterableDataset) and training["max_steps"] < 1:
        problems.append("streamed data has no length: set max_steps.")
    return problems + _check_boundaries(training, batch // per_step)


def completions_of_a_call(training: dict[str, Any], world_size: int) -> int | None:
    """How many completions a reward is called with on each rank; None where the counts cannot be used."""
    if _not_counts(training):
        return None
    steps = training["steps_per_generation"] or training["gradient_accumulation_steps"]
    whole = (
        training["generation_batch_size"]
        or training["per_device_train_batch_size"] * world_size * steps
    )
    return -(-whole // world_size)


def completions_of_run(training: dict[str, Any], world_size: int, rows: int) -> int | None:
    """How many completions a run is scored on; None where the counts cannot be used."""
    if _not_counts(training):
        return None
    a_step = (
        training["per_device_train_batch_size"]
        * world_size
        * training["gradient_accumulation_steps"]
    )
    if training["max_steps"] > 0:
        return -(-training["max_steps"] * a_step // training["num_iterations"])
    return math.ceil(rows * training["num_generations"] * training["num_train_epochs"])


def _check_boundaries(training: dict[str, Any], steps_per_generation: int) -> list[str]:
    accumulation, iterations = training["gradient_accumulation_steps"], training["num_iterations"]
    problems = [f"{name} is set, but {why}." for name, why in UNRESUMABLE.items() if training[name]]
    period = generation_period(accumulation, steps_per_generation, iterations)
    if period is None:
        return [
            *problems,
            f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x num_iterations "
            f"({steps_per_generation} x {iterations}) do not divide one another, so no optimizer step ends a "
            "generation and the run could never be resumed. Make one a multiple of the other.",
        ]
    saves = str(getattr(training["save_strategy"], "value", training["save_strategy"]))
    steps = training["save_steps"]
    if saves == "steps" and (steps < 1 or steps % period):
        problems.append(
            f"save_steps={steps:g} would save in the middle of a generation, which TRL cannot resume: set it to "
            f"{_nearest_multiples(int(steps), period)} (a multiple of {period})."
        )
    return problems


def _not_counts(training: dict[str, Any]) -> list[str]:
    """Find values that the arithmetic divides by and that are not whole numbers from 1; some may be left out."""
    given = {name: training[name] for name in COUNTS}
    given.update({name: training[name] for name in OPTIONAL_COUNTS if training[name] is not None})
    wrong = [name for name, value in given.items() if not isinstance(value, int) or value < 1]
    return [
        f"{name} is {given[name]!r}; it must be a whole number of at least 1." for name in wrong
    ]


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
