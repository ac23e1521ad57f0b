"""Honest before and after: the same held-out rows, the same decoding, the scorers of training, row by row."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from recipes.common.evaluation.metrics import Metric
from recipes.common.sampling.generate import Completion, decoding_of, generate, generation_config
from rewards import reward_name
from rewards.audit.call import score
from rewards.contract import is_model
from rewards.text import completion_text

Complete = Callable[
    [list[dict], dict[str, Any]], list[Completion]
]  # rows and a decoding -> their completions


def evaluate_in_training(
    trainer: GRPOTrainer, rows: list[dict], metric: Metric, samples: int, title: str
) -> list:
    """Evaluate `rows` with the model that `trainer` is training, inside its distributed job, on every rank.

    Batches are cut before the ranks share them, so that a row has the same neighbours, padding and answer whatever the
    number of processes. The random state is as before afterwards.
    """
    args, has_turns = trainer.args, bool(trainer.tools or trainer.environment_factories)
    with (
        _random_state_kept(),
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
        ) as model,
    ):
        was_training = model.training
        model.eval()
        evaluated = evaluate(
            model,
            trainer.processing_class,
            rows,
            trainer.reward_funcs,
            metric,
            max_new_tokens=args.max_completion_length,
            batch_size=args.per_device_eval_batch_size,
            samples=samples,
            decoding=decoding_of(vars(args)),
            seed=args.seed,
            rank=trainer.accelerator.process_index,
            world_size=trainer.accelerator.num_processes,
            chat_template_kwargs=args.chat_template_kwargs,
            complete=_rollouts(trainer, model, len(rows)) if has_turns else None,
            title=title,
        )
        model.train(was_training)
    return evaluated


def _rollouts(trainer: GRPOTrainer, model: PreTrainedModel, rows: int) -> Complete:
    """Complete through the trainer's own rollout; in whole batches, as the ranks count their tokens together."""
    args = trainer.args
    size = min(args.per_device_eval_batch_size, rows)

    def complete(batch: list[dict], decoding: dict[str, Any]) -> list[Completion]:
        config = generation_config(
            model, trainer.processing_class, args.max_completion_length, decoding
        )
        rollouts = trainer.roll_out(batch + batch[-1:] * (size - len(batch)), config)[: len(batch)]
        return [
            Completion(completion_text(one.messages), one.token_ids, one.truncated, one)
            for one in rollouts
        ]

    return complete


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[dict],
    rewards: list[Callable],
    metric: Metric,
    *,
    max_new_tokens: int,
    batch_size: int,
    samples: int = 0,
    decoding: dict[str, Any] | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    chat_template_kwargs: dict[str, Any] | None = None,
    complete: Complete | None = None,
    title: str = "evaluating",
) -> list[dict[str, Any]]:
    """Complete every row greedily and `samples` times at random; evaluate by `metric`, score by every reward.

    Returns one mapping a row, in the order of `rows`, on every rank: `row`, `prompt`, `answer`, `completion`, `tokens`,
    `truncated`, `metrics`, `rewards`, and, where asked for, `samples` (a list of metrics) and `sampled_completions`;
    with tools also `messages` and `turns`, the kind of each turn. `complete` takes the place of `generate`.
    """
    settings = (max_new_tokens, chat_template_kwargs)
    complete = complete or (lambda batch, how: generate(model, tokenizer, batch, *settings, how))
    batches = [
        list(range(start, min(start + batch_size, len(rows))))
        for start in range(0, len(rows), batch_size)
    ]
    # Under ZeRO-3 every rank must generate equally often; a surplus batch is dropped after the gathering.
    rounds = -(-len(batches) // world_size)
    evaluated = []
    for turn in tqdm(range(rounds), desc=title, unit="batch", disable=rank != 0):
        number = min(turn * world_size + rank, len(batches) - 1)
        batch = [rows[i] for i in batches[number]]
        greedy = {**(decoding or {}), "do_sample": False}
        results = _score(batch, complete(batch, greedy), rewards, metric)
        for draw in range(samples):
            torch.manual_seed(seed * 1_000_003 + number * 1_009 + draw)
            drawn = complete(batch, {**(decoding or {}), "do_sample": True})
            for result, row, completion in zip(results, batch, drawn, strict=True):
                result.setdefault("samples", []).append(metric(row, completion.text))
                result.setdefault("sampled_completions", []).append(completion.text)
        evaluated += [
            {"row": i, **result} for i, result in zip(batches[number], results, strict=True)
        ]
    gathered = gather_object(evaluated) if world_size > 1 else evaluated
    by_row = {result["row"]: result for result in gathered}
    return [by_row[i] for i in range(len(rows))]


def _score(
    rows: list[dict], generated: list[Completion], rewards: list, metric: Metric
) -> list[dict]:
    token_ids, known = [c.token_ids for c in generated], rows
    texts = [c.rollout.messages if c.rollout else c.text for c in generated]
    if (
        generated[0].rollout and generated[0].rollout.environment is not None
    ):  # as TRL hands them to a reward
        known = [
            {**row, "environments": c.rollout.environment}
            for row, c in zip(rows, generated, strict=True)
        ]
    called = [
        reward for reward in rewards if not is_model(reward)
    ]  # TRL alone has a reward model's tokenizer
    scores = {reward_name(reward): score(reward, known, texts, token_ids) for reward in called}
    return [
        {
            "prompt": row["prompt"],
            "answer": row.get("answer"),
            "completion": completion.text,
            **(
                {"messages": rollout.messages, "turns": rollout.turns}
                if (rollout := completion.rollout)
                else {}
            ),
            "tokens": rollout.tokens if rollout else len(completion.token_ids),
            "truncated": completion.truncated,
            "metrics": metric(row, completion.text),
            "rewards": {name: amounts[i] for name, amounts in scores.items()},
        }
        for i, (row, completion) in enumerate(zip(rows, generated, strict=True))
    ]


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """torch's, Python's and numpy's: a reward may draw from any of them."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices):
        yield
    random.setstate(python)
    np.random.set_state(numpy)
