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
    Reward,
    check_names,
    parameters_of,
    reward_of,
    route,
)
from rewards.registry import REGISTRY

TRL_CALLS = (
    "TRL needs (prompts, completions, <dataset columns>, **kwargs), all by keyword; "
    "a function that returns a reward takes its parameters from reward_kwargs"
)


def load_rewards(
    specs: list[str] | str | None,
    kwargs: dict[str, dict[str, Any]] | None = None,
    tasks: dict[str, list[str] | str] | None = None,
    allow_none: bool = False,
) -> list[Reward]:
    """Load the rewards of a run in the order named.

    At least one is not a step reward, unless `allow_none`.

    Args:
        specs: what `load_reward` takes, one a reward, or a single one.
        kwargs: parameters of each reward, by the specification as written or the reward's name.
        tasks: the tasks of each reward, likewise; a reward without any sees every row.

    Raises:
        ValueError: every problem found, one a line; two rewards of one name, whose columns TRL
            would merge.
    """
    specs = [specs] if isinstance(specs, str) else specs or []
    settings = {"kwargs": dict(kwargs or {}), "tasks": dict(tasks or {})}
    rewards, problems = [], []

    def take(setting: str, spec: str, default: Any) -> Any:
        given = settings[setting]
        return given.pop(spec if spec in given else short_name(spec), default)

    for spec in specs:
        own = take("kwargs", spec, {})
        if not isinstance(own, dict):
            needed = "must be a mapping of names to values"
            problems.append(f"reward_kwargs of {spec!r} {needed}, not {own!r}.")
            own = {}
        try:
            reward = load_reward(spec, **own)
            chosen = take("tasks", spec, reward.tasks)
            rewards.append(reward if chosen is None else _routed(reward, chosen, spec))
        except ValueError as problem:
            problems.append(str(problem))
    problems += check_names(rewards)
    for setting, left in settings.items():
        missing = f"which is not in reward_funcs ({', '.join(specs)})."
        problems += [f"reward_{setting} names {name!r}, {missing}" for name in left]
    is_loaded = len(rewards) == len(specs)
    if is_loaded and not allow_none and all(reward.kind == "step" for reward in rewards):
        named = f"names only step rewards ({', '.join(specs)})" if specs else "is empty"
        remedy = "name at least one reward of whole completions, if only of weight 0."
        problems.append(f"reward_funcs {named}; {remedy}")
    if problems:
        raise ValueError("\n".join(problems))
    return rewards


def _routed(reward: Reward, tasks: Any, spec: str) -> Reward:
    if reward.is_model:
        scores = "a reward model scores every row; leave it out."
        raise ValueError(f"reward_tasks of {spec!r}: {scores}")
    names = [tasks] if isinstance(tasks, str) else tasks
    is_list = isinstance(names, list | tuple) and names
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ValueError(f"reward_tasks of {spec!r} must be a list of task names, not {tasks!r}.")
    return route(reward, tuple(names))


def load_reward(spec: str, **kwargs: Any) -> Reward:
    """Load one reward and set its parameters.

    Args:
        spec: a registry name, `path/to/file.py:name`, `package.module:name` or
            `package.module.name`: a function, a class, an instance, a partial, a function that
            returns a reward, or a loaded reward model. Or the Hub id or folder of a reward model,
            which TRL loads.
        kwargs: parameters of the reward, of its class, or of the function that returns it.

    Raises:
        ValueError: nothing of that name, a file that fails to import, a parameter the reward does
            not have, a signature that TRL cannot call, an unknown kind, an async step reward; the
            message says what is allowed.
    """
    reward = reward_of(build_reward(spec, kwargs))
    if not reward.is_model:
        check_signature(reward, spec)
    return reward


def check_signature(reward: Callable, spec: str) -> None:
    """Refuse, by ValueError, a reward that TRL cannot call, and one of an unknown kind."""
    parameters = parameters_of(reward)
    names = {p.name for p in parameters if p.kind in NAMED}
    kinds = {p.kind for p in parameters}
    takes_more = inspect.Parameter.VAR_KEYWORD in kinds  # than it needs
    by_keyword = inspect.Parameter.POSITIONAL_ONLY not in kinds
    what = names & {"completions", "completion_ids", "environments"}
    if not (takes_more and by_keyword and what):
        has = f"reward {spec!r} has the signature {inspect.signature(reward)}"
        raise ValueError(f"{has}; {TRL_CALLS}.")
    record = reward_of(reward)
    kind = record.kind
    if kind not in (*KINDS, UNDECLARED):
        raise ValueError(f"reward {spec!r} has kind {kind!r}; allowed: {', '.join(KINDS)}.")
    if kind == "step" and record.is_async:
        raise ValueError(f"reward {spec!r} is async; a step reward is a plain function.")


