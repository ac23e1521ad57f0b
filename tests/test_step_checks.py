"""Step rewards before a run: they can be named, taken away and refused, and no recipe leaves them out unnoticed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from recipes.common.before.step_checks import check_step_rewards
from support.step_rewards import every_third, judges
from test_layout import RECIPES, recipe_of

from recipes.common.before.arguments import Arguments, RecipeArguments, parse_arguments
from recipes.common.before.preflight import shown_steps, step_notes
from recipes.common.before.rows import reward_table
from recipes.common.run import train_and_save
from rewards import load_reward
from rewards.audit.audit import check_tricks
from rewards.process import EquationSteps
from rewards.routing import route
from rewards.steps import SumOfSteps

ROWS = [
    {"prompt": "3 + 4 - 2 =", "task": "sums", "answer": "5"},
    {"prompt": "Say so.", "task": "words", "answer": "so"},
]


def reference(row: dict) -> str:
    steps = "3 + 4 = 7, 7 - 2 = 5" if row["task"] == "sums" else ""
    return f"<reasoning>{steps}</reasoning><answer>{row['answer']}</answer>"


def problems_of(step_rewards: list | None, rewards: tuple = (), training: dict | None = None, **recipe) -> list[str]:
    loss = {"loss_type": "grpo", "importance_sampling_level": "token", "off_policy_mask_threshold": None}
    settings = {**loss, **(training or {})}
    args = Arguments(RecipeArguments(**recipe), settings, {}, [])
    check_step_rewards(args, list(rewards), step_rewards)
    return args.problems


# On the command line


@pytest.mark.parametrize("recipe", ["arithmetic", "gsm8k"])
def test_they_can_be_taken_away_on_the_command_line(recipe):
    words = ["--config", f"recipes/{recipe}/process.yaml"]
    recipe_type = recipe_of(Path("recipes", recipe).resolve()).RecipeArguments
    assert parse_arguments(recipe_type, words).recipe.step_reward_funcs == ["equation_steps"]
    for more in ([], ["--max_steps", "3"]):
        args = parse_arguments(recipe_type, [*words, "--step_reward_funcs", *more])
        settings = [value for name, value in vars(args.recipe).items() if name.startswith("step_reward")]
        assert (settings, args.problems) == ([None] * 4, [])


def test_settings_of_the_yaml_do_not_fall_to_other_step_rewards():
    words = ["--config", "recipes/gsm8k/process.yaml", "--step_reward_funcs", "mine.py:steps"]
    said = "\n".join(parse_arguments(RecipeArguments, words).problems)
    assert "--step_reward_funcs replaces ['equation_steps'] of the YAML, whose step_reward_weights ([0.5])" in said
    assert "give --step_reward_kwargs as well" in said
    given = ["--step_reward_weights", "1.0", "--step_reward_kwargs", "{}"]
    assert parse_arguments(RecipeArguments, [*words, *given]).problems == []


# In preflight


def test_a_recipe_that_makes_nothing_of_them_is_told():
    assert (
        "this recipe makes nothing of step_reward_funcs" in problems_of(None, step_reward_funcs=["equation_steps"])[0]
    )
    assert problems_of([every_third], step_reward_funcs=["x"]) == []
    assert problems_of(None) == problems_of([]) == []


def test_weights_names_and_losses_that_do_not_go_are_problems():
    named = {"step_reward_funcs": ["x"]}
    assert problems_of([every_third], **named, step_reward_weights=[1.0, 2.0]) == [
        "step_reward_weights has 2 values for 1 step rewards."
    ]
    assert "given: vespo" in problems_of([every_third], training={"loss_type": "vespo"}, **named)[0]
    mask = {"off_policy_mask_threshold": 0.1}
    assert "leave it out" in problems_of([every_third], training=mask, **named)[0]
    level = {"importance_sampling_level": "sequence"}
    assert "given: sequence" in problems_of([every_third], training=level, **named)[0]
    assert "two rewards are called 'every_third'" in problems_of([every_third], (every_third,), **named)[0]


def test_the_table_has_the_sum_of_the_references_steps():
    problems = []
    outcome = lambda prompts, completions, **kwargs: [0.0] * len(completions)  # noqa: E731
    rewards = [SumOfSteps(route(EquationSteps(), ("sums",)))]
    lines = reward_table(ROWS, rewards, [0.5], reference, problems)
    assert problems == [], "a task may do without step rewards"
    found = [
        (line["task"], line["kind"], line["weight"], line["rows scored"], line["reference earns"]) for line in lines
    ]
    assert found == [("sums", "step", 0.5, 1, 2.0), ("words", "step", 0.5, 0, None)]
    assert reward_table(ROWS, [outcome], None, reference, problems) and problems == []


def test_a_note_says_which_steps_are_seen():
    notes = step_notes(ROWS, [EquationSteps(), route(judges("never", [[]]), ("words",))], reference)
    assert notes == [
        "equation_steps sees 2 steps in the reference completion of row 0: '<reasoning>3 + 4 = 7' +1, ', 7 - 2 = 5' +1",
        "never sees no steps in the reference completion of row 1",
    ]
    assert shown_steps("3 + 4 = 7, 7 - 2 = 6", [(20, -1.0), (9, 1.0)]) == "'3 + 4 = 7' +1, ', 7 - 2 = 6' -1"


def test_tricks_are_played_on_step_rewards_too():
    def any_text(prompts, completions, **kwargs):
        return [[(len(text), 1.0)] if text else [] for text in completions]

    def raises(prompts, completions, **kwargs):
        return [[(len(text) + 1, 1.0)] for text in completions]

    any_text.kind = raises.kind = "step"
    assert check_tricks(ROWS[:1], [EquationSteps()], reference) == []
    (problem,) = check_tricks(ROWS[:1], [raises], reference)
    assert "'raises' fails on" in problem and "a step is a pair" in problem
    problems = check_tricks(ROWS[:1], [any_text], lambda row: "")
    assert any("'any_text' gives 1 for the trick" in problem for problem in problems)


# In the recipes


@pytest.mark.parametrize("folder", RECIPES, ids=lambda folder: folder.name)
def test_each_recipe_hands_them_to_preflight_and_to_the_trainer(folder: Path):
    code = (folder / "train.py").read_text()
    assert "step_reward_funcs=step_rewards," in code
    assert "step_reward_weights=run.recipe.step_reward_weights," in code
    assert "preflight(args, train_rows, eval_rows, rewards, reference_completion, step_rewards)" in code


def test_a_trainer_without_the_step_rewards_of_its_run_does_not_train():
    run = SimpleNamespace(recipe=SimpleNamespace(step_reward_funcs=["equation_steps"]))
    with pytest.raises(ValueError, match="the trainer has 0 of them: hand it step_reward_funcs=step_rewards"):
        train_and_save(SimpleNamespace(), run, None, None, lambda row, completion: {})


def test_the_sum_of_steps_is_what_the_reward_declares():
    summed = SumOfSteps(route(load_reward("equation_steps", uses=2), ("sums",)))
    assert (summed.__name__, summed.__wrapped__.tasks) == ("equation_steps", ("sums",))
    rows = {"prompts": ["3 4", "3 4", "x"], "completions": ["3 + 4 = 7", "3 + 4 = 8", "3 + 4 = 8"]}
    assert summed(**rows, task=["sums", "sums", "words"]) == [1.0, -1.0, None]
