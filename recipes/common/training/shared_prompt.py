"""Compute each prompt once for all completions of its group, in `generate` and in the update.

TRL computes a prompt again for each completion of its group. Here each distinct prompt of a batch
goes through the model once and leaves its keys and values in a cache (with gradient in training).
The completions continue from the cache. The model's output is the same up to rounding.

This does not hold for every model, so each model is tried: its settings, cache and rotary embedding
when the trainer is made, its log-probabilities and its generation on a tiny batch at the first
call. If one of these fails, TRL's own way runs, and a warning gives the reason.

In shapes: B rows of a batch, U distinct prompts among them, W tokens of a padded prompt.
"""

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import gather_object, is_peft_model
from torch import nn
from torch.nn.functional import pad
from transformers import DynamicCache, GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.integrations import is_deepspeed_zero3_enabled, sdpa_attention
from trl import GRPOConfig, GRPOTrainer

from recipes.common.training.completion import replaced

SCORED = {"input_ids", "attention_mask", "labels", "fused_lm_head"}  # how TRL asks for a loss
GENERATED = {"input_ids", "attention_mask", "generation_config"}
PER_TOKEN = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1", "label_mask")
WORTH_SHARING = 16  # tokens of a common beginning; a shorter one costs more calls than it saves
FAR = 2**24  # a position after the last of every model


def share_prompts_of(trainer: GRPOTrainer) -> None:
    """Share prompts in the policy and the reference model, or warn why this is not possible."""
    args = trainer.args
    partitioned = trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled()
    for model in filter(None, (trainer.model, trainer.ref_model)):
        inner = trainer.accelerator.unwrap_model(model)
        inner = inner.get_base_model() if is_peft_model(inner) else inner
        # All processes must call the model equally often.
        reasons = gather_object([why_prompts_are_not_shared(args, inner)])
        reason = next(filter(None, reasons), None)
        if reason is None:
            share_prompts(inner, partitioned, args.bf16 or args.fp16 or inner.dtype.itemsize < 4)
        elif model is trainer.model:
            warnings.warn(f"share_prompts has no effect: {reason}.", stacklevel=3)


def why_prompts_are_not_shared(args: GRPOConfig, model: PreTrainedModel) -> str | None:
    """Return the reason why this model cannot share prompts with these settings; None if it can.

    Reads the configuration and tries the rotary embedding, but does not call the model.
    """
    config = model.config
    if args.gradient_checkpointing:
        return (
            "gradient_checkpointing computes a layer again, without the cache that holds the prompt"
        )
    if config.is_encoder_decoder:
        return "the model reads its prompt with an encoder"
    if getattr(config, "vision_config", None) is not None:
        return "the model sees images"
    if getattr(config.get_text_config(), "output_router_logits", False):
        return "the loss has a part for the router of its experts, which counts every token"
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config).layers}
    if kinds != {DynamicLayer.__name__}:
        return f"the model's cache is not a plain one ({', '.join(sorted(kinds))})"
    try:
        depends_on_length = _rotation_depends_on_length(model)
    except Exception as error:  # another kind of module, which may do anything
        return f"its rotary embedding cannot be tried ({type(error).__name__}: {error})"
    if depends_on_length:
        return (
            "its rotary embedding depends on the number of tokens in a call, so a prompt alone "
            "has other keys than a prompt with its completion"
        )
    return None


def _rotation_depends_on_length(model: PreTrainedModel) -> bool:
    """Whether a later token changes how the tokens before it are rotated (dynamic scaling)."""
    for module in model.modules():
        buffers = [name for name, _ in module.named_buffers(recurse=False)]
        if not any(name.endswith("inv_freq") for name in buffers):
            continue
        arguments: list[dict[str, Any]] = [{}]
        if "layer_type" in inspect.signature(module.forward).parameters:
            arguments = [{"layer_type": kind} for kind in set(model.config.layer_types)]
        states = torch.zeros(1, device=model.device)  # gives the device and dtype of the result
        positions = torch.tensor([[0, 1, 2, 3, FAR]], device=model.device)
        for more in arguments:
            cosines_far, _ = module(states, positions, **more)
            cosines, _ = module(states, positions[:, :4], **more)  # also undoes what FAR changed
            if not torch.allclose(cosines, cosines_far[:, :4]):
                return True
    return False


