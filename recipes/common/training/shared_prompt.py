"""Compute each prompt once for all completions of its group, in `generate` and in the update.

TRL computes a prompt again for each completion of its group. Here each distinct prompt of a batch
goes through the model once and leaves its keys and values in a cache (with gradient in training).
The completions continue from the cache. The model's output is the same up to rounding.

In shapes: B rows of a batch, U distinct prompts among them, W tokens of a padded prompt.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.integrations import sdpa_attention
from trl import GRPOConfig

from recipes.common.training.completion import replaced

SCORED = {"input_ids", "attention_mask", "labels", "fused_lm_head"}  # how TRL asks for a loss
GENERATED = {"input_ids", "attention_mask", "generation_config"}
PER_TOKEN = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1", "label_mask")
WORTH_SHARING = 16  # tokens of a common beginning; a shorter one costs more calls than it saves


def why_prompts_are_not_shared(args: GRPOConfig, config: PreTrainedConfig | None) -> str | None:
    """Return the reason why prompts cannot be shared; None if they can.

    `config` is the model's; if it is None (not yet known), only `args` are checked.
    """
    if args.gradient_checkpointing:
        return (
            "gradient_checkpointing computes a layer again, without the cache that holds the prompt"
        )
    if config is None:
        return None
    if config.is_encoder_decoder:
        return "the model reads its prompt with an encoder"
    if getattr(config, "vision_config", None) is not None:
        return "the model sees images"
    if getattr(config.get_text_config(), "output_router_logits", False):
        return "the loss has a part for the router of its experts, which counts every token"
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config).layers}
    if kinds != {DynamicLayer.__name__}:
        return f"the model's cache is not a plain one ({', '.join(sorted(kinds))})"
    return None


def share_prompts(model: PreTrainedModel, partitioned: bool = False) -> None:
    """Patch `model` (with TRL's fused LM head) to compute shared prompts of a batch only once.

    `forward` changes only for TRL's log-probabilities, and `generate` only for one sequence for
    each row. Every other call runs as before.

    Args:
        partitioned: the parameters are spread over processes (ZeRO-3, FSDP), which must call the
            model equally often: `generate` then shares whole prompts, and no common beginning.
    """
    plain_forward, plain_generate = model.forward, model.generate

    @functools.wraps(type(model).forward)  # `generate` reads the signature
    def forward(self, *args, **kwargs):
        arguments = _without_none(kwargs)
        if args or arguments.keys() != SCORED:
            return plain_forward(*args, **kwargs)
        return _score(self.base_model, plain_forward, **arguments)

    @functools.wraps(type(model).generate)
    @torch.no_grad()
    def generate(self, *args, **kwargs):
        arguments = _without_none(kwargs)
        if args or arguments.keys() != GENERATED or not _goes_on_from_a_cache(**arguments):
            return plain_generate(*args, **kwargs)
        ids, config = kwargs["input_ids"], kwargs["generation_config"]
        mask = kwargs["attention_mask"][:, :-1]
        cache = _generation_cache(self.base_model, ids[:, :-1], mask, partitioned)
        # Other limits of `generate` can only make the completion shorter.
        new_tokens = config.max_new_tokens or config.max_length - ids.shape[1]
        cache.layers = [_RoomyLayer(layer, new_tokens) for layer in cache.layers]
        kwargs["past_key_values"] = cache
        if ids.device.type != "cpu":
            return plain_generate(**kwargs)
        # On a CPU, torch attends over grouped heads 8 times slower if there is one query, as for
        # each new token. With False, transformers packs the heads of a group as queries of one
        # head. The result is the same; transformers does this anyway for a batch with padding.
        with replaced(sdpa_attention, use_gqa_in_sdpa=lambda *args: False):
            return plain_generate(**kwargs)

    model.forward = types.MethodType(forward, model)
    model.generate = types.MethodType(generate, model)


def _without_none(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Drop arguments that are None: PEFT passes all its arguments, most of them as None."""
    return {name: value for name, value in kwargs.items() if value is not None}


def _goes_on_from_a_cache(input_ids, attention_mask, generation_config) -> bool:
    several = (generation_config.num_beams or 1) * (generation_config.num_return_sequences or 1)
    plain_cache = generation_config.use_cache is not False
    plain_cache = plain_cache and generation_config.cache_implementation is None
    return several == 1 and plain_cache and input_ids.shape[1] > 1


# --- The update


def _score(
    backbone: nn.Module,
    forward: Callable,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    labels: torch.Tensor,
    fused_lm_head: bool,
):
    """TRL's output for (B, tokens) inputs; tokens before the first label run once a prompt."""
    width = input_ids.shape[1]
    labelled = (labels != -100).any(dim=0).nonzero()
    # The last token of the prompt predicts the first of the completion. Every process goes this
    # way, even if all its completions are masked: engines need equal numbers of model calls.
    start = labelled[0].item() - 1 if len(labelled) else width - 2
    inputs = {"labels": labels[:, start:], "fused_lm_head": fused_lm_head}
    if start < 1:
        return forward(input_ids=input_ids, attention_mask=attention_mask, **inputs)
    cache, inverse_B = _prompt_cache(backbone, input_ids[:, :start], attention_mask[:, :start])
    cache.batch_select_indices(inverse_B)
    inputs |= {"input_ids": input_ids[:, start:], "attention_mask": attention_mask}
    output = forward(past_key_values=cache, **inputs)
    for name in PER_TOKEN:
        value = getattr(output, name)
        if value is not None:
            setattr(output, name, pad(value, (start, 0)))
    return output


def _prompt_cache(
    backbone: nn.Module, ids_BW: torch.Tensor, mask_BW: torch.Tensor
) -> tuple[DynamicCache, torch.Tensor]:
    """The cache of the U distinct prompts, and for each of the B rows the index of its prompt."""
    first_U, inverse_B = _unlike_rows(ids_BW, mask_BW)
    cache = DynamicCache(config=backbone.config)
    backbone(
        input_ids=ids_BW[first_U],
        attention_mask=mask_BW[first_U],
        past_key_values=cache,
        use_cache=True,
    )
    return cache, inverse_B


def _unlike_rows(ids_BW: torch.Tensor, mask_BW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first index of each distinct row, (U,), and each row's distinct row number, (B,)."""
    both = torch.cat([ids_BW, mask_BW.to(ids_BW.dtype)], dim=1)
    unlike, inverse_B = torch.unique(both, dim=0, return_inverse=True)
    rows = torch.arange(len(both), device=both.device)
    first_U = rows.new_full((len(unlike),), len(both))
    return first_U.scatter_reduce(0, inverse_B, rows, "amin"), inverse_B


# --- Generation


def _generation_cache(
    backbone: nn.Module, ids_BW: torch.Tensor, mask_BW: torch.Tensor, partitioned: bool
) -> DynamicCache:
    """The cache that `generate` would make for left-padded prompts, with the same column order.

    A beginning that all prompts share, such as instructions, is computed once, as one row.
    """
    first_U, inverse_B = _unlike_rows(ids_BW, mask_BW)
    ids, mask = ids_BW[first_U], mask_BW[first_U]
    padding_U = (mask == 0).sum(dim=1)
    shared = 0 if partitioned or len(ids) == 1 else _common_beginning(ids, padding_U)
    cache = DynamicCache(config=backbone.config)
    if shared:
        beginning = ids[:1, padding_U[0] : padding_U[0] + shared]
        backbone(input_ids=beginning, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(ids))
    # Reorder the columns: the shared beginning, the padding of the row, the rest of the row.
    columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    moved = columns < padding_U.unsqueeze(1) + shared
    source = torch.where(columns < shared, columns + padding_U.unsqueeze(1), columns - shared)
    source = torch.where(moved, source, columns)
    ids, mask = ids.gather(1, source), mask.gather(1, source)
    # `generate` does not count padding in positions; a forward without `position_ids` would.
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    backbone(
        input_ids=ids[:, shared:],
        attention_mask=mask,
        position_ids=positions[:, shared:],
        past_key_values=cache,
        use_cache=True,
    )
    back = source.argsort(dim=1)
    for layer in cache.layers:
        layer.keys = _take(layer.keys, back)[inverse_B]
        layer.values = _take(layer.values, back)[inverse_B]
    return cache


def _common_beginning(ids_UW: torch.Tensor, padding_U: torch.Tensor) -> int:
    """How many first tokens all prompts share; 0 if too few. Each prompt keeps one more token."""
    length = ids_UW.shape[1] - int(padding_U.max()) - 1
    offsets = torch.arange(max(length, 0), device=ids_UW.device)
    beginnings = ids_UW.gather(1, padding_U.unsqueeze(1) + offsets)
    same = (beginnings == beginnings[:1]).all(dim=0).long()
    shared = int(same.cumprod(dim=0).sum())
    return shared if shared >= WORTH_SHARING else 0


def _take(states: torch.Tensor, columns_UW: torch.Tensor) -> torch.Tensor:
    """Reorder the columns of each row in keys or values of shape (U, heads, W, size)."""
    index = columns_UW[:, None, :, None].expand_as(states)
    return states.gather(2, index)


class _RoomyLayer(DynamicLayer):
    """A cache layer with preallocated room for the generated tokens.

    A `DynamicLayer` copies all keys and values at each token: a quarter of the time on a CPU.
    """

    def __init__(self, layer: DynamicLayer, new_tokens: int):
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        room = (0, 0, 0, new_tokens + 1)  # the last token of the prompt is not in the cache
        self.all_keys, self.all_values = pad(layer.keys, room), pad(layer.values, room)
        self.keys, self.values = layer.keys, layer.values

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self.all_keys.shape[2]:
            return super().update(key_states, value_states, *args, **kwargs)
        self.all_keys[:, :, start:end], self.all_values[:, :, start:end] = key_states, value_states
        self.keys, self.values = self.all_keys[:, :, :end], self.all_values[:, :, :end]
        return self.keys, self.values
