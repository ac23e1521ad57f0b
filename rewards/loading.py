"""Load rewards by registry name, file, module or model, and set their parameters and tasks."""

import difflib
import functools
import importlib.util
import inspect
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.boundary import describe, starting
from rewards.contract import (
    KINDS,
    TRL_ARGUMENTS,
    UNDECLARED,
    Reward,
    named_parameters,
    place_of,
    reward_of,
    route,
)

# Every reward that has a short name: name -> "module.callable". Add yours here, in one line.
REGISTRY = {
    "xml_format": "rewards.format.XmlFormat",
    "think_answer_format": "rewards.format.ThinkAnswerFormat",
    "gsm8k_correctness": "rewards.gsm8k.Gsm8kCorrectness",
    "gsm8k_harness": "rewards.gsm8k.Gsm8kHarness",
    "boxed_math": "rewards.boxed_math.BoxedMath",
    "reasoning_gym": "rewards.reasoning_gym.ReasoningGym",
    "code_tests": "rewards.code_tests.CodeTests",
    "code_format": "rewards.code_blocks.CodeFormat",
    "number_count": "rewards.number_count.NumberCount",
    "prose": "rewards.small.Prose",
    "length": "rewards.small.Length",
    "soft_overlong": "rewards.small.SoftOverlong",
    "equation_steps": "rewards.process.EquationSteps",
    "random": "rewards.small.Random",
    "constant": "rewards.small.Constant",
    "majority": "rewards.small.Majority",
}

COMPLETION_ARGUMENTS = {"completions", "completion_ids", "environments"}  # a reward takes one


def load_rewards(
    specs: list[str] | str | None,
    kwargs: dict[str, dict[str, Any]] | None = None,
    tasks: dict[str, list[str] | str] | None = None,
    allow_none: bool = False,
) -> list[Reward]:
    """Load the rewards of a run, in the order of `specs`.

    Args:
        specs: one specification per reward, as `load_reward` takes it; a text is one reward.
        kwargs: specification or short name of a reward -> its parameters.
        tasks: specification or short name of a reward -> its tasks. A reward that is not named here
            keeps the tasks that it declares.
        allow_none: accept a run without a reward for whole completions (none, or step rewards).

    Raises:
        ValueError: lists every problem, one per line. Two rewards with the same name are a problem,
            because TRL would merge their logged columns.
    """
    specs = [specs] if isinstance(specs, str) else specs or []
    settings = {"reward_kwargs": dict(kwargs or {}), "reward_tasks": dict(tasks or {})}

    def take(setting: str, spec: str) -> Any:
        """Remove and return the setting of a reward, by its specification or short name."""
        values = settings[setting]
        return values.pop(spec if spec in values else short_name(spec), None)

    rewards, problems = [], []
    for spec in specs:
        own_kwargs, own_tasks = take("reward_kwargs", spec), take("reward_tasks", spec)
        try:
            if not isinstance(own_kwargs, dict | None):
                raise ValueError(
                    f"reward_kwargs of {spec!r} must be a mapping, not {own_kwargs!r}."
                )
            reward = load_reward(spec, **(own_kwargs or {}))
            rewards.append(reward if own_tasks is None else with_tasks(reward, own_tasks, spec))
        except ValueError as problem:
            problems.append(str(problem))
        except Exception as error:
            problems.append(f"reward {spec!r}: {describe(error)}.")
    for name, count in Counter(reward.name for reward in rewards).items():
        if count > 1:
            problems.append(
                f"two rewards are called {name!r}: what is logged of them would be one. Rename one "
                f'(in its file: the_reward.__name__ = "another name"), or remove it.'
            )
    for setting, left in settings.items():
        for name in left:
            problems.append(
                f"{setting} names {name!r}, which is not in reward_funcs ({', '.join(specs)})."
            )
    if not (problems or allow_none) and all(reward.kind == "step" for reward in rewards):
        named = f"names only step rewards ({', '.join(specs)})" if specs else "is empty"
        problems.append(
            f"reward_funcs {named}; name at least one reward of whole completions, if only of "
            "weight 0."
        )
    if problems:
        raise ValueError("\n".join(problems))
    return rewards


