"""Evaluate a model on the held-out rows before, during and after training.

Every evaluation uses the same rows, the same decoding and the rewards of training.
"""

import math
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from tqdm import tqdm
from trl import GRPOTrainer

from recipes.common.evaluation.metrics import Metric, by_reward, measure_or_fail
from recipes.common.evaluation.scores import metric_names, outcomes, summarize
from recipes.common.utils.run_files import VALIDATION, read_validation, write_rows
from recipes.common.utils.stats import share
from rewards import Reward, reward_of
from rewards.boundary import contained, score

Complete = Callable[..., list]  # (rows, do_sample=False) -> one Rollout for each row


def evaluate(
    trainer: GRPOTrainer,
    rows: list[dict],
    metric: Metric,
    samples: int = 0,
    title: str = "evaluating",
    complete: Complete | None = None,
) -> list[dict[str, Any]]:
    """Complete every row greedily and `samples` times at random; score the completions.

    `trainer` is the GRPOTrainer of recipes/common/trainer.py, or with `complete` any of TRL, whose
    rewards are not called: they may raise.

    Every rank returns one mapping for each row, in the order of `rows`, with `row`, `prompt`,
    `answer`, `completion`, `tokens`, `truncated`, `metrics` and `rewards`. With `samples` > 0 it
    has `samples` (their metrics) and `sampled_completions`, too; with tools `messages` and `turns`
    (the kind of each turn). Batches do not depend on the number of processes: a row always has the
    same neighbours, padding and completion. The random states are restored afterwards.
    """
    rank, world_size = trainer.accelerator.process_index, trainer.accelerator.num_processes
    size = min(trainer.args.per_device_eval_batch_size, len(rows))
    batches = places_by_batch(rows, size, pads=not trainer.use_vllm)
    # Under ZeRO-3 every rank must generate equally often: a rank without a batch of its own repeats
    # the last one, and scores nothing of it.
    rounds = math.ceil(len(batches) / world_size)
    rewards = [reward_of(reward) for reward in trainer.reward_funcs]
    # Reward models are left out: only TRL holds their tokenizers.
    called = [reward for reward in rewards if complete is None and not reward.is_model]
    complete = complete or trainer.complete
    loop = getattr(trainer, "async_loop", None)  # on which async rewards run in training
    # The processes that share a vLLM must draw alike: each goes on with the token that it drew.
    alike = trainer.args.vllm_tensor_parallel_size if trainer.use_vllm else 1
    was_training, evaluated = trainer.model.training, []
    trainer.model.eval()
    with contained("evaluate"):  # tools, which draw random numbers too, run inside
        for done in tqdm(range(rounds), desc=title, unit="batch", disable=rank != 0):
            own = done * world_size + rank  # the number of this rank's batch, if there is one
            number = min(own, len(batches) - 1)
            places = batches[number]
            batch = [rows[place] for place in places]
            missing = size - len(batch) if trainer.use_vllm else 0  # TRL needs equal batches
            filled = batch + batch[-1:] * missing
            if own != number:
                batch, places = [], []
            rollouts = complete(filled)[: len(batch)]
            # The metric reads the rollouts before any reward sees them.
            results = [
                {"row": place, **describe_rollout(row, rollout, metric, rewards)}
                for place, row, rollout in zip(places, batch, rollouts, strict=True)
            ]
            scores = call_rewards(batch, rollouts, called, loop) if batch else []
            for result, of_row in zip(results, scores, strict=True):
                result["rewards"] = of_row
            for draw in range(samples):
                # One seed for each batch and draw, on whatever rank; the primes keep seeds apart.
                first = number - number % alike
                torch.manual_seed(trainer.args.seed * 1_000_003 + first * 1_009 + draw)
                drawn = complete(filled, do_sample=True)[: len(batch)]
                for result, row, rollout in zip(results, batch, drawn, strict=True):
                    told = {**row, "truncated": rollout.truncated}
                    outcome, _ = measure_or_fail(metric, told, rollout.text)
                    result.setdefault("samples", []).append(outcome)
                    result.setdefault("sampled_completions", []).append(rollout.text)
            evaluated += results
            trainer.accelerator.wait_for_everyone()  # else ranks part by more than ddp_timeout
    trainer.model.train(was_training)
    gathered = gather_object(evaluated) if world_size > 1 else evaluated
    by_row = {result["row"]: result for result in gathered}
    return [by_row[place] for place in range(len(rows))]


