"""A reward that a random model earns: without spread in its groups nothing would be learnt."""

import time

from rewards.text import completion_text


def letter_share(prompts, completions, completion_ids, log_extra, **kwargs):
    """The share of ASCII letters in a completion; logs its token ids next to it."""
    log_extra("token_ids", [list(ids) for ids in completion_ids])
    texts = map(completion_text, completions)
    return [sum(c.isascii() and c.isalpha() for c in text) / max(1, len(text)) for text in texts]


def takes_its_time(prompts, completions, **kwargs):
    """The same, so that a test can strike between two steps."""
    time.sleep(0.4)
    return letter_share(prompts, completions, **kwargs)


letter_share.farmable = takes_its_time.farmable = "any letters earn it"
