"""Arguments of a run: YAML, command line, and what is noted instead of raised."""

import json
import os

import pytest

from recipes.common.settings import RecipeArguments, parse_arguments


def test_the_command_line_wins_over_the_yaml_and_the_yaml_over_the_default(parse):
    args = parse({"max_steps": 5, "beta": 0.5, "lora_r": 8}, "--max_steps", "7")
    names = ("max_steps", "beta", "num_iterations")
    assert [args.training[name] for name in names] == [7, 0.5, 1]
    assert (args.model["lora_r"], args.problems) == (8, [])


def test_the_yaml_may_follow_an_equals_sign_and_need_not_be(tmp_path):
    (tmp_path / "run.yaml").write_text("max_steps: 5")
    args = parse_arguments(RecipeArguments, ["--beta", "0.5", f"--config={tmp_path}/run.yaml"])
    assert (args.training["max_steps"], args.training["beta"]) == (5, 0.5)
    assert args.config_path == f"{tmp_path}/run.yaml"
    assert parse_arguments(RecipeArguments, []).config_path is None


KWARGS = {"a": {"b": 0.5}}
READ = [  # the YAML, the command line, and the setting that is read of them
    ("learning_rate: 5e-6", [], "learning_rate", 5e-6),  # text to YAML
    ({}, ["--learning_rate", "5e-6"], "learning_rate", 5e-6),
    ({}, ["--dry_run"], "dry_run", True),
    ({"dry_run": True}, ["--dry_run", "false"], "dry_run", False),
    ("reward_funcs: xml_format", [], "reward_funcs", ["xml_format"]),
    ({"reward_funcs": ["a"]}, ["--reward-funcs", "b", "my.py:c"], "reward_funcs", ["b", "my.py:c"]),
    ("reward_weights: 2.0", [], "reward_weights", [2.0]),
    ({}, ["--max_steps=-1"], "max_steps", -1),
    ({}, ["--pad_to_multiple_of", "8"], "pad_to_multiple_of", 8),  # it may be a text as well
    ({"reward_kwargs": KWARGS}, [], "reward_kwargs", KWARGS),
    ({}, ["--reward_kwargs", json.dumps(KWARGS)], "reward_kwargs", KWARGS),
    ({}, ["--chat_template_kwargs", '{"c": false}'], "chat_template_kwargs", {"c": False}),
]


@pytest.mark.parametrize(("settings", "words", "name", "value"), READ)
def test_a_value_is_read_as_its_type_from_yaml_and_command_line(
    parse, settings, words, name, value
):
    args = parse(settings, *words)
    read = {**vars(args.recipe), **args.training}[name]
    assert (read, type(read), args.problems) == (value, type(value), [])


@pytest.mark.parametrize(
    "setting", [{"reward_weights": [1.0, 2.0]}, {"reward_kwargs": {"xml_format": {"per_tag": 1}}}]
)
def test_rewards_of_the_command_line_do_not_inherit_settings_of_others(parse, setting):
    (name,) = setting
    settings = {"reward_funcs": ["xml_format", "gsm8k_correctness"], **setting}
    words = ["--reward_funcs", "my.py:brevity"]
    (problem,) = parse(settings, *words).problems
    belongs = f"whose {name} ({setting[name]}) belongs to those rewards: give --{name} as well"
    assert belongs in problem
    own = ["--reward_weights", "1.0", "--reward_kwargs", '{"brevity": {}}']
    args = parse(settings, *words, *own)
    assert args.problems == []
    read = (args.training["reward_weights"], args.recipe.reward_kwargs)
    assert read == ([1.0], {"brevity": {}})
    assert parse(settings, "--reward_weights", "1.0").problems == [], "weights alone are fine"


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


@pytest.mark.parametrize(("given", "read"), [(True, "group"), (False, "none"), ("batch", "batch")])
def test_scale_rewards_may_be_true_or_false_as_in_trl(parse, given, read):
    for args in (parse({"scale_rewards": given}), parse({}, "--scale_rewards", str(given))):
        assert (args.problems, args.training["scale_rewards"]) == ([], read)
