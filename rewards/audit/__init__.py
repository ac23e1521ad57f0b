"""Audit of rewards: cheap tricks on a run's own rows, and the score that each reward gives them.

from rewards.audit import check_reward
check_reward(my_reward, rows, "<answer>{answer}</answer>")  # or an AssertionError with reasons
"""

from typing import Any

__all__ = ["check_reward"]


def __getattr__(name: str) -> Any:
    """Import `check_reward` when it is asked for: a recipe needs the room for `call` alone."""
    if name != "check_reward":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rewards.audit.report import check_reward

    return check_reward
