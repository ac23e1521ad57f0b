"""Rule-based rewards under TRL's contract: `reward(prompts, completions, <columns>, **kwargs) -> list[float | None]`.

    from rewards import load_reward
    reward = load_reward("gsm8k_correctness", exact=2.0)
    reward(prompts=["..."], completions=["<answer>18</answer>"], answer=["18"])     # [2.0]

A reward is named by its registry name, by `path/to/file.py:name` or by `package.module.name`: a function, a class, an
instance, a partial, or a function that returns one. Each has a `kind` and, for verifiers and format rewards, a `full`
amount that the right answer earns:

- verifier: scores the answer; an empty completion earns nothing
- format:   scores the shape
- shaping:  anything else that nudges
- control:  an arm of an experiment, such as a random reward
- step:     scores the steps of a completion, not the whole (see rewards/steps.py)
- model:    a model scores: neither preflight nor the audit call it (a Hub id or folder names a reward model of TRL's)

Declare them on your own function with attributes: `my_reward.kind = "verifier"; my_reward.full = 1.0`. Without any it
is *undeclared*: it trains, and no score of it is checked.
"""

from rewards.contract import (
    KINDS,
    full_reward,
    reward_columns,
    reward_kind,
    reward_name,
    reward_tasks,
)
from rewards.loading import load_reward, load_rewards
from rewards.routing import for_tasks

__all__ = [
    "KINDS",
    "for_tasks",
    "full_reward",
    "load_reward",
    "load_rewards",
    "reward_columns",
    "reward_kind",
    "reward_name",
    "reward_tasks",
]
