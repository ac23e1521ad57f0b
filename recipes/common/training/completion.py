"""Complete prompts as training does, with our trainer or any TRL trainer.

Not covered: a tool that hangs (the run hangs, too), and images that a tool returns.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoProcessor, GenerationConfig
from trl import GRPOTrainer
from trl.data_utils import prepare_multimodal_messages
from trl.trainer import utils as trl_utils

from rewards.boundary import contained
from rewards.text import completion_text

SAMPLING = ("temperature", "top_p", "top_k", "min_p")  # greedy decoding does not use these
VOCABULARY_PART = 2048  # words for which a CPU computes logits at a time
TURN_KINDS = ("call", "failed call", "broken call", "call without room", "text")


@dataclass
class Rollout:
    """A completion with its tokens, turns and environment."""

    completion: list[dict] | str  # messages; text if the prompt is plain text
    token_ids: list[int]  # of all turns, with tool answers and the end token
    tokens: int  # how many tokens the model wrote
    truncated: bool
    turns: list[str] = field(default_factory=list)  # the kind of each turn; empty without tools
    environment: Any = None

    @property
    def text(self) -> str:
        """What the model wrote, without the tools' answers."""
        return completion_text(self.completion)


def load_tokenizer(
    name: str, revision: str | None, trust_remote_code: bool, template: str | None = None
) -> Any:
    """Load a model's tokenizer as TRL does; the file `template` replaces the chat template."""
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


def end_tokens(trainer: GRPOTrainer) -> list[int]:
    """The ids of the tokens that end a completion; TRL before 1.16 knows the tokenizer's alone."""
    return getattr(trainer, "eos_token_ids", [trainer._tokenizer.eos_token_id])


def is_truncated(trainer: GRPOTrainer, ids: list[int]) -> bool:
    """Whether a completion was cut off, by TRL's rule."""
    return ids[-1] not in (*end_tokens(trainer), trainer._tokenizer.pad_token_id)


def generation_config(trainer: GRPOTrainer, do_sample: bool) -> GenerationConfig:
    """The decoding of training, or greedy, for transformers.

    It names every sampling setting: the model's defaults would replace a missing one.
    """
    args = trainer.args
    decoding = {name: getattr(args, name) for name in (*SAMPLING, "repetition_penalty")}
    decoding |= args.generation_kwargs or {}
    if not do_sample:
        decoding = {name: value for name, value in decoding.items() if name not in SAMPLING}
    decoding["do_sample"] = do_sample
    return GenerationConfig(
        **decoding,
        max_new_tokens=args.max_completion_length,
        eos_token_id=end_tokens(trainer),
        pad_token_id=trainer._tokenizer.pad_token_id,
    )


class _Generated(Exception):
    """Carries the generated completions out of the TRL method before it scores and logs them."""


def complete(trainer: GRPOTrainer, rows: list[dict], do_sample: bool = False) -> list[Rollout]:
    """Complete each row as training does, greedily or at random; nothing is scored or logged.

    `trainer` is ours or any of TRL 1.9 to 1.16. Chat template, tools, environments, padding, end
    tokens, decoding and vLLM are those of training. One TRL method makes the environments,
    generates and scores, so an exception leaves the method after generation. The caller puts the
    model in evaluation mode. Ranks may have different numbers of rows, except with vLLM.
    """
    generate = trainer._generate

    def generate_and_leave(prompts: list) -> None:
        raise _Generated(generate(prompts))

    settings = {
        "_generate": generate_and_leave,
        "phase": contextlib.nullcontext,  # our trainer's timer, for training
        "num_generations_eval": 1,
        "generation_kwargs": None,
        "use_transformers_continuous_batching": False,  # it leaves the model in train mode
    }
    if not trainer.use_vllm:
        decoding = replaced(trainer, generation_config=generation_config(trainer, do_sample))
    elif do_sample:
        decoding = contextlib.nullcontext()
    else:  # `generation_kwargs` would win over the temperature
        kwargs = trainer.vllm_generation.generation_kwargs or {}
        kwargs = {name: value for name, value in kwargs.items() if name not in SAMPLING}
        decoding = replaced(trainer.vllm_generation, temperature=0.0, generation_kwargs=kwargs)
    # TRL gathers the lengths of all ranks only for its log: skip that.
    without_gather = replaced(trainer.accelerator, gather=lambda own: own)
    with replaced(trainer, **settings), without_gather, decoding:
        try:
            trainer._generate_and_score_completions(rows)
        except _Generated as generated:
            _, all_ids, masks, completions, *_ = generated.args[0]
    trainer._metrics["eval"].clear()  # TRL's figures of these completions, not to be logged
    opening = opening_of(trainer._tokenizer)
    rollouts = []
    for place, (completion, ids) in enumerate(zip(completions, all_ids, strict=True)):
        tokens = sum(masks[place]) if masks else len(ids)  # the mask leaves out tools' answers
        rollout = Rollout(completion, ids, tokens, is_truncated(trainer, ids))
        if trainer.tools:
            rollout.turns = turn_kinds(completion, opening)
        if trainer.environments:
            rollout.environment = trainer.environments[place]
        rollouts.append(rollout)
    return rollouts


