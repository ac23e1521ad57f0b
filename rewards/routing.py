"""Rewards by task: rows of other tasks get None, and the reward never sees them."""

from collections.abc import Callable
from typing import Any

from rewards.contract import is_async, reward_name

# What TRL passes once a call; everything else has one value a row.
_PER_CALL = ("trainer_state", "log_extra", "log_metric")


def for_tasks(*tasks: str) -> Callable[[Callable], Callable]:
    """Decorator: the reward scores rows of these tasks only. `reward_tasks` of a run overrides it.

    Example:
        @for_tasks("math")
        def my_reward(prompts, completions, answer, **kwargs): ...
    """

    def mark(reward: Callable) -> Callable:
        reward.tasks = tasks
        return reward

    return mark


def route(reward: Callable, tasks: tuple[str, ...]) -> "RoutedReward":
    """`reward` for the rows whose `task` is one of `tasks`, None for all others."""
    return AsyncRoutedReward(reward, tasks) if is_async(reward) else RoutedReward(reward, tasks)


class RoutedReward:
    """Calls a reward with the rows of its tasks, and puts its scores and columns in their places.

    A column that it logs through `log_extra` has None in the rows of other tasks.
    """

    def __init__(self, reward: Callable, tasks: tuple[str, ...]):
        self.__wrapped__, self.tasks = reward, tuple(tasks)  # what it wraps declares the rest
        self.__name__ = reward_name(reward)

    def __call__(self, **arguments: Any) -> list[float | None]:
        mine, picked, logged = self._pick(arguments)
        return _spread(self.__wrapped__(**picked) if mine else [], mine, logged, arguments)

    def _pick(self, arguments: dict[str, Any]) -> tuple[list[int], dict[str, Any], dict[str, list]]:
        """The places of its rows, the arguments of these, and the columns that it will log."""
        mine = [i for i, task in enumerate(arguments["task"]) if task in self.tasks]
        logged: dict[str, list] = {}
        picked: dict[str, Any] = {}
        for name, values in arguments.items():
            if name in _PER_CALL:
                picked[name] = values
            elif values is not None:
                picked[name] = [values[i] for i in mine]
        picked["log_extra"] = lambda column, values: logged.setdefault(column, []).extend(values)
        return mine, picked, logged


class AsyncRoutedReward(RoutedReward):
    """The same for an `async def` reward: TRL looks at `__call__` to tell them apart."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        mine, picked, logged = self._pick(arguments)
        return _spread(await self.__wrapped__(**picked) if mine else [], mine, logged, arguments)


def _spread(
    scores: list, mine: list[int], logged: dict[str, list], arguments: dict[str, Any]
) -> list[float | None]:
    """The scores, and through `log_extra` the logged columns, among the rows of other tasks.

    Raises:
        ValueError: another number of values than of rows.
    """

    def among_all(values: list) -> list:
        spread = [None] * len(arguments["completions"])
        for place, value in zip(mine, values, strict=True):
            spread[place] = value
        return spread

    for column, values in logged.items() if arguments.get("log_extra") else ():
        arguments["log_extra"](column, among_all(values))
    return among_all(scores)
