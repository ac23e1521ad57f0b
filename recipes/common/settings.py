"""Settings of a run: a preset, one YAML file and the command line, under TRL's own names.

TRL's `GRPOConfig` raises on the first problem, and does not check rows and rewards. So this module
only reads the values; `preflight` then checks all of them and builds `GRPOConfig`.

Precedence, from weak to strong: TRL's default, the run's YAML, `--preset`, the rest of the command
line. A preset holds the settings of a paper, in a YAML file of recipes/presets/. If several presets
are given, a later one wins. A preset named in the run's YAML (`preset:`) is weaker than that YAML.
"""

import argparse
import contextlib
import difflib
import inspect
import json
import os
import re
import sys
import typing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trl import ModelConfig

from recipes.common.trainer import GRPOConfig

RENAMED = {  # outdated settings of tutorials, and what to say about them
    "max_prompt_length": "TRL has it no more: it trains on prompts of any length",
    "max_new_tokens": "its name here is 'max_completion_length'",
}
PRESETS = Path(__file__).resolve().parents[1] / "presets"
# Settings that name a file or a folder; `~` and variables in them are expanded.
PATHS = (
    "dataset_path", "only_rows", "output_dir", "model_name_or_path", "chat_template_path",
    "reward_funcs", "tools", "environment_factory",
)  # fmt: skip
SCALES = {"true": "group", "false": "none"}  # TRL reads a bool as scale_rewards this way
ADDED = "add_reward_funcs"  # a key of presets only; every other key is an argument of a run


def setting(default: Any, help: str) -> Any:
    """A dataclass field with a default and a help text for `--help`."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class RecipeArguments:
    """The settings of a recipe besides TRL's `GRPOConfig` and `ModelConfig`."""

    unused: typing.ClassVar[tuple[str, ...]] = ()  # fields of this class that a recipe ignores

    preset: list[str] | None = setting(None, "A paper's settings: names of recipes/presets/.")
    dataset_name: str | None = setting(None, "Hub id, or the recipe's own data set name.")
    dataset_path: str | None = setting(None, "Rows: a folder with train and test files, or a file.")
    example: list[str] = setting([], "Shown before each question: pairs of question, completion.")
    only_rows: str | None = setting(None, "Train on these rows, as probe.py --keep writes them.")
    num_train_rows: int | None = setting(None, "Use so many training rows; default all.")
    num_eval_rows: int = setting(128, "Test questions, asked before and after; 0 for none.")
    num_eval_samples: int = setting(0, "So many samples of a row, besides its greedy answer.")
    num_validation_rows: int = setting(64, "With eval_strategy: rows held back for the curve.")
    metric_steps: int = setting(1, "Apply the metric in training every so many steps; 0: never.")
    early_stopping_patience: int | None = setting(None, "Stop after so many evaluations in vain.")
    reward_funcs: list[str] = setting([], "Names, file.py:name, package.module.name, a model.")
    reward_kwargs: dict | str | None = setting(None, "Parameters: {reward: {name: value}}; JSON.")
    reward_tasks: dict | str | None = setting(None, "Rows that it scores: {reward: [task, ...]}.")
    reward_columns: dict | str | None = setting(None, "Columns by other names: {solution: answer}.")
    fresh: bool = setting(False, "Move an existing output_dir aside and start anew.")
    accept_changed: list[str] = setting([], "What a resume may change: reward_code.")
    dry_run: bool = setting(False, "Stop after preflight, before any weight is loaded.")


@dataclass
class Arguments:
    """The settings of a run as read, with lists of problems and notes that the checks extend."""

    recipe: RecipeArguments
    training: dict[str, Any]
    model: dict[str, Any]
    problems: list[str]
    config_path: str | None
    words: list[str]  # the words of the command line
    notes: list[str]
    is_read: bool  # False if the YAML could not be read: then its values are unknown

    @property
    def validates(self) -> bool:
        """Whether the run evaluates validation rows while it trains."""
        return self.training["eval_strategy"] != "no"

    def is_refused(self, *names: str) -> bool:
        """Whether a problem names one of these settings, so that its value is only the default."""
        named = set(re.findall(r"\w+", " ".join(self.problems)))
        return not named.isdisjoint(names)