def share_prompts(
    model: PreTrainedModel, partitioned: bool = False, in_half_precision: bool = False
) -> None:
    """Patch `model` (with TRL's fused LM head) to compute shared prompts of a batch only once.

    `forward` changes only for TRL's log-probabilities, and `generate` only for one sequence for
    each row. Every other call runs as before. The first call of either tries on a tiny batch
    whether the result stays the same; a warning says if not, and it stays plain.

    Args:
        partitioned: the parameters are spread over processes (ZeRO-3, FSDP2), which must call the
            model equally often: `generate` then shares whole prompts, and no common beginning.
        in_half_precision: the model computes in bfloat16 or float16, whose rounding is larger.
    """
    plain_forward, plain_generate = model.forward, model.generate
    score = functools.partial(_score, model, plain_forward, partitioned)
    generate_shared = functools.partial(_generate, model, plain_generate, partitioned)
    # In bfloat16 SmolLM2 and Qwen2.5 differ by 0.1 of it for the rounding of their logits alone.
    tolerance = 0.15 if in_half_precision else 1e-3
    reasons: dict[str, str | None] = {}  # by part of the work, once it was tried
    warned: set[str] = set()

    def is_shared(part: str, reason: str | None, trial: Callable[[], str | None]) -> bool:
        if reason is None:
            if part not in reasons:
                tried = [_try(model, trial)]
                # The processes of such an engine must call the model equally often.
                tried = gather_object(tried) if partitioned else tried
                reasons[part] = next(filter(None, tried), None)
            reason = reasons[part]
        if reason is not None and part not in warned:
            warned.add(part)
            warnings.warn(f"share_prompts has no effect on {part}: {reason}.", stacklevel=3)
        return reason is None

    @functools.wraps(type(model).forward)  # `generate` reads the signature
    def forward(self, *args, **kwargs):
        arguments = _without_none(kwargs)
        if args or not arguments.keys() >= SCORED:
            return plain_forward(*args, **kwargs)
        reason = _other_arguments(arguments, SCORED)
        trial = functools.partial(_why_update_differs, model, plain_forward, score, tolerance)
        if not is_shared("the update", reason, trial):
            return plain_forward(**kwargs)
        return score(**arguments)

    @functools.wraps(type(model).generate)
    @torch.no_grad()
    def generate(self, *args, **kwargs):
        arguments = _without_none(kwargs)
        if args or not arguments.keys() >= GENERATED or arguments["input_ids"].shape[1] == 1:
            return plain_generate(*args, **kwargs)
        config = arguments["generation_config"]
        reason = _other_arguments(arguments, GENERATED) or _why_no_cache(config)
        generates = (plain_generate, generate_shared)
        trial = functools.partial(
            _why_generation_differs, model, *generates, config.use_cache, tolerance
        )
        if not is_shared("generation", reason, trial):
            return plain_generate(**kwargs)
        return generate_shared(**arguments)

    model.forward = types.MethodType(forward, model)
    model.generate = types.MethodType(generate, model)


