"""Before anything is loaded: arguments, recipe, rows, batch, launch and resume are checked."""
