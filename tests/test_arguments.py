"""Arguments of a run: YAML, command line, and what is noted instead of raised."""

import os

import pytest

from recipes.common import settings

READ = [  # the YAML, the command line, and the setting that is read of them
    ("learning_rate: 5e-6", [], "learning_rate", 5e-6),  # text to PyYAML
    ("lr_scheduler_kwargs: {min_lr: 1e-6}", [], "lr_scheduler_kwargs", {"min_lr": 1e-6}),
    ("eval_strategy: no", [], "eval_strategy", "no"),  # false to YAML
    ({}, ["--dry_run"], "dry_run", True),
    ({}, ["--bf16"], "bf16", True),  # true, false or unset
    ({"dry_run": True}, ["--dry_run", "false"], "dry_run", False),
    ("reward_funcs: xml_format", [], "reward_funcs", ["xml_format"]),
    ({"reward_funcs": ["a"]}, ["--reward-funcs", "b", "my.py:c"], "reward_funcs", ["b", "my.py:c"]),
    ({}, ["--max_steps=-1"], "max_steps", -1),
    ({"max_steps": 5}, ["--max_steps", "6", "--beta", "1", "--max_steps=7"], "max_steps", 7),
    ({"scale_rewards": True}, [], "scale_rewards", "group"),  # as in TRL
    ({}, ["--scale_rewards", "False"], "scale_rewards", "none"),
    ({}, ["--pad_to_multiple_of", "8"], "pad_to_multiple_of", 8),  # it may be a text as well
    ({}, ["--reward_kwargs", '{"a": {"b": 0.5}}'], "reward_kwargs", {"a": {"b": 0.5}}),
    ({"hub_model_id": "{a}"}, [], "hub_model_id", "{a}"),  # a text, and no mapping
    ({"num_train_rows": 5}, ["--num_train_rows", "null"], "num_train_rows", None),
    ({"reward_weights": [2.0]}, ["--reward_weights", "null"], "reward_weights", None),
]


@pytest.mark.parametrize(("settings", "words", "name", "value"), READ)
def test_a_value_is_read_as_its_type_from_yaml_and_command_line(
    parse, settings, words, name, value
):
    args = parse(settings, *words)
    read = {**vars(args.recipe), **args.training}[name]
    assert (read, type(read), args.problems) == (value, type(value), [])


BOTH = ["xml_format", "gsm8k_correctness"]
MINE = ["my.py:brevity"]
GATED = {"xml_format": "gsm8k_correctness"}
EXACT = {"gsm8k_correctness": {"exact": 2.0}}
SWAPPED = [  # a setting of the YAML's rewards, the rewards of the command line, what is left of it
    ({"reward_weights": [1.0, 2.0]}, ["gsm8k_correctness", *MINE], [2.0, 1.0]),  # that of its own
    ({"reward_kwargs": {**EXACT, "xml_format": {}}}, ["gsm8k_correctness"], EXACT),
    ({"reward_tasks": {"xml_format": ["a"]}}, MINE, None),
    ({"reward_gates": GATED}, ["xml_format", *MINE], None),  # its gate is gone
    ({"reward_gates": {"xml_format": BOTH[1:]}}, [*BOTH, *MINE], {"xml_format": BOTH[1:]}),
    ({"reward_kwargs": {"brevity": {"limit": 5}}}, MINE, {"brevity": {"limit": 5}}),
    # A gate of a name that a reward gives itself stays: whether it is one is checked later.
    (
        {"reward_gates": {"xml_format": "own_name"}},
        ["xml_format", *MINE],
        {"xml_format": "own_name"},
    ),
]


@pytest.mark.parametrize(("setting", "rewards", "left"), SWAPPED)
def test_what_belongs_to_replaced_rewards_falls_away_with_a_note(parse, setting, rewards, left):
    ((name, value),) = setting.items()
    args = parse({"reward_funcs": BOTH, **setting}, "--reward_funcs", *rewards)
    assert args.problems == []
    assert {**vars(args.recipe), **args.training}[name] == left
    noted = [f"{name}: {left or 'none'}, not the YAML's {value}"] * (left != value)
    assert [note.partition(", as --reward_funcs")[0] for note in args.notes] == noted
    own = parse({"reward_funcs": BOTH, **setting}, "--reward_funcs", *BOTH)
    assert own.notes == [], "the same rewards"


def test_own_settings_without_the_decorator_are_named():
    class Undecorated(settings.RecipeArguments):
        num_numbers: int = 4

    (problem,) = settings.parse_arguments(Undecorated, []).problems[:1]
    assert problem == "Undecorated has settings of its own: put @dataclass above it."


def test_environment_of_the_yaml_does_not_override_the_shell(parse, monkeypatch):
    monkeypatch.setenv("GRPO_TEST_SET", "shell")
    monkeypatch.delenv("GRPO_TEST_UNSET", raising=False)
    args = parse({"env": {"GRPO_TEST_SET": "yaml", "GRPO_TEST_UNSET": 1}})
    assert (os.environ["GRPO_TEST_SET"], os.environ.pop("GRPO_TEST_UNSET")) == ("shell", "1")
    assert args.problems == []


def test_home_and_variables_are_expanded_in_paths(parse, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("DATA", "/big")
    settings = {"output_dir": "$DATA/run", "reward_funcs": ["~/mine.py:correct", "xml_format"]}
    args = parse(settings, "--only_rows=~/kept.jsonl")
    assert (args.problems, args.training["output_dir"]) == ([], "/big/run")
    assert args.recipe.reward_funcs == ["/home/me/mine.py:correct", "xml_format"]
    assert args.recipe.only_rows == "/home/me/kept.jsonl"
