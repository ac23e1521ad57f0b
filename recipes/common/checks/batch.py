"""The arithmetic of a batch: what divides what, and where a run can be saved and resumed."""

import math
from types import SimpleNamespace
from typing import Any

from datasets import Dataset, IterableDataset

from recipes.common.training.callbacks import generation_period
from recipes.common.utils.problems import told


def check_batch(
    training: dict[str, Any], world_size: int, rows: Dataset | IterableDataset | None
) -> list[str]:
    """Find what does not divide, what does, and where a run could not be resumed."""
    s = SimpleNamespace(**training)
    group, per_step = s.num_generations, s.per_device_train_batch_size * world_size
    if s.generation_batch_size and s.generation_batch_size % per_step:
        given = s.generation_batch_size
        return [
            f"generation_batch_size {given} does not divide by {per_step} (per device x processes)."
        ]
    batch = completions_of_a_call(training, world_size) * world_size
    prompts, accumulation = batch // group, s.gradient_accumulation_steps
    # A run is saved where a generation ends: TRL cannot resume in the middle of one.
    steps = batch // per_step
    period = generation_period(accumulation, steps, s.num_iterations)
    saves = period is not None and s.save_strategy == "steps"
    allowed = [str(number) for number in range(2, batch + 1) if batch % number == 0]
    table = {
        f"a generation batch of {batch} completions (per_device_train_batch_size x {world_size} "
        f"processes x steps per generation) does not divide by num_generations={group}: make it a "
        f"multiple of {group}, or num_generations one of {', '.join(allowed)}.": batch % group,
        f"the training rows are fewer than the {prompts} prompts of one generation.": (
            isinstance(rows, Dataset) and len(rows) < prompts
        ),
        "streamed data has no length: set max_steps.": (
            isinstance(rows, IterableDataset) and s.max_steps < 1
        ),
        f"gradient_accumulation_steps ({accumulation}) and steps_per_generation x num_iterations "
        f"({steps} x {s.num_iterations}) do not divide one another, so no optimizer step ends a "
        "generation and the run could never be resumed. Make one a multiple of the other.": (
            period is None
        ),
        f"save_steps={s.save_steps:g} would save in the middle of a generation, which TRL cannot "
        f"resume: set it to a multiple of {period}.": (
            saves and (s.save_steps < 1 or s.save_steps % period)
        ),
    }
    return told(table)


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
