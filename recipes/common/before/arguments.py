"""Arguments of a recipe: one YAML file and the command line, under TRL's own names.

TRL's `GRPOConfig` raises on the first problem it meets, and knows nothing of rows and rewards. So the
values are only read here; `preflight` judges all of them together and builds `GRPOConfig` after that.
"""

import argparse
import dataclasses
import difflib
import json
import os
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from trl import GRPOConfig, ModelConfig, TrlParser

from recipes.common.before.presets import ADDED, add_rewards, changes, read_presets
from recipes.common.before.run_config import options_given

# What belongs to the rewards that stand beside it.
REWARD_MAPPINGS = ("reward_kwargs", "reward_tasks", "reward_gates")
REWARD_SETTINGS = ("reward_weights", *REWARD_MAPPINGS)
STEP_MAPPINGS = ("step_reward_kwargs", "step_reward_tasks")
STEP_SETTINGS = ("step_reward_weights", *STEP_MAPPINGS)


@dataclass
class RecipeArguments:
    """What a recipe takes besides TRL's `GRPOConfig` and `ModelConfig`."""

    preset: list[str] | None = field(
        default=None, metadata={"help": "Settings of a paper, laid over the YAML: names of recipes/presets/."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "Hub id, or the recipe's own data set name."})
    dataset_path: str | None = field(default=None, metadata={"help": "Folder with train.jsonl and test.jsonl."})
    example: list[str] = field(
        default_factory=list, metadata={"help": "A worked example shown before each question: question, completion."}
    )
    only_rows: str | None = field(
        default=None, metadata={"help": "Train on the rows of this JSON Lines file, as filter_by_pass_rate.py keeps."}
    )
    num_train_rows: int | None = field(default=None, metadata={"help": "Use so many training rows; default all."})
    num_eval_rows: int = field(default=128, metadata={"help": "Held-out rows judged before and after; 0 for none."})
    num_eval_samples: int = field(
        default=0, metadata={"help": "Besides the greedy answer, sample so many at the training temperature."}
    )
    reward_funcs: list[str] = field(
        default_factory=list,
        metadata={"help": "Registry names, path/to/file.py:function or package.module:function."},
    )
    reward_kwargs: dict | str | None = field(
        default=None, metadata={"help": "Parameters per reward: {reward: {name: value}}; JSON on the command line."}
    )
    reward_tasks: dict | str | None = field(
        default=None, metadata={"help": "Rows a reward scores: {reward: [task, ...]}; one that is not named sees all."}
    )
    reward_gates: dict | str | None = field(
        default=None, metadata={"help": "Pay a reward only where another judged right: {length: gsm8k_correctness}."}
    )
    step_reward_funcs: list[str] | None = field(
        default=None, metadata={"help": "Rewards of the kind step, beside reward_funcs; without a name none of them."}
    )
    step_reward_weights: list[float] | None = field(
        default=None, metadata={"help": "One a step reward, applied after it is normalised; default 1.0 each."}
    )
    step_reward_kwargs: dict | str | None = field(default=None, metadata={"help": "As reward_kwargs."})
    step_reward_tasks: dict | str | None = field(default=None, metadata={"help": "As reward_tasks."})
    max_reward_error_rate: float = field(
        default=0.05, metadata={"help": "Stop above this share of rows a reward could not grade, of its last 1 000."}
    )
    reward_timeout_s: float = field(default=300.0, metadata={"help": "Limit for one call of one reward in seconds."})
    merge_adapter: bool = field(default=False, metadata={"help": "Also save the model with its LoRA adapter merged."})
    fresh: bool = field(default=False, metadata={"help": "Move an existing output_dir aside and start anew."})
    dry_run: bool = field(default=False, metadata={"help": "Stop after preflight, before any weight is loaded."})


@dataclass
class Arguments:
    """The values of a run as read, before TRL's dataclasses are built, and what is wrong with them so far.

    `notes` are what preflight should say of them.
    """

    recipe: RecipeArguments
    training: dict[str, Any]
    model: dict[str, Any]
    problems: list[str]
    config_path: str | None = None
    notes: list[str] = field(default_factory=list)

    def attempt(self, function: Callable, *values: Any) -> Any:
        """`function(*values)`, or None where it fails: its message joins the problems reported by preflight."""
        try:
            return function(*values)
        except ValueError as problem:  # said for the reader
            self.problems.append(str(problem))
        except Exception as problem:
            self.problems.append(f"{type(problem).__name__}: {problem}")
        return None


