"""Audit of rewards: cheap tricks on a run's own rows, and the score that each reward gives them."""
