"""Arguments of a run: YAML, command line, and what is noted instead of raised."""

import os
from pathlib import Path

import pytest
import yaml

from recipes.common.before.arguments import Arguments, RecipeArguments, parse_arguments


@pytest.fixture
def parse(tmp_path: Path):
    """Parse settings as a YAML file, and words of a command line."""

    def parse_settings(settings: dict | str, *words: str) -> Arguments:
        file = tmp_path / "run.yaml"
        file.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        return parse_arguments(RecipeArguments, ["--config", str(file), *words])

    return parse_settings


def test_the_command_line_wins_over_the_yaml_and_the_yaml_over_the_default(parse):
    args = parse({"max_steps": 5, "beta": 0.5}, "--max_steps", "7")
    assert (args.training["max_steps"], args.training["beta"], args.training["num_iterations"]) == (7, 0.5, 1)
    assert args.problems == []


def test_each_name_lands_where_it_belongs(parse):
    args = parse({"num_eval_rows": 3, "num_generations": 4, "lora_r": 8})
    assert args.recipe.num_eval_rows == 3
    assert args.training["num_generations"] == 4
    assert args.model["lora_r"] == 8


def test_the_path_of_the_yaml_is_kept(parse, tmp_path):
    assert parse({}).config_path == str(tmp_path / "run.yaml")
    assert parse_arguments(RecipeArguments, []).config_path is None


def test_the_yaml_can_be_given_with_an_equals_sign(tmp_path):
    (tmp_path / "run.yaml").write_text("max_steps: 5")
    args = parse_arguments(RecipeArguments, ["--beta", "0.5", f"--config={tmp_path}/run.yaml"])
    assert (args.training["max_steps"], args.training["beta"]) == (5, 0.5)


def test_a_number_that_yaml_takes_for_text_is_a_number(parse):
    assert parse("learning_rate: 5e-6").training["learning_rate"] == 5e-6
    assert parse("learning_rate: 5.0e-6").training["learning_rate"] == 5e-6
    assert parse({}, "--learning_rate", "5e-6").training["learning_rate"] == 5e-6


def test_a_flag_is_read_with_and_without_a_value(parse):
    assert parse({}, "--dry_run").recipe.dry_run is True
    assert parse({"dry_run": True}, "--dry_run", "false").recipe.dry_run is False


def test_a_lone_reward_is_a_list_of_one(parse):
    assert parse("reward_funcs: xml_format").recipe.reward_funcs == ["xml_format"]
    assert parse({}, "--reward_funcs", "xml_format").recipe.reward_funcs == ["xml_format"]


def test_a_lone_weight_is_a_list_of_one(parse):
    assert parse("reward_weights: 2.0").training["reward_weights"] == [2.0]
    assert parse({}, "--reward_weights", "2.0").training["reward_weights"] == [2.0]


@pytest.mark.parametrize("value", [5, True, 0, {"dapo": 1}])
def test_a_preset_that_is_no_name_is_noted(parse, value):
    problems = parse({"preset": value}).problems
    assert problems == [f"preset must be a name or a list of names, not {value!r}"]


def test_several_rewards_are_read_from_the_command_line(parse):
    args = parse({"reward_funcs": ["xml_format"]}, "--reward_funcs", "gsm8k_correctness", "my.py:brevity")
    assert args.recipe.reward_funcs == ["gsm8k_correctness", "my.py:brevity"]
    assert args.problems == []


def test_a_mapping_is_read_from_yaml_and_from_json_on_the_command_line(parse):
    wanted = {"xml_format": {"per_tag": 0.5}}
    assert parse({"reward_kwargs": wanted}).recipe.reward_kwargs == wanted
    assert parse({}, "--reward_kwargs", '{"xml_format": {"per_tag": 0.5}}').recipe.reward_kwargs == wanted


def test_a_mapping_of_trl_is_read_from_json_too(parse):
    args = parse({}, "--chat_template_kwargs", '{"enable_thinking": false}')
    assert args.training["chat_template_kwargs"] == {"enable_thinking": False}


def test_broken_json_is_noted(parse):
    args = parse({}, "--reward_kwargs", "{'xml_format': 1}")
    assert args.recipe.reward_kwargs is None
    assert len(args.problems) == 1
    assert args.problems[0].startswith("reward_kwargs is not a JSON mapping")


