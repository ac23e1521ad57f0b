"""The files that a run writes at its end: record, plots, report."""
