"""The help of a recipe, read from the source code of its settings.

Importing the settings would import torch and TRL, which takes seconds, and half a minute where
Python may not keep compiled files.
"""

import ast
import textwrap
from importlib.util import find_spec
from pathlib import Path

COMMON = Path(__file__).parents[1]


def is_recipe(file: Path) -> bool:
    """Whether a script is the train.py of a recipe."""
    is_script = file.suffix == ".py" and file.is_file()
    return is_script and "start(RecipeArguments" in file.read_text(encoding="utf-8")


def help_of(recipe: Path) -> str:
    """The text of `--help`, read from source code: each setting with type, meaning and default."""
    trl, transformers = (Path(find_spec(name).origin).parent for name in ("trl", "transformers"))
    # heading -> the classes that declare its settings; a later class overrides an earlier one
    groups = {
        "the recipe": [(COMMON / "settings.py", "RecipeArguments"), (recipe, "RecipeArguments")],
        "training: TRL's GRPOConfig, and the settings of our trainer": [
            (transformers / "training_args.py", "TrainingArguments"),
            (trl / "trainer/base_config.py", "_BaseConfig"),
            (trl / "trainer/grpo_config.py", "GRPOConfig"),
            (COMMON / "training/config.py", "GRPOConfig"),
        ],
        "the model: TRL's ModelConfig": [(trl / "trainer/model_config.py", "ModelConfig")],
    }
    if "QuestionArguments" in recipe.read_text(encoding="utf-8"):
        groups["the recipe"].insert(1, (COMMON / "data/questions.py", "QuestionArguments"))
    lines = [f"usage: {recipe.name} --config FILE [--option VALUE ...]"]
    for heading, classes in groups.items():
        settings = {}
        for file, class_name in classes:
            settings |= settings_of(file, class_name)
        lines += ["", f"{heading}:"]
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
    code = ast.parse(file.read_text(encoding="utf-8"))
    classes = [node for node in code.body if isinstance(node, ast.ClassDef)]
    fields = [node for of in classes if of.name == class_name for node in of.body]
    for field in fields:
        if not isinstance(field, ast.AnnAssign) or field.target.id.startswith("_"):
            continue
        name, kind = field.target.id, ast.unparse(field.annotation)
        if "ClassVar" in kind:
            continue
        default, meaning = field.value, None  # nodes of the syntax tree
        if isinstance(default, ast.Call) and default.args:  # setting(default, help)
            default, meaning = default.args
        elif isinstance(default, ast.Call):  # field(default=..., metadata={"help": ...})
            named = {keyword.arg: keyword.value for keyword in default.keywords}
            default = named.get("default") or named.get("default_factory")
            meaning = named["metadata"].values[0] if "metadata" in named else None
        text = ast.literal_eval(meaning).replace("%%", "%") if meaning else ""  # %%: argparse's %
        lines[name] = f"--{name} {kind}: {text}"
        if default:
            lines[name] += f" (default: {ast.unparse(default)})"
    return lines
