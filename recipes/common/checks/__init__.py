"""Checks before the weights are loaded: settings, rows, rewards, model, launch and resume."""
