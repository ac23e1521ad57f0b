"""The same held-out rows before, during and after training."""
