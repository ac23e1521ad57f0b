"""The contract of a reward function: its arguments, the meaning of its scores, its attributes.

`reward(prompts, completions, <columns>, **kwargs) -> list[float | None]`: TRL calls the reward by
keyword, with chat messages or plain texts. Every other named parameter is a dataset column. The
reward returns one score per completion:

- A score of 0.0 or less means *wrong*. Any failure that the completion causes is scored so.
- None means *not applicable* (a row of another task) or *not gradable* (an unreadable gold).
- A failure of the reward's own code is neither right nor wrong: that row gets no score, the failure
  is counted, and the run stops above a set rate (see docs/rewards.md).

A reward declares its properties as attributes (`my_reward.kind, my_reward.full = "verifier", 1.0`).
`reward_of` reads them once and stores them in a `Reward`.

A step reward (`kind = "step"`) returns one list per completion: pairs of (end, reward). A step
reaches from the end of the one before it to `text[:end]`. An empty list means that there are no
steps. None means that they could not be scored, and the row does not count. Outside training the
score is the sum of the step rewards.

    def agreed(prompts, completions, **kwargs):
        texts = [completion_text(completion) for completion in completions]
        return [[(m.end(), 1.0) for m in re.finditer("so", text)] for text in texts]

    agreed.kind, agreed.farmable = "step", "it counts a word"
"""

import functools
import inspect
import numbers
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewards.text import completion_text

Steps = list[tuple[int, float]]

LARGEST = 3.4e38  # largest score: TRL's float32 makes more infinite; `<= LARGEST` refuses NaN too
KINDS = ("verifier", "format", "shaping", "control", "step", "model")
UNDECLARED = "undeclared"
# What TRL passes to every reward; any other named parameter is a dataset column.
PER_CALL = ("trainer_state", "log_extra", "log_metric")  # one value per call, not one per row
TRL_ARGUMENTS = {"prompts", "completions", "completion_ids", "environments", *PER_CALL}


@dataclass(frozen=True, eq=False)
class Reward:
    """A reward function with its declared attributes; TRL calls a `Reward` like the function.

    Attributes:
        call: the reward function. For a reward model that TRL loads: its Hub id, folder or module.
        name: TRL logs the reward as `rewards/<name>/mean`.
        kind: `verifier` scores the answer, and an empty completion earns nothing. `format` scores
            the form of the completion. `shaping` is any other incentive. `control` is an arm of an
            experiment, such as a random reward. `step` scores the steps of a completion. `model` is
            a reward model; preflight and the audit do not call it. `undeclared` stands for a reward
            without a kind: it trains, and its attributes are not checked.
        full: the score of the right answer in the asked format (verifiers and format rewards).
        tasks: the tasks whose rows the reward scores, or None for all. It sees no other rows.
        columns: the required columns: named parameters without default that TRL does not fill.
        is_async: whether TRL awaits the reward.
        farmable: how a completion can earn the reward without doing the task, if by design it can.
        max_error_rate: the run stops when the reward fails on more than this share of rows (0-1).
        prepare: `prepare(completions, limit_s)` makes the reward ready for calls with that many
            rows and at most `limit_s` seconds. It returns a line for the log, or raises ValueError
            with what is missing.
    """

    call: Callable | str
    name: str
    kind: str = UNDECLARED
    full: float | None = None
    tasks: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    is_async: bool = False
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
        """Whether the reward is a model that TRL calls itself: a Hub id, a folder or a module."""
        return isinstance(self.call, str) or hasattr(self.call, "named_parameters")

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __wrapped__(self) -> Callable | str:  # `inspect.signature` looks here
        return self.call


