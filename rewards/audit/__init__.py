"""Audit of rewards: cheap tricks on a run's own rows, and the score that each reward gives them.

from rewards.audit import check_reward
check_reward(my_reward, rows, "<answer>{answer}</answer>")  # or an AssertionError with reasons
"""

from rewards.audit.report import check_reward

__all__ = ["check_reward"]
