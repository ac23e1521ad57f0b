"""Tools and environments by name, and the reward of an environment as a reward like any other.

A tool is a function that the model may call. An environment, one for each completion, has
`reset(**row)`, whose text is added to the prompt; its other public methods are tools, and
`get_reward()`, where it has one, scores the rollout. Tools need type hints and an `Args:` section,
from which the chat template describes them.
"""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rewards.contract import TRL_ARGUMENTS, answer_of, at_once, is_model, parameters_of, reward_name
from rewards.loading import find_object
from rewards.rows import score_rows

OTHER_ENVIRONMENT = "not applicable"  # the outcome of a row that plays in another environment
DECLARATIONS = ("kind", "full", "allowances", "farmable", "max_error_rate", "tasks")
NOT_TOOLS = ("reset", "get_reward")
Factories = dict[str | None, Callable]


def load_tools(specs: list[str] | None) -> list[Callable]:
    """Load functions by `path/to/file.py:function` or `package.module:function`."""
    return [_load("tool", spec) for spec in specs or []]


def load_environments(spec: str | dict[str, str] | None) -> Callable | dict[str, Callable] | None:
    """Load the class, or the classes by the name in the column `environment`."""
    if isinstance(spec, dict):
        return {name: _load("environment_factory", of_one) for name, of_one in spec.items()}
    return None if spec is None else _load("environment_factory", spec)


def _load(setting: str, spec: Any) -> Callable:
    if not isinstance(spec, str) or ":" not in spec:
        raise ValueError(f"{setting} {spec!r}: give path/to/file.py:name or package.module:name.")
    try:
        return _loaded(spec)
    except ValueError as problem:
        raise ValueError(str(problem).replace("reward", setting, 1)) from problem


# A file that is imported twice holds another class of the same name.
_loaded = functools.cache(find_object)


def by_name(environment_factory: Callable | dict[str, Callable] | None) -> Factories:
    """The factories by the rows' column `environment`; one for all rows has the name None."""
    if environment_factory is None or isinstance(environment_factory, dict):
        return environment_factory or {}
    return {None: environment_factory}


def methods_of(environment: Any) -> list[Callable]:
    """The methods that the model may call."""
    found = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    return [
        getattr(environment, name)
        for name, _ in found
        if name not in NOT_TOOLS and not name.startswith("_")
    ]


def make(name: str | None, factory: Callable) -> Any:
    """Make an environment; ValueError where that fails, with its exception."""
    try:
        return factory()
    except (Exception, SystemExit) as error:
        why = f"cannot be made: {type(error).__name__}: {error}. It is called without arguments."
        raise ValueError(f"{title_of(name, factory)} {why}") from error


def title_of(name: str | None, factory: Callable) -> str:
    """The environment in a message."""
    return f"environment {getattr(factory, '__name__', str(factory)) if name is None else name!r}"


def environment_rewards(
    environment_factory: Callable | dict[str, Callable] | None,
) -> list["EnvironmentReward"]:
    """One for each class with `get_reward`, by TRL's name; makes an environment of each."""
    made = [make(name, factory) for name, factory in by_name(environment_factory).items()]
    kinds = [kind for kind in dict.fromkeys(map(type, made)) if hasattr(kind, "get_reward")]
    return [EnvironmentReward(kind, environment_factory) for kind in kinds]


class EnvironmentReward:
    """`get_reward()` of each completion's environment as a reward like any other.

    One that raises is an error of its row. Where no environments are given, as outside a rollout,
    the tool calls of each completion are played in new ones. It is async for those that are: they
    run on the event loop on which their tools ran.
    """

    def __init__(self, environment: type, environment_factory: Callable | dict[str, Callable]):
        self.environment, self.__name__ = environment, environment.__name__
        self.factories = by_name(environment_factory)
        for name in DECLARATIONS:
            if hasattr(environment, name):
                setattr(self, name, getattr(environment, name))

    async def __call__(
        self, prompts, completions, environments=None, log_extra=None, **columns
    ) -> list[float | None]:
        # Of each its reward, its exception, or that the reward is not this one's to give.
        outcomes: list[Any] = []
        environments = environments or played(self.factories, prompts, completions, columns)
        for environment in environments:
            if type(environment) is self.environment:
                outcomes.append(await _settled(environment.get_reward))
            else:
                outcomes.append(OTHER_ENVIRONMENT)
        logged: dict[str, list] = {}
        scores = score_rows(self.__name__, _returned, outcomes, log_extra=logged.__setitem__)
        for column, words in logged.items() if log_extra is not None else ():
            pairs = zip(outcomes, words, strict=True)
            log_extra(
                column,
                [word if outcome is not OTHER_ENVIRONMENT else outcome for outcome, word in pairs],
            )
        return scores


