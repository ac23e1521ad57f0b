"""Reading and comparing LaTeX answers."""
