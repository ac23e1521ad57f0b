"""Load the tools and environments that TRL calls, set the chat template, wrap `get_reward`.

A tool is a function that the model may call. An environment, one for each completion, has
`reset(**row)`, whose text is added to the prompt; its other public methods are tools, and
`get_reward()`, if defined, scores the rollout. Tools need type hints and an `Args:` section: the
chat template describes the tools from these.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipes.common.training.completion import load_tokenizer
from rewards.boundary import as_text, describe, starting
from rewards.contract import AsyncReward, Reward, answer_of, at_once, reward_of
from rewards.loading import find_object

DECLARATIONS = ("kind", "full", "farmable", "max_error_rate", "tasks")
NOT_TOOLS = ("reset", "get_reward")
TEMPLATE = "recipes/calculator/chat_template.jinja"


def load_tools(specs: list[str] | None) -> list[Callable]:
    """Load functions by `path/to/file.py:function` or `package.module:function`."""
    return [_load("tool", spec) for spec in specs or []]


def load_environment(spec: str | None) -> Callable | None:
    """Load the class of an environment by the same kind of name."""
    return None if spec is None else _load("environment_factory", spec)


@functools.cache  # a second import of a file would make a second, different class
def _load(setting: str, spec: str) -> Callable:
    if ":" not in spec:
        raise ValueError(f"{setting} {spec!r}: give path/to/file.py:name or package.module:name.")
    try:
        return find_object(spec)
    except ValueError as problem:
        raise ValueError(str(problem).replace("reward", setting, 1)) from problem


def takes_environments(reward: Reward) -> bool:
    """Whether a reward needs a rollout: it has a parameter `environments`."""
    reward = reward_of(reward)
    return not reward.is_model and "environments" in inspect.signature(reward.call).parameters


def tools_of(training: dict[str, Any]) -> list[Callable]:
    """All functions that the model may call, methods of the environment included.

    Raises:
        ValueError: something cannot be loaded, or the environment cannot be made.
    """
    tools, spec = load_tools(training["tools"]), training["environment_factory"]
    factory = load_environment(spec)
    if factory is None:
        return tools
    try:
        with starting(f"environment {spec!r}"):
            environment = factory()
    except Exception as error:
        raise ValueError(
            f"environment {spec!r} cannot be made: "
            f"{describe(error)}. It is called without arguments."
        ) from error
    methods = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    names = [name for name, _ in methods if name not in NOT_TOOLS and not name.startswith("_")]
    return tools + [getattr(environment, name) for name in names]


# --- The chat template


def processor_of(processing_class: Any, model: Any, args: Any, has_tools: bool) -> Any:
    """The tokenizer of a run, with its chat template and a parser for tool calls.

    Without a template or tools the argument is returned; TRL loads the tokenizer if it is None.
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
    """Set how tool calls in a completion are parsed, unless the tokenizer already defines this.

    TRL knows the call format of some chat templates. For any other template a call is read as
    `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
    """
    from trl.chat_template_utils import add_response_schema, qwen3_template

    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if getattr(tokenizer, "response_template", None) is None:
        try:
            add_response_schema(processing_class)
        except ValueError:  # not a template of a model that TRL knows
            tokenizer.response_template = qwen3_template


def check_tool_template(tokenizer: Any) -> None:
    """Raise ValueError if the chat template does not write tool calls and tool answers."""
    from trl.chat_template_utils import supports_tool_calling

    if not supports_tool_calling(tokenizer):
        raise ValueError(
            "its chat template writes no tool calls or drops what a tool answers. Give one that "
            f"does by chat_template_path (as {TEMPLATE}), or a model that was trained with tools."
        )


def loggable(completion: str | list[dict]) -> str | list[dict]:
    """Return the completion with every value of its messages as text, but for the list of calls.

    TRL's table of completions is a parquet file, whose columns have one type. A model may call a
    tool once with a number and once with a mapping, and a tool may answer with a list.
    """

    def call_as_text(call: Any) -> dict:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):  # TRL answers such a call with an error
            function = {"name": "unknown", "arguments": call}
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError):  # text that was written here at an earlier log
                arguments = json.loads(arguments)
        if not isinstance(arguments, dict):  # TRL prints the names and values of a mapping
            arguments = {"arguments": arguments}
        text = json.dumps(arguments, default=as_text)
        return {"function": {"name": as_text(function.get("name")), "arguments": text}}

    def message_as_text(message: dict) -> dict:
        texts = {name: value and as_text(value) for name, value in message.items()}
        if calls := message.get("tool_calls"):
            texts["tool_calls"] = [call_as_text(call) for call in calls]
        return texts

    return completion if isinstance(completion, str) else list(map(message_as_text, completion))


# --- The reward of an environment


def environment_reward(environment: type) -> Reward:
    """Return a reward that calls `get_reward()` of the environment of each completion.

    The class attributes declare what a reward declares (`DECLARATIONS`). An exception is an error
    of that row. A completion with another environment class is "not applicable". If `get_reward`
    is async, the reward is async, too, and runs on the event loop of the tools.
    """
    name, is_async = environment.__name__, inspect.iscoroutinefunction(environment.get_reward)

    async def score(own: Any) -> tuple[float | None, str]:
        if type(own) is not environment:
            return None, "not applicable"
        try:
            amount = await answer_of(own.get_reward)
        except Exception as error:
            return None, f"error: {type(error).__name__}: {error}"
        return amount, "unparsed" if amount is None else "graded"

    async def awaited(environments: list, log_extra: Callable, **columns: Any) -> list:
        scored = [await score(own) for own in environments]
        log_extra(f"outcome/{name}", [outcome for _, outcome in scored])
        return [amount for amount, _ in scored]

    def call(**columns: Any) -> list:
        return at_once(awaited(**columns))

    return (AsyncReward if is_async else Reward)(
        call=awaited if is_async else call,
        name=name,
        is_async=is_async,
        **{key: getattr(environment, key) for key in DECLARATIONS if hasattr(environment, key)},
    )
