"""Settings of a run: a preset, one YAML file and the command line, under TRL's own names.

TRL's `GRPOConfig` raises on the first problem it meets, and knows nothing of rows and rewards. So
the values are only read here; `preflight` checks all of them and builds `GRPOConfig` after that.

Precedence, from weak to strong: TRL's default, the run's YAML, `--preset`, the rest of the command
line. A preset is a paper's settings, a YAML of recipes/presets/; of several the later wins. One
that stands in a run's YAML (`preset:`) is part of that YAML: its other keys win over it.
"""

import argparse
import dataclasses
import difflib
import json
import os
import re
import sys
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trl import ModelConfig, TrlParser

from recipes.common.trainer import GRPOConfig

# Settings that belong to the rewards named with them.
REWARD_MAPPINGS = ("reward_kwargs", "reward_tasks", "reward_gates")
REWARD_SETTINGS = ("reward_weights", *REWARD_MAPPINGS)
RENAMED = {  # settings of tutorials, and what became of them
    "max_prompt_length": "TRL has it no more: it trains on prompts of any length",
    "torch_dtype": "its name is now 'dtype'",
    "evaluation_strategy": "its name is now 'eval_strategy'",
    "no_cuda": "its name is now 'use_cpu'",
    "max_new_tokens": "its name here is 'max_completion_length'",
}
PRESETS = Path(__file__).resolve().parents[1] / "presets"
# Settings that name a file or a folder; `~` and variables in them are expanded.
PATHS = ("dataset_path", "only_rows", "output_dir", "model_name_or_path", "chat_template_path")
PATHS += ("resume_from_checkpoint", "reward_funcs", "tools", "environment_factory")
SCALES = {"true": "group", "false": "none"}  # as TRL takes them
ADDED = "add_reward_funcs"  # the one key of a preset that is not an argument of a run


