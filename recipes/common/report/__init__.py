"""The files a run leaves: record, plots, report."""
