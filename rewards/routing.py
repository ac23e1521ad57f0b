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
    """Calls a reward with the rows of its tasks and puts its scores and what it logs back in their places.

    A column that it logs through `log_extra` has None in the rows of other tasks.
    """

    def __init__(self, reward: Callable, tasks: tuple[str, ...]):
        self.reward, self.tasks = reward, tuple(tasks)
        self.__name__, self.__wrapped__ = (
            reward_name(reward),
            reward,
        )  # what it wraps declares the rest

    def __call__(self, **arguments: Any) -> list[float | None]:
        mine = self._mine(arguments)
        logged: dict[str, list] = {}
        scores = self.reward(**_pick(arguments, mine, logged)) if mine else []
        return self._scatter(scores, mine, logged, arguments)

    def _mine(self, arguments: dict[str, Any]) -> list[int]:
        return [i for i, task in enumerate(arguments["task"]) if task in self.tasks]

    def _scatter(
        self, scores: list, mine: list[int], logged: dict[str, list], arguments: dict
    ) -> list[float | None]:
        count = len(arguments["completions"])
        for column, values in logged.items() if arguments.get("log_extra") else ():
            arguments["log_extra"](column, _spread(values, mine, count))
        return _spread(scores, mine, count)


class AsyncRoutedReward(RoutedReward):
    """The same for an `async def` reward: TRL looks at `__call__` to tell them apart."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        mine = self._mine(arguments)
        logged: dict[str, list] = {}
        scores = await self.reward(**_pick(arguments, mine, logged)) if mine else []
        return self._scatter(scores, mine, logged, arguments)


def _pick(arguments: dict[str, Any], mine: list[int], logged: dict[str, list]) -> dict[str, Any]:
    """The arguments of the rows `mine`; what is logged about them is collected in `logged`."""
    rows = {
        name: values
        for name, values in arguments.items()
        if name not in _PER_CALL and values is not None
    }
    picked = {name: [values[i] for i in mine] for name, values in rows.items()}
    per_call = {name: arguments[name] for name in _PER_CALL if name in arguments}
    return {
        **per_call,
        **picked,
        "log_extra": lambda column, values: logged.setdefault(column, []).extend(values),
    }


def _spread(values: list, places: list[int], count: int) -> list:
    """`_spread(["a"], [1], 3) == [None, "a", None]`

    Raises:
        ValueError: another number of values than of places.
    """
    spread: list = [None] * count
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return spread
