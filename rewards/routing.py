"""Rewards by task: rows of other tasks get None, and the reward never sees them."""

import inspect
from collections.abc import Callable
from typing import Any

PER_CALL = ("trainer_state", "log_extra", "log_metric")  # one value a call; others one a row


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


async def answer_of(reward: Callable, **arguments: Any) -> Any:
    """Call a reward of either kind, plain or `async def`."""
    answer = reward(**arguments)
    return await answer if inspect.isawaitable(answer) else answer


def rows_of(arguments: dict[str, Any], places: list[int]) -> dict[str, Any]:
    """The arguments of a call for some of its rows; a column that is None is left out.

    Example: `rows_of({"answer": ["1", "2"], "log_extra": None}, [1]) == {"answer": ["2"],
    "log_extra": None}`
    """
    own = {name: values for name, values in arguments.items() if name in PER_CALL}
    for name, values in arguments.items():
        if name not in PER_CALL and values is not None:
            own[name] = [values[place] for place in places]
    return own


async def score_own_rows(
    reward: Callable, tasks: tuple[str, ...], arguments: dict[str, Any]
) -> list[float | None]:
    """Call a reward with the rows of its tasks; put its scores and columns in their places.

    Other rows have None. Raises ValueError for another number of values than of rows.
    """
    mine = [place for place, task in enumerate(arguments["task"]) if task in tasks]
    logged: dict[str, list] = {}

    def log_extra(column: str, values: list) -> None:
        logged.setdefault(column, []).extend(values)

    def among_all(values: list) -> list:
        spread = [None] * len(arguments["completions"])
        for place, value in zip(mine, values, strict=True):
            spread[place] = value
        return spread

    own = {**rows_of(arguments, mine), "log_extra": log_extra}
    scores = await answer_of(reward, **own) if mine else []
    for column, values in logged.items() if arguments.get("log_extra") else ():
        arguments["log_extra"](column, among_all(values))
    return among_all(scores)