def test_an_unknown_key_of_the_yaml_is_noted_with_a_hint(parse, tmp_path):
    args = parse({"learning_rat": 1.0e-5, "zzz": 1, "max_steps": 5})
    assert args.problems == [
        f"unknown argument 'learning_rat' in {tmp_path}/run.yaml; did you mean 'learning_rate'?",
        f"unknown argument 'zzz' in {tmp_path}/run.yaml",
    ]
    assert args.training["max_steps"] == 5


def test_an_unknown_flag_is_noted_with_a_hint(parse):
    args = parse({}, "--num_generation", "8", "--zzz=1", "--max_steps", "5")
    assert args.problems == [
        "unknown argument '--num_generation' in the command line; did you mean 'num_generations'?",
        "unknown argument '--zzz=1' in the command line",
    ]
    assert args.training["max_steps"] == 5


@pytest.mark.parametrize("words", [["run.yaml"], ["-lr"], ["--max_steps", "5", "6"]])
def test_a_word_that_no_argument_takes_is_noted(parse, words):
    (noted,) = parse({}, *words).problems
    assert noted.startswith(f"unknown argument {words[-1]!r} in the command line")


def test_an_abbreviated_flag_is_not_guessed(parse):
    args = parse({}, "--max_step", "5")
    assert args.training["max_steps"] == -1
    assert args.problems == ["unknown argument '--max_step' in the command line; did you mean 'max_steps'?"]


@pytest.mark.parametrize("setting", [{"reward_weights": [1.0, 2.0]}, {"reward_kwargs": {"xml_format": {"per_tag": 1}}}])
def test_rewards_of_the_command_line_do_not_inherit_settings_of_others(parse, setting):
    (name,) = setting
    args = parse({"reward_funcs": ["xml_format", "gsm8k_correctness"], **setting}, "--reward_funcs", "my.py:brevity")
    assert len(args.problems) == 1
    assert f"whose {name} ({setting[name]}) belongs to those rewards: give --{name} as well" in args.problems[0]


def test_rewards_of_the_command_line_with_settings_of_their_own_are_fine(parse):
    settings = {"reward_funcs": ["xml_format"], "reward_weights": [2.0], "reward_kwargs": {"xml_format": {}}}
    words = ["--reward_funcs", "my.py:brevity", "--reward_weights", "1.0", "--reward_kwargs", '{"brevity": {}}']
    args = parse({**settings, "reward_kwargs": {"xml_format": {"per_tag": 1}}}, *words)
    assert args.problems == []
    assert (args.training["reward_weights"], args.recipe.reward_kwargs) == ([1.0], {"brevity": {}})


def test_weights_of_the_command_line_alone_are_fine(parse):
    args = parse({"reward_funcs": ["xml_format"], "reward_weights": [1.0]}, "--reward_weights", "2.0")
    assert (args.problems, args.training["reward_weights"]) == ([], [2.0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "cannot read --config"), ("- a\n- b", "must hold a YAML mapping"), ("", "must hold a YAML mapping")],
)
def test_a_yaml_that_is_no_mapping_is_noted(parse, text, problem):
    (noted,) = parse(text).problems
    assert problem in noted


def test_a_missing_yaml_is_noted():
    (noted,) = parse_arguments(RecipeArguments, ["--config", "nowhere.yaml"]).problems
    assert "cannot read --config nowhere.yaml" in noted


def test_a_value_of_the_wrong_type_stops_with_all_that_is_known(parse, tmp_path, capsys):
    for settings, words in (({"zzz": 1}, ["--max_steps", "many"]), ({"zzz": 1, "max_steps": "many"}, [])):
        with pytest.raises(SystemExit) as refused:
            parse(settings, *words)
        printed = capsys.readouterr().err
        assert refused.value.code == 2 and "max_steps" in printed
        assert f"unknown argument 'zzz' in {tmp_path}/run.yaml" in printed


def test_environment_of_the_yaml_does_not_override_the_shell(parse, monkeypatch):
    monkeypatch.setenv("GRPO_TEST_SET", "shell")
    monkeypatch.delenv("GRPO_TEST_UNSET", raising=False)
    args = parse({"env": {"GRPO_TEST_SET": "yaml", "GRPO_TEST_UNSET": 1}})
    assert (os.environ["GRPO_TEST_SET"], os.environ.pop("GRPO_TEST_UNSET")) == ("shell", "1")
    assert args.problems == []


def test_help_names_the_config_file(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(RecipeArguments, ["--help"])
    assert "--config FILE" in capsys.readouterr().out
