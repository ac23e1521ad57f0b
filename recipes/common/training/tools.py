"""Load the tools and environments that TRL calls, set the chat template, guard `get_reward`.

A tool is a function that the model may call. An environment, one for each completion, has
`reset(**row)`, whose text is added to the prompt; its other public methods are tools, and
`get_reward()`, if defined, scores the rollout. Tools need type hints and an `Args:` section: the
chat template describes the tools from these.
"""

import contextlib
import copy
import functools
import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.utils import get_json_schema

from recipes.common.training.completion import load_tokenizer
from rewards.boundary import as_text, describe, starting
from rewards.contract import Reward, answer_of, at_once, reward_of
from rewards.loading import find_object

DECLARATIONS = ("kind", "full", "farmable", "max_error_rate", "tasks")  # of an environment's class
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
    """Load what a setting names; ValueError, which begins with the setting, if it cannot be."""
    if ":" not in spec:
        raise ValueError(f"{setting} {spec!r}: give path/to/file.py:name or package.module:name.")
    return find_object(spec, setting)


def takes_environments(reward: Reward) -> bool:
    """Whether a reward needs a rollout: it has a parameter `environments`."""
    return not reward.is_model and "environments" in inspect.signature(reward.call).parameters


def tools_of(training: dict[str, Any]) -> list[Callable]:
    """All functions that the model may call, methods of the environment included.

    `training` has the settings `tools` and `environment_factory`, as in a YAML. Raises ValueError
    if something cannot be loaded, or the environment cannot be made.
    """
    tools, spec = load_tools(training["tools"]), training["environment_factory"]
    return tools if spec is None else tools + methods_of(make_environment(spec))


def make_environment(spec: str) -> Any:
    """An environment of the class with this name; ValueError if it cannot be made."""
    factory = load_environment(spec)
    try:
        with starting(f"environment {spec!r}"):
            return factory()
    except Exception as error:
        raise ValueError(
            f"environment {spec!r} cannot be made: "
            f"{describe(error)}. It is called without arguments."
        ) from error


def methods_of(environment: Any) -> list[Callable]:
    """The methods of an environment that are tools, as TRL finds them."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    names = [name for name, _ in members if name not in NOT_TOOLS and not name.startswith("_")]
    return [getattr(environment, name) for name in names]


def check_tools(training: dict[str, Any], rows: list[dict]) -> list[str]:
    """Problems: a tool that no template can describe, two of one name, a `reset` that fails.

    `training` is that of `tools_of`. An environment is reset to the first of `rows` as TRL does it,
    with all columns. Raises ValueError as `tools_of` does.
    """
    tools, spec, problems = load_tools(training["tools"]), training["environment_factory"], []
    environment = None if spec is None else make_environment(spec)
    if environment is not None:
        tools += methods_of(environment)
    for name, count in Counter(tool.__name__ for tool in tools).items():
        if count > 1:
            problems.append(f"tool {name!r}: {count} have this name: rename all but one.")
    for tool in tools:
        try:
            get_json_schema(tool)
        except Exception as error:
            problems.append(
                f"tool {tool.__name__!r}: {error} A tool needs type hints, and a docstring that "
                "describes each argument below Args:."
            )
    if environment is not None and rows:
        try:
            with starting(f"reset of {spec!r}"):
                text = environment.reset(**copy.deepcopy(rows[0]))
            if not isinstance(text, str | list | None):
                raise TypeError(f"it returns {type(text).__name__}; allowed: text, messages, None")
        except Exception as error:
            problems.append(
                f"environment {spec!r}: reset(**row) fails on the first row: {describe(error)}. "
                f"It gets all columns: {', '.join(rows[0])}."
            )
    return problems


# --- The chat template


def processor_of(processing_class: Any, model: Any, args: Any, has_tools: bool) -> Any:
    """The tokenizer of a run, with its chat template and a parser for tool calls.

    `processing_class` and `model` are arguments of TRL's trainer, `args` its configuration. Without
    a template or tools `processing_class` is returned; TRL loads the tokenizer if it is None.
    """
    template = args.chat_template_path
    if template is None and not has_tools:
        return processing_class
    if processing_class is None:
        name, revision = model, (args.model_init_kwargs or {}).get("revision")
        if not isinstance(model, str):
            name, revision = model.config._name_or_path, None
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


# --- TRL's table of completions, a parquet file, in which a column has one type


def as_texts(completion: str | list[dict]) -> str | list[dict]:
    """The completion with every value of its messages as a text, but for the list of tool calls.

    A model may call a tool once with a number and once with a mapping; a tool may answer anything.
    What is already so is returned unchanged.
    """
    if isinstance(completion, str):
        return completion
    messages = []
    for message in completion:
        texts = {name: value and as_text(value) for name, value in message.items()}
        if calls := message.get("tool_calls"):
            texts["tool_calls"] = [call_as_texts(call) for call in calls]
        messages.append(texts)
    return messages


def call_as_texts(call: Any) -> dict[str, dict[str, str]]:
    """A tool call as TRL prints it: the arguments are the JSON text of a mapping.

    Example: a call of `add` with `{"a": 1}` becomes `{"function": {"name": "add", "arguments":
    '{"a": 1}'}}`. What a model wrote in place of a call or a mapping becomes an argument.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        function = {"name": "unknown", "arguments": call}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    text = json.dumps(arguments, default=as_text)
    return {"function": {"name": as_text(function.get("name")), "arguments": text}}


# --- The reward of an environment


def environment_reward(environment: type) -> Reward:
    """A reward that calls `get_reward()` of each completion's environment; async if that is.

    It declares what the class declares (`DECLARATIONS`). A completion whose environment is of
    another class is "not applicable", a score of None is "unparsed".
    """

    async def get_rewards(environments: list, log_extra: Callable, **columns: Any) -> list:
        amounts, outcomes = [], []
        for own in environments:
            is_mine = type(own) is environment
            amount = await answer_of(own.get_reward) if is_mine else None
            unscored = "unparsed" if is_mine else "not applicable"
            amounts.append(amount)
            outcomes.append(unscored if amount is None else "graded")
        log_extra(f"outcome/{environment.__name__}", outcomes)
        return amounts

    def get_rewards_at_once(**columns: Any) -> list:
        return at_once(get_rewards(**columns))

    is_async = inspect.iscoroutinefunction(environment.get_reward)
    reward = get_rewards if is_async else get_rewards_at_once
    reward.__name__ = environment.__name__
    for name in DECLARATIONS:
        if hasattr(environment, name):
            setattr(reward, name, getattr(environment, name))
    return reward_of(reward)
