"""Tools and environments: they load, start on a row, and the model can call them."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import get_json_schema
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    parse_response,
    supports_tool_calling,
)

from recipes.common.data.overlap import question_of
from recipes.common.trainer import NO_STEPS_WITH_TOOLS
from recipes.common.training.engine import asked_engine, world_size
from recipes.common.training.environments import (
    by_name,
    load_environments,
    load_tools,
    make,
    methods_of,
    reset,
    title_of,
)
from recipes.common.training.rollout import read_calls
from recipes.common.utils.problems import told
from rewards import reward_kind

EXAMPLES = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}  # by type
TEMPLATE = "recipes/calculator/chat_template.jinja"


def check_tool_use(
    training: dict[str, Any], rows: list[dict], rewards: list[Callable]
) -> list[str]:
    """Check tools and environments, of these each one's `reset` on its first row."""
    if not (training["tools"] or training["environment_factory"]):
        return []
    try:
        factories = by_name(load_environments(training["environment_factory"]))
        tools = tools_of(training)
    except ValueError as problem:
        return [str(problem)]
    problems = [problem for tool in tools for problem in _undescribed(tool)]
    for name, factory in factories.items():
        problems += _check_environment(name, factory, rows)
    names = [tool.__name__ for tool in tools]
    doubles = sorted({name for name in names if names.count(name) > 1})
    unknown = sorted({str(row.get("environment")) for row in rows} - set(map(str, factories)))
    # Where each turn needs all ranks, TRL 1.16 waits for ever: turns differ in number.
    server = training["use_vllm"] and (
        training["vllm_mode"] == "server" or (training["vllm_tensor_parallel_size"] or 1) > 1
    )
    shares = server or asked_engine().startswith(("ZeRO-3", "FSDP"))
    table = {
        "tools and environments need prompts of chat messages; the rows have plain text.": any(
            isinstance(row.get("prompt"), str) for row in rows
        ),
        NO_STEPS_WITH_TOOLS: any(reward_kind(reward) == "step" for reward in rewards),
        f"two tools are called {', '.join(doubles)}: a call would reach one of them alone. Rename "
        "the other (an environment's methods are tools).": doubles and len(factories) < 2,
        f"rows have the environment {', '.join(map(repr, unknown))}, and environment_factory has "
        f"only {', '.join(map(str, factories))}: the column `environment` names one of these.": (
            unknown and factories and None not in factories
        ),
        f"tools do not go with {'a shared vLLM' if server else asked_engine()} on several "
        "processes: each turn needs all of them, and their rollouts have different numbers of "
        "turns. Use DDP, ZeRO-1 or ZeRO-2, or one process.": shares and world_size() > 1,
    }
    return [*problems, *told(table)]


def tools_of(training: dict[str, Any]) -> list[Callable]:
    """All tools of a run, methods of environments included; ValueError for what does not load."""
    tools = load_tools(training["tools"])
    for name, factory in by_name(load_environments(training["environment_factory"])).items():
        tools += methods_of(make(name, factory))
    return tools


def check_tool_template(tokenizer: PreTrainedTokenizerBase, tools: list[Callable]) -> None:
    """A call that the template writes is read again, and an answer changes nothing before.

    Raises:
        ValueError: what the template does instead.
    """
    if not supports_tool_calling(tokenizer):
        raise ValueError(
            "its chat template writes no tool calls or drops what a tool answers. Give one that "
            f"does by chat_template_path (as {TEMPLATE}), or a model that was trained with tools."
        )
    read_calls(tokenizer)
    schemas = [get_json_schema(tool) for tool in tools]
    first = schemas[0]["function"]
    parameters = first["parameters"].get("properties", {})
    arguments = {name: EXAMPLES.get(str(of.get("type")), "1") for name, of in parameters.items()}
    function = {"name": first["name"], "arguments": dict(list(arguments.items())[:1])}
    question = [{"role": "user", "content": "?"}]
    call = {"type": "function", "function": function}
    turn = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    before = tokenizer.apply_chat_template(
        question, tools=schemas, add_generation_prompt=True, tokenize=False
    )
    whole = tokenizer.apply_chat_template(question + turn, tools=schemas, tokenize=False)
    if not whole.startswith(before):
        raise _unreadable("it writes the turn of the model otherwise than a prompt ends", whole)
    written = whole.removeprefix(before)
    ids, prefix = (
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (written, before)
    )
    read = parse_response(tokenizer, ids, prefix=prefix, tools=schemas).get("tool_calls")
    if [each["function"] for each in read or []] != [function]:
        raise _unreadable(f"the call {function} is read as {read}", written)
    if not is_chat_template_prefix_preserving(tokenizer):
        raise ValueError(
            "its chat template changes earlier messages when a tool's answer is added: correct "
            "the template."
        )


def _unreadable(reason: str, text: str) -> ValueError:
    return ValueError(
        f"its chat template and the way that tool calls are read do not go together: {reason}. "
        'Let the template write `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or set '
        f"`response_template` in the tokenizer_config.json. It writes {text!r}."
    )


def _undescribed(tool: Callable) -> list[str]:
    """Say why the chat template cannot describe a tool."""
    try:
        get_json_schema(tool)
    except Exception as error:  # whatever transformers makes of a signature
        return [
            f"tool {tool.__name__!r} cannot be described to the model: {type(error).__name__}: "
            f"{error} Each parameter needs a type hint and a line in the `Args:` section of the "
            "docstring."
        ]
    return []


def _check_environment(name: str | None, factory: Callable, rows: list[dict]) -> list[str]:
    """It has `reset`, which takes its first row and makes a question where the row asks none."""
    environment, shown = make(name, factory), title_of(name, factory)
    if not callable(getattr(environment, "reset", None)):
        return [
            f"{shown} has no method `reset`; it is called with the columns of a row, and may "
            "return a text."
        ]
    mine = (i for i, row in enumerate(rows) if name is None or row.get("environment") == name)
    if (number := next(mine, None)) is None:
        return []
    row = rows[number]
    try:
        observation = reset(environment, row, is_named=name is not None)
    except (Exception, SystemExit) as error:
        return [
            f"{shown}: reset fails on row {number}: {type(error).__name__}: {error}. It gets each "
            f"column of the row by its name ({', '.join(row)}): take those it needs, and **kwargs."
        ]
    table = {
        f"{shown}: row {number} asks nothing, and reset returned None: its prompt is to come from "
        "reset.": not observation and not question_of(row["prompt"]),
        f"{shown}: reset returned {observation!r}; allowed are a text for the prompt and None.": (
            not isinstance(observation, str | list | None)
        ),
    }
    return told(table)
