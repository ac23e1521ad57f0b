"""Honest before and after: the same held-out rows, the same decoding, the training scorers, row by row."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from recipes.common.evaluation.metrics import Metric
from rewards import reward_name
from rewards.audit.call import score

SAMPLING = ("temperature", "top_p", "top_k", "min_p")  # how to draw; without meaning beside a greedy choice


def evaluate_in_training(trainer: GRPOTrainer, rows: list[dict], metric: Metric, samples: int, title: str) -> list:
    """Judge `rows` with the model that `trainer` is training, inside its distributed job, on every rank.

    Batches are cut before they are dealt to the ranks, so each row sees the same neighbours and the
    same padding, and gets the same answer, whatever the number of processes. The random state is as
    before afterwards.
    """
    args = trainer.args
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
        judged = evaluate(
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
            title=title,
        )
        model.train(was_training)
    return judged


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
    title: str = "evaluating",
) -> list[dict[str, Any]]:
    """Greedy answers to every row, and `samples` sampled ones, each judged by `metric` and every reward.

    Returns:
        One mapping a row, in the order of `rows`, on every rank: `row`, `prompt`, `answer`, `completion`,
        `tokens`, `truncated`, `metrics`, `rewards`, and, when asked for, `samples` (a list of metrics) and
        `sampled_completions` (their texts).
    """
    batches = [list(range(start, min(start + batch_size, len(rows)))) for start in range(0, len(rows), batch_size)]
    # Under ZeRO-3 every rank must generate equally often; a surplus batch is dropped after the gathering.
    rounds = -(-len(batches) // world_size)
    judged = []
    for turn in tqdm(range(rounds), desc=title, unit="batch", disable=rank != 0):
        number = min(turn * world_size + rank, len(batches) - 1)
        batch = [rows[i] for i in batches[number]]
        generation = (model, tokenizer, batch, max_new_tokens, chat_template_kwargs)
        greedy = {**(decoding or {}), "do_sample": False}
        results = _judge(batch, generate(*generation, greedy), rewards, metric)
        for draw in range(samples):
            torch.manual_seed(seed * 1_000_003 + number * 1_009 + draw)
            drawn = generate(*generation, {**(decoding or {}), "do_sample": True})
            for result, row, completion in zip(results, batch, drawn, strict=True):
                result.setdefault("samples", []).append(metric(row, completion.text))
                result.setdefault("sampled_completions", []).append(completion.text)
        judged += [{"row": i, **result} for i, result in zip(batches[number], results, strict=True)]
    gathered = gather_object(judged) if world_size > 1 else judged
    by_row = {result["row"]: result for result in gathered}
    return [by_row[i] for i in range(len(rows))]


def decoding_of(training: dict[str, Any]) -> dict[str, Any]:
    """The training's own decoding, as `GRPOTrainer` passes it to `generate`.

    Said in full, because what is left out is filled from the model's generation_config: some chat
    models bring a repetition penalty of their own, which training does not use.
    """
    return {
        **{name: training[name] for name in (*SAMPLING, "repetition_penalty")},
        **(training["generation_kwargs"] or {}),
    }


class Completion(NamedTuple):
    """A generated answer: its text, its token ids (end of sequence included), and whether it was cut off."""

    text: str
    token_ids: list[int]
    truncated: bool


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[dict],
    max_new_tokens: int,
    chat_template_kwargs: dict[str, Any] | None = None,
    decoding: dict[str, Any] | None = None,
) -> list[Completion]:
    """Complete the prompts of `rows` in one left-padded batch; greedy unless `decoding` says `do_sample`."""
    prompts = [prompt_text(tokenizer, row["prompt"], chat_template_kwargs) for row in rows]
    special = isinstance(rows[0]["prompt"], str)  # a chat template has written its own already
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=special)
    inputs = inputs.to(model.device)
    eos = _eos_token_ids(model, tokenizer)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    decoding = {"do_sample": False, **(decoding or {})}
    if not decoding["do_sample"]:  # transformers would warn of them
        decoding = {name: value for name, value in decoding.items() if name not in SAMPLING}
    settings = {"max_new_tokens": max_new_tokens, "eos_token_id": eos, "pad_token_id": pad, **decoding}
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    output = model.generate(input_ids=ids, attention_mask=mask, generation_config=GenerationConfig(**settings))
    completions = output[:, ids.shape[1] :].tolist()
    return [_finish(tokenizer, tokens, eos) for tokens in completions]


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[dict],
    samples: int,
    *,
    max_new_tokens: int,
    batch_size: int,
    decoding: dict[str, Any],
    seed: int = 0,
    chat_template_kwargs: dict[str, Any] | None = None,
    title: str = "sampling",
) -> list[list[Completion]]:
    """`samples` completions of each row, drawn as `decoding` says; not judged.

    Those of a row stand side by side in a batch: few rows fill it too, and hardly any padding is needed.
    """
    repeated = [row for row in rows for _ in range(samples)]
    drawn = []
    torch.manual_seed(seed)
    for start in tqdm(range(0, len(repeated), batch_size), desc=title, unit="batch"):
        batch = repeated[start : start + batch_size]
        how = {**decoding, "do_sample": True}
        drawn += generate(model, tokenizer, batch, max_new_tokens, chat_template_kwargs, how)
    return [drawn[start : start + samples] for start in range(0, len(drawn), samples)]


def prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: str | list[dict], kwargs: dict | None = None) -> str:
    """The text the model sees: a plain prompt as it is, a conversation through the chat template."""
    if isinstance(prompt, str):
        return prompt
    return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **(kwargs or {}))


def _judge(rows: list[dict], generated: list[Completion], rewards: list, metric: Metric) -> list[dict]:
    texts, token_ids = [c.text for c in generated], [c.token_ids for c in generated]
    paid = {reward_name(reward): score(reward, rows, texts, token_ids) for reward in rewards}
    return [
        {
            "prompt": row["prompt"],
            "answer": row.get("answer"),
            "completion": completion.text,
            "tokens": len(completion.token_ids),
            "truncated": completion.truncated,
            "metrics": metric(row, completion.text),
            "rewards": {name: amounts[i] for name, amounts in paid.items()},
        }
        for i, (row, completion) in enumerate(zip(rows, generated, strict=True))
    ]


def _finish(tokenizer: PreTrainedTokenizerBase, tokens: list[int], eos: list[int]) -> Completion:
    end = next((i for i, token in enumerate(tokens) if token in eos), None)
    kept = tokens if end is None else tokens[: end + 1]
    return Completion(tokenizer.decode(kept, skip_special_tokens=True), kept, end is None)


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every id that ends a completion: the model's own and the tokenizer's (follows `GRPOTrainer.__init__`)."""
    declared = model.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    return list(dict.fromkeys([tokenizer.eos_token_id, *ids]))


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """torch's, Python's and numpy's: a reward may draw from any of them."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices):
        yield
    random.setstate(python)
    np.random.set_state(numpy)
