"""Call a reward outside a trainer, exactly as TRL does inside."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from transformers import TrainerState

NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """What `reward` pays each row's completion: prompts, completions, token ids and columns, all by keyword.

    Follows `GRPOTrainer._calculate_rewards`; the columns it logs go to `log_extra`, its metrics
    nowhere, and the state is that of step 0.

    Raises:
        ValueError: the reward returned another number of amounts than there are completions.
    """
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED}
    prompts = [row["prompt"] for row in rows]
    completions = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    amounts = reward(
        prompts=prompts,
        completions=completions,
        completion_ids=token_ids or [[] for _ in rows],
        trainer_state=TrainerState(max_steps=1),
        log_extra=log_extra,
        log_metric=lambda name, value: None,
        **columns,
    )
    if inspect.isawaitable(amounts):
        amounts = asyncio.run(_finish(amounts))
    if len(amounts) != len(rows):
        raise ValueError(f"it returned {len(amounts)} rewards for {len(rows)} completions")
    return amounts


async def _finish(amounts: Awaitable[list[float | None]]) -> list[float | None]:
    return await amounts