class TakesEnvironments:
    """A reward with a parameter `environments`; outside a rollout the calls are played in new ones.

    What it wraps, of either kind, declares the rest.
    """

    def __init__(self, reward: Callable, factories: Factories):
        self.__wrapped__, self.factories = reward, factories

    async def __call__(
        self, prompts, completions, environments=None, **columns
    ) -> list[float | None]:
        environments = environments or played(self.factories, prompts, completions, columns)
        given = {"prompts": prompts, "completions": completions, "environments": environments}
        return await answer_of(self.__wrapped__, **given, **columns)


def with_environments(rewards: list[Callable], factories: Factories) -> list[Callable]:
    """Wrap the rewards that take `environments`; ValueError where there are none to give."""
    wrapped = []
    for reward in rewards:
        names = [] if is_model(reward) else [each.name for each in parameters_of(reward)]
        if "environments" not in names:
            wrapped.append(reward)
        elif not factories:
            lacks = "takes environments, and environment_factory names none: name one"
            raise ValueError(f"reward {reward_name(reward)!r} {lacks}.")
        else:
            wrapped.append(TakesEnvironments(reward, factories))
    return wrapped


def all_weights(weights: list[float] | None, rewards: list[Callable]) -> list[float] | None:
    """One weight for each reward; as in TRL those of environments may be left out, for 1.0."""
    owned = sum(isinstance(reward, EnvironmentReward) for reward in rewards)
    if weights and owned and len(weights) == len(rewards) - owned:
        return [*weights, *[1.0] * owned]
    return weights


def played(
    factories: Factories, prompts: list, completions: list, columns: dict[str, Any]
) -> list[Any]:
    """One environment for each completion, in which its tool calls were made."""
    rows = {"prompt": prompts}
    rows |= {name: of for name, of in columns.items() if name not in TRL_ARGUMENTS}
    environments = []
    for number, completion in enumerate(completions):
        row = {name: values[number] for name, values in rows.items()}
        is_named = None not in factories
        environment = factories[row["environment"] if is_named else None]()
        reset(environment, row, is_named)
        play(environment, completion)
        environments.append(environment)
    return environments


async def _settled(call: Callable, **arguments: Any) -> Any:
    """What a function of either kind returns, or its exception."""
    try:
        return await answer_of(call, **arguments)
    except Exception as error:
        return error


def _returned(outcome: Any) -> float | None:
    if isinstance(outcome, Exception):
        raise outcome
    return None if outcome is OTHER_ENVIRONMENT else outcome


def reset(environment: Any, row: dict, is_named: bool) -> Any:
    """Reset it for a row as TRL does; the name of the environment is not handed on."""
    return environment.reset(
        **{name: value for name, value in row.items() if not (is_named and name == "environment")}
    )


def play(environment: Any, completion: str | list[dict]) -> None:
    """Make the tool calls of a completion; what fails is passed over, as the model is told."""
    for message in completion if isinstance(completion, list) else []:
        for call in message.get("tool_calls") or []:
            with contextlib.suppress(Exception):
                tool = getattr(environment, call["function"]["name"])
                settled = _settled(tool, **call["function"]["arguments"])
                if inspect.iscoroutinefunction(tool):
                    with ThreadPoolExecutor(1) as thread:  # this one may run an event loop
                        thread.submit(asyncio.run, settled).result()
                else:
                    at_once(settled)
