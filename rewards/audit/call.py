"""Call a reward outside a trainer, as its trainer does inside: TRL, verl or verifiers."""

import asyncio
import builtins
import copy
import functools
import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rewards.contract import parameters_of, reward_name
from rewards.steps import read_scores
from rewards.text import completion_text

# Of a style: the parameters by which it is recognised.
STYLES = {
    "trl": {"completions"},
    "verl": {"solution_str", "ground_truth"},
    "verifiers": {"completion"},
}
NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward
# What rewards read of the trainer's state.
BEFORE_STEP_1 = {"global_step": 0, "max_steps": 1, "epoch": 0.0, "num_train_epochs": 1}
BEFORE_STEP_1 |= {"log_history": [], "is_world_process_zero": True, "is_local_process_zero": True}
MARK = "grpo_recipes_audit_mark"  # what a program among the tricks leaves in its process
_PIECE = re.compile(r"\s+|\S{1,4}")


class BeforeStep1(SimpleNamespace):
    """The trainer's state before its first step, without transformers, which loads slowly."""

    def __getattr__(self, name: str) -> Any:  # of a field that few rewards read
        from transformers import TrainerState

        return getattr(TrainerState(), name)


class Raised(Exception):
    """A reward failed in another process; its text is the type and the message of the error."""


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """Score each row's completion, a text or messages, as `GRPOTrainer._calculate_rewards` does.

    The columns that the reward logs go to `log_extra`, its metrics nowhere; the state is that
    before step 1. Without token ids a reward that names them gets `stand_in_ids`.

    Raises:
        ValueError: the reward returned what `read_scores` refuses.
    """
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED}
    prompts = [row["prompt"] for row in rows]
    if token_ids is None:
        takes_ids = "completion_ids" in {parameter.name for parameter in parameters_of(reward)}
        token_ids = [stand_in_ids(completion_text(text)) if takes_ids else [] for text in texts]
    scores = _call(
        reward,
        prompts=prompts,
        completions=[as_completion(*pair) for pair in zip(prompts, texts, strict=True)],
        completion_ids=token_ids,
        trainer_state=BeforeStep1(**copy.deepcopy(BEFORE_STEP_1)),
        log_extra=log_extra,
        log_metric=lambda name, value: None,
        **columns,
    )
    return read_scores(reward, scores, texts)


def graded(
    reward: Callable, rows: list[dict], texts: list[str | list[dict]]
) -> list[tuple[float | None, str | None]]:
    """Each score, and why the reward says that it failed on the row; None where it did not."""
    logged: dict[str, list] = {}
    scores = score(reward, rows, texts, log_extra=logged.__setitem__)
    outcomes = logged.get(f"outcome/{reward_name(reward)}") or [None] * len(texts)
    failures = [
        str(outcome).removeprefix("error: ") if str(outcome).startswith("error") else None
        for outcome in outcomes
    ]
    return list(zip(scores, failures, strict=True))


def _call(function: Callable, **arguments: Any) -> Any:
    """What it returns, or what the coroutine that it returns comes to."""
    value = function(**arguments)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def style_of(function: Callable) -> str:
    """The style of a reward function, by the names of its parameters.

    Raises:
        ValueError: its parameters fit no style, or more than one.
    """
    names = {parameter.name for parameter in parameters_of(function)}
    found = [style for style, needed in STYLES.items() if needed <= names]
    if len(found) != 1:
        has = f"{reward_name(function)!r} with the parameters {sorted(names)}"
        fits = ", ".join(found) or "no style"
        raise ValueError(f"{has} fits {fits}: name one of {', '.join(STYLES)} as the style.")
    return found[0]


def score_in_style(
    function: Callable, style: str, rows: list[dict], texts: list[str]
) -> list[float | None]:
    """Score completions as a trainer of that style does: TRL in one call, the others one by one."""
    if style == "trl":
        values = score(unchanged(function), rows, texts)
    else:
        values = [_score_one(function, style, *pair) for pair in zip(rows, texts, strict=True)]
    return [None if value is None else float(value) for value in values]


def _score_one(function: Callable, style: str, row: dict, text: str) -> Any:
    if style == "verl":  # which passes these four and nothing else
        gold = row.get("ground_truth", row.get("answer"))
        given = {"data_source": row.get("data_source", ""), "extra_info": row.get("extra_info")}
        given |= {"solution_str": text, "ground_truth": gold}
    else:
        given = {"info": {}, "task": "default", **row}
        given["completion"] = as_completion(row["prompt"], text)
        given["state"] = dict(given)
    parameters = parameters_of(function)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        wanted = {parameter.name for parameter in parameters}
        given = {name: value for name, value in given.items() if name in wanted}
    value = _call(function, **given)
    return value["score"] if isinstance(value, dict) else value


def as_completion(prompt: str | list[dict], text: str | list[dict]) -> str | list[dict]:
    """A completion in the form of its prompt: a text, or messages."""
    is_ready = isinstance(text, list) or isinstance(prompt, str)
    return text if is_ready else [{"role": "assistant", "content": text}]


def unchanged(reward: Callable) -> Callable:
    """The reward, with an error where it changes its arguments or runs a program in this process.

    TRL hands the same lists to the next reward.
    """

    @functools.wraps(reward, assigned=(), updated=())
    def watched(**arguments: Any) -> Any:
        lists = {name: value for name, value in arguments.items() if isinstance(value, list)}
        before = copy.deepcopy(lists)
        scores = reward(**arguments)
        if vars(builtins).pop(MARK, False):
            raise ValueError("it runs programs of the model in its own process, the trainer's")
        changed = [name for name, value in before.items() if arguments[name] != value]
        if changed:
            raise ValueError(f"it changes its argument {', '.join(changed)}")
        return scores

    watched.__name__ = reward_name(reward)
    return watched


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: pieces of up to four characters, or of white space.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]
