"""The arithmetic of a batch: what divides what, and where a run can be saved and resumed."""

import math
from types import SimpleNamespace
from typing import Any

from datasets import Dataset, IterableDataset

from recipes.common.training.interrupt import generation_period


def check_batch(
    training: dict[str, Any], world_size: int, rows: Dataset | IterableDataset | None
) -> list[str]:
    """Find what does not divide, what does, and where a run could not be resumed."""
    s = SimpleNamespace(**training)
    group, per_step = s.num_generations, s.per_device_train_batch_size * world_size
    batch = completions_of_a_call(training, world_size) * world_size
    if s.generation_batch_size and s.generation_batch_size % per_step:
        given = s.generation_batch_size
        return [
            f"generation_batch_size {given} does not divide by {per_step} (per device x processes)."
        ]
    problems = []
    if batch % group:
        divisors = [d for d in range(2, batch + 1) if batch % d == 0]
        nearest = sorted(sorted(divisors, key=lambda d: abs(d - group))[:2])
        groups = f", or num_generations to {' or '.join(map(str, nearest))}" if nearest else ""
        problems.append(
            f"a generation batch of {batch} completions (per_device_train_batch_size x "
            f"{world_size} processes x steps per generation) does not divide by "
            f"num_generations={group}: set {_batches_that_divide(s, world_size, batch)}{groups}."
        )
    prompts = batch // group
    if isinstance(rows, Dataset) and len(rows) < prompts:
        problems.append(
            f"{len(rows)} training rows are fewer than the {prompts} prompts of one generation."
        )
    if isinstance(rows, IterableDataset) and s.max_steps < 1:
        problems.append("streamed data has no length: set max_steps.")
    return problems + _check_boundaries(s, batch // per_step)


def _check_boundaries(s: SimpleNamespace, steps_per_generation: int) -> list[str]:
    """A run is saved where a generation ends: TRL cannot resume in the middle of one."""
    accumulation = s.gradient_accumulation_steps
    period = generation_period(accumulation, steps_per_generation, s.num_iterations)
    if period is None:
        return [
            f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x "
            f"num_iterations ({steps_per_generation} x {s.num_iterations}) do not divide one "
            "another, so no optimizer step ends a generation and the run could never be resumed. "
            "Make one a multiple of the other."
        ]
    if s.save_strategy == "steps" and (s.save_steps < 1 or s.save_steps % period):
        return [
            f"save_steps={s.save_steps:g} would save in the middle of a generation, which TRL "
            f"cannot resume: set it to {_nearest_multiples(int(s.save_steps), period)} (a multiple "
            f"of {period})."
        ]
    return []


def _batches_that_divide(s: SimpleNamespace, world_size: int, batch: int) -> str:
    """The setting that fixes the generation batch, with its nearest values of whole groups."""
    group, per_device = s.num_generations, s.per_device_train_batch_size
    if s.generation_batch_size:
        step = math.lcm(group, per_device * world_size)
        return f"generation_batch_size to {_nearest_multiples(batch, step)}"
    step = group // math.gcd(group, batch // per_device)
    return f"per_device_train_batch_size to {_nearest_multiples(per_device, step)}"


def _nearest_multiples(value: int, step: int) -> str:
    """The multiples of `step` on both sides of `value`, without 0: `_nearest_multiples(10, 4) == "8
    or 12"`.
    """
    below = value // step * step
    return " or ".join(str(multiple) for multiple in (below, below + step) if multiple)


def completions_of_a_call(training: dict[str, Any], world_size: int) -> int:
    """How many completions a reward is called with on each rank."""
    s = SimpleNamespace(**training)
    if s.generation_batch_size:
        return -(-s.generation_batch_size // world_size)
    steps = s.steps_per_generation or s.gradient_accumulation_steps
    return s.per_device_train_batch_size * steps


def completions_of_run(training: dict[str, Any], world_size: int, rows: int) -> int:
    """How many completions a run is scored on."""
    s = SimpleNamespace(**training)
    a_step = s.per_device_train_batch_size * world_size * s.gradient_accumulation_steps
    if s.max_steps > 0:
        return -(-s.max_steps * a_step // s.num_iterations)
    return math.ceil(rows * s.num_generations * s.num_train_epochs)
