"""What a reward is: what it is called with, what its scores mean, and what it may declare.

`reward(prompts, completions, <columns>, **kwargs) -> list[float | None]`: TRL calls it by keyword,
with chat messages or plain texts; what it takes besides is a column of the rows. Of a completion

- a score of 0.0 or less says *wrong*, and whatever the completion itself causes is that;
- None says *not applicable* (a row of another task) or *not gradable* (a gold nobody can read);
- a failure of ours is neither right nor wrong: it costs its own row, is counted, and stops a run
  above a set rate (`rewards.rows.score_rows` and the trainer see to that).

What it promises it declares as attributes (`my_reward.kind, my_reward.full = "verifier", 1.0`).
They are read once, by `reward_of`, and stand in its `Reward`.

A step reward (`kind = "step"`) returns one list a completion: pairs of (end, reward). `end` is a
position in the completion's text as in a slice: the step is the part of `text[:end]` that no
earlier step has taken. An empty list means that there are no steps; None, that they could not be
scored, which voids the row. Outside training its score is the sum of its steps.

    def agreed(prompts, completions, **kwargs):
        texts = [completion_text(completion) for completion in completions]
        return [[(m.end(), 1.0) for m in re.finditer("so", text)] for text in texts]

    agreed.kind, agreed.farmable = "step", "it counts a word"
"""

import functools
import inspect
import numbers
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rewards.text import completion_text

Steps = list[tuple[int, float]]

LARGEST = 3.4e38  # of a score: more is infinite in TRL's float32; NaN is not below it either
KINDS = ("verifier", "format", "shaping", "control", "step", "model")
UNDECLARED = "undeclared"
# What TRL passes to every reward; any other named parameter is a dataset column.
PER_CALL = ("trainer_state", "log_extra", "log_metric")  # one value a call; others one a row
TRL_ARGUMENTS = {"prompts", "completions", "completion_ids", "environments", *PER_CALL}


@dataclass(frozen=True, eq=False)
class Reward:
    """One reward with what it declares; TRL calls it like the callable it is made of.

    Attributes:
        call: what is called; of a reward model that TRL loads, its Hub id, folder or module.
        name: TRL logs it as `rewards/<name>/mean`.
        kind: `verifier` scores the answer, and an empty completion earns nothing; `format` scores
            the shape; `shaping` is anything else that nudges; `control` is an arm of an experiment,
            such as a random reward; `step` scores the steps of a completion; of a `model` a model
            scores, so that neither preflight nor the audit call it. A reward that declares none is
            `undeclared`: it trains, and no promise of it is checked.
        full: what the right answer in the asked format earns, for verifiers and format rewards.
        tasks: the tasks whose rows it scores; None for all. Of other rows it sees none.
        columns: the columns it needs: named parameters without default that TRL does not fill.
        is_async: whether TRL awaits it.
        allowances: the most it may give to tricks of the audit: name -> (amount, reason).
        farmable: how to earn it without doing the task, where its design allows that.
        max_error_rate: the share of rows (0.0 to 1.0) that it may fail on before a run stops.
        prepare: `prepare(completions, limit_s)` gets it ready for calls with that many rows of at
            most `limit_s` seconds; returns a line for the log, or raises ValueError with what is
            missing.
    """

    call: Callable | str
    name: str
    kind: str = UNDECLARED
    full: float | None = None
    tasks: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    is_async: bool = False
    allowances: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    farmable: str | None = None
    max_error_rate: float = 1.0
    prepare: Callable[[int, float], str | None] | None = None

    def __call__(self, **arguments: Any) -> list[float | None]:
        if self.tasks is None:
            return self.call(**arguments)
        return at_once(score_own_rows(self.call, self.tasks, arguments))

    def scores(self, task: str | None) -> bool:
        """Whether rows of `task` reach the reward."""
        return self.tasks is None or task in self.tasks

    @property
    def is_model(self) -> bool:
        """Whether TRL loads and calls it itself: a Hub id or folder of a model, or a module."""
        return isinstance(self.call, str) or hasattr(self.call, "named_parameters")

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __wrapped__(self) -> Callable | str:  # `inspect.signature` looks here
        return self.call


