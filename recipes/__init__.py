"""Recipes: one folder each, with a train.py to read and YAML files to run."""

import os
import warnings

if os.name == "nt":
    raise ImportError("grpo-recipes needs Linux: on Windows use WSL2.")

# OpenMP threads that spin while they wait make a busy machine many times slower. torch reads this
# variable when it loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Python warns about the source of cellpylib, which reasoning-gym needs, when it compiles it.
warnings.filterwarnings("ignore", category=SyntaxWarning, module=".*cellpylib")