class AsyncReward(Reward):
    """An `async def` reward: `__call__` is async too, since TRL checks that to decide to await."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        if self.tasks is None:
            return await self.call(**arguments)
        return await score_own_rows(self.call, self.tasks, arguments)


def reward_of(reward: Any) -> Reward:
    """Make a `Reward` of a callable or a reward model (module or name); a `Reward` is returned.

    Example: `reward_of(Gsm8kCorrectness(exact=2.0)).columns == ("answer",)`
    """
    if isinstance(reward, Reward):
        return reward
    if isinstance(reward, str) or hasattr(reward, "named_parameters"):
        path = reward if isinstance(reward, str) else reward.config._name_or_path
        return Reward(reward, path.split("/")[-1], "model")
    needed = [name for name, p in named_parameters(reward).items() if p.default is p.empty]
    is_async = inspect.iscoroutinefunction(function_of(reward))
    return (AsyncReward if is_async else Reward)(
        call=reward,
        name=declared(reward, "__name__", type(reward).__name__),
        kind=declared(reward, "kind", UNDECLARED),
        full=declared(reward, "full"),
        tasks=declared(reward, "tasks"),
        columns=tuple(name for name in needed if name not in TRL_ARGUMENTS),
        is_async=is_async,
        farmable=declared(reward, "farmable"),
        max_error_rate=declared(reward, "max_error_rate", 1.0),
        prepare=declared(reward, "prepare"),
    )


def route(reward: Any, tasks: Collection[str]) -> Reward:
    """Return a copy of the reward that scores rows of `tasks`; all other rows score None."""
    return replace(reward_of(reward), tasks=tuple(tasks))


def for_tasks(*tasks: str) -> Callable[[Callable], Callable]:
    """Decorator: the reward scores only rows of these tasks; a run's `reward_tasks` overrides this.

    Example:
        @for_tasks("math")
        def my_reward(prompts, completions, answer, **kwargs): ...
    """

    def mark(reward: Callable) -> Callable:
        reward.tasks = tasks
        return reward

    return mark


def declared(reward: Callable, attribute: str, default: Any = None) -> Any:
    """Return an attribute of the reward, or of the function it wraps (partial, `__wrapped__`)."""
    while not hasattr(reward, attribute):
        if isinstance(reward, functools.partial):
            reward = reward.func
        elif hasattr(reward, "__wrapped__"):
            reward = reward.__wrapped__
        else:
            return default
    return getattr(reward, attribute)


def function_of(reward: Callable) -> Callable:
    """The function that runs when the reward, a function, a partial or an instance, is called."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return reward if inspect.isroutine(reward) else type(reward).__call__


def named_parameters(reward: Callable) -> dict[str, inspect.Parameter]:
    """The parameters of a reward, class or function that a caller can pass by name."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(reward).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in by_name}


def place_of(reward: Callable) -> str:
    """Where the reward's code begins, for messages; empty where Python does not know.

    Example: `place_of(my_reward) == " (my_reward.py, line 7)"`
    """
    code = getattr(inspect.unwrap(function_of(reward)), "__code__", None)
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""


# --- Calls


def at_once(coroutine: Coroutine) -> Any:
    """Run a coroutine that never waits for anything, without an event loop; return its result.

    So one `async def` function serves async rewards, which await something, and plain ones.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a reward that is not async waits for something")


async def answer_of(reward: Callable, **arguments: Any) -> Any:
    """Call a plain or an `async def` reward and return its scores."""
    answer = reward(**arguments)
    return await answer if inspect.isawaitable(answer) else answer


def arguments_of_rows(arguments: dict[str, Any], places: list[int]) -> dict[str, Any]:
    """Return the arguments of a reward call for the rows at `places`, without columns of None.

    Example: `arguments_of_rows({"answer": ["1", "2"], "log_extra": None}, [1])` is
    `{"answer": ["2"], "log_extra": None}`.
    """
    of_rows = {}
    for name, values in arguments.items():
        if name in PER_CALL:
            of_rows[name] = values
        elif values is not None:
            of_rows[name] = [values[place] for place in places]
    return of_rows


