"""Step rewards before a run: their sums on the reference, and the tricks played on them."""

from recipes.common.checks.rewards_on_rows import check_every_task_is_scored, reward_lines
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


def test_the_table_has_the_sum_of_the_steps_of_the_reference():
    rewards = [SumOfSteps(route(EquationSteps(), ("sums",)))]
    lines = reward_lines(ROWS, rewards, [0.5], reference)
    assert [
        (line.task, line.kind, line.weight, line.rows_scored, line.reference_earns)
        for line in lines
    ] == [
        ("sums", "step", 0.5, 1, 2.0),
        ("words", "step", 0.5, 0, None),
    ]
    assert check_every_task_is_scored(lines, ROWS) == [], "a task may do without step rewards"


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


def test_the_sum_of_steps_declares_what_the_reward_declares():
    summed = SumOfSteps(route(load_reward("equation_steps", uses=2), ("sums",)))
    assert (summed.__name__, summed.__wrapped__.tasks) == ("equation_steps", ("sums",))
    rows = {"prompts": ["3 4", "3 4", "x"], "completions": ["3 + 4 = 7", "3 + 4 = 8", "3 + 4 = 8"]}
    assert summed(**rows, task=["sums", "sums", "words"]) == [1.0, -1.0, None]
