"""Arguments of a recipe: one YAML file and the command line, under TRL's own names.

TRL's `GRPOConfig` raises on the first problem it meets, and knows nothing of rows and rewards. So the
values are only read here; `preflight` checks all of them together and builds `GRPOConfig` after that.
"""

import argparse
import dataclasses
import difflib
import json
import os
import sys
import typing
from dataclasses import dataclass, field
from typing import Any

import yaml
from trl import ModelConfig, TrlParser

from recipes.common.presets import ADDED, add_rewards, changes, read_presets
from recipes.common.trainer import GRPOConfig

# Settings that belong to the rewards named with them.
REWARD_MAPPINGS = ("reward_kwargs", "reward_tasks", "reward_gates")
REWARD_SETTINGS = ("reward_weights", *REWARD_MAPPINGS)


@dataclass
class RecipeArguments:
    """The settings of a recipe besides TRL's `GRPOConfig` and `ModelConfig`."""

    _argument_group_name = "the recipe"
    unused: typing.ClassVar[
        tuple[str, ...]
    ] = ()  # settings of all recipes that this one does not use

    preset: list[str] | None = field(
        default=None,
        metadata={"help": "Settings of a paper that win over the YAML: names of recipes/presets/."},
    )
    dataset_name: str | None = field(
        default=None, metadata={"help": "Hub id, or the recipe's own data set name."}
    )
    dataset_path: str | None = field(
        default=None,
        metadata={"help": "Rows from here: a folder with train and test files, or a file."},
    )
    example: list[str] = field(
        default_factory=list,
        metadata={"help": "A worked example shown before each question: question, completion."},
    )
    only_rows: str | None = field(
        default=None,
        metadata={
            "help": "Train on the rows of this JSON Lines file, as filter_by_pass_rate.py keeps."
        },
    )
    num_train_rows: int | None = field(
        default=None, metadata={"help": "Use so many training rows; default all."}
    )
    num_eval_rows: int = field(
        default=128, metadata={"help": "Held-out rows evaluated before and after; 0 for none."}
    )
    num_eval_samples: int = field(
        default=0,
        metadata={"help": "Besides the greedy answer, sample so many at the training temperature."},
    )
    num_validation_rows: int = field(
        default=64,
        metadata={
            "help": "With eval_strategy: rows evaluated during training, and never trained on."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop after so many evaluations in a row that metric_for_best_model is no better."
        },
    )
    reward_funcs: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Registry names, file.py:name, package.module.name, or a reward model's Hub id or folder."
        },
    )
    reward_kwargs: dict | str | None = field(
        default=None,
        metadata={
            "help": "Parameters per reward: {reward: {name: value}}; JSON on the command line."
        },
    )
    reward_tasks: dict | str | None = field(
        default=None,
        metadata={
            "help": "Rows a reward scores: {reward: [task, ...]}; one that is not named sees all."
        },
    )
    reward_columns: dict | str | None = field(
        default=None,
        metadata={"help": "Columns by the names that rewards take them by: {solution: answer}."},
    )
    fresh: bool = field(
        default=False, metadata={"help": "Move an existing output_dir aside and start anew."}
    )
    extend: bool = field(
        default=False, metadata={"help": "Resume a run, finished or not, with a larger max_steps."}
    )
    dry_run: bool = field(
        default=False, metadata={"help": "Stop after preflight, before any weight is loaded."}
    )


@dataclass
class Arguments:
    """The values of a run as read, wrong keys and values (`problems`), and lines for the reader of preflight."""

    recipe: RecipeArguments
    training: dict[str, Any]
    model: dict[str, Any]
    problems: list[str]
    config_path: str | None = None
    notes: list[str] = field(default_factory=list)
    is_read: bool = True  # False where the YAML could not be read, and none of its values is known

    @property
    def validates(self) -> bool:
        """Whether the run evaluates validation rows while it trains."""
        return name_of(self.training["eval_strategy"]) != "no"


def name_of(strategy: Any) -> str:
    """The name of a strategy of transformers, which may be an enum by now."""
    return str(getattr(strategy, "value", strategy))