def _without_none(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Drop arguments that are None: PEFT passes all its arguments, most of them as None."""
    return {name: value for name, value in kwargs.items() if value is not None}


def _other_arguments(arguments: dict[str, Any], known: set[str]) -> str | None:
    names = sorted(arguments.keys() - known)
    return f"the model is called with {', '.join(names)}, too" if names else None


def _why_no_cache(config: GenerationConfig) -> str | None:
    if (config.num_beams or 1) * (config.num_return_sequences or 1) > 1:
        return "num_beams or num_return_sequences is more than 1"
    if config.use_cache is False or config.cache_implementation is not None:
        return "use_cache is false, or cache_implementation is set"
    return None


# --- Trials: is the result the same?


def _try(model: PreTrainedModel, trial: Callable[[], str | None]) -> str | None:
    """The reason that the trial returns, or its exception; without gradient and dropout."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return trial()
    except Exception as error:  # whatever a model does with a cache that it does not expect
        return f"a trial ends with {type(error).__name__}: {error}"
    finally:
        model.train(was_training)


def _trial_batch(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Three rows of 28 tokens; the first two have the same first 24, the third has padding.

    All begin with the same 18 tokens, and the first and the third end with the same five.
    """
    vocabulary = model.config.get_text_config().vocab_size
    tokens = (torch.arange(1, 33, device=model.device) * vocabulary) // 33
    beginning, middle, end, other_end = tokens.split([18, 5, 5, 4])
    padding = beginning.new_zeros(3)
    ids = torch.stack(
        [
            torch.cat([beginning, middle, end]),
            torch.cat([beginning, middle, end[:1], other_end]),
            torch.cat([padding, beginning, middle[:2], end]),
        ]
    )
    mask = torch.ones_like(ids)
    mask[2, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _why_update_differs(
    model: PreTrainedModel, plain_forward: Callable, score: Callable, tolerance: float
) -> str | None:
    batch = _trial_batch(model)
    labels = batch["input_ids"].clone()
    labels[:, :-4] = -100
    other = dict(batch, input_ids=batch["input_ids"].clone())
    other["input_ids"][:, :-5] += model.config.get_text_config().vocab_size // 66
    plain, shared, after_other = (
        forward(**inputs, labels=labels, fused_lm_head=True).log_probs[:, -4:]
        for forward, inputs in ((plain_forward, batch), (score, batch), (plain_forward, other))
    )
    return _why_apart(plain, shared, plain - after_other, tolerance)


def _why_generation_differs(
    model: PreTrainedModel,
    plain_generate: Callable,
    generate_shared: Callable,
    use_cache: bool | None,
    tolerance: float,
) -> str | None:
    config = GenerationConfig(
        min_new_tokens=2,
        max_new_tokens=2,
        do_sample=False,
        num_beams=1,
        use_cache=use_cache,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    plain, shared = (
        generate(**_trial_batch(model), generation_config=config)
        for generate in (plain_generate, generate_shared)
    )
    # After another first token the second step cannot be compared.
    first_tokens = [output.sequences[:, -2] for output in (plain, shared)]
    steps = 2 if torch.equal(*first_tokens) else 1
    plain, shared = (
        torch.stack(output.logits[:steps]).log_softmax(dim=-1) for output in (plain, shared)
    )
    return _why_apart(plain, shared, plain[0, 0] - plain[0, 2], tolerance)


def _why_apart(
    plain: torch.Tensor, shared: torch.Tensor, by_another_prompt: torch.Tensor, tolerance: float
) -> str | None:
    """A reason if log-probabilities differ by more than a part of what another prompt changes."""
    error = (plain - shared).float().square().mean().sqrt().item()
    change = by_another_prompt.float().square().mean().sqrt().item()
    if error <= tolerance * change:
        return None
    return (
        f"its log-probabilities change by {error:.2g} in a trial in which another prompt changes "
        f"them by {change:.2g}"
    )


# --- The update


def _score(
    model: PreTrainedModel,
    forward: Callable,
    partitioned: bool,
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
    inputs = {"attention_mask": attention_mask, "fused_lm_head": fused_lm_head}
    if start < 1:
        return forward(input_ids=input_ids, labels=labels, **inputs)
    first_U, inverse_B = _unlike_rows(input_ids[:, :start], attention_mask[:, :start])
    cache = DynamicCache(config=model.config)
    prompt = model.base_model(
        input_ids=input_ids[first_U, :start],
        attention_mask=attention_mask[first_U, :start],
        past_key_values=cache,
        use_cache=True,
    )
    cache.batch_select_indices(inverse_B)
    inputs |= {"input_ids": input_ids[:, start:], "labels": labels[:, start:]}
    output = forward(past_key_values=cache, **inputs)
    if partitioned:
        # FSDP2 fetches the weights of a layer for the backward pass when the layer's output gets a
        # gradient. The last layer passes on only keys and values: give its output the gradient 0.
        output.log_probs = output.log_probs + 0.0 * prompt.last_hidden_state[0, -1, 0]
    for name in PER_TOKEN:
        value = getattr(output, name)
        if value is not None:
            setattr(output, name, pad(value, (start, 0)))
    return output


def _unlike_rows(ids_BW: torch.Tensor, mask_BW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first index of each distinct row, (U,), and each row's distinct row number, (B,)."""
    both = torch.cat([ids_BW, mask_BW.to(ids_BW.dtype)], dim=1)
    unlike, inverse_B = torch.unique(both, dim=0, return_inverse=True)
    rows = torch.arange(len(both), device=both.device)
    first_U = rows.new_full((len(unlike),), len(both))
    return first_U.scatter_reduce(0, inverse_B, rows, "amin"), inverse_B


# --- Generation


def _generate(
    model: PreTrainedModel,
    plain_generate: Callable,
    partitioned: bool,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    generation_config: GenerationConfig,
):
    """What `generate` returns for (B, W) inputs; all but the last token of a prompt is cached."""
    ids, mask = input_ids[:, :-1], attention_mask[:, :-1]
    cache = _generation_cache(model.base_model, ids, mask, partitioned)
    # Other limits of `generate` can only make the completion shorter.
    new_tokens = generation_config.max_new_tokens
    if new_tokens is None:
        new_tokens = generation_config.max_length - input_ids.shape[1]
    cache.layers = [_RoomyLayer(layer, new_tokens) for layer in cache.layers]
    arguments = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "generation_config": generation_config,
        "past_key_values": cache,
    }
    if input_ids.device.type != "cpu":
        return plain_generate(**arguments)
    # On a CPU, torch attends over grouped heads 8 times slower if there is one query, as for each
    # new token. With False, transformers packs the heads of a group as queries of one head. The
    # result is the same; transformers does this anyway for a batch with padding.
    with replaced(sdpa_attention, use_gqa_in_sdpa=lambda *args: False):
        return plain_generate(**arguments)


def _generation_cache(
    backbone: nn.Module, ids_BW: torch.Tensor, mask_BW: torch.Tensor, partitioned: bool
) -> DynamicCache:
    """The cache that `generate` would make for left-padded prompts, with the same column order.

    A beginning that all prompts share, such as instructions, is computed once, as one row.
    """
    first_U, inverse_B = _unlike_rows(ids_BW, mask_BW)
    ids, mask = ids_BW[first_U], mask_BW[first_U]
    padding_U = (mask == 0).sum(dim=1)
    # Without this argument a model takes a token's position from its column.
    takes_positions = "position_ids" in inspect.signature(backbone.forward).parameters
    shared = 0
    if takes_positions and not partitioned and len(ids) > 1:
        shared = _common_beginning(ids, padding_U)
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
    rest = {"input_ids": ids[:, shared:], "attention_mask": mask}
    if takes_positions:
        rest["position_ids"] = positions[:, shared:]
    backbone(**rest, past_key_values=cache, use_cache=True)
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