def setting(default: Any, help: str) -> Any:
    """A field of a recipe's arguments, with its line for `--help`."""
    given = {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
    return field(**given, metadata={"help": help})


@dataclass
class RecipeArguments:
    """The settings of a recipe besides TRL's `GRPOConfig` and `ModelConfig`."""

    _argument_group_name = "the recipe"
    unused: typing.ClassVar[tuple[str, ...]] = ()  # those of all recipes that this one does not use

    preset: list[str] | None = setting(
        None, "Settings of a paper that win over the YAML: names of recipes/presets/."
    )
    dataset_name: str | None = setting(None, "Hub id, or the recipe's own data set name.")
    dataset_path: str | None = setting(
        None, "Rows from here: a folder with train and test files, or a file."
    )
    example: list[str] = setting(
        [], "A worked example shown before each question: question, completion."
    )
    only_rows: str | None = setting(
        None, "Train on the rows of this JSON Lines file, as filter_by_pass_rate.py keeps."
    )
    num_train_rows: int | None = setting(None, "Use so many training rows; default all.")
    num_eval_rows: int = setting(128, "Held-out rows evaluated before and after; 0 for none.")
    num_eval_samples: int = setting(
        0, "Besides the greedy answer, sample so many at the training temperature."
    )
    num_validation_rows: int = setting(
        64, "With eval_strategy: rows evaluated during training, and never trained on."
    )
    metric_steps: int = setting(
        1, "Apply the metric to the completions of training every so many steps; 0 for never."
    )
    early_stopping_patience: int | None = setting(
        None, "Stop after so many evaluations in a row without a better metric_for_best_model."
    )
    reward_funcs: list[str] = setting(
        [], "Registry names, file.py:name, package.module.name, or a reward model."
    )
    reward_kwargs: dict | str | None = setting(
        None, "Parameters per reward: {reward: {name: value}}; JSON on the command line."
    )
    reward_tasks: dict | str | None = setting(
        None, "Rows a reward scores: {reward: [task, ...]}; one that is not named sees all."
    )
    reward_columns: dict | str | None = setting(
        None, "Columns by the names that rewards take them by: {solution: answer}."
    )
    fresh: bool = setting(False, "Move an existing output_dir aside and start anew.")
    extend: bool = setting(False, "Resume a run, finished or not, with a larger max_steps.")
    accept_changed: list[str] = setting(
        [], "Resume although this is another: reward_code, the code of rewards and tools."
    )
    dry_run: bool = setting(False, "Stop after preflight, before any weight is loaded.")


@dataclass
class Arguments:
    """The values of a run as read, what is wrong with them, and notes for preflight's reader."""

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
        return self.training["eval_strategy"] != "no"


def parse_arguments(recipe_type: type[RecipeArguments], argv: list[str] | None = None) -> Arguments:
    """Read `--config FILE` and the command line, which wins. A bad key or value joins `problems`.

    A default takes the place of a bad value, so that everything else can be checked as well.
    """
    from recipes.common.limits import usable  # importing a recipe stays light
    from recipes.common.utils.secrets import remember
    from recipes.common.utils.yaml_file import read_yaml

    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(recipe_type)
    config_path = _take_option(argv, "--config")
    config, problems, is_read = {}, [], True
    try:
        config = read_yaml(Path(config_path)) if config_path else {}
    except ValueError as problem:
        problems, is_read = [str(problem)], False
    while second := _take_option(argv, "--config"):
        problems.append(
            f"--config is given twice, {config_path} and {second}: one file describes one run."
        )
    problems += _set_environment(config.pop("env", None) or {})
    known = {action.dest for action in parser._actions} - {"config", "help"}
    problems += [_unknown(name, known, config_path) for name in config if name not in known]
    preset, with_presets = _add_presets(config, argv, problems)
    defaults = {name: parser.get_default(name) for name in known}
    usual = {name: value for name, value in with_presets.items() if name in known}
    parser.set_defaults_with_config(**usual)
    values, rest = _read_values(parser, argv, defaults, problems)
    problems += [_unknown(word, known, "the command line") for word in _strays(rest)]
    remember(values)
    given = options_given(argv)
    for name, other in (("dataset_name", "dataset_path"), ("dataset_path", "dataset_name")):
        # The command line replaces the YAML's rows.
        if name in given and other in config and other not in given:
            values[other] = defaults[other]
    fields = usable(recipe_type, _fields_of(recipe_type, values, problems), problems)
    training = usable(GRPOConfig, _fields_of(GRPOConfig, values, problems), problems)
    model = usable(ModelConfig, _fields_of(ModelConfig, values, problems), problems)
    remember([fields, training])  # JSON of the command line is a mapping now
    problems += _stale_reward_settings(config, given, fields["reward_funcs"])
    problems += [
        f"{name} is {fields[name]!r}; this recipe does not use it: leave it out."
        for name in recipe_type.unused
        if fields[name] is not None
    ]
    before = {**defaults, **config}
    changed = [
        f"{name} {before[name]} -> {values[name]}"
        for name, value in preset.items()
        if name != ADDED and values[name] == value != before[name]
    ]
    changed += _add_rewards(preset.get(ADDED, []), fields, training)
    notes = []
    if preset:
        notes = [f"preset {' '.join(fields['preset'])}: {', '.join(changed) or 'changes nothing'}"]
    return Arguments(recipe_type(**fields), training, model, problems, config_path, notes, is_read)


def _parser(recipe_type: type[RecipeArguments]) -> TrlParser:
    parser = TrlParser(
        [recipe_type, GRPOConfig, ModelConfig],
        usage="%(prog)s --config FILE [--option VALUE ...]",  # else two hundred lines of options
        allow_abbrev=False,
        exit_on_error=False,
    )
    groups = parser._action_groups
    groups.append(groups.pop(1))  # TRL's ModelConfig after the groups of ours
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these values; the command line wins"
    )
    return parser


