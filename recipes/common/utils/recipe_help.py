"""The help of a recipe, read from the source code of its settings.

Importing the settings would import torch and TRL, which takes seconds, and half a minute where
Python may not keep compiled files.
"""

import ast
import textwrap
from importlib.util import find_spec
from pathlib import Path

COMMON = Path(__file__).parents[1]
USAGE = "usage: {} --config FILE [--option VALUE ...]"


def is_recipe(file: Path) -> bool:
    """Whether a script is the train.py of a recipe."""
    return file.suffix == ".py" and file.is_file() and "start(RecipeArguments" in file.read_text()


def help_of(recipe: Path) -> str:
    """The text of `--help`: each setting of a train.py with its type, meaning and default."""
    trl, transformers = (Path(find_spec(name).origin).parent for name in ("trl", "transformers"))
    of_questions = [(COMMON / "data/questions.py", "QuestionArguments")]
    groups = {  # heading -> the classes that declare its settings: the first to name one wins
        "the recipe": [
            (recipe, "RecipeArguments"),
            *(of_questions if "QuestionArguments" in recipe.read_text() else []),
            (COMMON / "settings.py", "RecipeArguments"),
        ],
        "training: TRL's GRPOConfig, and the settings of our trainer": [
            (COMMON / "training/config.py", "GRPOConfig"),
            (trl / "trainer/grpo_config.py", "GRPOConfig"),
            (trl / "trainer/base_config.py", "_BaseConfig"),
            (transformers / "training_args.py", "TrainingArguments"),
        ],
        "the model: TRL's ModelConfig": [(trl / "trainer/model_config.py", "ModelConfig")],
    }
    lines = [USAGE.format(recipe.name)]
    for heading, classes in groups.items():
        lines += ["", f"{heading}:"]
        settings: dict[str, str] = {}
        for file, name in classes:
            settings = {**settings_of(file, name), **settings}
        for name in sorted(settings):
            lines += textwrap.wrap(
                settings[name], 100, initial_indent="  ", subsequent_indent=" " * 8
            )
    return "\n".join(lines)


def settings_of(file: Path, class_name: str) -> dict[str, str]:
    """The lines of help of a dataclass by setting; empty if the file does not define the class.

    Each is such as `--seed int: Random seed to use. (default: 42)`.
    """
    lines = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.ClassDef) and node.name == class_name):
            continue
        for field in node.body:
            kind = ast.unparse(field.annotation) if isinstance(field, ast.AnnAssign) else "ClassVar"
            if "ClassVar" in kind or field.target.id.startswith("_"):
                continue
            default, meaning = field.value, None
            if isinstance(default, ast.Call):  # setting(default, help), or field(default=...)
                named = {keyword.arg: keyword.value for keyword in default.keywords}
                if default.args:
                    default, meaning = default.args
                else:
                    default = named.get("default") or named.get("default_factory")
                    metadata = named.get("metadata") or ast.Dict([], [])
                    texts = dict(zip(map(ast.unparse, metadata.keys), metadata.values, strict=True))
                    meaning = texts.get("'help'")
            help = ast.literal_eval(meaning) if meaning else ""
            shown = f" (default: {ast.unparse(default)})" if default else ""
            lines[field.target.id] = f"--{field.target.id} {kind}: {help}{shown}"
    return lines
