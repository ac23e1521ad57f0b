"""Rewards by name, file, module or model, with their parameters and tasks set."""

import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.contract import (
    KINDS,
    NAMED,
    TRL_ARGUMENTS,
    UNDECLARED,
    check_names,
    is_async,
    is_model,
    parameters_of,
    reward_kind,
    reward_name,
    reward_tasks,
)
from rewards.registry import REGISTRY
from rewards.routing import route

TRL_CALLS = (
    "TRL needs (prompts, completions, <dataset columns>, **kwargs), all by keyword; a function that returns a reward "
    "takes its parameters from reward_kwargs"
)


class FileReward:
    """A reward of a file that no import statement reaches; pickles by its specification, so spawn works."""

    def __init__(self, spec: str, kwargs: dict[str, Any], reward: Callable):
        self.spec, self.kwargs = spec, kwargs
        self.__name__, self.__wrapped__ = (
            reward_name(reward),
            reward,
        )  # what it wraps declares the rest

    def __call__(self, **arguments: Any) -> list[float | None]:
        return self.__wrapped__(**arguments)

    def __reduce__(self):
        return functools.partial(load_reward, self.spec, **self.kwargs), ()


class AsyncFileReward(FileReward):
    """The same for an `async def` reward: TRL looks at `__call__` to tell them apart."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        return await self.__wrapped__(**arguments)


def load_reward(spec: str, **kwargs: Any) -> Callable | str:
    """Load one reward and set its parameters.

    Args:
        spec: a registry name, `path/to/file.py:name`, `package.module:name` or `package.module.name`: a function, a
            class, an instance, a partial, a function that returns a reward, or a loaded reward model. Or the Hub id or
            folder of a reward model, which is returned as it is: TRL loads it.
        kwargs: parameters of the reward, of its class, or of the function that returns it.

    Raises:
        ValueError: nothing of that name, a file that fails to import, a parameter the reward does not have, a signature
            that TRL cannot call, an unknown kind, an async step reward; the message says what is allowed.
    """
    reward = build_reward(spec, kwargs)
    if is_model(reward):
        return reward
    _check_signature(reward, spec)
    kind = reward_kind(reward)
    if kind not in (*KINDS, UNDECLARED):
        raise ValueError(f"reward {spec!r} has kind {kind!r}; allowed: {', '.join(KINDS)}.")
    if kind == "step" and is_async(reward):
        raise ValueError(f"reward {spec!r} is async; a step reward is a plain function.")
    if ".py:" in spec:
        return (AsyncFileReward if is_async(reward) else FileReward)(spec, kwargs, reward)
    return reward


def build_reward(spec: str, kwargs: dict[str, Any]) -> Any:
    """Import what a specification names and set its parameters: a class is instantiated, a factory is called.

    Raises:
        ValueError: nothing of that name, a file or module that fails to import, or parameters that do not fit.
    """
    if names_model(spec):
        if kwargs:
            raise ValueError(
                f"reward {spec!r} is a reward model; it has no parameters ({', '.join(kwargs)})."
            )
        return spec.rstrip("/")  # TRL names it by what follows the last slash
    target = find_object(spec)
    accepted = inspect.signature(target)
    if not (inspect.isclass(target) or _is_factory(accepted, kwargs)):
        _check_parameters(accepted, spec, kwargs)
        return functools.partial(target, **kwargs) if kwargs else target
    try:
        reward = target(**kwargs)
    except TypeError as error:
        raise ValueError(f"reward {spec!r}: {error}; its signature is {accepted}.") from error
    if not callable(reward):
        raise ValueError(
            f"reward {spec!r} makes {reward!r:.80}, which cannot be called; {TRL_CALLS}."
        )
    return reward


def names_model(spec: str) -> bool:
    """Whether a specification is the Hub id or the folder of a reward model.

    Example: `names_model("org/reward-model")`; `not names_model("my_rewards.py:brevity")`
    """
    is_code = spec in REGISTRY or ":" in spec or spec.endswith(".py")
    return not is_code and ("/" in spec or Path(spec).is_dir())


def short_name(spec: str) -> str:
    """The name at the end of a specification: `short_name("trl.rewards.accuracy_reward") == "accuracy_reward"`."""
    return spec.rstrip("/").rpartition("/")[2] if names_model(spec) else re.split("[:.]", spec)[-1]


def find_object(spec: str) -> Any:
    """Import the function, class or instance that a specification names; ValueError for nothing of that name."""
    location, _, name = REGISTRY.get(spec, spec).rpartition(":")
    if re.fullmatch(r"\w+(\.\w+)+", spec) and not spec.endswith(".py"):
        location, _, name = spec.rpartition(".")
    if not location:
        raise ValueError(
            f"unknown reward {spec!r}. Known rewards: {', '.join(sorted(REGISTRY))}. "
            "Your own: path/to/file.py:function or package.module:function. TRL's: trl.rewards.accuracy_reward. "
            "A reward model: its Hub id or folder."
        )
    module = (
        _import_file(location, spec) if location.endswith(".py") else _import_module(location, spec)
    )
    target = getattr(module, name, None)
    if not callable(target):
        close = difflib.get_close_matches(
            name, [each for each in vars(module) if not each.startswith("_")], n=1
        )
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"reward {spec!r}: {location} has no function or class {name!r}.{hint}")
    return target


def load_rewards(
    specs: list[str] | str | None,
    kwargs: dict[str, dict[str, Any]] | None = None,
    tasks: dict[str, list[str] | str] | None = None,
    allow_none: bool = False,
) -> list[Callable]:
    """Load the rewards of a run in the order named; at least one is not a step reward, unless `allow_none`.

    Args:
        specs: what `load_reward` takes, one a reward, or a single one.
        kwargs: parameters of each reward, by the specification as written or the reward's name.
        tasks: the tasks of each reward, likewise; a reward without any sees every row.

    Raises:
        ValueError: every problem found, one a line; two rewards of one name, whose columns TRL would merge.
    """
    specs = [specs] if isinstance(specs, str) else specs or []
    kwargs, tasks = dict(kwargs or {}), dict(tasks or {})
    rewards, problems = [], []
    for name in [name for name, values in kwargs.items() if not isinstance(values, dict)]:
        values = kwargs.pop(name)
        problems.append(
            f"reward_kwargs of {name!r} must be a mapping of names to values, not {values!r}."
        )
    for spec in specs:
        try:
            reward = load_reward(spec, **_take(kwargs, spec, {}))
            chosen = _take(tasks, spec, reward_tasks(reward))
            if chosen is not None and is_model(reward):
                raise ValueError(
                    f"reward_tasks of {spec!r}: a reward model scores every row; leave it out."
                )
            rewards.append(reward if chosen is None else route(reward, _task_names(chosen, spec)))
        except ValueError as problem:
            problems.append(str(problem))
    problems += check_names(rewards)
    for setting, names in (("kwargs", kwargs), ("tasks", tasks)):
        missing = f"which is not in reward_funcs ({', '.join(specs)})."
        problems += [f"reward_{setting} names {name!r}, {missing}" for name in names]
    if (
        not allow_none
        and len(rewards) == len(specs)
        and all(reward_kind(reward) == "step" for reward in rewards)
    ):
        named = f"names only step rewards ({', '.join(specs)})" if specs else "is empty"
        problems.append(
            f"reward_funcs {named}; name at least one reward of whole completions, if only of weight 0."
        )
    if problems:
        raise ValueError("\n".join(problems))
    return rewards


def _take(settings: dict[str, Any], spec: str, default: Any) -> Any:
    """Remove and return what is set for a reward, by its specification or by the name at its end."""
    return settings.pop(spec if spec in settings else short_name(spec), default)


def _task_names(tasks: Any, spec: str) -> tuple[str, ...]:
    names = (
        (tasks,)
        if isinstance(tasks, str)
        else tuple(tasks)
        if isinstance(tasks, list | tuple)
        else ()
    )
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
        raise ValueError(
            f"reward {spec!r}: {file} fails to import: {type(error).__name__}: {error}"
        ) from error
    return module


def _import_module(name: str, spec: str) -> ModuleType:
    if os.getcwd() not in sys.path:  # of a script the first place is the script's folder
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"reward {spec!r}: cannot import {name!r}: {type(error).__name__}: {error}. "
            "A file is named with its ending: path/to/file.py:function."
        ) from error


def _is_factory(accepted: inspect.Signature, kwargs: dict[str, Any]) -> bool:
    """Whether a function returns a reward: it takes nothing of what TRL passes, and its parameters are all set."""
    names = {p.name for p in accepted.parameters.values() if p.kind in NAMED}
    takes_anything = not names and any(
        p.kind is p.VAR_KEYWORD for p in accepted.parameters.values()
    )
    try:
        accepted.bind(**kwargs)
    except TypeError:
        return False
    return not (names & TRL_ARGUMENTS or takes_anything)


def _check_parameters(accepted: inspect.Signature, spec: str, kwargs: dict[str, Any]) -> None:
    """The `**kwargs` that TRL needs would swallow a misspelt parameter, so its name is looked up."""
    named = {p.name for p in accepted.parameters.values() if p.kind in NAMED} - TRL_ARGUMENTS
    unknown = [name for name in kwargs if name not in named]
    if unknown:
        raise ValueError(
            f"reward {spec!r} has no parameter {', '.join(unknown)}; its signature is {accepted}."
        )


def _check_signature(reward: Callable, spec: str) -> None:
    """TRL calls every reward by keyword, with more than it needs."""
    parameters = parameters_of(reward)
    takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters if p.kind in NAMED}
    positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    if not takes_rest or positional_only or not names & {"completions", "completion_ids"}:
        raise ValueError(
            f"reward {spec!r} has the signature {inspect.signature(reward)}; {TRL_CALLS}."
        )
