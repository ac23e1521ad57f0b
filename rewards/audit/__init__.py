"""Audit of rewards: cheap tricks on a run's own rows, and what each reward pays for them."""
