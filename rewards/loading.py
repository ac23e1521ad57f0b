"""Rewards by name, file or module, with their parameters and tasks set."""

import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.contract import (
    KINDS,
    NAMED,
    TRL_ARGUMENTS,
    check_names,
    is_async,
    parameters_of,
    reward_kind,
    reward_tasks,
)
from rewards.registry import REGISTRY
from rewards.routing import route


class FileReward:
    """A reward function of a file that no import statement reaches; pickles by its specification, so spawn works."""

    def __init__(self, spec: str, function: Callable, kwargs: dict[str, Any]):
        self.spec, self.function, self.kwargs = spec, function, kwargs
        self.__name__ = function.__name__
        functools.update_wrapper(self, function)
        self.__signature__ = inspect.signature(functools.partial(function, **kwargs))  # a set parameter is not a column

    def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
        return self.function(*args, **self.kwargs, **kwargs)

    def __reduce__(self):
        return functools.partial(load_reward, self.spec, **self.kwargs), ()


class AsyncFileReward(FileReward):
    """The same for an `async def` reward: TRL looks at `__call__` to tell them apart."""

    async def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
        return await self.function(*args, **self.kwargs, **kwargs)


def load_reward(spec: str, **kwargs: Any) -> Callable:
    """Load one reward and set its parameters.

    Args:
        spec: a registry name, `path/to/file.py:function`, or `package.module:function`.
        kwargs: parameters of the reward.

    Raises:
        ValueError: nothing of that name, a file that fails to import, a parameter the reward does not have, a signature
            that TRL cannot call, an unknown kind, an async step reward; the message says what is allowed.
    """
    target = load_function(spec)
    reward = _with_parameters(target, spec, kwargs, from_file=".py:" in REGISTRY.get(spec, spec))
    _check_signature(reward, spec)
    if reward_kind(reward) not in KINDS:
        raise ValueError(f"reward {spec!r} has kind {reward_kind(reward)!r}; allowed: {', '.join(KINDS)}.")
    if reward_kind(reward) == "step" and is_async(reward):
        raise ValueError(f"reward {spec!r} is async; a step reward is a plain function.")
    return reward


def load_function(spec: str) -> Callable:
    """Import the function or class that a specification names, whatever its signature.

    Raises:
        ValueError: nothing of that name, or a file or module that fails to import.
    """
    location, _, name = REGISTRY.get(spec, spec).rpartition(":")
    if not location:
        raise ValueError(
            f"unknown reward {spec!r}. Known rewards: {', '.join(sorted(REGISTRY))}. "
            "Your own: path/to/file.py:function or package.module:function."
        )
    module = _import_file(location, spec) if location.endswith(".py") else _import_module(location, spec)
    target = getattr(module, name, None)
    if not callable(target):
        close = difflib.get_close_matches(name, [each for each in vars(module) if not each.startswith("_")], n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"reward {spec!r}: {location} has no function or class {name!r}.{hint}")
    return target


def load_rewards(
    specs: list[str] | None,
    kwargs: dict[str, dict[str, Any]] | None = None,
    tasks: dict[str, list[str] | str] | None = None,
    allow_none: bool = False,
) -> list[Callable]:
    """Load the rewards of a run in the order named; at least one is not a step reward, unless `allow_none`.

    Args:
        specs: what `load_reward` takes, one a reward.
        kwargs: parameters of each reward, by the specification as written or the reward's name.
        tasks: the tasks of each reward, likewise; a reward without any sees every row.

    Raises:
        ValueError: every problem found, one a line; two rewards of one name, whose columns TRL would merge.
    """
    specs, kwargs, tasks = specs or [], dict(kwargs or {}), dict(tasks or {})
    rewards, problems = [], []
    for name in [name for name, values in kwargs.items() if not isinstance(values, dict)]:
        values = kwargs.pop(name)
        problems.append(f"reward_kwargs of {name!r} must be a mapping of names to values, not {values!r}.")
    for spec in specs:
        try:
            reward = load_reward(spec, **_take(kwargs, spec, {}))
            chosen = _take(tasks, spec, reward_tasks(reward))
            rewards.append(reward if chosen is None else route(reward, _task_names(chosen, spec)))
        except ValueError as problem:
            problems.append(str(problem))
    problems += check_names(rewards)
    for setting, names in (("kwargs", kwargs), ("tasks", tasks)):
        missing = f"which is not in reward_funcs ({', '.join(specs)})."
        problems += [f"reward_{setting} names {name!r}, {missing}" for name in names]
    if not allow_none and len(rewards) == len(specs) and all(reward_kind(reward) == "step" for reward in rewards):
        named = f"names only step rewards ({', '.join(specs)})" if specs else "is empty"
        problems.append(f"reward_funcs {named}; name at least one reward of whole completions, if only of weight 0.")
    if problems:
        raise ValueError("\n".join(problems))
    return rewards