def build_reward(spec: str, kwargs: dict[str, Any]) -> Any:
    """Import what a specification names and set its parameters: a class or a factory is called.

    Raises:
        ValueError: nothing of that name, a file or module that fails to import, or parameters that
            do not fit.
    """
    if names_model(spec):
        if kwargs:
            lacks = f"it has no parameters ({', '.join(kwargs)})"
            raise ValueError(f"reward {spec!r} is a reward model; {lacks}.")
        return spec.rstrip("/")  # TRL names it by what follows the last slash
    target = find_object(spec)
    accepted = inspect.signature(target)
    named = {p.name for p in accepted.parameters.values() if p.kind in NAMED}
    for name, value in kwargs.items():
        if name in named and (words := _other_kind(accepted.parameters[name], value)):
            raise ValueError(f"reward {spec!r}: {name} is {value!r}; it must be {words}.")
    if not (inspect.isclass(target) or _is_factory(accepted, named, kwargs)):
        # The `**kwargs` that TRL needs would swallow a misspelt parameter.
        unknown = [name for name in kwargs if name not in named - TRL_ARGUMENTS]
        if unknown:
            has = f"reward {spec!r} has no parameter {', '.join(unknown)}"
            raise ValueError(f"{has}; its signature is {accepted}.")
        return functools.partial(target, **kwargs) if kwargs else target
    try:
        reward = target(**kwargs)
    except TypeError as error:
        raise ValueError(f"reward {spec!r}: {error}; its signature is {accepted}.") from error
    if not callable(reward):
        made = f"reward {spec!r} makes {reward!r:.80}, which cannot be called"
        raise ValueError(f"{made}; {TRL_CALLS}.")
    return reward


def _other_kind(parameter: inspect.Parameter, value: Any) -> str | None:
    """What a value must be that is of another kind than its default: "no" for false is true."""
    if value is None and "None" in str(parameter.annotation):
        return None
    for kind, words in ((bool, "true or false"), ((int, float), "a number"), (str, "text")):
        if isinstance(parameter.default, kind):
            is_bool = isinstance(value, bool) and kind is not bool
            return words if is_bool or not isinstance(value, kind) else None
    return None


def _is_factory(accepted: inspect.Signature, named: set[str], kwargs: dict[str, Any]) -> bool:
    """Whether it returns a reward: it takes nothing that TRL passes, and its parameters are set."""
    takes_anything = any(p.kind is p.VAR_KEYWORD for p in accepted.parameters.values())
    try:
        accepted.bind(**kwargs)
    except TypeError:
        return False
    return not (named & TRL_ARGUMENTS) and (bool(named) or not takes_anything)


def names_model(spec: str) -> bool:
    """Whether a specification is the Hub id or the folder of a reward model.

    Example: `names_model("org/reward-model")`; `not names_model("my_rewards.py:brevity")`
    """
    is_code = spec in REGISTRY or ":" in spec or spec.endswith(".py")
    return not is_code and ("/" in spec or Path(spec).is_dir())


def short_name(spec: str) -> str:
    """The name at its end: `short_name("trl.rewards.accuracy_reward") == "accuracy_reward"`."""
    return spec.rstrip("/").rpartition("/")[2] if names_model(spec) else re.split("[:.]", spec)[-1]


def find_object(spec: str) -> Any:
    """Import what a specification names: function, class or instance; ValueError for nothing."""
    location, _, name = REGISTRY.get(spec, spec).rpartition(":")
    if re.fullmatch(r"\w+(\.\w+)+", spec) and not spec.endswith(".py"):
        location, _, name = spec.rpartition(".")
    if not location:
        raise ValueError(
            f"unknown reward {spec!r}. Known rewards: {', '.join(sorted(REGISTRY))}. "
            "Your own: path/to/file.py:function or package.module:function. "
            "TRL's: trl.rewards.accuracy_reward. A reward model: its Hub id or folder."
        )
    module = _import(location, spec)
    target = getattr(module, name, None)
    if not callable(target):
        public = [each for each in vars(module) if not each.startswith("_")]
        close = difflib.get_close_matches(name, public, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"reward {spec!r}: {location} has no function or class {name!r}.{hint}")
    return target


def _import(location: str, spec: str) -> ModuleType:
    """Import a module, or a file under a name made from its path: equal file names do not collide.

    Raises:
        ValueError: there is none, or its code fails.
    """
    is_file, file = location.endswith(".py"), Path(location).resolve()
    if is_file and not file.is_file():
        raise ValueError(f"reward {spec!r}: no file {file}.")
    try:
        if is_file:
            return import_file(file, "reward_file_" + "_".join(file.with_suffix("").parts[1:]))
        if os.getcwd() not in sys.path:  # of a script the first place is the script's folder
            sys.path.append(os.getcwd())
        return importlib.import_module(location)
    except (Exception, SystemExit) as error:
        failed = f"{file} fails to import" if is_file else f"cannot import {location!r}"
        hint = "" if is_file else " A file is named with its ending: path/to/file.py:function."
        words = f"{failed}: {type(error).__name__}: {error}.{hint}"
        raise ValueError(f"reward {spec!r}: {words}") from error


def import_file(file: Path, name: str) -> ModuleType:
    """Run a Python file as the module of that name."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    spec.loader.exec_module(module)
    return module
