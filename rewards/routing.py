"""Rewards by task: rows of other tasks get None, and the reward never sees them."""

from collections.abc import Callable
from typing import Any

from rewards.contract import answer_of, at_once, is_async, reward_name, rows_of


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
        return at_once(self._score(arguments))

    async def _score(self, arguments: dict[str, Any]) -> list[float | None]:
        """Raises ValueError for another number of values than of rows."""
        mine = [i for i, task in enumerate(arguments["task"]) if task in self.tasks]
        logged: dict[str, list] = {}

        def log_extra(column: str, values: list) -> None:
            logged.setdefault(column, []).extend(values)

        def among_all(values: list) -> list:
            spread = [None] * len(arguments["completions"])
            for place, value in zip(mine, values, strict=True):
                spread[place] = value
            return spread

        picked = {**rows_of(arguments, mine), "log_extra": log_extra}
        scores = await answer_of(self.__wrapped__, **picked) if mine else []
        for column, values in logged.items() if arguments.get("log_extra") else ():
            arguments["log_extra"](column, among_all(values))
        return among_all(scores)


class AsyncRoutedReward(RoutedReward):
    """The same for an `async def` reward: TRL looks at `__call__` to tell them apart."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        return await self._score(arguments)