async def score_own_rows(
    reward: Callable, tasks: tuple[str, ...], arguments: dict[str, Any]
) -> list[float | None]:
    """Call a reward with the rows of its tasks; return its scores in the order of all rows.

    `arguments` are those of TRL's call, with the column `task`. All other rows get None, in the
    scores and in the logged columns. Raises ValueError if the number of returned or logged values
    is not the number of those rows.
    """
    own_rows = [place for place, task in enumerate(arguments["task"]) if task in tasks]

    def with_other_rows(values: list) -> list:
        """One value for each row of the call: the value of an own row, or None."""
        of_all_rows = [None] * len(arguments["completions"])
        for place, value in zip(own_rows, values, strict=True):
            of_all_rows[place] = value
        return of_all_rows

    if not own_rows:
        return with_other_rows([])
    of_own_rows = arguments_of_rows(arguments, own_rows)
    if log_extra := arguments.get("log_extra"):
        of_own_rows["log_extra"] = lambda name, values: log_extra(name, with_other_rows(values))
    return with_other_rows(await answer_of(reward, **of_own_rows))


# --- Scores


def plain_number(value: Any) -> Any:
    """The number in a scalar of numpy or torch; any other value as it is.

    Example: `plain_number(numpy.float32(0.5)) == 0.5`; `plain_number("0.5") == "0.5"`
    """
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):  # no array, or one of several numbers
        return value


def read_scores(reward: Reward, returned: Any, completions: list) -> list:
    """Check what a reward returned; return one number, list of steps or None per completion.

    The reward may return a list, an array or a tensor. Raises ValueError if it returned anything
    else, or if TRL cannot take the number of scores or one of them.

    Example: `read_scores(reward, numpy.ones(2), ["a", "b"]) == [1.0, 1.0]`
    """
    scores = returned.tolist() if hasattr(returned, "tolist") else returned
    if not isinstance(scores, list | tuple):
        raise ValueError(f"it returned {returned!r:.80}; allowed: a list, one score per completion")
    if len(scores) != len(completions):
        raise ValueError(f"it returned {len(scores)} rewards for {len(completions)} completions")
    if reward.kind == "step":
        check_steps(scores, completions)
        return scores
    scores = [plain_number(score) for score in scores]
    for score in scores:
        is_number = isinstance(score, numbers.Real)
        if score is not None and not (is_number and abs(score) <= LARGEST):
            fault = "not finite in float32" if is_number else type(score).__name__
            hint = '; steps need kind = "step"' if isinstance(score, list) else ""
            raise ValueError(
                f"it returned {score!r:.80}, which is {fault}; allowed: numbers and None{hint}"
            )
    return [None if score is None else float(score) for score in scores]


def check_steps(steps_of_all: list[Steps | None], completions: list) -> None:
    """Raise ValueError unless every entry is None or a list of steps that end in its completion.

    Example: `check_steps([[(3, 1.0)]], ["abc"])` passes; with `(4, 1.0)` it raises.
    """

    def is_step(step: Any, length: int) -> bool:
        if not isinstance(step, tuple | list) or len(step) != 2:
            return False
        end, reward = step
        is_place = type(end) is int and 1 <= end <= length  # isinstance would accept True
        return is_place and isinstance(reward, int | float) and abs(reward) <= LARGEST

    for steps, completion in zip(steps_of_all, completions, strict=True):
        length = len(completion_text(completion))
        if steps is None:
            continue
        if not (isinstance(steps, list) and all(is_step(step, length) for step in steps)):
            raise ValueError(
                f"it returned the steps {steps}; a step is a pair (end, reward): an int from 1 to "
                f"the {length} characters of the completion, and a finite number"
            )


def total(steps: Steps | None) -> float | None:
    """The sum of the rewards of the steps; None stays None.

    Example: `total([(3, 1.0), (9, -1.0)]) == 0.0`
    """
    return None if steps is None else float(sum(reward for _, reward in steps))
