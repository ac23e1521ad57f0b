"""Control arms: the rewards of each arm, and the table of figures chosen by hand."""

from pathlib import Path

import pytest
from support.launching import ROOT

from recipes.common.data.recipe import load_recipe
from recipes.common.many_runs.best_prompt import INSTRUCTION, best_prompt, prompted
from recipes.common.many_runs.control import (
    compare_arms,
    control_table,
    rewards_of_arms,
    supervise,
    verdict,
)
from recipes.common.utils.run_files import PROMPTS, WARM_START, write_json

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"


def rows(outcomes):
    return [
        {"prompt": f"q{i}", "metrics": {"strict": bool(outcome)}}
        for i, outcome in enumerate(outcomes)
    ]


def arm(won, n=100):
    """All rows wrong before; the first `won` right after."""
    return [(rows([0] * n), rows([1] * won + [0] * (n - won)))]


def test_the_arms_of_the_quickstart():
    assert rewards_of_arms({"reward_funcs": ["xml_format", "reasoning_gym"]}) == {
        "as configured": [],
        "random": ["--reward_funcs", "random"],
        "constant": ["--reward_funcs", "constant"],
        "format-only": ["--reward_funcs", "xml_format"],
    }


@pytest.mark.parametrize(
    ("names", "tasks"),
    [
        (["gsm8k_correctness"], None),
        (["xml_format"], None),
        (["boxed_math", "code_format"], {"boxed_math": ["math"], "code_format": ["code"]}),
    ],
    ids=["no format", "nothing else", "a task without a format reward"],
)
def test_format_only_is_left_out_where_it_would_show_nothing(names, tasks):
    arms = rewards_of_arms({"reward_funcs": names, "reward_tasks": tasks})
    assert list(arms) == ["as configured", "random", "constant"]


def test_settings_of_rewards_that_are_gone_are_replaced():
    settings = {
        "reward_funcs": ["gsm8k_correctness", "xml_format", "length"],
        "reward_weights": [1.0, 0.5, 0.1],
        "reward_kwargs": {"length": {"target": 50}},
        "reward_gates": {"length": "gsm8k_correctness"},
    }
    arms = rewards_of_arms(settings)
    emptied = ["--reward_kwargs", "{}", "--reward_gates", "{}"]
    assert arms["format-only"] == [
        "--reward_funcs",
        "xml_format",
        "--reward_weights",
        "0.5",
        *emptied,
    ]
    assert arms["random"] == ["--reward_funcs", "random", "--reward_weights", "1.0", *emptied]


def test_a_preset_that_adds_a_reward_to_each_arm_is_refused():
    with pytest.raises(ValueError, match="adds soft_overlong to every arm"):
        rewards_of_arms({"reward_funcs": ["xml_format", "reasoning_gym"], "preset": "dapo"})


def test_what_the_run_has_beyond_an_arm_is_counted_on_the_same_rows_and_on_no_others(capsys):
    compared = compare_arms({"as configured": arm(60), "random": arm(10)})
    assert [of_arm["strict"]["change"]["mean"] for of_arm in compared.values()] == [0.6, 0.1]
    beyond = compared["random"]["strict"]["beyond"]
    assert (beyond["mean"], beyond["p"]) == (
        0.5,
        [pytest.approx(2 / 2**50)],
    )  # fifty rows won, none lost
    (before, after), other = arm(60)[0], rows([1] + [0] * 99)
    compare_arms({"as configured": [(before, after)], "random": [(other, after)]})
    warning = capsys.readouterr().out  # of an arm that did not start alike
    assert (
        "in arm random the untrained model has other metrics" in warning
        and "\n1 of 100 rows" in warning
    )
    with pytest.raises(ValueError, match="not evaluated on the same rows"):
        compare_arms({"as configured": arm(60), "random": arm(60, n=99)})


def test_over_seeds_a_difference_between_arms_is_paired_by_seed():
    """Both arms differ much between seeds, and always by 9 to 11 points from each other."""
    arms = {"as configured": [*arm(20), *arm(40), *arm(60)], "sft": [*arm(11), *arm(30), *arm(49)]}
    strict = compare_arms(arms)["sft"]["strict"]
    assert strict["beyond"]["seeds"] == [pytest.approx(share) for share in (0.09, 0.1, 0.11)]
    assert strict["beyond"]["interval"] == pytest.approx(
        (0.1 - 0.02484, 0.1 + 0.02484), abs=1e-4
    )  # 4.3027 * 0.01 / 3 ** 0.5
    assert strict["after"]["mean"] == pytest.approx(0.3)
    assert strict["after"]["interval"] == (
        0.0,
        pytest.approx(0.3 + 4.3027 * 0.19 / 3**0.5, abs=1e-4),
    )


