"""Audit of rewards: cheap tricks on a run's own rows, and what each reward pays for them."""

from rewards.audit.audit import Cheats, try_tricks

__all__ = ["Cheats", "try_tricks"]
