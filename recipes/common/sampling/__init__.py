"""Before GPUs are rented: will it learn, will it fit."""