@pytest.mark.parametrize(
    ("won", "n", "start", "end"),
    [
        (
            {"as configured": 60, "random": 10, "format-only": 30},
            100,
            "gain +60.0 pt (+49 to +69); above the best other arm (format-only) +30.0 pt",
            "What is above it came from what that arm lacks, in the runs at hand.",
        ),
        (
            {"as configured": 60, "random": 59},
            100,
            "gain +60.0 pt",
            "Nothing beyond what random brings is shown.",
        ),
        (
            {"as configured": 4, "random": 0},
            32,
            "gain +12.5 pt",
            "no gain of its own here.",
        ),  # McNemar 0.125
        ({"as configured": 0, "random": 0}, 100, "gain +0.0 pt", "no gain of its own here."),
    ],
)
def test_the_verdict_is_of_the_best_other_arm_and_of_what_is_shown(won, n, start, end):
    compared = compare_arms({name: arm(count, n) for name, count in won.items()})
    text = verdict({name: metrics["strict"] for name, metrics in compared.items()})
    assert text.startswith(start) and text.endswith(end)


def test_over_seeds_a_gain_is_shown_by_its_interval_however_sure_each_seed_is():
    arms = {"as configured": [*arm(90), *arm(10), *arm(10)], "constant": arm(0) * 3}
    text = verdict({name: metrics["strict"] for name, metrics in compare_arms(arms).items()})
    assert text.startswith("gain +36.7 pt (-78 to +100)") and text.endswith(
        "no gain of its own here."
    )


def test_the_table_has_a_line_for_each_arm_and_no_p_over_seeds():
    arms = {"as configured": arm(60), "constant": arm(0)}
    lines = control_table([0], compare_arms(arms), {"as configured": [8.0]}).splitlines()
    assert lines[0] == "strict, 100 held-out rows, seeds 0"
    configured, constant = (" ".join(line.split()) for line in lines[2:4])
    assert configured == "as configured 8.0 0.0 % 60.0 % (50-69) +60.0 pt (+49 to +69) 1.7e-18"
    assert constant == "constant - 0.0 % 0.0 % (0-4) +0.0 pt (-3 to +3) 1 +60.0 pt (+49 to +69)"
    power = "  100 held-out rows show a change of 22.2 points or more (80 % power, as 60 % of them changed as configured)"
    assert any(line.startswith(power) for line in lines)
    several = {name: of * 2 for name, of in arms.items()}
    table = control_table([0, 1], compare_arms(several), {"as configured": [8.0, 9.0]})
    assert (
        "McNemar" not in table and "power" not in table and table.endswith("is taken at each seed.")
    )
    assert (
        " ".join(table.splitlines()[2].split())
        == "as configured 8.5 0.0 % 60.0 % (60-60) +60.0 pt (+60 to +60)"
    )


def test_a_warm_start_of_other_settings_is_not_taken_for_the_one_asked_for(tmp_path):
    write_json(tmp_path / WARM_START, {"overrides": ["--seed", "0"], "rows": 256, "steps": 32})
    assert supervise(Path("run.yaml"), ["--seed", "0"], 256, 32, tmp_path) == tmp_path
    with pytest.raises(ValueError, match="a warm start with steps 32, not 64: remove it"):
        supervise(Path("run.yaml"), ["--seed", "0"], 256, 64, tmp_path)


def test_a_prompt_chosen_with_other_settings_is_not_taken_for_the_one_asked_for(tmp_path):
    write_json(tmp_path / PROMPTS, {"overrides": ["--seed", "0"]})
    assert best_prompt(QUICKSTART, ["--seed", "0"], tmp_path) == tmp_path
    with pytest.raises(
        ValueError, match=r"was made with \['--seed', '0'\], not \['--seed', '1'\]: remove it"
    ):
        best_prompt(QUICKSTART, ["--seed", "1"], tmp_path)


def test_a_prompt_is_the_rows_with_other_examples_and_an_instruction():
    recipe = load_recipe(QUICKSTART, ["--num_train_rows", "4", "--num_eval_rows", "1"])
    first, second, row = recipe.train_rows.to_list()[:3]
    assert prompted(recipe, row, [first, second], None, False) == row
    messages = prompted(recipe, row, [first, second], 1, True)["prompt"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert [message["content"] for message in messages] == [
        INSTRUCTION,
        first["prompt"][-1]["content"],
        recipe.module.reference_completion(first),
        row["prompt"][-1]["content"],
    ]