def parse_arguments(recipe_type: type[RecipeArguments], argv: list[str] | None = None) -> Arguments:
    """Read `--config FILE` and the command line, which wins over the file.

    A bad key or value adds a message to `problems`. The default replaces a bad value, so that the
    other settings can still be checked.
    """
    # Imported here, so that importing a recipe stays light.
    from recipes.common.limits import read_fields
    from recipes.common.utils.problems import collect_errors
    from recipes.common.utils.secrets import remember
    from recipes.common.utils.yaml_file import read_yaml

    argv = list(sys.argv[1:] if argv is None else argv)
    kinds = (recipe_type, GRPOConfig, ModelConfig)
    hints: dict[str, Any] = {}  # the type of each setting
    for kind in kinds:
        types = typing.get_type_hints(kind)
        hints |= {field.name: types[field.name] for field in fields(kind) if field.init}
    problems: list[str] = []
    options = read_words(argv, hints, problems)
    if inspect.get_annotations(recipe_type) and "__dataclass_fields__" not in vars(recipe_type):
        problems.append(f"{recipe_type.__name__} has settings of its own: put @dataclass above it.")
    config_path = options.pop("config", None)
    config, is_read = {}, False
    with collect_errors(problems):
        config = read_yaml(Path(config_path)) if config_path else {}
        is_read = True
    with collect_errors(problems, "env"):
        set_environment(config.pop("env", None) or {})
    problems += [unknown_argument(name, hints, config_path) for name in config if name not in hints]

    names = options.get("preset") or config.get("preset") or []
    names = [names] if isinstance(names, str) else names
    preset = {}
    with collect_errors(problems):  # an unknown name; `read_fields` reports a wrong type
        preset = read_presets(names)
    added = preset.pop(ADDED, [])  # rewards that the presets add to the run's
    # A preset named in the YAML is weaker than the other keys of the YAML.
    values = config | preset | options if "preset" in options else preset | config | options
    others = {"dataset_name", "dataset_path"} - options.keys()
    if len(others) == 1 and others <= config.keys():  # the command line replaces the YAML's rows
        for name in {*others, "dataset_config"} - options.keys():
            values.pop(name, None)
    remember(values)  # secrets, before any of them can get into a message
    values = {
        name: read_text(name, value, hints[name], problems)
        for name, value in values.items()
        if name in hints
    }
    remember(values)  # again: JSON texts of the command line are mappings now
    notes = [f"preset: {' '.join(names)}"] if preset else []
    if "reward_funcs" in options:
        notes += drop_settings_of_replaced_rewards(values, config, options)

    recipe, training, model = (read_fields(kind, values, problems) for kind in kinds)
    problems += [
        f"{name} is {recipe[name]!r}; this recipe does not use it: leave it out."
        for name in recipe_type.unused
        if recipe[name] is not None
    ]
    for reward in added:
        add_reward(reward, recipe, training)
    recipe = recipe_type(**recipe)
    return Arguments(recipe, training, model, problems, config_path, argv, notes, is_read)


def set_environment(variables: Any) -> None:
    """Set variables of the environment that the shell has not set, as TRL's own parser does."""
    import datasets
    import huggingface_hub

    if not isinstance(variables, dict):
        raise ValueError(f"it is {variables!r}; it must be a mapping of names to values.")
    # Both libraries have read their variables as they were imported, each into its own name.
    read_at_import = {*vars(huggingface_hub.constants), *vars(datasets.config)} - os.environ.keys()
    for name, value in variables.items():
        if value is None or isinstance(value, dict | list):
            raise ValueError(f"{name} is {value!r}; give a text or a number.")
        if not re.fullmatch(r"\w+", str(name)):
            raise ValueError(f"{name!r} is no name of a variable; use letters, digits and _.")
        if name in read_at_import:
            raise ValueError(f"{name} is read before this file: export it in the shell instead.")
        os.environ.setdefault(str(name), str(value))


