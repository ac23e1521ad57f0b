"""The parts that every recipe shares."""

import logging
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

if {"-h", "--help"} & {*sys.argv[1:]}:
    from recipes.common.utils.recipe_help import help_of, is_recipe

    if is_recipe(Path(sys.argv[0])):  # before torch and TRL are imported
        sys.stdout.reconfigure(errors="backslashreplace")  # where it shows no Greek letters
        print(help_of(Path(sys.argv[0])))
        sys.exit(0)

# TRL 1.16 calls transformers 5.23 by a deprecated name; a user of a recipe cannot change that.
warnings.filterwarnings(
    "ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning
)

# accelerate imports DeepSpeed, which warns on a CPU; preflight already names the device.
logging.getLogger("DeepSpeed").addFilter(
    lambda record: "Setting accelerator to CPU" not in str(record.msg)
)

# Python looks first in a script's own folder: a rewards.py there would hide our package.
_found = find_spec("rewards").origin
if _found and Path(_found).resolve() != Path(__file__).resolve().parents[2] / "rewards/__init__.py":
    raise ImportError(
        f"{_found} hides the package `rewards` of grpo-recipes: rename it, to my_rewards.py say."
    )
