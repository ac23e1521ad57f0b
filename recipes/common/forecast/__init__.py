"""Before GPUs are paid for: will it learn, will it fit."""