def _take(settings: dict[str, Any], spec: str, default: Any) -> Any:
    """Remove and return what is set for a reward, by its specification or by the name at its end."""
    return settings.pop(spec if spec in settings else spec.rpartition(":")[2], default)


def _task_names(tasks: Any, spec: str) -> tuple[str, ...]:
    names = (tasks,) if isinstance(tasks, str) else tuple(tasks) if isinstance(tasks, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"reward_tasks of {spec!r} must be a list of task names, not {tasks!r}.")
    return names


def _import_file(path: str, spec: str) -> ModuleType:
    """Import a file under a name made from its path, so that two files called `my_reward.py` do not collide."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ValueError(f"reward {spec!r}: no file {file}.")
    name = "reward_file_" + "_".join(file.with_suffix("").parts[1:])
    module_spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses and friends look their module up while it runs
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"reward {spec!r}: {file} fails to import: {type(error).__name__}: {error}") from error
    return module


def _import_module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"reward {spec!r}: cannot import {name!r}: {type(error).__name__}: {error}. "
            "A file is named with its ending: path/to/file.py:function."
        ) from error


def _with_parameters(target: Callable, spec: str, kwargs: dict[str, Any], from_file: bool) -> Callable:
    """Instantiate a class with its parameters; bind them to a function."""
    accepted = inspect.signature(target)
    try:
        accepted.bind_partial(**kwargs)
        if inspect.isclass(target) and not from_file:
            return target(**kwargs)
    except TypeError as error:
        raise ValueError(f"reward {spec!r}: {error}; its signature is {accepted}.") from error
    if inspect.isclass(target):
        raise ValueError(f"reward {spec!r} is a class; name a function, or a class by package.module:Class.")
    _check_parameters(accepted, spec, kwargs)
    if from_file:
        wrapper = AsyncFileReward if inspect.iscoroutinefunction(target) else FileReward
        return wrapper(spec, target, kwargs)
    return functools.partial(target, **kwargs) if kwargs else target


def _check_parameters(accepted: inspect.Signature, spec: str, kwargs: dict[str, Any]) -> None:
    """The `**kwargs` that TRL needs would swallow a misspelt parameter, so its name is looked up."""
    named = {p.name for p in accepted.parameters.values() if p.kind in NAMED} - TRL_ARGUMENTS
    unknown = [name for name in kwargs if name not in named]
    if unknown:
        raise ValueError(f"reward {spec!r} has no parameter {', '.join(unknown)}; its signature is {accepted}.")


def _check_signature(reward: Callable, spec: str) -> None:
    """TRL calls every reward by keyword, with more than it needs."""
    parameters = parameters_of(reward)
    takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters if p.kind in NAMED}
    positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    if not takes_rest or positional_only or not names & {"completions", "completion_ids"}:
        raise ValueError(
            f"reward {spec!r} has the signature {inspect.signature(reward)}; TRL needs "
            "(prompts, completions, <dataset columns>, **kwargs), all by keyword."
        )
