"""Completing prompts as training does, tools included: all that is used of TRL 1.16's experimental
interface.

Not covered: a tool that hangs stops the run with it, and images in what a tool returns.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trl
from transformers import AutoProcessor
from trl import GRPOTrainer

from recipes.common.training.completion import Rollout, generation_config
from recipes.common.utils.run_files import arguments_text
from rewards.text import completion_text

NEEDED = "1.16"
if not trl.__version__.startswith(NEEDED + "."):
    raise ImportError(
        f"the recipes' trainer needs TRL {NEEDED}, whose insides it extends; {trl.__version__} is "
        f"installed: pip install 'trl=={NEEDED}.*'. A script of your own can use "
        "recipes.common.watch with TRL 1.9 to 1.16 (docs/running.md)."
    )

TURN_KINDS = ("call", "failed call", "broken call", "call without room", "text")


def load_tokenizer(
    name: str, revision: str | None, trust_remote_code: bool, template: str | None = None
) -> Any:
    """Load a model's tokenizer as TRL does, with the chat template of a file where one is given."""
    tokenizer = AutoProcessor.from_pretrained(
        name,
        revision=revision,
        truncation_side="left",
        padding_side="left",
        trust_remote_code=trust_remote_code,
    )
    if template is not None:
        tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
    return tokenizer


def tool_processor(processing_class: Any, model: Any, args: Any, has_tools: bool) -> Any:
    """The tokenizer of a run with its chat template, and a way to read tool calls.

    TRL knows how the templates of some models write a call; any other is read as
    `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. None where TRL is to load the
    tokenizer itself.
    """
    template = args.chat_template_path
    if template is None and not has_tools:
        return processing_class
    if processing_class is None:
        is_name = isinstance(model, str)
        name = model if is_name else model.config._name_or_path
        revision = (args.model_init_kwargs or {}).get("revision") if is_name else None
        processing_class = load_tokenizer(name, revision, args.trust_remote_code, template)
    elif template is not None:
        processing_class.chat_template = Path(template).read_text(encoding="utf-8")
    if has_tools:
        read_calls(processing_class)
    return processing_class


def read_calls(processing_class: Any) -> None:
    """Set how tool calls are read in what the model writes, unless the tokenizer says so itself."""
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if getattr(tokenizer, "response_template", None) is None:
        # Not at the top: TRL before 1.16 is to be refused by the words above.
        from trl.chat_template_utils import add_response_schema, qwen3_template

        try:
            add_response_schema(processing_class)
        except ValueError:  # not a template of a model that TRL knows
            tokenizer.response_template = qwen3_template


def opening_of(tokenizer: Any) -> str | None:
    """The text that opens a tool call, such as `<tool_call>`."""
    fields = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
    return fields.get("tool_calls", {}).get("open")


def turn_kinds(messages: list[dict], opening: str | None) -> list[str]:
    """Name what each turn of the model was.

    - call: every tool that it called answered; failed call: one raised, or does not exist
    - broken call: it opens a call that cannot be read; call without room: its answer would not have
      fitted
    - text: no call

    Example: `turn_kinds([{"role": "assistant", "content": "4"}], "<tool_call>") == ["text"]`
    """
    kinds: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if str(message["content"]).startswith("{'error':"):  # as TRL puts an exception
                kinds[-1] = "failed call"
        elif message.get("tool_calls"):
            answered = number + 1 < len(messages) and messages[number + 1]["role"] == "tool"
            kinds.append("call" if answered else "call without room")
        else:
            broken = opening is not None and opening in completion_text([message])
            kinds.append("broken call" if broken else "text")
    return kinds


def loggable(completion: str | list[dict]) -> str | list[dict]:
    """The completion with the arguments of its tool calls as JSON text.

    TRL's table of completions is a parquet file, whose columns have one type each, and a model
    calls a tool with a number now and a mapping then.
    """
    if isinstance(completion, str):
        return completion
    return [
        {**message, "tool_calls": [_loggable(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in completion
    ]


def _loggable(call: dict) -> dict:
    if "function" not in call:  # TRL answers it with an error
        return call
    return {**call, "function": {**call["function"], "arguments": arguments_text(call)}}


def keep_rewards(trainer: GRPOTrainer, count: int) -> None:
    """Drop the rewards of environments that TRL adds behind ours: ours hold them already."""
    del (
        trainer.reward_funcs[count:],
        trainer.reward_func_names[count:],
        trainer.reward_processing_classes[count:],
    )
    trainer.reward_weights = trainer.reward_weights[:count]


class _Generated(Exception):
    """Carries what TRL generated out of the method that would go on to score and log it."""


def complete(trainer: GRPOTrainer, rows: list[dict], do_sample: bool) -> list[Rollout]:
    """Complete each row as training does, greedily or at random; nothing is scored or logged.

    Chat template, tools, environments, padding, end tokens, decoding and vLLM are those of
    training. TRL makes the environments of a batch in the method that also scores it, which
    therefore is left by an exception. The model of the trainer is in evaluation mode. Ranks may
    have different numbers of rows, but with vLLM.
    """

    def stop(prompts: list) -> None:
        raise _Generated(GRPOTrainer._generate(trainer, prompts))

    alone = {"_generate": stop, "num_generations_eval": 1, "generation_kwargs": None}
    alone |= {"use_transformers_continuous_batching": False}  # it would leave the model training
    if trainer.use_vllm:
        greedy = {} if do_sample else {"temperature": 0.0}
        decoding = replaced(trainer.vllm_generation, **greedy)
    else:
        pad = trainer._tokenizer.pad_token_id
        config = generation_config(trainer.args, trainer.eos_token_ids, pad, do_sample)
        decoding = replaced(trainer, generation_config=config)
    # The lengths that TRL would gather from all ranks are for its log.
    with replaced(trainer, **alone), replaced(trainer.accelerator, gather=_own), decoding:
        try:
            GRPOTrainer._generate_and_score_completions(trainer, rows)
        except _Generated as generated:
            _, all_ids, masks, completions, *_ = generated.args[0]
    trainer._metrics["eval"].clear()
    ends = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
    opening = opening_of(trainer._tokenizer)
    masks = masks or [[1] * len(ids) for ids in all_ids]
    environments = trainer.environments or [None] * len(rows)
    return [
        Rollout(
            completion,
            ids,
            sum(mask),
            ids[-1] not in ends,
            turn_kinds(completion, opening) if trainer.tools else [],
            environment,
        )
        for completion, ids, mask, environment in zip(
            completions, all_ids, masks, environments, strict=True
        )
    ]


def _own(values: Any) -> Any:
    return values


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Let `owner` have other attributes for a while."""
    kept = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    vars(owner).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del vars(owner)[name]
        vars(owner).update(kept)