def load_reward(spec: str, **kwargs: Any) -> Reward:
    """Load one reward and set its parameters.

    Args:
        spec: a registry name, `path/to/file.py:name`, or `package.module.name`, such as
            `trl.rewards.accuracy_reward`. It names a reward function, a class, or a function that
            returns a reward. Or the Hub id or folder of a reward model, which TRL loads.
        kwargs: parameters of the reward, of its class, or of the function that returns the reward.

    Raises:
        ValueError: nothing has that name, the file cannot be imported, the reward does not have a
            parameter, TRL cannot call its signature, or it declares what is not allowed.
    """
    if names_model(spec):
        if kwargs:
            names = ", ".join(kwargs)
            raise ValueError(f"reward {spec!r} is a reward model; it has no parameters ({names}).")
        return reward_of(spec.rstrip("/"))  # TRL names the reward by the text after the last slash
    reward = reward_of(with_parameters(find_object(spec), kwargs, spec))
    title, signature = f"reward {spec!r}{place_of(reward.call)}", inspect.signature(reward)
    full, rate = reward.full, reward.max_error_rate
    if full is not None and not (isinstance(full, int | float) and math.isfinite(full)):
        raise ValueError(
            f"{title} has full {full!r}; allowed: a number, the score of a right answer."
        )
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    takes_any_column = inspect.Parameter.VAR_KEYWORD in kinds  # TRL passes every column
    takes_completions = named_parameters(reward).keys() & COMPLETION_ARGUMENTS
    if inspect.Parameter.POSITIONAL_ONLY in kinds or not (takes_any_column and takes_completions):
        raise ValueError(
            f"{title} has the signature {signature}; TRL needs (prompts, completions, <dataset "
            "columns>, **kwargs), all by keyword; a function that returns a reward takes its "
            "parameters from reward_kwargs."
        )
    if reward.kind not in (*KINDS, UNDECLARED):
        raise ValueError(f"{title} has kind {reward.kind!r}; allowed: {', '.join(KINDS)}.")
    if not (isinstance(rate, int | float) and 0 <= rate <= 1):
        raise ValueError(f"{title} has max_error_rate {rate!r}; allowed: a share of 0 to 1.")
    if reward.kind == "step" and reward.is_async:
        raise ValueError(f"{title} is async; a step reward is a plain function.")
    return reward if reward.tasks is None else with_tasks(reward, reward.tasks, spec)


def with_tasks(reward: Reward, tasks: Any, spec: str) -> Reward:
    """Return the reward for rows of `tasks`; ValueError if they are no names or it is a model."""
    names = [tasks] if isinstance(tasks, str) else tasks
    if reward.is_model:
        raise ValueError(f"reward_tasks of {spec!r}: a reward model scores every row.")
    is_list = isinstance(names, list | tuple) and len(names) > 0
    if not (is_list and all(isinstance(name, str) for name in names)):
        raise ValueError(f"reward_tasks of {spec!r} must be a list of task names, not {tasks!r}.")
    return route(reward, names)


class WithParameters(functools.partial):
    """A partial whose parameters also win over a column of the rows with the same name."""

    def __call__(self, /, **arguments: Any) -> Any:
        return super().__call__(**(arguments | self.keywords))


