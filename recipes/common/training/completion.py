"""A completion of the model, how training draws it, and completing with any `trl.GRPOTrainer`."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig
from trl import GRPOTrainer, maybe_apply_chat_template
from trl.models import unwrap_model_for_generation

from rewards.text import completion_text

SAMPLING = ("temperature", "top_p", "top_k", "min_p")  # without meaning next to a greedy choice


@dataclass
class Rollout:
    """A completion: what rewards get, and what the model itself wrote of it."""

    completion: list[dict] | str  # messages, or text after a prompt of plain text
    token_ids: list[int]  # of all turns, the tools' included, with the end of sequence
    tokens: int  # of the model alone
    truncated: bool
    turns: list[str]  # with tools the kind of each turn of the model
    environment: Any

    @property
    def text(self) -> str:
        """What the model wrote, without the tools' answers."""
        return completion_text(self.completion)


def decoding_of(training: dict[str, Any]) -> dict[str, Any]:
    """How training draws, all of it: the model's own settings would fill in the others."""
    settings = {name: training[name] for name in (*SAMPLING, "repetition_penalty")}
    return settings | (training["generation_kwargs"] or {})


def generation_config(args: Any, ends: list[int], pad: int, do_sample: bool) -> GenerationConfig:
    """The same for transformers, or greedily; `ends` and `pad` are token ids."""
    decoding = decoding_of(vars(args))
    if not do_sample:
        decoding = {name: value for name, value in decoding.items() if name not in SAMPLING}
    return GenerationConfig(
        **decoding,
        do_sample=do_sample,
        max_new_tokens=args.max_completion_length,
        eos_token_id=ends,
        pad_token_id=pad,
    )


def complete_plainly(
    trainer: GRPOTrainer, rows: list[dict], do_sample: bool = False
) -> list[Rollout]:
    """Complete each row by the public parts of any trainer of TRL, without tools and vLLM.

    Chat template, lengths and decoding are those of training. Any end token of the model ends a
    completion; TRL before 1.16 knows that of the tokenizer alone.
    """
    args, processor = trainer.args, trainer.processing_class
    tokenizer = getattr(processor, "tokenizer", processor)
    templated = [
        maybe_apply_chat_template(
            {"prompt": row["prompt"]}, processor, **(args.chat_template_kwargs or {})
        )
        for row in rows
    ]
    is_plain = isinstance(rows[0]["prompt"], str)
    prompts = tokenizer(
        [each["prompt"] for each in templated],
        padding=True,
        padding_side="left",
        add_special_tokens=is_plain,  # a chat template writes its own
        return_tensors="pt",
    )
    pair = {name: prompts[name] for name in ("input_ids", "attention_mask")}
    with (
        torch.no_grad(),
        unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model,
    ):
        ends = model.generation_config.eos_token_id
        ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
        config = generation_config(args, sorted(ends), tokenizer.pad_token_id, do_sample)
        given = {name: ids.to(trainer.accelerator.device) for name, ids in pair.items()}
        written_RT = model.generate(**given, generation_config=config)
    written_RT = written_RT[:, pair["input_ids"].shape[1] :].tolist()
    rollouts = []
    for tokens in written_RT:
        at = next((i for i, token in enumerate(tokens) if token in ends), None)
        ids = tokens if at is None else tokens[: at + 1]
        text = tokenizer.decode(ids, skip_special_tokens=True)
        completion = text if is_plain else [{"role": "assistant", "content": text}]
        rollouts.append(Rollout(completion, ids, len(ids), at is None, [], None))
    return rollouts
