"""Before renting GPUs: can the model learn from the rewards?"""
