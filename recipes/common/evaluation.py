"""Honest before and after: the same held-out rows, the same decoding, the training scorers, row by row."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from recipes.common.files import write_whole
from recipes.common.intervals import mcnemar_p, wilson_interval
from recipes.common.metrics import Metric
from recipes.common.scoring import score
from rewards import reward_name

SAMPLING = ("temperature", "top_p", "top_k", "min_p")  # how to draw; without meaning beside a greedy choice
MEANING = {"strict": " (format + answer)", "lenient": " (last number)", "format": " (as asked)"}


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


def summarize(judged: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of an evaluation: each metric's share of its rows with Wilson interval, means of lengths and rewards."""
    n = len(judged)
    summary: dict[str, Any] = {"n": n}
    for name in metric_names(judged):
        values = [row["metrics"][name] for row in judged if name in row["metrics"]]
        summary[name] = {"share": sum(values) / len(values), "interval": wilson_interval(sum(values), len(values))}
    summary["truncated"] = sum(row["truncated"] for row in judged) / n
    summary["mean_length"] = sum(row["tokens"] for row in judged) / n
    summary["rewards"] = {
        name: _mean([row["rewards"][name] for row in judged if row["rewards"][name] is not None])
        for name in judged[0]["rewards"]
    }
    if "samples" in judged[0]:
        draws = [draw for row in judged for draw in row["samples"]]
        names = metric_names(judged)
        summary["sampled"] = {name: _mean([draw[name] for draw in draws if name in draw]) for name in names}
    return summary


def metric_names(judged: list[dict[str, Any]]) -> list[str]:
    """The metrics of an evaluation in the order of their first row: rows of different tasks may have different ones."""
    return list(dict.fromkeys(name for row in judged for name in row["metrics"]))


def compare(before: list[dict], after: list[dict]) -> dict[str, float]:
    """The exact McNemar p of each metric over the paired rows.

    Raises:
        ValueError: the two evaluations are not of the same rows.
    """
    if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
        raise ValueError("before and after were not evaluated on the same rows in the same order")
    pairs = [(old["metrics"], new["metrics"]) for old, new in zip(before, after, strict=True)]
    judged = {name: [(o[name], n[name]) for o, n in pairs if name in o and name in n] for name in metric_names(before)}
    return {name: mcnemar_p([o for o, _ in both], [n for _, n in both]) for name, both in judged.items()}


def comparison_table(before: dict[str, Any], after: dict[str, Any] | None, p: dict[str, float] | None) -> str:
    """The table a run ends with, or its first column alone."""
    later = "" if after is None else f"{'after':>24}{'change':>11}   McNemar p"
    lines = [f"  {str(before['n']) + ' held-out rows, greedy':<27}{'before':>14}{later}"]
    for name in [key for key, value in before.items() if isinstance(value, dict) and "share" in value]:
        cells = f"{_share(before[name]):>23}"
        if after is not None:
            change = 100 * (after[name]["share"] - before[name]["share"])
            cells += f"{_share(after[name]):>24}{change:>+8.1f} pt   {p[name]:.2g}"
        lines.append(f"  {name + MEANING.get(name, ''):<27}{cells}")
    for name, label, unit in (("truncated", "truncated %", 100), ("mean_length", "mean length (tokens)", 1)):
        values = [before] if after is None else [before, after]
        cells = "".join(f"{unit * value[name]:>{width}.1f}" for value, width in zip(values, (13, 24), strict=False))
        lines.append(f"  {label:<27}{cells}")
    if "sampled" in before:
        lines += _sampled_lines(before, after)
    return "\n".join(lines)


def _sampled_lines(before: dict[str, Any], after: dict[str, Any] | None) -> list[str]:
    """Mean over the draws at the training temperature."""
    lines = []
    for name in before["sampled"]:
        cells = [f"{100 * summary['sampled'][name]:.1f} %" for summary in (before, after) if summary is not None]
        lines.append(f"  {name + ', sampled':<27}{cells[0]:>15}" + (f"{cells[1]:>24}" if after is not None else ""))
    return lines


def write_rows(path: Path, judged: list[dict[str, Any]]) -> None:
    """One JSON object a row; the file is whole or absent."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in judged))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote."""
    with path.open(encoding="utf-8", newline="\n") as lines:  # str.splitlines would cut at U+2028 inside a string
        return [json.loads(line) for line in lines]


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


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(value: dict[str, Any]) -> str:
    low, high = value["interval"]
    return f"{100 * value['share']:.1f} % ({100 * low:.0f}-{100 * high:.0f})"