def call_tools(trainer: GRPOTrainer, *arguments: Any) -> Any:
    """TRL's loop of tool calls, in which the tools are foreign code (see `rewards/boundary.py`).

    A tool that is not async gets copies and random numbers by step and place of the call; a process
    that it forks ends with the call. TRL tells the model what a tool raised.
    """
    calls = itertools.count()

    def contain(name: str, tool: Callable) -> Callable:
        def call(**values: Any) -> Any:
            with contained(name, trainer.state.global_step, next(calls), values):
                return tool(**copy.deepcopy(values))

        return call

    contained_tools = [
        {name: contain(name, tool) for name, tool in tools.items()}
        for tools in trainer._sync_tool_dicts  # one for each completion
    ]
    with replaced(trainer, _sync_tool_dicts=contained_tools):
        return GRPOTrainer._tool_call_loop(trainer, *arguments)


def is_begun(prompt: str | list[dict]) -> bool:
    """Whether the last message of a prompt begins the answer: the model goes on with it."""
    return not isinstance(prompt, str) and prompt[-1]["role"] == "assistant"


def tokenize_begun(trainer: GRPOTrainer, prompts: list) -> tuple | None:
    """What TRL's `_tokenize_prompts` returns, if a prompt ends in a message of the assistant.

    Such a message is the beginning of the answer: its turn is left open. Returns None if no prompt
    of the batch has one. Raises ValueError with step rewards or tools, which do not support it.
    """
    if not any(map(is_begun, prompts)):
        return None
    if trainer.steps.guards or trainer.tools:
        raise ValueError(
            "a prompt ends in a message of the assistant; leave it out with step rewards or tools."
        )
    ids = []
    for prompt in prompts:
        opening = "continue_final_message" if is_begun(prompt) else "add_generation_prompt"
        tokenized = trainer.processing_class.apply_chat_template(
            conversation=[prepare_multimodal_messages(prompt) if trainer._is_vlm else prompt],
            chat_template=trainer.chat_template,
            tokenize=True,  # the default of a tokenizer, not of a processor
            return_dict=True,
            **{opening: True},
            **trainer.chat_template_kwargs,
        )
        ids += tokenized["input_ids"]
    return ids, None, {}  # no images


def begin_answers(prompts: list, generated: tuple) -> tuple:
    """Put each begun answer before its completion; return `generated`, TRL's results.

    Example: after a prompt that ends in `{"role": "assistant", "content": "It is "}` the model
    writes "4", and rewards and metrics read the completion "It is 4".
    """
    for prompt, completion in zip(prompts, generated[3], strict=True):  # [3]: the completions
        if is_begun(prompt):
            completion[0]["content"] = prompt[-1]["content"] + (completion[0]["content"] or "")
    return generated


def opening_of(tokenizer: Any) -> str | None:
    """The text that opens a tool call, such as `<tool_call>`."""
    fields = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
    return fields.get("tool_calls", {}).get("open")


def turn_kinds(messages: list[dict], opening: str | None) -> list[str]:
    """Return the kind of each turn of the model.

    - call: every called tool answered
    - failed call: a called tool raised an exception or does not exist
    - broken call: the turn opens a tool call that cannot be parsed
    - call without room: the tool's answer did not fit into the completion, or the rounds of calls
      (`max_tool_calling_iterations`) were used up
    - text: no call

    Example: `turn_kinds([{"role": "assistant", "content": "4"}], "<tool_call>") == ["text"]`
    """
    kinds: list[str] = []
    for message, follower in zip(messages, [*messages[1:], {}], strict=True):
        if message["role"] == "tool":
            if str(message["content"]).startswith("{'error':"):  # TRL writes an exception so
                kinds[-1] = "failed call"
        elif message.get("tool_calls"):
            kinds.append("call" if follower.get("role") == "tool" else "call without room")
        else:
            broken = opening is not None and opening in completion_text([message])
            kinds.append("broken call" if broken else "text")
    return kinds


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of `owner` inside the `with` block, and restore them afterwards."""
    # An attribute of the class is not among these: it shows again when the new one is deleted.
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    vars(owner).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del vars(owner)[name]
        vars(owner).update(before)


@contextlib.contextmanager
def small_logits(device: torch.device) -> Iterator[None]:
    """Let TRL compute log-probabilities on a CPU in less memory and time.

    Without Triton, TRL computes the logits of masked tokens too, of 4,096 tokens and 32,768 words
    at a time, and holds up to nine tensors of this size in the backward pass.
    """
    if device.type != "cpu":
        yield
        return
    settings = {
        "_use_triton": lambda device: True,  # all that it does here is to leave out masked tokens
        "_CHUNKED_LOGPROB_CHUNK_SIZE": VOCABULARY_PART,
    }
    with replaced(trl_utils, **settings):
        yield