def parse_arguments(recipe_type: type[RecipeArguments], argv: list[str] | None = None) -> Arguments:
    """Read `--config FILE` and the command line, which wins. Nothing is raised for a bad key or value: it is noted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = TrlParser([recipe_type, GRPOConfig, ModelConfig], allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of these values; the command line wins")
    next(action for action in parser._actions if action.dest == "step_reward_funcs").nargs = "*"
    config_path = _take_option(argv, "--config")
    config, problems = _read_yaml(config_path)
    for name, value in (config.pop("env", None) or {}).items():
        os.environ.setdefault(name, str(value))
    known = {action.dest for action in parser._actions} - {"config", "help"}
    problems += [_unknown(name, known, config_path) for name in config if name not in known]
    preset, laid = _lay_presets(config, argv, problems)
    defaults = {name: parser.get_default(name) for name in known}
    parser.set_defaults_with_config(**{name: value for name, value in laid.items() if name in known})
    try:
        values, rest = parser.parse_known_args(argv)
    except (argparse.ArgumentError, ValueError) as error:  # a value of the wrong type: nothing can be read past it
        print("\n".join(["error: cannot read the arguments:", *problems, str(error)]), file=sys.stderr)
        raise SystemExit(2) from error
    problems += [_unknown(word, known, "the command line") for word in _strays(rest)]
    values = vars(values)
    given = options_given(argv)
    problems += _stale_reward_settings(config, given, values["reward_funcs"])
    if "step_reward_funcs" in given and not values["step_reward_funcs"]:  # what the YAML says of its own goes with them
        values |= dict.fromkeys({"step_reward_funcs"} | (set(STEP_SETTINGS) - given))
    else:
        named = values["step_reward_funcs"] or []
        problems += _stale_reward_settings(config, given, named, "step_reward_funcs", STEP_SETTINGS)
    fields = _fields_of(recipe_type, values, problems)
    training = _fields_of(GRPOConfig, values, problems)
    for name in (name for name in (*REWARD_MAPPINGS, *STEP_MAPPINGS) if not isinstance(fields[name], dict | None)):
        problems.append(f"{name} must be a mapping by reward, not {fields[name]!r}; on the command line JSON.")
        fields[name] = None
    changed = changes(preset, {**defaults, **config}, values)
    changed += add_rewards(preset.get(ADDED, []), fields, training)
    notes = [f"preset {' '.join(fields['preset'])}: {', '.join(changed) or 'changes nothing'}"] if preset else []
    model = _fields_of(ModelConfig, values, [])
    return Arguments(recipe_type(**fields), training, model, problems, config_path, notes)


def _lay_presets(config: dict[str, Any], argv: list[str], problems: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The presets of a run, and its YAML with them laid over it, or under it where the YAML itself names them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", nargs="+")
    try:
        asked = parser.parse_known_args(argv)[0].preset
    except argparse.ArgumentError:  # said by the parser of all arguments
        asked = None
    named = asked or config.get("preset")
    if not isinstance(named, str | list | None):
        problems.append(f"preset must be a name or a list of names, not {named!r}")
        return {}, config
    try:
        preset = read_presets([named] if isinstance(named, str) else named or [])
    except ValueError as problem:
        problems.append(str(problem))
        return {}, config
    return preset, {**config, **preset} if asked else {**preset, **config}


def _fields_of(dataclass_type: type, values: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """The values of one dataclass; JSON text becomes the mapping it stands for, a lone value a list of one."""
    fields = {f.name: values[f.name] for f in dataclasses.fields(dataclass_type) if f.init}
    types = {f.name: f.type for f in dataclasses.fields(dataclass_type)}
    for name, value in fields.items():
        if _is_list(types[name]) and isinstance(value, str | int | float):
            fields[name] = value = [value]
        if isinstance(value, str) and value.startswith("{"):
            try:
                fields[name] = json.loads(value)
            except json.JSONDecodeError as error:
                problems.append(f"{name} is no JSON mapping: {error}; given: {value}")
                fields[name] = None
    return fields


def _is_list(hint: Any) -> bool:
    """True for `list[...]` and `list[...] | None`, and for nothing that could be a lone value as well."""
    options = [hint] if typing.get_origin(hint) is list else typing.get_args(hint)
    return bool(options) and all(typing.get_origin(o) is list or o is type(None) for o in options)


def _read_yaml(path: str | None) -> tuple[dict[str, Any], list[str]]:
    if path is None:
        return {}, []
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        return {}, [f"cannot read --config {path}: {error}"]
    if not isinstance(config, dict):
        return {}, [f"{path} must hold a YAML mapping of names to values."]
    return config, []


def _stale_reward_settings(
    config: dict[str, Any],
    given: set[str],
    rewards: list[str],
    argument: str = "reward_funcs",
    settings: tuple[str, ...] = REWARD_SETTINGS,
) -> list[str]:
    """Weights and parameters in the YAML belong to the YAML's rewards, not to others named on the command line."""
    if argument not in given or config.get(argument) == rewards:
        return []
    stale = [name for name in settings if config.get(name) and name not in given]
    stale = [name for name in stale if not _still_there(config[name], rewards)]
    return [
        f"--{argument} replaces {config.get(argument)} of the YAML, whose {name} ({config[name]}) belongs to "
        f"those rewards: give --{name} as well."
        for name in stale
    ]


def _still_there(setting: Any, rewards: list[str]) -> bool:
    """Whether a setting by reward names none but rewards of the run."""
    return isinstance(setting, dict) and set(setting) <= set(rewards)


def _strays(rest: list[str]) -> list[str]:
    """The words that no argument took; the value of an unknown flag goes without saying."""
    before = ["", *rest]
    return [word for i, word in enumerate(rest) if word.startswith("--") or not before[i].startswith("--")]


def _take_option(argv: list[str], option: str) -> str | None:
    """Remove `option VALUE` or `option=VALUE` from `argv` and return the value."""
    for position, word in enumerate(argv):
        if word == option and position + 1 < len(argv):
            return argv.pop(position) and argv.pop(position)
        if word.startswith(option + "="):
            return argv.pop(position).split("=", 1)[1]
    return None


def _unknown(name: str, known: set[str], source: str) -> str:
    close = difflib.get_close_matches(name.lstrip("-").replace("-", "_"), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown argument {name!r} in {source}{hint}"