def with_parameters(target: Callable, kwargs: dict[str, Any], spec: str) -> Callable:
    """Return the reward that `target` makes or is, with its parameters set.

    A class is called with `kwargs`; its instance is the reward. A function that makes a reward is
    called, too: none of its parameters is an argument that TRL passes (`completions`, say), and
    `kwargs` has all that it needs. Any other function is the reward: `kwargs` are bound to it.
    """
    signature, parameters = inspect.signature(target), named_parameters(target)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    passes_more_on = inspect.isclass(target) and inspect.Parameter.VAR_KEYWORD in kinds
    for name, value in kwargs.items():
        if name in parameters and name not in TRL_ARGUMENTS:
            check_parameter(parameters[name], value, spec)
        # A reward's **kwargs, which take TRL's columns, would swallow a misspelt parameter.
        elif not passes_more_on:
            raise ValueError(
                f"reward {spec!r} has no parameter {name}; its signature is {signature}."
            )
    required = {name for name, p in parameters.items() if p.default is p.empty}
    names_nothing = kinds and not parameters  # such as `f(**kwargs)`, which is a reward
    is_reward = names_nothing or parameters.keys() & TRL_ARGUMENTS or required - kwargs.keys()
    if is_reward and not inspect.isclass(target):
        return WithParameters(target, **kwargs) if kwargs else target
    try:
        with starting(f"reward {spec!r}, which is being made"):
            reward = target(**kwargs)
    except ValueError:  # of a parameter; the message says what is allowed
        raise
    except Exception as error:
        raise ValueError(
            f"reward {spec!r}: {describe(error)}; reward_kwargs gives parameters of {signature}."
        ) from error
    if not callable(reward):
        raise ValueError(f"reward {spec!r} makes {reward!r:.80}, which cannot be called.")
    return reward


def check_parameter(parameter: inspect.Parameter, value: Any, spec: str) -> None:
    """Raise ValueError unless a value is of the kind of the parameter's default.

    Without this check the text "no" would count as true. A parameter without a default may have
    any value.
    """
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text"}
    wanted = kinds.get(type(parameter.default))
    may_be_none = value is None and "None" in str(parameter.annotation)
    if wanted and not may_be_none and kinds.get(type(value)) != wanted:
        raise ValueError(f"reward {spec!r}: {parameter.name} is {value!r}; it must be {wanted}.")


def names_model(spec: str) -> bool:
    """Whether a specification is the Hub id or the folder of a reward model.

    Example: `names_model("org/reward-model")`; `not names_model("my_rewards.py:brevity")`
    """
    is_code = spec in REGISTRY or ":" in spec or spec.endswith(".py")
    return not is_code and ("/" in spec or Path(spec).is_dir())


def short_name(spec: str) -> str:
    """The last part: `short_name("trl.rewards.accuracy_reward") == "accuracy_reward"`."""
    return re.split("/" if names_model(spec) else "[/:.]", spec.rstrip("/"))[-1]


def find_object(spec: str, kind: str = "reward") -> Callable:
    """Import the callable that a specification names; ValueError, with its `kind`, if none."""
    location, name = re.fullmatch(r"(?s)(?:(.+)[:.])?(.*)", REGISTRY.get(spec, spec)).groups()
    if not location or name == "py":  # "mine.py" without ":function"
        raise ValueError(
            f"unknown {kind} {spec!r}. Known rewards: {', '.join(sorted(REGISTRY))}. "
            "Your own: path/to/file.py:function or package.module.function. "
            "TRL's: trl.rewards.accuracy_reward. A reward model: its Hub id or folder."
        )
    if location.endswith(".py") and not Path(location).is_file():
        raise ValueError(f"{kind} {spec!r}: no file {Path(location).resolve()}.")
    try:
        with starting(f"the import of {location}"):
            module = import_location(location)
    except Exception as error:
        raise ValueError(
            f"{kind} {spec!r}: cannot import {location!r}: {describe(error)}."
        ) from error
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, dir(module), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{kind} {spec!r}: {location} has no function or class {name!r}.{hint}")
    target = getattr(module, name)
    if not callable(target):
        raise ValueError(f"{kind} {spec!r} is {target!r:.80}, which cannot be called.")
    return target


def import_location(location: str) -> ModuleType:
    """Import a module (`package.module`, also of the working folder) or a file (`path/file.py`)."""
    if os.getcwd() not in sys.path:  # a script has its own folder there instead
        sys.path.append(os.getcwd())
    if location.endswith(".py"):
        file = Path(location).resolve()
        # The name has the whole path in it, so that no two files collide.
        name = f"reward_file_{file.with_suffix('')}"
        # Two rewards of one file share what it loads, such as a model.
        return sys.modules.get(name) or import_file(file, name)
    return importlib.import_module(location)


def import_file(file: Path, name: str) -> ModuleType:
    """Import a Python file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: `@dataclass` looks its module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
