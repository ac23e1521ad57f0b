"""Tools and environments: they load, start on a row, and the model can call them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from recipes.common.training.rollout import undescribed
from rewards import reward_kind


def check_tool_use(
    training: dict[str, Any], rows: list[dict], rewards: list[Callable]
) -> list[str]:
    """Check tools and environments, of these each one's `reset` on its first row."""
    path = training["chat_template_path"]
    problems = (
        [f"chat_template_path: there is no file {path}."]
        if path and not Path(path).is_file()
        else []
    )
    if not (training["tools"] or training["environment_factory"]):
        return problems
    try:
        factories = by_name(load_environments(training["environment_factory"]))
        problems += [
            problem for tool in load_tools(training["tools"]) for problem in undescribed(tool)
        ]
    except ValueError as problem:
        return [*problems, str(problem)]
    if any(isinstance(row.get("prompt"), str) for row in rows):
        problems.append(
            "tools and environments need prompts of chat messages; the rows have plain text."
        )
    if any(reward_kind(reward) == "step" for reward in rewards):
        problems.append(NO_STEPS_WITH_TOOLS)
    for name, factory in factories.items():
        problems += _check_environment(name, factory, rows)
    unknown = sorted(
        {str(row.get("environment")) for row in rows} - {str(name) for name in factories}
    )
    if unknown and factories and None not in factories:
        problems.append(
            f"rows have the environment {', '.join(map(repr, unknown))}, and environment_factory "
            f"has only {', '.join(factories)}: the column `environment` names one of these."
        )
    return problems + _check_engine(training)


def tools_of(training: dict[str, Any]) -> list[Callable]:
    """All tools of a run, methods of environments included; ValueError for what does not load."""
    factories = by_name(load_environments(training["environment_factory"]))
    methods = [
        method for name, factory in factories.items() for method in methods_of(make(name, factory))
    ]
    return [*load_tools(training["tools"]), *methods]


def _check_environment(name: str | None, factory: Callable, rows: list[dict]) -> list[str]:
    try:
        environment, shown = make(name, factory), title_of(name, factory)
    except ValueError as problem:
        return [str(problem)]
    if not callable(getattr(environment, "reset", None)):
        return [
            f"{shown} has no method `reset`; it is called with the columns of a row, and may "
            "return a text."
        ]
    problems = [
        f"{shown}: {problem}"
        for method in methods_of(environment)
        for problem in undescribed(method)
    ]
    mine = [
        (i, row) for i, row in enumerate(rows) if name is None or row.get("environment") == name
    ]
    for number, row in mine[:1]:
        try:
            observation = reset(environment, row, is_named=name is not None)
        except (Exception, SystemExit) as error:
            return [
                *problems,
                f"{shown}: reset fails on row {number}: {type(error).__name__}: {error}. It gets "
                f"each column of the row by its name ({', '.join(row)}): take those it needs, and "
                "**kwargs.",
            ]
        if not isinstance(observation, str | list | None):
            problems.append(
                f"{shown}: reset returned {observation!r}; allowed are a text for the prompt and "
                "None."
            )
    return problems


def _check_engine(training: dict[str, Any]) -> list[str]:
    """Where each turn needs all ranks, TRL 1.16 waits for ever: turns differ in number."""
    sharded = asked_engine().startswith(("ZeRO-3", "FSDP"))
    server = training["use_vllm"] and (
        training["vllm_mode"] == "server" or (training["vllm_tensor_parallel_size"] or 1) > 1
    )
    if world_size() == 1 or not (sharded or server):
        return []
    return [
        f"tools do not go with {'a shared vLLM' if server else asked_engine()} on several "
        "processes: each turn needs all of them, and their rollouts have different numbers of "
        "turns. Use DDP, ZeRO-1 or ZeRO-2, or one process."
    ]
