"""Presets: each holds what it says, wins where it should, and trains."""

import pytest
from datasets import Dataset
from support.scored_by_place import TINY, give

from recipes.common.settings import RecipeArguments, parse_arguments, preset_names, read_presets
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
    "gspo": {**TOKEN, "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4,
             "epsilon_high": 4e-4, "gradient_accumulation_steps": 1, "steps_per_generation": 4,
             "save_steps": 20},
    "cispo": {**TOKEN, "loss_type": "cispo", "epsilon_high": 5.0},
    "iterative_grpo": {**GRPO, "sync_ref_model": True, "ref_model_mixup_alpha": 1.0,
                       "ref_model_sync_steps": 100},
}
# fmt: on


def test_a_preset_holds_exactly_what_it_says():
    added = {"dapo": {"add_reward_funcs": ["soft_overlong"]}}
    assert {name: read_presets([name]) for name in preset_names()} == {
        name: held | added.get(name, {}) for name, held in HELD.items()
    }


@pytest.mark.parametrize(
    ("settings", "words", "values"),
    [
        # The command line's preset wins over the YAML, and a flag over the preset.
        ({"beta": 0.3, "loss_type": "bnpo", "max_steps": 5},
         ["--preset", "dr_grpo", "--beta", "0.1"],
         {"beta": 0.1, "loss_type": "dr_grpo", "max_steps": 5, "preset": ["dr_grpo"]}),
        # One of the YAML is a part of it: the other keys win, and of several presets the later.
        ({"preset": ["dapo", "grpo"], "beta": 0.5}, [],
         {"beta": 0.5, "loss_type": "grpo", "epsilon_high": None, "preset": ["dapo", "grpo"]}),
    ],
)  # fmt: skip
def test_one_setting_wins_over_another(parse, settings, words, values):
    args = parse(settings, *words)
    read = {**args.training, "preset": args.recipe.preset}
    assert {name: read[name] for name in values} == values
    assert args.recipe.reward_funcs == [], "a run without rewards stays without"
    assert args.notes == [f"preset: {' '.join(values['preset'])}"]


OWN = {"max_completion_len": 9, "soft_punish_cache": 3}


@pytest.mark.parametrize(
    ("settings", "words", "kwargs", "weights"),
    [
        # With the run's own limit, a fifth of it as the cache, and a weight
        ({"reward_weights": [0.5], "max_completion_length": 100},
         ["--max_completion_length", "50"],
         {"max_completion_len": 50, "soft_punish_cache": 10}, [0.5, 1.0]),
        # A reward, parameters and a weight of one's own stand
        ({"reward_funcs": ["xml_format", "soft_overlong"], "reward_weights": [0.5, 0.3],
          "reward_kwargs": {"soft_overlong": OWN}}, [], OWN, [0.5, 0.3]),
    ],
)  # fmt: skip
def test_dapo_adds_soft_overlong_where_the_run_has_not_got_it(
    parse, settings, words, kwargs, weights
):
    args = parse({"reward_funcs": ["xml_format"], **settings}, "--preset", "dapo", "dapo", *words)
    assert args.recipe.reward_funcs == ["xml_format", "soft_overlong"]
    assert args.recipe.reward_kwargs == {"soft_overlong": kwargs}
    assert (args.training["reward_weights"], args.problems) == (weights, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_a_preset_is_in_force_in_the_trainer_and_trains(name, model, tmp_path):
    words = ["--reward_funcs", "xml_format", "--preset", name, "--output_dir", str(tmp_path)]
    args = parse_arguments(RecipeArguments, words)
    assert args.problems == []
    config = {**args.training, **TINY, "max_steps": 4, "learning_rate": 0.01}
    rewards = load_rewards(args.recipe.reward_funcs, args.recipe.reward_kwargs)
    rewards = [give("right", [1.0, 0.0, 0.5, 0.2, 0.9]), *rewards]
    rows = Dataset.from_list([{"prompt": f"Row {i}:", "task": "math"} for i in range(8)])
    trainer = GRPOTrainer(str(model), rewards, GRPOConfig(**config), rows)
    trainer.train()
    for key in ("loss_type", "beta", "scale_rewards", "importance_sampling_level"):
        assert getattr(trainer, key) == HELD[name][key], key
    key = "clip_ratio/region_mean"
    clipped = [entry[key] for entry in trainer.state.log_history if key in entry]
    # gspo takes several updates from a generation, and the first of them clips nothing
    assert any(clipped[1:]) is (name == "gspo") and not any(clipped[:1])
