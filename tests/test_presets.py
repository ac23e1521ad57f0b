"""Presets: each holds what it says, changes nothing else, goes with every recipe, and trains as it
says.
"""

import pytest
import torch
from datasets import Dataset
from support.scored_by_place import TINY, give
from test_layout import CONFIGS, ROOT, recipe_of, relative

from recipes.common.checks import preflight as checks
from recipes.common.checks.notes import notes_on_settings as loss_notes
from recipes.common.settings import (
    RecipeArguments,
    parse_arguments,
    preset_names,
    read_presets,
)
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from rewards import load_rewards

pytestmark = pytest.mark.usefixtures("one_thread")

TOKEN = {"importance_sampling_level": "token", "scale_rewards": "group", "beta": 0.0}
GRPO = {**TOKEN, "loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False}
# fmt: off
HELD = {
    "grpo": {**GRPO, "epsilon": 0.2, "epsilon_high": None},
    "dr_grpo": {**TOKEN, "loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {**TOKEN, "loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    "gspo": {
        **TOKEN, "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4,
        "epsilon_high": 4e-4, "gradient_accumulation_steps": 1, "steps_per_generation": 4,
        "save_steps": 20,
    },
    "cispo": {**TOKEN, "loss_type": "cispo", "epsilon_high": 5.0},
    "iterative_grpo": {
        **GRPO, "sync_ref_model": True, "ref_model_mixup_alpha": 1.0, "ref_model_sync_steps": 100,
    },
}
# fmt: on
# Where a preset and a YAML cannot both be had, and the message of preflight.
REFUSED = {
    "iterative_grpo": (lambda args: args.model["use_peft"], "sync_ref_model is set with LoRA"),
    "gspo": (
        lambda args: "equation_steps" in args.recipe.reward_funcs,
        "need importance_sampling_level: token",
    ),
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--use_peft", "true"], "stop after each N steps and start again from the merged model"),
        (["--beta", "0"], "sync_ref_model is set with beta 0, where no reference is loaded"),
        (["--ref_model_mixup_alpha", "0"], "ref_model_mixup_alpha is '0'; it must be"),
        (["--ref_model_sync_steps", "0"], "ref_model_sync_steps is '0'; it must be"),
    ],
)
def test_what_a_moving_reference_does_not_go_with_is_refused(words, message):
    plain = ["--preset", "iterative_grpo", "--use_cpu", "--bf16", "false"]
    args = parse_arguments(RecipeArguments, [*plain, *words])
    problems = checks.preflight(args, None, None, [], lambda row: "").problems
    assert sum(message in problem for problem in problems) == 1


# What they hold


def test_the_presets_are_those_of_this_list():
    assert preset_names() == sorted(HELD)


@pytest.mark.parametrize("name", HELD)
def test_a_preset_holds_exactly_what_it_says(name):
    added = {"add_reward_funcs": ["soft_overlong"]} if name == "dapo" else {}
    assert read_presets([name]) == HELD[name] | added


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("file", CONFIGS, ids=relative)
def test_a_preset_goes_with_every_yaml(name, file, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = ["--config", str(file), "--preset", name, "--dry_run"]
    args = parse_arguments(recipe_of(file.parent).RecipeArguments, words)
    args.model["model_name_or_path"] = "org/model"
    monkeypatch.setattr(checks, "prepare_reward", lambda *args: None)  # no sandbox is started
    # What is installed here is not the question.
    monkeypatch.setattr("recipes.common.checks.combinations.check_packages", lambda s: [])
    monkeypatch.setattr(checks, "check_accounts", lambda training: [])
    recipe = args.recipe
    rewards = load_rewards(recipe.reward_funcs, recipe.reward_kwargs)
    result = checks.preflight(args, None, None, rewards, lambda row: "")
    refused = [REFUSED[name]] if name in REFUSED and REFUSED[name][0](args) else []
    assert all(part in problem for problem, (_, part) in zip(result.problems, refused, strict=True))
    assert f"preset {name}: " in checks.report(result, args)


# Precedence


@pytest.mark.parametrize(
    ("settings", "words", "read"),
    [
        # The command line's preset wins over the YAML, and a flag over the preset.
        (
            {"beta": 0.3, "loss_type": "bnpo", "max_steps": 5},
            ["--preset", "dr_grpo", "--beta", "0.1"],
            {"beta": 0.1, "loss_type": "dr_grpo", "max_steps": 5, "preset": ["dr_grpo"]},
        ),
        # One of the YAML is a part of it: the other keys win.
        (
            {"preset": "dapo", "epsilon_high": 0.5},
            [],
            {"epsilon_high": 0.5, "loss_type": "dapo", "preset": ["dapo"]},
        ),
        # The command line's stands in place of the YAML's.
        (
            {"preset": ["dapo"], "beta": 0.3},
            ["--preset=cispo"],
            {"loss_type": "cispo", "epsilon_high": 5.0, "beta": 0.0, "preset": ["cispo"]},
        ),
        # Of several the later wins.
        (
            {},
            ["--preset", "dapo", "grpo", "--max_steps", "5"],
            {"loss_type": "grpo", "epsilon_high": None, "beta": 0.04, "preset": ["dapo", "grpo"]},
        ),
    ],
)
def test_one_setting_wins_over_another(parse, settings, words, read):
    args = parse(settings, *words)
    values = {**args.training, "preset": args.recipe.preset}
    assert {name: values[name] for name in read} == read
    assert args.recipe.reward_funcs == [], "a run without rewards stays without"


def test_what_a_preset_changes_is_noted(parse):
    args = parse({"beta": 0.3, "loss_type": "bnpo"}, "--preset", "dr_grpo", "--beta", "0.1")
    assert args.notes == ["preset dr_grpo: loss_type bnpo -> dr_grpo, scale_rewards group -> none"]


@pytest.mark.parametrize(
    ("settings", "words"), [({}, ["--preset", "dappo", "grpo"]), ({"preset": "dappo"}, [])]
)
def test_an_unknown_preset_is_noted_with_those_there_are(parse, settings, words):
    args = parse(settings, *words)
    assert args.problems == [
        "unknown preset 'dappo'; there are cispo, dapo, dr_grpo, grpo, gspo, iterative_grpo."
    ]


# The reward that is added


def test_soft_overlong_is_added_with_the_runs_own_limit_and_a_weight(parse):
    settings = {
        "reward_funcs": ["xml_format", "length"],
        "reward_weights": [0.5, 2.0],
        "max_completion_length": 20480,
    }
    args = parse({**settings, "reward_kwargs": {"length": {"target": 9}}}, "--preset", "dapo")
    assert args.recipe.reward_funcs == ["xml_format", "length", "soft_overlong"]
    assert args.training["reward_weights"] == [0.5, 2.0, 1.0]
    added = {"max_completion_len": 20480, "soft_punish_cache": 4096}
    assert args.recipe.reward_kwargs == {"length": {"target": 9}, "soft_overlong": added}
    assert args.notes[0].endswith(f"reward_funcs + soft_overlong {added}") and args.problems == []


KWARGS = {"soft_overlong": {"max_completion_len": 9, "soft_punish_cache": 3}}
ADDED = {"soft_overlong": {"max_completion_len": 50, "soft_punish_cache": 10}}


@pytest.mark.parametrize(
    ("settings", "words", "kwargs", "weights"),
    [
        (
            {"reward_funcs": ["xml_format"], "max_completion_length": 100},
            ["--max_completion_length", "50"],
            ADDED,
            None,
        ),
        (
            {"reward_funcs": ["soft_overlong"], "reward_weights": [0.5], "reward_kwargs": KWARGS},
            [],
            KWARGS,
            [0.5],
        ),
        (
            {"max_completion_length": 50, "reward_funcs": ["a"]},
            ["--reward_weights", "1", "0.3"],
            ADDED,
            [1.0, 0.3],
        ),
    ],
    ids=["the limit of the command line", "a reward of one's own", "a weight of one's own"],
)
def test_what_is_given_for_the_added_reward_stands(parse, settings, words, kwargs, weights):
    args = parse(settings, "--preset", "dapo", "dapo", *words)
    assert args.recipe.reward_funcs.count("soft_overlong") == 1
    assert (args.recipe.reward_kwargs, args.training["reward_weights"]) == (kwargs, weights)


# Where the clip cannot act


SEQUENCE = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
IDLE = "one update a generation: the ratio is 1, and "
# The settings of a loss, and the start of the note on it.
# fmt: off
CLIPS = [
    ({}, None),
    ({"epsilon_high": 0.28}, IDLE),
    (SEQUENCE, IDLE + "epsilon, epsilon_high and importance_sampling_level change nothing"),
    ({"epsilon_high": 0.28, "num_iterations": 2}, None),
    ({"epsilon_high": 0.28, "steps_per_generation": 2}, None),
    ({"epsilon_high": 0.28, "gradient_accumulation_steps": 4, "steps_per_generation": 2}, IDLE),
    # The KL is multiplied by the ratio, whose gradient the level spreads over the completion.
    ({**SEQUENCE, "beta": 0.04}, None),
    ({**SEQUENCE, "beta": 0.04, "epsilon": 0.1}, IDLE + "epsilon and epsilon_high change nothing"),
    ({**SEQUENCE, "beta": 0.04, "use_bias_correction_kl": False}, IDLE + "epsilon, "),
    ({"loss_type": "cispo", "num_iterations": 2}, "on policy each token counts 0.2; set it to 5.0"),
    ({"loss_type": "cispo", "epsilon_high": 0.5}, "on policy each token counts 0.5"),
    ({"loss_type": "cispo", "epsilon_high": 5.0}, IDLE),
]
# fmt: on


@pytest.mark.parametrize(("settings", "expected"), CLIPS)
def test_a_clip_that_cannot_act_is_named(tmp_path, settings, expected):
    notes = loss_notes(GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **settings))
    assert notes == [] if expected is None else len(notes) == 1 and expected in notes[0]


# They train


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_a_preset_is_in_force_in_the_trainer_and_trains(name, model, tmp_path):
    words = ["--reward_funcs", "xml_format", "--preset", name, "--output_dir", str(tmp_path)]
    args = parse_arguments(RecipeArguments, words)
    assert args.problems == []
    config = {
        **args.training,
        **TINY,
        "max_steps": 4,
        "learning_rate": 0.01,
        "log_completions": False,
    }
    rewards = load_rewards(args.recipe.reward_funcs, args.recipe.reward_kwargs)
    rewards = [give("right", [1.0, 0.0, 0.5, 0.2, 0.9]), *rewards]
    rows = Dataset.from_list([{"prompt": f"Row {i}:", "task": "math"} for i in range(8)])
    trainer = GRPOTrainer(
        model=str(model), reward_funcs=rewards, args=GRPOConfig(**config), train_dataset=rows
    )
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert not any(
        torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True)
    )
    held = {"use_bias_correction_kl": True, **HELD[name]}
    for key in ("loss_type", "beta", "scale_rewards", "importance_sampling_level"):
        assert getattr(trainer, key) == held[key], key
    assert trainer.args.use_bias_correction_kl == held["use_bias_correction_kl"]
    low = held.get("epsilon", 0.2)
    assert (trainer.epsilon_low, trainer.epsilon_high) == (low, held.get("epsilon_high") or low)
    assert (trainer.ref_model is None) == (held["beta"] == 0.0)
    key = "clip_ratio/region_mean"
    clipped = [entry[key] for entry in trainer.state.log_history if key in entry]
    if name == "gspo":  # the one that takes several updates from a generation
        assert clipped[0] == 0.0 and max(clipped[1:]) > 0.0
    else:
        assert set(clipped) <= {0.0}
