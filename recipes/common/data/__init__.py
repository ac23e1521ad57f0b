"""Load, split and check the rows of a run."""
