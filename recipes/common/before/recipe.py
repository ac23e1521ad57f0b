"""Find the recipe that a YAML belongs to, for scripts that work on any recipe."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_recipe(config: Path) -> ModuleType:
    """Import the train.py that stands beside a recipe's YAML.

    It offers `RecipeArguments`, `load_rows(args, seed) -> (train, eval)`, `reference_completion(row)` and
    `metric(row, completion)`.

    Raises:
        SystemExit: no train.py beside `config`.
    """
    file = config.resolve().parent / "train.py"
    if not file.is_file():
        raise SystemExit(f"error: {file} does not exist: --config names a YAML inside a recipe's folder.")
    spec = importlib.util.spec_from_file_location(f"recipe_{file.parent.name}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
