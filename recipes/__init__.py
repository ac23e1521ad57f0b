"""Recipes: one folder each, with a train.py to read and YAML files to run."""