def parse_arguments(recipe_type: type[RecipeArguments], argv: list[str] | None = None) -> Arguments:
    """Read `--config FILE` and the command line, which wins. A bad key or value joins `problems`.

    A default takes the place of a bad value, so that everything else can be checked as well.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = TrlParser(
        [recipe_type, GRPOConfig, ModelConfig],
        usage="%(prog)s --config FILE [--option VALUE ...]",  # else two hundred lines of options
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser._action_groups.append(
        parser._action_groups.pop(1)
    )  # TRL's ModelConfig after the groups of ours
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these values; the command line wins"
    )
    config_path = _take_option(argv, "--config")
    config, problems = _read_yaml(config_path)
    is_read = not problems
    while second := _take_option(argv, "--config"):
        problems.append(
            f"--config is given twice, {config_path} and {second}: one file describes one run."
        )
    env = config.pop("env", None) or {}
    if not isinstance(env, dict):
        problems.append(f"env is {env!r}; it must be a mapping of names to values.")
    for name, value in env.items() if isinstance(env, dict) else ():
        os.environ.setdefault(str(name), str(value))
    known = {action.dest for action in parser._actions} - {"config", "help"}
    problems += [_unknown(name, known, config_path) for name in config if name not in known]
    preset, with_presets = _add_presets(config, argv, problems)
    defaults = {name: parser.get_default(name) for name in known}
    parser.set_defaults_with_config(
        **{name: value for name, value in with_presets.items() if name in known}
    )
    values, rest = _read_values(parser, argv, defaults, problems)
    problems += [_unknown(word, known, "the command line") for word in _strays(rest)]
    given = options_given(argv)
    for name, other in (("dataset_name", "dataset_path"), ("dataset_path", "dataset_name")):
        if (
            name in given and other in config and other not in given
        ):  # the command line replaces the YAML's rows
            values[other] = defaults[other]
    from recipes.common.limits import usable  # importing a recipe stays light

    fields = usable(recipe_type, _fields_of(recipe_type, values, problems), problems)
    training = usable(GRPOConfig, _fields_of(GRPOConfig, values, problems), problems)
    model = usable(ModelConfig, _fields_of(ModelConfig, values, []), problems)
    problems += _stale_reward_settings(config, given, fields["reward_funcs"])
    problems += [
        f"{name} is {fields[name]!r}; this recipe does not use it: leave it out."
        for name in recipe_type.unused
        if fields[name] is not None
    ]
    changed = changes(preset, {**defaults, **config}, values)
    changed += add_rewards(preset.get(ADDED, []), fields, training)
    notes = (
        [f"preset {' '.join(fields['preset'])}: {', '.join(changed) or 'changes nothing'}"]
        if preset
        else []
    )
    return Arguments(recipe_type(**fields), training, model, problems, config_path, notes, is_read)


def _read_values(
    parser: argparse.ArgumentParser, argv: list[str], defaults: dict[str, Any], problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Read all values, and return the words left over; one that cannot be read is left out, with a message."""
    while True:
        try:
            values, rest = parser.parse_known_args(argv)
            return vars(values), rest
        except (argparse.ArgumentError, ValueError) as error:
            name = (
                str(getattr(error, "argument_name", "")).split("/")[0].lstrip("-").replace("-", "_")
            )
            at = [
                i
                for i, word in enumerate(argv)
                if word.startswith("--") and options_given([word]) == {name}
            ]
            if name not in defaults or (not at and parser.get_default(name) == defaults[name]):
                print(
                    "\n".join(["error: cannot read the arguments:", *problems, str(error)]),
                    file=sys.stderr,
                )
                raise SystemExit(2) from error
            problems.append(f"{name}: {getattr(error, 'message', error)}")
            parser.set_defaults(**{name: defaults[name]})
            if at:
                more = [i for i in range(at[0] + 1, len(argv)) if argv[i].startswith("--")]
                del argv[at[0] : min(more, default=len(argv))]


def _add_presets(
    config: dict[str, Any], argv: list[str], problems: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the presets of a run, and its YAML with them: they win over it unless the YAML itself names them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", nargs="+")
    try:
        asked = parser.parse_known_args(argv)[0].preset
    except argparse.ArgumentError:  # reported by the parser of all arguments
        asked = None
    named = asked or config.get("preset")
    if not isinstance(named, str | list | None):  # reported with the other types
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
                problems.append(f"{name} is not a JSON mapping: {error}; given: {value}")
                fields[name] = None
    return fields


def _is_list(hint: Any) -> bool:
    """True for `list[...]` and `list[...] | None`, and for nothing that could be a lone value as well."""
    options = [hint] if typing.get_origin(hint) is list else typing.get_args(hint)
    return bool(options) and all(typing.get_origin(o) is list or o is type(None) for o in options)


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a name stands once: PyYAML takes the last of several without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = [
            key.value
            for key, _ in node.value
            if isinstance(key, yaml.ScalarNode) and key.value != "<<"
        ]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise yaml.YAMLError(
                f"{', '.join(twice)} is given twice (line {node.start_mark.line + 1} and after)"
            )
        return super().construct_mapping(node, deep)


def _read_yaml(path: str | None) -> tuple[dict[str, Any], list[str]]:
    if path is None:
        return {}, []
    try:
        with open(path, "rb") as file:  # YAML finds the encoding itself
            config = yaml.load(file, UniqueKeys)
    except (OSError, ValueError, yaml.YAMLError) as error:
        return {}, [f"cannot read --config {path}: {error}"]
    if not isinstance(config, dict):
        return {}, [f"{path} must hold a YAML mapping of names to values."]
    return config, []


def _stale_reward_settings(
    config: dict[str, Any], given: set[str], rewards: list[str]
) -> list[str]:
    """Weights and parameters in the YAML belong to the YAML's rewards, not to others named on the command line."""
    if "reward_funcs" not in given or config.get("reward_funcs") == rewards:
        return []
    stale = [name for name in REWARD_SETTINGS if config.get(name) and name not in given]
    stale = [
        name
        for name in stale
        if not (isinstance(config[name], dict) and set(config[name]) <= set(rewards))
    ]
    return [
        f"--reward_funcs replaces {config.get('reward_funcs')} of the YAML, whose {name} ({config[name]}) belongs to "
        f"those rewards: give --{name} as well."
        for name in stale
    ]


def _strays(rest: list[str]) -> list[str]:
    """The words that no argument took, without the values of unknown options."""
    before = ["", *rest]
    return [
        word
        for i, word in enumerate(rest)
        if word.startswith("--") or not before[i].startswith("--")
    ]


def _take_option(argv: list[str], option: str) -> str | None:
    """Remove `option VALUE` or `option=VALUE` from `argv` and return the value."""
    for position, word in enumerate(argv):
        if word == option and position + 1 < len(argv):
            return argv.pop(position) and argv.pop(position)
        if word.startswith(option + "="):
            return argv.pop(position).split("=", 1)[1]
    return None


def options_given(words: list[str]) -> set[str]:
    """Names of the options on a command line, as fields: `options_given(["--max-steps=3"]) == {"max_steps"}`."""
    return {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def _unknown(name: str, known: set[str], source: str) -> str:
    close = difflib.get_close_matches(str(name).lstrip("-").replace("-", "_"), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown argument {name!r} in {source}{hint}"
