"""Call a reward outside a trainer, as its trainer does inside."""

import asyncio
import inspect
import re
from collections.abc import Callable

from rewards.contract import named_parameters, reward_of
from rewards.steps import read_scores, total
from rewards.text import completion_text

NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward
_PIECE = re.compile(r"\s+|\S{1,4}")


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """Score each row's completion, a text or messages, as `GRPOTrainer._calculate_rewards` does.

    Of a step reward the score is the sum of its steps. The columns that the reward logs go to
    `log_extra`, its metrics nowhere; the state is that before step 1. Without token ids a reward
    that names them gets `stand_in_ids`.

    Raises:
        ValueError: the reward returned what `read_scores` refuses.
    """
    from transformers import TrainerState  # importing a recipe stays light

    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED}
    prompts, completions = [row["prompt"] for row in rows], list(texts)
    for place, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        if isinstance(text, str) and not isinstance(prompt, str):  # in the form of its prompt
            completions[place] = [{"role": "assistant", "content": text}]
    if token_ids is None:
        takes_ids = "completion_ids" in named_parameters(reward)
        token_ids = [stand_in_ids(completion_text(text)) if takes_ids else [] for text in texts]
    scores = reward(
        prompts=prompts,
        completions=completions,
        completion_ids=token_ids,
        trainer_state=TrainerState(max_steps=1, epoch=0.0, num_train_epochs=1),
        log_extra=log_extra,
        log_metric=lambda name, value: None,
        **columns,
    )
    if inspect.iscoroutine(scores):
        scores = asyncio.run(scores)
    amounts = read_scores(reward, scores, texts)
    return [total(steps) for steps in amounts] if reward_of(reward).kind == "step" else amounts


def graded(
    reward: Callable, rows: list[dict], texts: list[str | list[dict]]
) -> list[tuple[float | None, str | None]]:
    """Each score, and why the reward says that it failed on the row; None where it did not."""
    logged: dict[str, list] = {}
    scores = score(reward, rows, texts, log_extra=logged.__setitem__)
    outcomes = logged.get(f"outcome/{reward_of(reward).name}") or [None] * len(texts)
    failures = [
        str(outcome).removeprefix("error: ") if str(outcome).startswith("error") else None
        for outcome in outcomes
    ]
    return list(zip(scores, failures, strict=True))


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: pieces of up to four characters, or of white space.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]
