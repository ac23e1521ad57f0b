"""Compute each prompt once for all completions of its group, in `generate` and in the update.

TRL computes a prompt again for each completion of its group. Here each distinct prompt of a batch
goes through the model once and leaves its keys and values in a cache (with gradient in training).
The completions continue from the cache. The model's output is the same up to rounding.

This does not hold for every model: where it does not, TRL's own way runs, and a warning gives the
reason.

In shapes: B rows of a batch, U distinct prompts among them, W tokens of a padded prompt.
"""

import copy
import functools
import inspect
import types
import warnings
from collections.abc import Callable

import torch
from accelerate.utils import gather_object, is_peft_model
from torch.nn.functional import pad
from transformers import DynamicCache, GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.integrations import is_deepspeed_zero3_enabled, sdpa_attention
from trl import GRPOConfig, GRPOTrainer

from recipes.common.training.completion import SAMPLING, replaced

LOSS_ARGUMENTS = {"input_ids", "attention_mask", "labels", "fused_lm_head"}
GENERATE_ARGUMENTS = {"input_ids", "attention_mask", "generation_config"}
PER_TOKEN = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1", "label_mask")
WORTH_SHARING = 16  # tokens of a common beginning; a shorter one costs more calls than it saves
PART = 32  # new tokens after which completions that have ended leave the batch
# With these settings of `generate` a completion ends by an end token or by the limit alone, and no
# token depends on where a call of `generate` began.
ENDS_BY_TOKEN = {
    *("max_new_tokens", "eos_token_id", "pad_token_id", "bos_token_id", "do_sample"),
    *(*SAMPLING, "repetition_penalty", "disable_compile", "use_cache"),
    *("output_attentions", "output_hidden_states", "transformers_version", "_from_model_config"),
}
ROTATED_BY_LENGTH = ("dynamic", "longrope")  # rotary embeddings in which a later token counts


def share_prompts_of(trainer: GRPOTrainer) -> None:
    """Share prompts in the policy and the reference model, or warn why this is not possible."""
    args = trainer.args
    weights_are_sharded = trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled()
    for model in filter(None, (trainer.model, trainer.ref_model)):
        whole = trainer.accelerator.unwrap_model(model)
        inner = whole.get_base_model() if is_peft_model(whole) else whole
        reason = why_prompts_are_not_shared(args, inner)  # the same on all processes
        if reason is None:
            in_half_precision = args.bf16 or args.fp16 or inner.dtype.itemsize < 4
            obstacle = why_finished_stay(inner, weights_are_sharded) if args.drop_finished else None
            if obstacle and model is trainer.model:
                warnings.warn(f"drop_finished has no effect: {obstacle}.", stacklevel=3)
            drop_finished = args.drop_finished and obstacle is None
            share_prompts(inner, weights_are_sharded, in_half_precision, drop_finished)
            # accelerate's autocast is around `forward` alone, and PEFT's `generate` goes past it.
            if inner is whole:
                inner.generate = trainer.accelerator.autocast()(inner.generate)
        elif model is trainer.model:
            warnings.warn(f"share_prompts has no effect: {reason}.", stacklevel=3)


def why_prompts_are_not_shared(args: GRPOConfig, model: PreTrainedModel) -> str | None:
    """Return the reason why this model cannot share prompts with these settings; None if it can.

    Nothing is computed. Whether the outputs are equal is tested at the model's first calls.
    """
    config = model.config
    if args.gradient_checkpointing:
        return "gradient_checkpointing computes a layer again, without the cache of the prompt"
    if any(part.p > 0 for part in model.modules() if isinstance(part, torch.nn.Dropout)):
        return "dropout draws anew for each row: set disable_dropout: true and lora_dropout: 0.0"
    if getattr(config, "vision_config", None) is not None:
        return "the model sees images"
    if getattr(config.get_text_config(), "output_router_logits", False):
        return "the loss has a part for the router of its experts, which counts every token"
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config).layers}
    if kinds != {DynamicLayer.__name__}:
        return f"the model's cache is not a plain one ({', '.join(sorted(kinds))})"
    rotary = str(getattr(config.get_text_config(), "rope_parameters", None))
    if any(kind in rotary for kind in ROTATED_BY_LENGTH):
        return (
            "its rotary embedding depends on the number of tokens in a call, so a prompt alone "
            "has other keys than a prompt with its completion"
        )
    if not type(config).__module__.startswith("transformers."):
        return "its code is not part of transformers, so its rotary embedding may be of any kind"
    return None


