"""The ground every room stands on: the run folder, statistics, tables, the machine."""