def _set_environment(env: Any) -> list[str]:
    """Set the variables of the YAML's `env` that the shell has not set."""
    if not isinstance(env, dict):
        return [f"env is {env!r}; it must be a mapping of names to values."]
    for name, value in env.items():
        os.environ.setdefault(str(name), str(value))
    return []


def _read_values(
    parser: TrlParser, argv: list[str], defaults: dict[str, Any], problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Read all values and return the words left over; what cannot be read is a problem."""
    while True:
        try:
            values, rest = parser.parse_known_args(argv)
            return vars(values), rest
        except (argparse.ArgumentError, ValueError) as error:
            named = str(getattr(error, "argument_name", "")).split("/")[0]
            name = named.lstrip("-").replace("-", "_")
            at = [i for i, word in enumerate(argv) if options_given([word]) == {name}]
            if name not in defaults or (not at and parser.get_default(name) == defaults[name]):
                lines = ["error: cannot read the arguments:", *problems, str(error)]
                print("\n".join(lines), file=sys.stderr)
                raise SystemExit(2) from error
            problems.append(f"{name}: {getattr(error, 'message', error)}")
            parser.set_defaults(**{name: defaults[name]})
            if at:
                more = [i for i in range(at[0] + 1, len(argv)) if argv[i].startswith("--")]
                del argv[at[0] : min(more, default=len(argv))]


# --------------------------------------------------------------------------- presets


def preset_names() -> list[str]:
    """The presets there are, in alphabetical order."""
    return sorted(file.stem for file in PRESETS.glob("*.yaml"))


def read_presets(names: list[str]) -> dict[str, Any]:
    """The keys of the presets, a later one over those before; rewards to be added are those of all.

    Raises ValueError for an unknown name.
    Example: `read_presets(["dr_grpo"])["scale_rewards"] == "none"`
    """
    from recipes.common.utils.yaml_file import read_yaml

    keys, added = {}, {}
    for name in names:
        if name not in preset_names():
            there = ", ".join(preset_names())
            raise ValueError(f"unknown preset {name!r}; there are {there}.")
        preset = read_yaml(PRESETS / f"{name}.yaml")
        added |= dict.fromkeys(preset.pop(ADDED, []))
        keys |= preset
    return keys | ({ADDED: list(added)} if added else {})


def _add_presets(
    config: dict[str, Any], argv: list[str], problems: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the presets of a run, and its YAML with them: they win unless it names them itself."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", nargs="+")
    try:
        asked = parser.parse_known_args(argv)[0].preset
    except argparse.ArgumentError:  # reported by the parser of all arguments
        asked = None
    named = asked or config.get("preset") or []
    if not isinstance(named, str | list):  # reported with the other types
        return {}, config
    try:
        preset = read_presets([named] if isinstance(named, str) else named)
    except ValueError as problem:
        problems.append(str(problem))
        return {}, config
    return preset, {**config, **preset} if asked else {**preset, **config}


def _add_rewards(names: list[str], recipe: dict[str, Any], training: dict[str, Any]) -> list[str]:
    """Append rewards of a preset that the run has not got, and say what was added.

    A weight of 1.0 is appended where the run gives one for each of its own rewards. Parameters that
    the run gives win over ours. A run without rewards stays without: it is refused for that.
    """
    lines = []
    for name in names:
        rewards, weights = recipe["reward_funcs"], training["reward_weights"]
        if not rewards or name in rewards:
            continue
        if weights is not None and len(weights) == len(rewards):
            training["reward_weights"] = [*weights, 1.0]
        kwargs = {}
        if name == "soft_overlong":  # DAPO's cache is a fifth of its limit (4,096 of 20,480)
            length = training["max_completion_length"]
            kwargs = {"max_completion_len": length, "soft_punish_cache": length // 5}
        given = recipe["reward_kwargs"] or {}
        kwargs |= given.get(name, {})
        recipe["reward_funcs"] = [*rewards, name]
        recipe["reward_kwargs"] = {**given, name: kwargs} if kwargs else recipe["reward_kwargs"]
        lines.append(f"reward_funcs + {name} {kwargs}")
    return lines


# --------------------------------------------------------------------------- words and values


def _fields_of(dataclass_type: type, values: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """The values of one dataclass, JSON text as its mapping, a lone value for a list as one."""
    fields = {f.name: values[f.name] for f in dataclasses.fields(dataclass_type) if f.init}
    types = {f.name: f.type for f in dataclasses.fields(dataclass_type)}
    for name, value in fields.items():
        fields[name] = value = getattr(value, "value", value)  # of an enum
        if _is_list(types[name]) and isinstance(value, str | int | float):
            fields[name] = value = [value]
        if name == "scale_rewards":
            fields[name] = value = SCALES.get(str(value).lower(), value)
        if name in PATHS:
            fields[name] = value = _expanded(name, value, problems)
        if isinstance(value, str) and value.startswith("{"):
            try:
                fields[name] = json.loads(value)
            except json.JSONDecodeError as error:
                problems.append(f"{name} is not a JSON mapping: {error}; given: {value}")
                fields[name] = None
    return fields


def _expanded(name: str, value: Any, problems: list[str]) -> Any:
    """A path, or each of several, with `~` and the environment's variables in their place."""
    if isinstance(value, list):
        return [_expanded(name, each, problems) for each in value]
    if isinstance(value, dict):  # environments by name
        return {key: _expanded(name, each, problems) for key, each in value.items()}
    if not isinstance(value, str) or value.startswith("{"):  # a mapping, as JSON
        return value
    path = os.path.expandvars(os.path.expanduser(value))
    if unset := re.search(r"\$\{?(\w+)", path):
        problems.append(f"{name} is {value!r}, and the variable {unset[1]} is not set: export it.")
    return path


def _is_list(hint: Any) -> bool:
    """True for `list[...]` and `list[...] | None`, not for what could be a lone value as well."""
    options = [hint] if typing.get_origin(hint) is list else typing.get_args(hint)
    return bool(options) and all(typing.get_origin(o) is list or o is type(None) for o in options)


def _stale_reward_settings(config: dict, given: set[str], rewards: list[str]) -> list[str]:
    """Weights and parameters in the YAML belong to its rewards, not to others."""
    if "reward_funcs" not in given or config.get("reward_funcs") == rewards:
        return []
    problems = []
    for name in REWARD_SETTINGS:
        value = config.get(name)
        fits = isinstance(value, dict) and set(value) <= set(rewards)
        if value and name not in given and not fits:
            problems.append(
                f"--reward_funcs replaces {config.get('reward_funcs')} of the YAML, whose {name} "
                f"({value}) belongs to those rewards: give --{name} as well."
            )
    return problems


def _strays(rest: list[str]) -> list[str]:
    """The words that no argument took, without the values of unknown options."""
    pairs = zip(["", *rest], rest, strict=False)
    return [word for before, word in pairs if word[:2] == "--" or before[:2] != "--"]


def _take_option(argv: list[str], option: str) -> str | None:
    """Remove `option VALUE` or `option=VALUE` from `argv` and return the value."""
    for position, word in enumerate(argv):
        if word == option and position + 1 < len(argv):
            return argv.pop(position) and argv.pop(position)
        if word.startswith(option + "="):
            return argv.pop(position).split("=", 1)[1]
    return None


def options_given(words: list[str]) -> set[str]:
    """Names of the options on a command line, as fields.

    Example: `options_given(["--max-steps=3"]) == {"max_steps"}`
    """
    return {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def _unknown(name: str, known: set[str], source: str) -> str:
    plain = str(name).lstrip("-").partition("=")[0].replace("-", "_")
    if plain in RENAMED:
        return f"unknown argument {name!r} in {source}: {RENAMED[plain]}"
    close = difflib.get_close_matches(plain, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown argument {name!r} in {source}{hint}"