class AsyncReward(Reward):
    """An `async def` reward: TRL looks at `__call__` to tell the two apart."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        if self.tasks is None:
            return await self.call(**arguments)
        return await score_own_rows(self.call, self.tasks, arguments)


def reward_of(reward: Any) -> Reward:
    """The record of a callable or of a reward model, a module or its name; a record is itself.

    The one place where a callable is asked what it declares.

    Example: `reward_of(Gsm8kCorrectness(exact=2.0)).columns == ("answer",)`
    """
    if isinstance(reward, Reward):
        return reward
    if isinstance(reward, str) or hasattr(reward, "named_parameters"):
        path = reward if isinstance(reward, str) else reward.config._name_or_path
        return Reward(reward, path.split("/")[-1], "model")
    tasks = declared(reward, "tasks")
    tasks = [tasks] if isinstance(tasks, str) else tasks
    needed = [name for name, p in named_parameters(reward).items() if p.default is p.empty]
    is_awaited = is_coroutine_function(reward)
    return (AsyncReward if is_awaited else Reward)(
        call=reward,
        name=declared(reward, "__name__", type(reward).__name__),
        kind=declared(reward, "kind", UNDECLARED),
        full=declared(reward, "full"),
        tasks=tuple(tasks) if isinstance(tasks, list) else tasks,
        columns=tuple(name for name in needed if name not in TRL_ARGUMENTS),
        is_async=is_awaited,
        allowances=declared(reward, "allowances", {}),
        farmable=declared(reward, "farmable"),
        max_error_rate=declared(reward, "max_error_rate", 1.0),
        prepare=declared(reward, "prepare"),
    )


def route(reward: Any, tasks: Collection[str]) -> Reward:
    """The same reward for the rows whose `task` is one of `tasks`, None for all others."""
    return replace(reward_of(reward), tasks=tuple(tasks))


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


def declared(reward: Callable, attribute: str, default: Any = None) -> Any:
    """An attribute of the reward, or of what it wraps (a partial's function, `__wrapped__`)."""
    while not hasattr(reward, attribute):
        if isinstance(reward, functools.partial):
            reward = reward.func
        elif hasattr(reward, "__wrapped__"):
            reward = reward.__wrapped__
        else:
            return default
    return getattr(reward, attribute)


def is_coroutine_function(reward: Callable) -> bool:
    """Whether it is `async def`, an object whose `__call__` is, or a partial of these."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


def named_parameters(reward: Callable) -> dict[str, inspect.Parameter]:
    """The parameters that it can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(reward).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in named}


def at_once(coroutine: Coroutine) -> Any:
    """What a coroutine that waits for nothing returns: one text for rewards of both kinds."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a reward that is not async waits for something")


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


def read_scores(reward: Callable, returned: Iterable, completions: list) -> list:
    """What a call of a reward returned as a list: a number, of a step reward its steps, or None.

    An array or a tensor is a list of numbers.

    Raises:
        ValueError: another number of scores than of completions, or one that TRL cannot take.

    Example: `read_scores(reward, numpy.ones(2), ["a", "b"]) == [1.0, 1.0]`
    """
    scores = [one.item() if hasattr(one, "item") else one for one in returned]
    if len(scores) != len(completions):
        raise ValueError(f"it returned {len(scores)} rewards for {len(completions)} completions")
    if reward_of(reward).kind == "step":
        check_steps(scores, completions)
        return scores
    for score in scores:
        is_number = isinstance(score, numbers.Real)
        if score is not None and not (is_number and abs(score) <= LARGEST):
            kind = type(score).__name__
            wrong = "is not finite in float32" if is_number else f"is {kind}, not a number"
            raise ValueError(f"it returned {score!r:.80}, which {wrong}; allowed: numbers and None")
    return scores


def check_steps(steps_of_all: list[Steps | None], completions: list) -> None:
    """Refuse, by ValueError, what is not a list of steps inside its completion.

    Example: `check_steps([[(3, 1.0)]], ["abc"])` passes; with `(4, 1.0)` it raises.
    """

    def is_step(step: Any, length: int) -> bool:
        if not isinstance(step, tuple | list) or len(step) != 2:
            return False
        end, reward = step
        is_place = type(end) is int and 1 <= end <= length  # True is an int, but no place
        return is_place and isinstance(reward, int | float) and abs(reward) <= LARGEST

    for steps, completion in zip(steps_of_all, completions, strict=True):
        length = len(completion_text(completion))
        is_list = isinstance(steps, list) and all(is_step(step, length) for step in steps)
        if steps is not None and not is_list:
            raise ValueError(
                f"it returned the steps {steps} for a completion of {length} characters; a step is "
                f"a pair (end, reward) with an end of 1 to {length}, an int, and a reward of at "
                f"most {LARGEST:g}, an int or float"
            )


def total(steps: Steps | None) -> float | None:
    """The sum of the rewards of the steps; None stays None.

    Example: `total([(3, 1.0), (9, -1.0)]) == 0.0`
    """
    return None if steps is None else float(sum(reward for _, reward in steps))
