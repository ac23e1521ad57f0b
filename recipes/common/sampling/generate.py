"""Completions outside a trainer, with the decoding that training uses: greedy or sampled."""

from typing import Any, NamedTuple

import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
)  # how to draw; without meaning next to a greedy choice


def decoding_of(training: dict[str, Any]) -> dict[str, Any]:
    """The training's own decoding, as `GRPOTrainer` passes it to `generate`.

    Every setting is given, because the model's generation_config fills in the others: a repetition penalty, say.
    """
    settings = {name: training[name] for name in (*SAMPLING, "repetition_penalty")}
    return {**settings, **(training["generation_kwargs"] or {})}


class Completion(NamedTuple):
    """A generated answer: its text, its token ids (end of sequence included), and whether it was cut off.

    With tools the text is the model's alone, and `rollout` is the whole (see `training/rollout.py`).
    """

    text: str
    token_ids: list[int]
    truncated: bool
    rollout: Any = None


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[dict],
    max_new_tokens: int,
    chat_template_kwargs: dict[str, Any] | None = None,
    decoding: dict[str, Any] | None = None,
) -> list[Completion]:
    """Complete the prompts of `rows` in one left-padded batch; greedy unless `decoding` sets `do_sample`."""
    prompts = [prompt_text(tokenizer, row["prompt"], chat_template_kwargs) for row in rows]
    special = isinstance(rows[0]["prompt"], str)  # a chat template has written its own already
    inputs = tokenizer(
        prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=special
    )
    inputs = inputs.to(model.device)
    settings = generation_config(model, tokenizer, max_new_tokens, decoding)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    output = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    completions = output[:, ids.shape[1] :].tolist()
    return [_finish(tokenizer, tokens, settings.eos_token_id) for tokens in completions]


def generation_config(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
    decoding: dict[str, Any] | None,
) -> GenerationConfig:
    """Greedy unless `decoding` sets `do_sample`; every id that ends a completion, of the model and the tokenizer."""
    eos = _eos_token_ids(model, tokenizer)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    decoding = {"do_sample": False, **(decoding or {})}
    if not decoding["do_sample"]:  # transformers would warn of them
        decoding = {name: value for name, value in decoding.items() if name not in SAMPLING}
    return GenerationConfig(
        max_new_tokens=max_new_tokens, eos_token_id=eos, pad_token_id=pad, **decoding
    )


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
    """Draw `samples` completions of each row by `decoding`; those of a row follow one another, for little padding."""
    repeated = [row for row in rows for _ in range(samples)]
    drawn = []
    torch.manual_seed(seed)
    for start in tqdm(range(0, len(repeated), batch_size), desc=title, unit="batch"):
        batch = repeated[start : start + batch_size]
        how = {**decoding, "do_sample": True}
        drawn += generate(model, tokenizer, batch, max_new_tokens, chat_template_kwargs, how)
    return [drawn[start : start + samples] for start in range(0, len(drawn), samples)]


def prompt_text(
    tokenizer: PreTrainedTokenizerBase, prompt: str | list[dict], kwargs: dict | None = None
) -> str:
    """The text the model sees: a plain prompt as it is, a conversation through the chat template."""
    if isinstance(prompt, str):
        return prompt
    return tokenizer.apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True, **(kwargs or {})
    )


def _finish(tokenizer: PreTrainedTokenizerBase, tokens: list[int], eos: list[int]) -> Completion:
    end = next((i for i, token in enumerate(tokens) if token in eos), None)
    kept = tokens if end is None else tokens[: end + 1]
    return Completion(tokenizer.decode(kept, skip_special_tokens=True), kept, end is None)


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every id that ends a completion: the model's own and the tokenizer's (follows `GRPOTrainer.__init__`)."""
    declared = model.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    return list(dict.fromkeys([tokenizer.eos_token_id, *ids]))