def places_by_batch(rows: list[dict], size: int, pads: bool = True) -> list[list[int]]:
    """The places of the rows in batches of up to `size`; the longer the prompts, the fewer.

    Where a batch is padded (`pads`), one prompt of 5,000 tokens costs all of its neighbours as
    much: prompts of the same length to 2,000 characters are together, and from 2,000 characters on
    one counts as two, from 4,000 as three.

    >>> places_by_batch([{"prompt": "a"}, {"prompt": 3000 * "b"}, {"prompt": "c"}], size=2)
    [[0, 2], [1]]
    """

    def width(place: int) -> int:
        return 1 + pads * (len(str(rows[place]["prompt"])) // 2000)

    batches: list[list[int]] = []
    for place in sorted(range(len(rows)), key=width):
        if not batches or (len(batches[-1]) + 1) * width(place) > size:
            batches.append([])
        batches[-1].append(place)
    return batches


def describe_rollout(
    row: dict, rollout: Any, metric: Metric, rewards: list[Reward]
) -> dict[str, Any]:
    """What `evaluate` returns for one row, but `row` and `rewards`; `rollout` is its completion."""
    # A metric reads of the row whether its completion was cut off.
    told = {**row, "truncated": rollout.truncated}
    outcome, failure = measure_or_fail(metric, told, rollout.text)
    result = {
        "prompt": row["prompt"],
        "answer": row.get("answer"),
        "completion": rollout.text,
        "tokens": rollout.tokens,
        "truncated": rollout.truncated,
        "metrics": outcome,
    }
    if rollout.turns:
        result |= {"messages": rollout.completion, "turns": rollout.turns}
    if failure:
        result["metric_failure"] = failure
    if not_independent := by_reward(metric, rewards):  # what the metric and a reward score alike
        result["by_reward"] = not_independent
    return result


def call_rewards(
    rows: list[dict], rollouts: list, rewards: list[Reward], loop: AbstractEventLoop | None
) -> list[dict[str, float | None]]:
    """The scores of each row by the name of the reward, such as `[{"xml_format": 1.0}, ...]`.

    Async rewards run on `loop`.
    """
    columns = rows
    if rollouts[0].environment is not None:  # TRL passes environments to a reward as a column
        columns = [
            {**row, "environments": rollout.environment}
            for row, rollout in zip(rows, rollouts, strict=True)
        ]
    completions = [rollout.completion for rollout in rollouts]
    token_ids = [rollout.token_ids for rollout in rollouts]
    scores: list[dict[str, float | None]] = [{} for _ in rows]
    for reward in rewards:
        amounts, *_ = score(reward, columns, completions, token_ids, loop)
        for of_row, amount in zip(scores, amounts, strict=True):
            of_row[reward.name] = amount
    return scores


def validate(
    trainer: GRPOTrainer, rows: list[dict], metric: Metric, complete: Complete | None
) -> dict[str, float]:
    """Evaluate the validation rows, add a line to the run's file, and return the shares to log."""
    step = trainer.state.global_step
    title = f"validation, step {step}"
    evaluated = evaluate(trainer, rows, metric, title=title, complete=complete)
    summary = summarize(evaluated)
    line = {
        "step": step,
        "metrics": {name: outcomes(evaluated, name) for name in metric_names(evaluated)},
        "by_reward": evaluated[0].get("by_reward", []),
        "truncated": summary["truncated"],
        "mean_length": summary["mean_length"],
        "rewards": summary["rewards"],
    }
    if trainer.is_world_process_zero():
        add_line(Path(trainer.args.output_dir), line)
    values = {name: share(of_rows) for name, of_rows in line["metrics"].items()}
    values |= {name: line[name] for name in ("truncated", "mean_length")}
    return {f"validation/{name}": value for name, value in values.items()}


def add_line(run: Path, line: dict[str, Any]) -> None:
    """Add an evaluation of the validation rows to the file of a run.

    Evaluations of the same step or later are removed: an interrupted start wrote them.
    """
    earlier = [one for one in read_validation(run) if one["step"] < line["step"]]
    write_rows(run / VALIDATION, [*earlier, line])
