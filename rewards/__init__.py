"""Rule-based rewards under TRL's contract (see rewards/contract.py), by name, file or module.

from rewards import load_reward
reward = load_reward("gsm8k_correctness", exact=2.0)
reward(prompts=["..."], completions=["<answer>18</answer>"], answer=["18"])     # [2.0]
"""

from rewards.contract import KINDS, Reward, for_tasks, reward_of
from rewards.loading import load_reward, load_rewards

__all__ = ["KINDS", "Reward", "for_tasks", "load_reward", "load_rewards", "reward_of"]
