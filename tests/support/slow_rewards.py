"""Rewards for tests of faults: one that takes its time, and one that hangs on one rank."""

import os
import time

from support.dense_reward import letter_share


def takes_its_time(prompts: list, completions: list, **kwargs) -> list[float]:
    """So that a test can strike between two steps."""
    time.sleep(0.4)
    return letter_share(prompts, completions, **kwargs)


def hangs_on_rank_1(prompts: list, completions: list, trainer_state, **kwargs) -> list[float]:
    """From the third step on."""
    while os.environ.get("RANK") == "1" and trainer_state.global_step >= 2:
        time.sleep(1.0)
    return letter_share(prompts, completions, **kwargs)


takes_its_time.farmable = hangs_on_rank_1.farmable = letter_share.farmable