def why_finished_stay(model: PreTrainedModel, weights_are_sharded: bool) -> str | None:
    """Return the reason why finished completions cannot leave the batch; None if they can."""
    if weights_are_sharded:
        return "with ZeRO-3 and FSDP all processes must call the model equally often"
    if unknown := sorted(model.generation_config.to_diff_dict().keys() - ENDS_BY_TOKEN):
        return f"the model's generation_config sets {', '.join(unknown)}"
    return None


def share_prompts(
    model: PreTrainedModel,
    sharded: bool = False,
    in_half_precision: bool = False,
    drop_finished: bool = False,
) -> None:
    """Patch `model` (with TRL's fused LM head) to compute shared prompts of a batch only once.

    `forward` changes only for TRL's log-probabilities, and `generate` only for a batch of more than
    one token a row. Every other call runs as before. The first call of either compares both ways on
    a tiny batch. If the results differ, a warning says so, and that method goes on as before.

    Args:
        sharded: the weights are spread over processes (ZeRO-3, FSDP2), which must call the model
            equally often: `generate` then shares whole prompts, and no common beginning.
        in_half_precision: the model computes in bfloat16 or float16, whose rounding is larger.
        drop_finished: completions that have ended leave the batch every 32 tokens. What is sampled
            after 32 tokens then differs from TRL's for the same seed.
    """
    shared = _SharedPrompts(model, sharded, in_half_precision, drop_finished)

    @functools.wraps(type(model).forward)  # `generate` reads the signature
    def forward(self, *args, **kwargs):
        # PEFT passes all its arguments, most of them as None.
        arguments = {name: value for name, value in kwargs.items() if value is not None}
        if args or not arguments.keys() >= LOSS_ARGUMENTS:  # not TRL's log-probabilities
            return shared.plain_forward(*args, **kwargs)
        unknown = arguments.keys() - LOSS_ARGUMENTS
        if not shared.may_share("the update", unknown, shared.why_update_differs):
            return shared.plain_forward(**kwargs)
        return shared.score(**arguments)

    @functools.wraps(type(model).generate)
    @torch.no_grad()
    def generate(self, *args, **kwargs):
        arguments = {name: value for name, value in kwargs.items() if value is not None}
        is_from_trl = not args and arguments.keys() >= GENERATE_ARGUMENTS
        if not is_from_trl or arguments["input_ids"].shape[1] == 1:  # one token: nothing to share
            return shared.plain_generate(*args, **kwargs)
        unknown = arguments.keys() - GENERATE_ARGUMENTS
        compare = functools.partial(shared.why_generation_differs, arguments["generation_config"])
        if not shared.may_share("generation", unknown, compare):
            return shared.plain_generate(**kwargs)
        return shared.generate(**arguments)

    model.forward = types.MethodType(forward, model)
    model.generate = types.MethodType(generate, model)


