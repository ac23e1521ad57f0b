"""A reward that takes its time, so that a test can strike between two steps."""

import time

from support.dense_reward import letter_share


def takes_its_time(prompts: list, completions: list, **kwargs) -> list[float]:
    time.sleep(0.4)
    return letter_share(prompts, completions, **kwargs)


takes_its_time.farmable = letter_share.farmable
