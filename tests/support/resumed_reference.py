"""What the ranks of a launch run: a whole run, then the same one from its first checkpoint, in FOLDER/whole and again.

accelerate launch tests/support/resumed_reference.py FOLDER ARGUMENTS
"""

import shutil
import sys
from pathlib import Path

from accelerate import PartialState

from recipes.common.data.recipe import import_recipe

CONFIG = Path("recipes/arithmetic/quickstart.yaml")


def main(folder: Path, words: list[str]) -> None:
    for name in ("whole", "again"):
        if name == "again" and PartialState().is_main_process:
            shutil.copytree(folder / "whole", folder / name)
            shutil.rmtree(folder / name / "checkpoint-4")
            for file in ("summary.json", "model.safetensors"):
                (folder / name / file).unlink()
        PartialState().wait_for_everyone()
        sys.argv = ["train.py", "--config", str(CONFIG), *words, "--output_dir", str(folder / name)]
        import_recipe(CONFIG).main()
        PartialState().wait_for_everyone()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
