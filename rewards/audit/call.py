"""Call a reward outside a trainer, exactly as TRL does inside."""

import asyncio
import builtins
import copy
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward
MARK = (
    "grpo_recipes_audit_mark"  # what a program of `rewards.audit.code_tricks` leaves in its process
)
_PIECE = re.compile(r"\s+|\S{1,4}")


@dataclass
class FirstState:
    """The trainer's state before step 1; what few rewards read is of transformers, which takes seconds to load."""

    global_step: int = 0
    max_steps: int = 1
    epoch: float = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from transformers import TrainerState

        return getattr(TrainerState(), name)


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """Score each row's completion, a text or messages: prompts, completions, token ids and columns go by keyword.

    Follows `GRPOTrainer._calculate_rewards`; the columns that the reward logs go to `log_extra`, its metrics nowhere,
    and the state is that before step 1.

    Raises:
        ValueError: the reward returned another number of scores than there are completions.
    """
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED}
    prompts = [row["prompt"] for row in rows]
    completions = [
        text
        if isinstance(text, list) or isinstance(prompt, str)
        else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    scores = reward(
        prompts=prompts,
        completions=completions,
        completion_ids=token_ids or [[] for _ in rows],
        trainer_state=FirstState(),
        log_extra=log_extra,
        log_metric=lambda name, value: None,
        **columns,
    )
    if inspect.isawaitable(scores):
        scores = asyncio.run(awaited(scores))
    if len(scores) != len(rows):
        raise ValueError(f"it returned {len(scores)} rewards for {len(rows)} completions")
    return scores


def unchanged(reward: Callable) -> Callable:
    """The reward, with an error where it changes its arguments: TRL hands the same lists to the next reward.

    Or where a completion of `rewards.audit.code_tricks` was run in this process.
    """

    @functools.wraps(reward, assigned=(), updated=())
    def watched(**arguments: Any) -> Any:
        lists = {name: value for name, value in arguments.items() if isinstance(value, list)}
        ids = lists.pop("completion_ids", [])  # long, and of numbers alone
        before = copy.deepcopy(lists) | (
            {"completion_ids": [list(of_one) for of_one in ids]} if ids else {}
        )
        scores = reward(**arguments)
        if vars(builtins).pop(MARK, False):
            raise ValueError("it runs programs of the model in its own process, the trainer's")
        changed = [name for name, value in before.items() if arguments[name] != value]
        if changed:
            raise ValueError(f"it changes its argument {', '.join(changed)}")
        return scores

    return watched


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: equal pieces of at most four characters, or of white space, have equal ids.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]


async def awaited(scores: Any) -> Any:
    """Await a value, for `asyncio.run`, which takes a coroutine alone."""
    return await scores
