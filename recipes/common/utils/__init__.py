"""Helpers for the other packages: the run folder, statistics, tables, the machine."""
