"""What a reward is: what it is called with, what its scores mean, and what it may declare.

`reward(prompts, completions, <columns>, **kwargs) -> list[float | None]`: TRL calls it by keyword,
with chat messages or plain texts; what it takes besides is a column of the rows. Of a completion

- a score of 0.0 or less says *wrong*, and whatever the completion itself causes is that;
- None says *not applicable* (a row of another task) or *not gradable* (a gold nobody can read);
- a failure of ours is neither right nor wrong: it costs its own row, is counted, and stops a run
  above a set rate (`rewards.rows.score_rows` and the trainer see to that).

It declares, as attributes (`my_reward.kind, my_reward.full = "verifier", 1.0`), what it promises:

- kind: `verifier` scores the answer, and an empty completion earns nothing; `format` scores the
  shape; `shaping` is anything else that nudges; `control` is an arm of an experiment, such as a
  random reward; `step` scores the steps of a completion (rewards/steps.py); of a `model` a model
  scores, so that neither preflight nor the audit call it. Without any it is *undeclared*: it
  trains, and no score of it is checked.
- full: what the right answer in the asked format earns, for verifiers and format rewards.
- tasks: the tasks whose rows it scores.
- allowances: the most it may give to tricks of the audit: name of a trick -> amount and reason.
- farmable: how to earn it without doing the task, where its design allows that.
- max_error_rate: the share of rows (0.0 to 1.0) that it may fail on before a run stops.
- prepare: `prepare(completions, limit_s)` gets it ready for calls with that many rows of at most
  `limit_s` seconds; returns a line for the log, or raises ValueError with what is missing.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

LARGEST = 3.4e38  # of a score: more is infinite in TRL's float32; NaN is not below it either
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
PER_CALL = ("trainer_state", "log_extra", "log_metric")  # one value a call; others one a row
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_model(reward: Any) -> bool:
    """Whether TRL loads and calls it itself: a Hub id or folder of a reward model, or a module."""
    return isinstance(reward, str) or hasattr(reward, "named_parameters")


def reward_name(reward: Callable | str) -> str:
    """The name TRL logs it under, as in `rewards/<name>/mean` (`trl.trainer.utils`)."""
    if is_model(reward):
        return (reward if isinstance(reward, str) else reward.config._name_or_path).split("/")[-1]
    return declared(reward, "__name__", type(reward).__name__)


def check_names(rewards: list[Callable]) -> list[str]:
    """Name the rewards that share a name: what is counted of them is logged by name."""
    names = [reward_name(reward) for reward in rewards]
    what = "what is logged of them would be one. Rename or remove one."
    return [
        f"two rewards are called {name!r}: {what}"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def reward_kind(reward: Callable | str) -> str:
    """One of `KINDS`, or undeclared."""
    return "model" if is_model(reward) else declared(reward, "kind", UNDECLARED)


def full_reward(reward: Callable) -> float | None:
    """The score of the right answer in the asked format, or None where it declares none."""
    return declared(reward, "full")


def prepare_reward(reward: Callable, completions: int, limit_s: float) -> str | None:
    """Let a reward that needs it get ready; its line for the log, None for a reward without one."""
    prepare = declared(reward, "prepare")
    return None if prepare is None else prepare(completions, limit_s)


def reward_tasks(reward: Callable) -> tuple[str, ...] | None:
    """The tasks whose rows it scores, or None for a reward that sees every row."""
    return declared(reward, "tasks")


def scores_task(reward: Callable, task: str | None) -> bool:
    """Whether rows of `task` reach the reward."""
    tasks = reward_tasks(reward)
    return tasks is None or task in tasks


def reward_columns(reward: Callable) -> list[str]:
    """The columns it needs: its named parameters without default that TRL does not fill itself.

    Example: `reward_columns(load_reward("gsm8k_correctness")) == ["answer"]`
    """
    parameters = [] if is_model(reward) else parameters_of(reward)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in NAMED]
    return [name for name in needed if name not in TRL_ARGUMENTS]


def is_async(reward: Callable) -> bool:
    """Whether TRL awaits it: `async def`, an object whose `__call__` is, a partial of these."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


def at_once(coroutine: Coroutine) -> Any:
    """What a coroutine that waits for nothing returns: one text for rewards of both kinds."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a reward that is not async waits for something")


async def answer_of(reward: Callable, **arguments: Any) -> Any:
    """Call a reward of either kind."""
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


def parameters_of(reward: Callable) -> list[inspect.Parameter]:
    """The parameters it is called with."""
    return list(inspect.signature(reward).parameters.values())


def signature(*columns: str) -> inspect.Signature:
    """That of a reward whose columns are known when it is made, for its `__signature__`."""
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in columns]
    rest = inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD)
    return inspect.Signature([*named, rest])


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
