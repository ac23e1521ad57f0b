"""The tree: names that shadow nothing, and recipes, rewards and YAML files with all their parts."""

import functools
import sys
from importlib import metadata

import pytest
from support.launching import ROOT

from recipes.common.checks import preflight
from recipes.common.data.recipe import import_recipe, load_parts
from recipes.common.settings import parse_arguments

RECIPES = sorted(file.parent for file in ROOT.glob("recipes/*/train.py"))
CONFIGS = sorted(file for folder in RECIPES for file in folder.glob("*.yaml"))
# `python script.py` and `accelerate launch` put the folder of the script first on sys.path; pytest
# does so with tests/.
LAUNCHED = ["scripts/*.py", "scripts/benchmarks/*.py", "tests/*.py", "recipes/*/*.py"]
REQUIRED = {  # parameters for which no default could be right
    "length": {"target": 50},
    "soft_overlong": {"max_completion_len": 100, "soft_punish_cache": 20},
}
OPTIONAL = set("evaluate vllm lm_eval bitsandbytes flash_attn kernels liger_kernel".split())


def relative(file):
    return str(file.relative_to(ROOT))


@functools.cache
def recipe_of(folder):
    return import_recipe(folder / "train.py")


def test_no_module_on_a_launch_path_shadows_another():
    owners = metadata.packages_distributions()
    installed = {name for name in owners if set(owners[name]) != {"grpo-recipes"}}
    taken = set(sys.stdlib_module_names) | installed | OPTIONAL
    files = [file for pattern in LAUNCHED for file in ROOT.glob(pattern)]
    files = [file for file in files if file.parent.name != "common" and file.stem != "__init__"]
    assert [relative(file) for file in files if file.stem in taken] == []


@pytest.mark.parametrize("folder", RECIPES, ids=lambda folder: folder.name)
def test_a_recipe_has_the_parts_a_reader_looks_for(folder):
    recipe = recipe_of(folder)
    assert "accelerate launch" in recipe.__doc__
    parts = "SYSTEM_PROMPT to_row reference_completion load_rows metric RecipeArguments main"
    assert [part for part in parts.split() if not hasattr(recipe, part)] == []


@pytest.mark.parametrize("file", CONFIGS, ids=relative)
def test_a_yaml_passes_preflight_without_rows_and_weights(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    # Nor what is installed here.
    for name in ("build_parts", "notes_on_vllm"):
        monkeypatch.setattr(preflight, name, lambda *args: [])
    kind = recipe_of(file.parent).RecipeArguments
    args = parse_arguments(kind, ["--config", str(file), "--dry_run"])
    assert args.model["model_name_or_path"]
    args.model["model_name_or_path"] = "org/model"  # whether it is prepared is another question
    assert preflight.preflight(args, load_parts(args, None), lambda row: "").args.problems == []
