"""Recipes: one folder each, with a train.py to read and YAML files to run."""

import os

# Threads of OpenMP that spin while they wait make a busy machine many times slower. It counts only before torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
