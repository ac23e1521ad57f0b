"""Runs whose rewards go by the place of a completion: advantages can be worked out by hand."""

import asyncio
import functools
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import trl
from datasets import Dataset

from recipes.common.trainer import GRPOConfig, GRPOTrainer

TINY = {
    "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "logging_steps": 1,
    "log_completions": True, "disable_tqdm": True, "shuffle_dataset": False, "max_steps": 1,
    "max_completion_length": 4, "num_generations": 4, "per_device_train_batch_size": 8,
}  # fmt: skip


def give(
    name: str, amounts: list, kind: str = "verifier", outcomes: list[str] | None = None
) -> Callable:
    """A reward that gives the completions of a call these amounts in turn."""

    def reward(prompts, completions, log_extra, **kwargs):
        places = range(len(completions))
        if outcomes is not None:
            log_extra(f"outcome/{name}", [outcomes[i % len(outcomes)] for i in places])
        return [amounts[i % len(amounts)] for i in places]

    reward.__name__, reward.kind = name, kind
    return reward


give_steps = functools.partial(give, kind="step")


def as_async(reward: Callable) -> Callable:
    """The same as an `async def`."""

    async def awaited(**arguments):
        await asyncio.sleep(0.01)
        return reward(**arguments)

    awaited.__name__, awaited.kind = reward.__name__, reward.kind
    return awaited


def make_trainer(model, folder, rewards, tasks, settings, trainer=GRPOTrainer, **config):
    """A trainer of the tiny model on one row a task; `settings`, `config`: of our GRPOConfig."""
    rows = [{"prompt": f"Row {i}:", "task": task} for i, task in enumerate(tasks)]
    rows = Dataset.from_list(rows)
    args = GRPOConfig(output_dir=str(folder), **{**TINY, **config, **settings})
    return trainer(model=str(model), reward_funcs=rewards, args=args, train_dataset=rows)


def generations(trainer: trl.GRPOTrainer) -> list[dict]:
    """What was logged of each generation of a training."""
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def completions(folder: Path, step: int = 1) -> dict[str, list]:
    """The columns of TRL's table of completions, None where nothing was scored."""

    def known(value: object) -> object:
        return None if isinstance(value, float) and math.isnan(value) else value

    table = pd.read_parquet(folder / "completions" / f"completions_{step:05d}.parquet")
    return {name: list(map(known, table[name])) for name in table.columns}


def advantages_of(rewards: list[float | None], group: int = 4, scale: str = "group") -> list[float]:
    """GRPO's advantages by hand: 0 for a row without reward, of which its group knows nothing."""
    advantages = []
    for start in range(0, len(rewards), group):
        members = rewards[start : start + group]
        graded = [reward for reward in members if reward is not None]
        mean = statistics.fmean(graded) if graded else 0.0
        divisor = 1e-4 + _std(rewards if scale == "batch" else members)
        advantages += [0.0 if reward is None else (reward - mean) / divisor for reward in members]
    return advantages


def _std(rewards: list[float | None]) -> float:
    graded = [reward for reward in rewards if reward is not None]
    return statistics.stdev(graded) if len(graded) > 1 else 0.0
