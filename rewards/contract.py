"""A reward's declarations: its name, kind, full amount, tasks and the columns it needs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

LARGEST = 3.4e38  # of a reward: more would be infinite in TRL's float32; NaN is not below it either
KINDS = ("verifier", "format", "shaping", "control", "step", "model")
UNDECLARED = "undeclared"
# What TRL passes to every reward; any other named parameter is a dataset column.
TRL_ARGUMENTS = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
}
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_model(reward: Any) -> bool:
    """Whether it is a reward model, which TRL loads and calls itself: a Hub id or a folder, or a loaded module."""
    return isinstance(reward, str) or hasattr(reward, "named_parameters")


def reward_name(reward: Callable | str) -> str:
    """The name TRL logs it under, as in `rewards/<name>/mean` (follows `trl.trainer.utils.get_callable_name`)."""
    if is_model(reward):
        return (reward if isinstance(reward, str) else reward.config._name_or_path).split("/")[-1]
    return declared(reward, "__name__", type(reward).__name__)


def reward_kind(reward: Callable | str) -> str:
    """verifier, format, shaping, control, step or model; undeclared where it declares none: it promises nothing."""
    return "model" if is_model(reward) else declared(reward, "kind", UNDECLARED)


def check_names(rewards: list[Callable]) -> list[str]:
    """Name the rewards that share a name, outcome or step: what is counted of them is logged by name."""
    names = [reward_name(reward) for reward in rewards]
    message = (
        "two rewards are called {!r}: what is logged of them would be one. Rename or remove one."
    )
    return [
        message.format(name) for name in sorted({name for name in names if names.count(name) > 1})
    ]


def full_reward(reward: Callable) -> float | None:
    """The score of the right answer in the asked format, or None where the reward declares none."""
    return declared(reward, "full", None)


def reward_allowances(reward: Callable) -> dict[str, tuple[float, str]]:
    """The most it may give to tricks of the audit (rewards/audit/tricks.py): name of a trick -> amount and reason."""
    return declared(reward, "allowances", {})


def farmable(reward: Callable) -> str | None:
    """How to earn it without doing the task, for a reward whose design allows that; None for all others."""
    return declared(reward, "farmable", None)


def reward_max_error_rate(reward: Callable) -> float:
    """The share of its rows (0.0 to 1.0) that it may fail on before a run stops, if it declares one; else 1.0."""
    return declared(reward, "max_error_rate", 1.0)


def prepare_reward(reward: Callable, completions: int, limit_s: float) -> str | None:
    """Let a reward that needs it get ready for calls with `completions` rows of at most `limit_s` seconds.

    A reward does so in a method `prepare(completions, limit_s)` that returns a line for the log, or raises `ValueError`
    with what is missing. None for a reward without one.
    """
    prepare = declared(reward, "prepare", None)
    return None if prepare is None else prepare(completions, limit_s)


def reward_tasks(reward: Callable) -> tuple[str, ...] | None:
    """The tasks whose rows it scores, or None for a reward that is not routed and sees every row."""
    return declared(reward, "tasks", None)


def scores_task(reward: Callable, task: str | None) -> bool:
    """Whether rows of `task` reach the reward."""
    tasks = reward_tasks(reward)
    return tasks is None or task in tasks


def reward_columns(reward: Callable) -> list[str]:
    """The dataset columns a reward needs: its named parameters without default that TRL does not fill itself.

    Example: `reward_columns(load_reward("gsm8k_correctness")) == ["answer"]`
    """
    parameters = [] if is_model(reward) else parameters_of(reward)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in NAMED]
    return [name for name in needed if name not in TRL_ARGUMENTS]


def is_async(reward: Callable) -> bool:
    """Whether TRL would await it: an `async def` function, an object whose `__call__` is one, a partial of these."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


def parameters_of(reward: Callable) -> list[inspect.Parameter]:
    """The parameters it is called with."""
    return list(inspect.signature(reward).parameters.values())


def declared(reward: Callable, attribute: str, default: Any) -> Any:
    """An attribute of the reward, or of what it wraps (a partial's function, `__wrapped__`)."""
    while not hasattr(reward, attribute):
        if isinstance(reward, functools.partial):
            reward = reward.func
        elif hasattr(reward, "__wrapped__"):
            reward = reward.__wrapped__
        else:
            return default
    return getattr(reward, attribute)