def read_words(
    argv: list[str], hints: dict[str, Any], problems: list[str]
) -> dict[str, str | bool | list[str]]:
    """The options of a command line by name: a text, a list if the type is a list, True for a flag.

    `hints` has the type of each setting besides `config`. An unknown option adds a problem with a
    hint, and so does a list or config file given twice. Of single values the last wins, as with
    argparse; no abbreviation is guessed.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, hint in {"config": str, **hints}.items():
        parser.add_argument(
            f"--{name}",
            f"--{name.replace('_', '-')}",
            dest=name,
            action="append",
            nargs="*" if takes_list(hint) else "?",
            const=True if hint in (bool, bool | None) else None,
            default=argparse.SUPPRESS,
        )
    found, others = parser.parse_known_args(argv)
    unknown = [word for word in others if word.startswith("--")] or others
    problems += [unknown_argument(word, hints, "the command line") for word in unknown]
    options = {}
    for name, values in vars(found).items():
        value = values[-1]
        if len(values) > 1 and (name == "config" or isinstance(value, list)):
            problems.append(f"--{name} is given twice, {values[0]} and {value}: give it once.")
        if value in (None, []):
            problems.append(f"{name}: expected one argument")
        else:
            options[name] = value
    return options


def options_given(words: list[str]) -> set[str]:
    """The field names of the options on a command line.

    Example: `options_given(["--max-steps=3"]) == {"max_steps"}`
    """
    return {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def unknown_argument(name: str, known: dict[str, Any], source: str) -> str:
    """The problem of a name that is no setting, with the setting of the most similar name.

    `known` has the settings as keys; `source` is the file or "the command line".
    """
    plain = str(name).lstrip("-").partition("=")[0].replace("-", "_")
    if plain in RENAMED:
        return f"unknown argument {name!r} in {source}: {RENAMED[plain]}"
    close = difflib.get_close_matches(plain, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown argument {name!r} in {source}{hint}"


# --- Presets


def preset_names() -> list[str]:
    """The names of all presets, in alphabetical order."""
    return sorted(file.stem for file in PRESETS.glob("*.yaml"))


def read_presets(names: list[str]) -> dict[str, Any]:
    """The merged settings of presets: a later preset wins, but the rewards to add are those of all.

    Raises ValueError for an unknown name.
    Example: `read_presets(["dr_grpo"])["scale_rewards"] == "none"`
    """
    from recipes.common.utils.yaml_file import read_yaml

    keys, added = {}, {}
    for name in names if isinstance(names, list) else []:
        if name not in preset_names():
            raise ValueError(f"unknown preset {name!r}; there are {', '.join(preset_names())}.")
        preset = read_yaml(PRESETS / f"{name}.yaml")
        added |= dict.fromkeys(preset.pop(ADDED, []))
        keys |= preset
    return keys | ({ADDED: list(added)} if added else {})


def add_reward(name: str, recipe: dict[str, Any], training: dict[str, Any]) -> None:
    """Append a preset's reward to the settings of a run, unless the run has it.

    It gets the weight 1.0 if the run gives a weight for each of its rewards. The run's parameters
    win over ours. A run without rewards gets none, so that preflight refuses it.
    """
    rewards, weights = recipe["reward_funcs"], training["reward_weights"]
    if not rewards or name in rewards:
        return
    recipe["reward_funcs"] = [*rewards, name]
    if weights is not None and len(weights) == len(rewards):
        training["reward_weights"] = [*weights, 1.0]
    if name == "soft_overlong":  # DAPO's cache is a fifth of its limit (4,096 of 20,480)
        length, own = training["max_completion_length"], recipe["reward_kwargs"] or {}
        usual = {"max_completion_len": length, "soft_punish_cache": (length or 0) // 5}
        recipe["reward_kwargs"] = {**own, name: {**usual, **own.get(name, {})}}


# --- Words and values


def read_text(name: str, value: Any, hint: Any, problems: list[str]) -> Any:
    """The value of a setting with text converted: to a number, a mapping, a list of one, a path.

    `hint` is its type. None for a pipe and for JSON that cannot be read, with a message in
    `problems`.
    """
    options = typing.get_args(hint)
    if value in ("null", ["null"]) and type(None) in options:
        return None  # on the command line, as in a YAML
    if takes_list(hint) and isinstance(value, str | int | float):
        value = [value]
    if isinstance(value, str) and int in options and value.isdecimal():
        with contextlib.suppress(ValueError):  # more digits than Python reads: refused as a text
            value = int(value)  # also if the type allows text, as for pad_to_multiple_of
    if name == "scale_rewards":
        value = SCALES.get(str(value).lower(), value)
    if name.endswith("_strategy") and value is False:
        value = "no"  # YAML reads `no` as false
    if name in PATHS and isinstance(value, list):
        paths = [expand_path(name, path, problems) for path in value]
        return [path for path in paths if path is not None]
    if name in PATHS:
        return expand_path(name, value, problems)
    takes_mapping = any((typing.get_origin(option) or option) is dict for option in options)
    if takes_mapping and isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            problems.append(f"{name} is not a JSON mapping: {error}; given: {value:.300}")
            return None
    return value


def file_of(path: str) -> Path:
    """The file or folder that a setting names: of a reward, `my.py:right`, it is `my.py`."""
    return Path(path.rpartition(":")[0] or path)


def expand_path(name: str, value: Any, problems: list[str]) -> Any:
    """A path with `~` and environment variables expanded; None for a pipe.

    `name` is the setting, for messages that join `problems`. What is no text is returned as it is.
    """
    if not isinstance(value, str):
        return value
    path = os.path.expandvars(os.path.expanduser(value))
    if unset := re.search(r"\$\{?(\w+)", path):
        problems.append(f"{name} is {value!r}, and the variable {unset[1]} is not set: export it.")
    with contextlib.suppress(OSError, ValueError):  # no name of a file: whoever reads it says so
        if file_of(path).is_fifo():  # reading it would wait for a writer
            problems.append(f"{name} is {value!r}, a pipe: give an ordinary file or a folder.")
            return None
    return path


def takes_list(hint: Any) -> bool:
    """Whether a type is `list[...]` or `list[...] | None`; False if it also allows a text."""
    options = [hint] if typing.get_origin(hint) is list else typing.get_args(hint)
    return bool(options) and all(typing.get_origin(o) is list or o is type(None) for o in options)


def drop_settings_of_replaced_rewards(
    values: dict[str, Any], config: dict[str, Any], options: dict[str, Any]
) -> list[str]:
    """Take out of `values` what the YAML (`config`) sets for rewards that `options` replace.

    Weights, parameters, tasks and gates of the rewards that stay are kept; a new reward has the
    weight 1.0. Returns a note for each setting that changed.
    """
    from rewards.loading import short_name

    old, new = config.get("reward_funcs"), values["reward_funcs"]
    old = [old] if isinstance(old, str) else old
    if not isinstance(old, list) or old == new:
        return []

    def names_of(rewards: list[str]) -> set[str]:
        """How settings may name rewards; what `get_x` returns is mostly called x."""
        short = list(map(short_name, map(str, rewards)))
        return {*map(str, rewards), *short, *(name.removeprefix("get_") for name in short)}

    names, notes = names_of(new), []
    gone = names_of(old) - names
    for setting in ("reward_weights", "reward_kwargs", "reward_tasks", "reward_gates"):
        value = values.get(setting)
        if setting in options or not isinstance(value, list | dict):
            continue
        if setting == "reward_weights":
            of_old = dict(zip(map(str, old), value, strict=False))
            left = [of_old.get(reward, 1.0) for reward in new]
        elif setting == "reward_gates":  # a gate goes with any of its openers
            openers = {gated: by if isinstance(by, list) else [by] for gated, by in value.items()}
            left = {
                gated: value[gated]
                for gated, by in openers.items()
                if gone.isdisjoint([gated, *map(str, by)])
            }
        else:
            left = {reward: value[reward] for reward in value if reward in names}
        if left != value:
            values[setting] = left or None
            notes.append(
                f"{setting}: {left or 'none'}, not the YAML's {value}, as --reward_funcs replaces "
                "rewards"
            )
    return notes