class _SharedPrompts:
    """A model with both ways to compute a batch, plain and shared, and how they compare."""

    def __init__(
        self, model: PreTrainedModel, sharded: bool, in_half_precision: bool, drop_finished: bool
    ):
        self.model, self.weights_are_sharded = model, sharded
        self.drop_finished = drop_finished
        self.plain_forward, self.plain_generate = model.forward, model.generate
        # How much of the change that another prompt makes counts as rounding. In bfloat16 the
        # rounded logits of SmolLM2 and Qwen2.5 make 0.1 of it.
        self.tolerance = 0.15 if in_half_precision else 1e-3
        self.refused: dict[str, str | None] = {}  # by part: why it is not shared; None: it is
        self.warned: set[str] = set()

    # --- Is the result the same?

    def may_share(self, part: str, unknown: set[str], compare: Callable[[], str | None]) -> bool:
        """Whether this call of the model for `part` may share prompts; warn once if not.

        `part` is "the update" or "generation"; `unknown` are arguments that sharing does not
        handle, such as those of a later TRL. The first call runs `compare`: a tiny batch with and
        without sharing. It returns why the results differ, or None.
        """
        reason = f"the model is called with {', '.join(sorted(unknown))}, too" if unknown else None
        if reason is None and part not in self.refused:
            reasons = [self._run_comparison(compare)]
            # Such processes must call the model equally often: if one may not share, none may.
            reasons = gather_object(reasons) if self.weights_are_sharded else reasons
            self.refused[part] = next(filter(None, reasons), None)
        reason = reason or self.refused[part]
        if reason is not None and part not in self.warned:
            self.warned.add(part)
            warnings.warn(f"share_prompts has no effect on {part}: {reason}.", stacklevel=4)
        return reason is None

    def _run_comparison(self, compare: Callable[[], str | None]) -> str | None:
        """Call `compare` without gradient; an exception becomes the reason returned."""
        try:
            with torch.no_grad():
                return compare()
        except Exception as error:  # whatever a model does with a cache that it does not expect
            return f"a trial ends with {type(error).__name__}: {error}"

    def _trial_batch(self) -> dict[str, torch.Tensor]:
        """Three rows of 28 tokens; in an update the last 4 are the completion.

        Rows 0 and 1 have the same prompt, row 2 another, with 3 tokens of padding. All begin with
        the same 18 tokens. Rows 0 and 2 end with the same 5: only their prompts differ.
        """
        vocabulary = self.model.config.get_text_config().vocab_size
        tokens = (torch.arange(1, 33, device=self.model.device) * vocabulary) // 33
        beginning, middle, end, other_end = tokens.split([18, 5, 5, 4])
        padding = beginning.new_zeros(3)
        rows = [
            torch.cat([beginning, middle, end]),
            torch.cat([beginning, middle, end[:1], other_end]),
            torch.cat([padding, beginning, middle[:2], end]),
        ]
        ids = torch.stack(rows)
        mask = torch.ones_like(ids)
        mask[2, :3] = 0
        return {"input_ids": ids, "attention_mask": mask}

    def why_update_differs(self) -> str | None:
        """Why log-probabilities of the last four tokens change by sharing; None if they do not."""
        batch = self._trial_batch()
        labels = batch["input_ids"].clone()
        labels[:, :-4] = -100
        of_another_prompt = dict(batch, input_ids=batch["input_ids"].clone())
        vocabulary = self.model.config.get_text_config().vocab_size
        # Other ids in the prompt but for its last token: half the distance between two is added.
        of_another_prompt["input_ids"][:, :-5] += vocabulary // 66

        def log_probs(forward: Callable, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            return forward(**inputs, labels=labels, fused_lm_head=True).log_probs[:, -4:]

        plain, shared = log_probs(self.plain_forward, batch), log_probs(self.score, batch)
        other = log_probs(self.plain_forward, of_another_prompt)
        return self._why_too_different(plain, shared, plain - other)

    def why_generation_differs(self, config: GenerationConfig) -> str | None:
        """Why log-probabilities of two greedy tokens change by sharing; None if they do not."""
        config = copy.deepcopy(config)
        config.update(
            min_new_tokens=2,
            max_new_tokens=2,
            do_sample=False,  # nothing is drawn
            **dict.fromkeys(SAMPLING),
            return_dict_in_generate=True,
            output_logits=True,
        )
        plain = self.plain_generate(**self._trial_batch(), generation_config=config)
        shared = self.generate(**self._trial_batch(), generation_config=config)
        # After another first token (of two) the second step cannot be compared.
        is_same_token = torch.equal(plain.sequences[:, -2], shared.sequences[:, -2])
        steps = 2 if is_same_token else 1
        plain_logs = torch.stack(plain.logits[:steps]).log_softmax(dim=-1)
        shared_logs = torch.stack(shared.logits[:steps]).log_softmax(dim=-1)
        # By step and row: rows 0 and 2 have different prompts.
        by_another_prompt = plain_logs[0, 0] - plain_logs[0, 2]
        return self._why_too_different(plain_logs, shared_logs, by_another_prompt)

    def _why_too_different(
        self, plain: torch.Tensor, shared: torch.Tensor, by_another_prompt: torch.Tensor
    ) -> str | None:
        """The reason if log-probabilities change by more than rounding, else None.

        As rounding counts `self.tolerance`, a fraction, of the change by another prompt.
        """
        error = (plain - shared).float().square().mean().sqrt().item()
        change = by_another_prompt.float().square().mean().sqrt().item()
        if error <= self.tolerance * change:
            return None
        return (
            f"its log-probabilities change by {error:.2g} in a trial in which another prompt "
            f"changes them by {change:.2g}"
        )

    # --- The update

    def score(self, input_ids, attention_mask, labels, fused_lm_head):
        """TRL's output for a loss, with each distinct prompt of a batch computed once.

        Inputs have B rows, of which U have distinct prompts; `labels` is -100 in prompts, whose
        tokens get 0 in the output.
        """
        width = input_ids.shape[1]
        labelled = (labels != -100).any(dim=0).nonzero()
        # The last token of the prompt predicts the first of the completion. Every process goes this
        # way, even if all its completions are masked: engines need equal numbers of model calls.
        start = labelled[0].item() - 1 if len(labelled) else width - 2
        inputs = {"attention_mask": attention_mask, "fused_lm_head": fused_lm_head}
        if start < 1:  # nothing to share
            return self.plain_forward(input_ids=input_ids, labels=labels, **inputs)
        first_U, inverse_B = _unique_rows(input_ids[:, :start], attention_mask[:, :start])
        cache = DynamicCache(config=self.model.config)
        prompt = self.model.base_model(
            input_ids=input_ids[first_U, :start],
            attention_mask=attention_mask[first_U, :start],
            past_key_values=cache,
            use_cache=True,
        )
        cache.batch_select_indices(inverse_B)  # from U rows to B: each row gets its prompt's
        inputs |= {"input_ids": input_ids[:, start:], "labels": labels[:, start:]}
        output = self.plain_forward(past_key_values=cache, **inputs)
        if self.weights_are_sharded:
            # FSDP2 fetches the weights of a layer for the backward pass when the layer's output
            # gets a gradient. Of the prompt's last layer only keys and values are used: give its
            # output the gradient 0.
            output.log_probs = output.log_probs + 0.0 * prompt.last_hidden_state[0, -1, 0]
        for name in PER_TOKEN:
            value = getattr(output, name)
            if value is not None:
                setattr(output, name, pad(value, (start, 0)))  # zeros for the prompt's columns
        return output

    # --- Generation

    def generate(self, input_ids, attention_mask, generation_config):
        """Generate as the model does for (B, W) inputs, with each distinct prompt computed once."""
        # Without the last token of the prompts: `generate` computes at least one.
        cache = self._cache_of_prompts(input_ids[:, :-1], attention_mask[:, :-1])
        # Other limits of `generate` can only make the completion shorter.
        new_tokens = generation_config.max_new_tokens or generation_config.max_length
        cache.layers = [_RoomyLayer(layer, new_tokens) for layer in cache.layers]
        # On a CPU, torch attends over grouped heads 8 times slower if there is one query, as for
        # each new token. With False, transformers packs the heads of a group as queries of one
        # head. The result is the same; transformers does this anyway for a batch with padding.
        packed = {"use_gqa_in_sdpa": lambda *args: False} if input_ids.device.type == "cpu" else {}
        # A setting such as min_new_tokens counts from the start of a call: it allows one call only.
        can_pause = generation_config.to_diff_dict().keys() <= ENDS_BY_TOKEN
        in_parts = self.drop_finished and can_pause and generation_config.eos_token_id is not None
        generate = self._generate_in_parts if in_parts else self.plain_generate
        with replaced(sdpa_attention, **packed):
            return generate(
                input_ids=input_ids,
                attention_mask=attention_mask,
                generation_config=generation_config,
                past_key_values=cache,
            )

    def _generate_in_parts(self, input_ids, attention_mask, generation_config, past_key_values):
        """Generate PART tokens at a time; rows that have ended leave the batch between two calls.

        `generate` alone computes every row until the longest has ended. Greedy completions are the
        same up to rounding. Inputs as in `generate`, with the cache of the prompts.
        """
        config, cache, ids, mask = generation_config, past_key_values, input_ids, attention_mask
        ends = torch.tensor(config.eos_token_id, device=ids.device)
        width, new_tokens = ids.shape[1], config.max_new_tokens
        sequences = pad(ids, (0, new_tokens), value=config.pad_token_id)
        going = torch.arange(len(ids), device=ids.device)  # the rows that have not ended
        for start in range(0, new_tokens, PART):
            part = copy.deepcopy(config)
            part.max_new_tokens = min(PART, new_tokens - start)
            ids = self.plain_generate(
                input_ids=ids, attention_mask=mask, generation_config=part, past_key_values=cache
            )
            sequences[going, : ids.shape[1]] = ids
            goes_on = ~torch.isin(ids[:, width + start :], ends).any(dim=1)
            if not goes_on.any():
                return sequences[:, : ids.shape[1]]
            cache.batch_select_indices(goes_on)
            going, ids = going[goes_on], ids[goes_on]
            mask = pad(mask[goes_on], (0, part.max_new_tokens), value=1)
        return sequences

    def _cache_of_prompts(self, ids_BW: torch.Tensor, mask_BW: torch.Tensor) -> DynamicCache:
        """The cache that `generate` would make for left-padded prompts, with its column order.

        A beginning that all prompts share, such as instructions, is computed once, as one row. In
        names: B prompts, U distinct ones, W tokens of each.
        """
        backbone = self.model.base_model
        first_U, inverse_B = _unique_rows(ids_BW, mask_BW)
        ids_UW, mask_UW = ids_BW[first_U], mask_BW[first_U]
        padding_U1 = (mask_UW == 0).sum(dim=1, keepdim=True)
        cache = DynamicCache(config=backbone.config)
        # Without this argument a model takes a token's position from its column.
        takes_positions = "position_ids" in inspect.signature(backbone.forward).parameters
        shared = 0  # the number of tokens with which all prompts begin
        if takes_positions and not self.weights_are_sharded and len(ids_UW) > 1:
            shared = _common_beginning(ids_UW, padding_U1)
        if shared:
            beginning = ids_UW[:1, padding_U1[0] : padding_U1[0] + shared]
            backbone(input_ids=beginning, past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(len(ids_UW))
        # The shared tokens come first in the cache, so the columns of each row are computed in the
        # order shared, padding, rest, and put back at the end.
        columns_W = torch.arange(ids_UW.shape[1], device=ids_UW.device)
        is_padding_UW = columns_W < padding_U1
        is_rest_UW = columns_W >= padding_U1 + shared
        part_UW = is_padding_UW + 2 * is_rest_UW  # 0: shared, 1: padding, 2: rest
        order_UW = part_UW.argsort(dim=1, stable=True)
        mask_UW = mask_UW.gather(1, order_UW)
        rest = {"input_ids": ids_UW.gather(1, order_UW)[:, shared:], "attention_mask": mask_UW}
        if takes_positions:
            # `generate` does not count padding; a forward without `position_ids` would.
            rest["position_ids"] = (mask_UW.cumsum(dim=1) - 1).clamp(min=0)[:, shared:]
        backbone(**rest, past_key_values=cache, use_cache=True)
        back_UW = order_UW.argsort(dim=1)
        for layer in cache.layers:
            layer.keys = _reorder_columns(layer.keys, back_UW)[inverse_B]
            layer.values = _reorder_columns(layer.values, back_UW)[inverse_B]
        return cache


def _unique_rows(ids_BW: torch.Tensor, mask_BW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The index where each distinct row comes first, (U,), and for each row the place there, (B,).

    Example: for rows of tokens `[[5], [7], [5]]` without padding, `[0, 1]` and `[0, 1, 0]`.
    """
    both = torch.cat([ids_BW, mask_BW.to(ids_BW.dtype)], dim=1)
    distinct, inverse_B = torch.unique(both, dim=0, return_inverse=True)
    rows = torch.arange(len(both), device=both.device)
    first_U = rows.new_full((len(distinct),), len(both))  # larger than any index: amin lowers it
    return first_U.scatter_reduce(0, inverse_B, rows, "amin"), inverse_B


def _common_beginning(ids_UW: torch.Tensor, padding_U1: torch.Tensor) -> int:
    """How many tokens all prompts begin with; 0 if too few. `padding_U1` counts left padding."""
    length = ids_UW.shape[1] - int(padding_U1.max()) - 1  # each prompt keeps one more token
    offsets = torch.arange(max(length, 0), device=ids_UW.device)
    beginnings = ids_UW.gather(1, padding_U1 + offsets)
    same = (beginnings == beginnings[:1]).all(dim=0).long()
    shared = int(same.cumprod(dim=0).sum())  # up to the first place where one differs
    return shared if shared >= WORTH_SHARING else 0


def _reorder_columns(states: torch.Tensor, columns_UW: torch.Tensor) -> torch.Tensor:
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
        # More columns, the second dimension from the end; one is for the prompt's last token.
        room = (0, 0, 0, new_tokens + 1)
        self.all_keys, self.all_values = pad(layer.keys, room), pad(layer.values, room)
        self.keys, self.values = layer.keys, layer.values

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Write new keys and values, (B, heads, tokens, size), into the room; return all so far."""
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self.all_keys.shape[2]:  # no room left: copy
            return super().update(key_states, value_states, *args, **kwargs)
        self.all_keys[:, :, start:end], self.all_values[:, :, start:end] = key_states, value_states
        self.keys, self.values = self.all_keys[:, :, :end], self.all_values[:, :, :end]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep rows of the cache, with their room."""
        length = self.keys.shape[2]
        self.all_keys, self.all_values = self.all_keys[indices], self.all_values[indices]
        self.keys, self.values = self.all_keys[:, :, :length], self.all_values[:, :, :length]
