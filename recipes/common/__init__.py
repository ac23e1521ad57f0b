"""The parts that every recipe shares, one room for each question."""

import logging
import warnings
from importlib.util import find_spec
from pathlib import Path

# TRL 1.16 speaks to transformers 5.23 by this older name, which no user of a recipe can change.
warnings.filterwarnings(
    "ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning
)

# DeepSpeed, which accelerate imports, warns without an accelerator; preflight names the device.
logging.getLogger("DeepSpeed").addFilter(
    lambda record: "Setting accelerator to CPU" not in str(record.msg)
)

# A script's own folder comes first: a rewards.py there would be imported in place of the package.
_found = find_spec("rewards").origin
if _found and Path(_found).resolve() != Path(__file__).resolve().parents[2] / "rewards/__init__.py":
    raise ImportError(
        f"{_found} hides the package `rewards` of grpo-recipes: rename it, to my_rewards.py say."
    )
