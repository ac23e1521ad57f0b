"""Honest before and after: the same held-out rows, the same decoding, the scorers of training, row
by row.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from tqdm import tqdm
from trl import GRPOTrainer

from recipes.common.evaluation.metrics import Metric, by_reward
from rewards import reward_name
from rewards.audit.call import score
from rewards.contract import is_model

Complete = Callable[..., list]  # (rows, do_sample=False) -> one Rollout a row


def evaluate(
    trainer: GRPOTrainer,
    rows: list[dict],
    metric: Metric,
    samples: int = 0,
    title: str = "evaluating",
    complete: Complete | None = None,
) -> list[dict[str, Any]]:
    """Complete every row greedily and `samples` times at random; evaluate and score.

    `trainer` is ours (recipes/common/trainer.py), in a run or made for a script, or any of TRL with
    a `complete`. On all its ranks it returns one mapping a row, in the order of `rows`: `row`,
    `prompt`, `answer`, `completion`, `tokens`, `truncated`, `metrics`, `rewards`; where asked for
    `samples` (a list of metrics) and `sampled_completions`; with tools `messages` and `turns`, the
    kind of each turn. Batches are cut before the ranks share them, so that a row has the same
    neighbours, padding and answer whatever the number of processes. The random state is as before
    afterwards.
    """
    complete = complete or trainer.complete
    rank, world_size = trainer.accelerator.process_index, trainer.accelerator.num_processes
    size = min(trainer.args.per_device_eval_batch_size, len(rows))
    numbers = [
        list(range(start, min(start + size, len(rows)))) for start in range(0, len(rows), size)
    ]
    # Under ZeRO-3 every rank must generate equally often; a surplus batch is dropped after the
    # gathering.
    rounds = -(-len(numbers) // world_size)
    evaluated = []
    with _left_as_it_was(trainer):
        for turn in tqdm(range(rounds), desc=title, unit="batch", disable=rank != 0):
            number = min(turn * world_size + rank, len(numbers) - 1)
            batch = [rows[i] for i in numbers[number]]
            missing = size - len(batch) if trainer.use_vllm else 0  # its server shares out evenly
            filled = batch + batch[-1:] * missing
            greedy = complete(filled)[: len(batch)]
            results = _scored(batch, greedy, trainer.reward_funcs, metric)
            for draw in range(samples):
                torch.manual_seed(trainer.args.seed * 1_000_003 + number * 1_009 + draw)
                drawn = complete(filled, do_sample=True)[: len(batch)]
                for result, row, one in zip(results, batch, drawn, strict=True):
                    result.setdefault("samples", []).append(metric(row, one.text))
                    result.setdefault("sampled_completions", []).append(one.text)
            evaluated += [
                {"row": i, **result} for i, result in zip(numbers[number], results, strict=True)
            ]
    gathered = gather_object(evaluated) if world_size > 1 else evaluated
    by_row = {result["row"]: result for result in gathered}
    return [by_row[i] for i in range(len(rows))]


def _scored(
    rows: list[dict], rollouts: list, rewards: list[Callable], metric: Metric
) -> list[dict]:
    if rollouts[0].environment is not None:  # as TRL hands them to a reward
        known = [
            {**row, "environments": one.environment}
            for row, one in zip(rows, rollouts, strict=True)
        ]
    else:
        known = rows
    completions, ids = [one.completion for one in rollouts], [one.token_ids for one in rollouts]
    # TRL alone has a reward model's tokenizer.
    called = [reward for reward in rewards if not is_model(reward)]
    scores = {reward_name(reward): score(reward, known, completions, ids) for reward in called}
    shared = by_reward(metric, called)
    results = []
    for i, (row, one) in enumerate(zip(rows, rollouts, strict=True)):
        turns = {"messages": one.completion, "turns": one.turns} if one.turns else {}
        results.append(
            {
                "prompt": row["prompt"],
                "answer": row.get("answer"),
                "completion": one.text,
                **turns,
                "tokens": one.tokens,
                "truncated": one.truncated,
                "metrics": {name: bool(holds) for name, holds in metric(row, one.text).items()},
                **({"by_reward": shared} if shared else {}),
                "rewards": {name: _plain(amounts[i]) for name, amounts in scores.items()},
            }
        )
    return results


def _plain(amount: Any) -> float | None:
    """A score as JSON knows it: a reward may give NumPy's or torch's numbers."""
    return None if amount is None else float(amount)


@contextmanager
def _left_as_it_was(trainer: GRPOTrainer) -> Iterator[None]:
    """The mode of the model and the random states: a reward may draw from any of them."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    python, numpy, was_training = random.getstate(), np.random.get_state(), trainer.model.training
    trainer.model.eval()
    with torch.random.fork_rng(devices):
        yield
    trainer.model.train(was_training)
    random.setstate(python)
    np.random.set_state(numpy)
