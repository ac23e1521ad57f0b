"""The verdict on runs whose truth is known."""

import pytest

from recipes.common.report.verdict import verdict_of_run

FLAT = [1.0, 1.2, 0.9, 1.1, 1.0, 0.8, 1.2, 1.0, 0.9, 1.1, 1.0, 1.2]
RISING = [value + 0.2 * step for step, value in enumerate(FLAT)]
# Welch's test of the first and the last quarter gives p = 0.07.
NOISY = [0.9, 0.4, 1.3, 0.8, 1.6, 1.1, 1.9, 1.4, 2.1, 1.6, 1.5, 2.4]


def log(rewards):
    return [{"step": step, "reward": reward} for step, reward in enumerate(rewards, 1)]


def evaluations(*rows_right, n=100):
    """Evaluations at steps 0, 10, 20, ...: so many of the first rows are right."""
    return [
        {"step": 10 * k, "metrics": {"lenient": [row < right for row in range(n)]}}
        for k, right in enumerate(rows_right)
    ]


def rows(right, n=100, metric="lenient", golds=None, **columns):
    """Evaluated rows of which so many of the first are right."""
    made = [{"metrics": {metric: row < right}, **columns} for row in range(n)]
    return [{**row, "answer": gold} for row, gold in zip(made, golds or [None] * n, strict=True)]


ON = "correct answer on the test questions"
CHANCE = "by more than chance"
UNMOVED = "the training reward did not rise by more than chance"
UNKNOWN = "Whether the model got better is not known: no rows were evaluated before and after."


@pytest.mark.parametrize(
    ("rewards", "before", "after", "name", "opening"),
    [
        (
            RISING,
            20,
            45,
            "rose together",
            f"Reward and {ON} rose together: reward 1.23 to 3.10 ",
        ),
        (NOISY, 20, 45, "rose together", f"Reward and {ON} rose together: reward 0.87 to 1.83 in "),
        (RISING, 60, 20, "diverged", f"The reward rose and {ON} fell: "),
        (RISING, 60, 61, "reward alone", f"The reward rose; {ON} did not rise {CHANCE}: "),
        (FLAT, 60, 20, "accuracy fell", f"C{ON[1:]} fell: "),
        (FLAT, 20, 45, "accuracy alone", f"C{ON[1:]} rose; {UNMOVED}: "),
        (FLAT, 20, 19, "nothing moved", "Neither did the training reward rise nor c"),
        ([float("nan")] * 9, 20, 30, "not known", "Whether the reward rose is not known: 0 step"),
        (RISING, 0, None, "not known", UNKNOWN),
    ],
)
def test_the_verdict_follows_from_the_rewards_and_the_test_questions(
    rewards, before, after, name, opening
):
    ends = [] if after is None else rows(after)
    found = verdict_of_run(log(rewards), evaluations(60, 50, 20), rows(before), ends)
    assert found.name == name
    assert found.sentence.startswith(opening)


def test_a_fall_of_the_validation_rows_is_told_beside_the_test_questions():
    found = verdict_of_run(log(RISING), evaluations(20, 70, 45), rows(20), rows(60))
    assert found.name == "rose together" and found.sentence.endswith(
        "correct answer 20.0 % to 60.0 %, +40.0 pt (+29 to +49), on 100 rows, p 1.8e-12. On the "
        "validation rows correct answer was highest at step 10 and lower at step 20, where this "
        "model is from: 70.0 % to 45.0 %, -25.0 pt (-33 to -16), on 100 rows, p 6e-08."
    )


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        ((50, 57, 50), "on 100 rows, p 0.0156."),  # seven rows lost
        ((50, *[57] * 5, 50), "that may be chance."),  # the best of five: 0.05 / 5
        ((60, 50, 20), None),  # the best is the first
        ((20, 30, 45), None),
    ],
)
def test_a_late_fall_that_chance_explains_is_told_as_such(curve, told):
    sentence = verdict_of_run(log(RISING), evaluations(*curve), rows(36), rows(70)).sentence
    assert ("On the validation rows" in sentence) is (told is not None)
    assert told is None or sentence.endswith(told)


def test_a_metric_that_gives_nothing_for_some_rows_counts_on_the_others_and_for_all_is_told():
    before, after = rows(20), rows(50)
    before[0]["metrics"], after[99]["metrics"] = {}, {"lenient": None}
    assert "on 98 rows" in verdict_of_run(log(RISING), [], before, after).sentence
    nothing = verdict_of_run(log(RISING), [], [{"metrics": {}}], rows(1, n=1))
    assert nothing.name == "not known" and "no row an outcome both times" in nothing.sentence


def test_what_came_after_the_chosen_checkpoint_is_not_of_the_model():
    run = (log(RISING), evaluations(20, 50, 25), rows(20), rows(50))
    assert "highest at step 10" in verdict_of_run(*run).sentence
    assert "highest" not in verdict_of_run(*run, chosen=10).sentence
    assert "reward 1.23 to 2.20 in training" in verdict_of_run(*run, chosen=8).sentence
    few = verdict_of_run(*run, chosen=4).sentence
    assert "4 steps were logged up to this model" in few and "20.0 % to 50.0 %" in few
    of_steps = [{**line, "step_rewards/equations/mean": 1.0} for line in log(RISING)]
    assert "reward (without those of steps) 1.23" in verdict_of_run(of_steps, *run[1:]).sentence


def test_each_of_several_tasks_has_its_sentence():
    def both(maths, code):
        return [*rows(maths, metric="math lenient"), *rows(code, metric="code tests")]

    found = verdict_of_run(log(FLAT), [], both(20, 50), both(21, 90))
    assert found.name == "nothing moved, accuracy alone"
    first, second = found.sentence.split(" Code tests on ")
    assert first.startswith("Neither did the training reward rise nor math: correct answer on ")
    assert second.startswith(f"the test questions rose; {UNMOVED}: ")


def test_a_reward_that_rose_before_the_first_logged_steps_is_told():
    before, after = (
        [{**row, "rewards": {"form": form + place % 2, "right": place % 3}}
         for place, row in enumerate(rows(20))]
        for form in (0.0, 0.5)
    )  # fmt: skip
    told = "On the test questions rewards rose: form 0.50 to 1.00."
    assert verdict_of_run(log(FLAT), [], before, after).sentence.endswith(told)
    assert told not in verdict_of_run(log(RISING), [], before, after).sentence
    assert told not in verdict_of_run(log(FLAT), [], after, before).sentence


def test_where_more_answers_end_the_metric_is_told_of_those_that_ended_both_times():
    before, after = (
        [{**row, "truncated": place >= ended} for place, row in enumerate(rows(right))]
        for right, ended in ((20, 50), (40, 90))
    )
    told = (
        "Cut off were 50.0 %, then 10.0 %; where both answers ended, correct answer went from "
        "40.0 % to 80.0 %"
    )
    assert told in verdict_of_run(log(FLAT), [], before, after).sentence
    assert "Cut off" not in verdict_of_run(log(FLAT), [], before, before).sentence


def test_a_rise_to_what_one_answer_reaches_is_said_to_be_no_better():
    golds, different = ["no"] * 60 + ["yes"] * 40, [str(gold) for gold in range(100)]
    run = (log(RISING), [], rows(10, golds=golds))
    sentence = verdict_of_run(*run, rows(65, golds=golds)).sentence
    assert sentence.endswith(
        " The answer 'no' to every question would be right in 60.0 %; the model, with 65.0 %, is "
        "not shown to be better."
    )
    assert "every question" not in verdict_of_run(*run, rows(65, golds=different)).sentence


def test_a_metric_that_scores_as_a_reward_does_is_not_called_independent():
    before, after = (rows(right, metric="tests", by_reward=["tests"]) for right in (0, 45))
    found = verdict_of_run(log(RISING), [], before, after)
    opening = "Reward and tests on the test questions (by the reward's own scorer) rose together: "
    assert found.sentence.startswith(opening)
    hidden = [{**row, "metrics": {**row["metrics"], "hidden": False}} for row in after]
    found = verdict_of_run(log(RISING), [], hidden, hidden)
    assert found.sentence.startswith("The reward rose; hidden tests on the test questions did not")
    few = (hidden[:3] + stage[3:] for stage in (before, after))  # 3 of 100 rows have hidden tests
    assert verdict_of_run(log(RISING), [], *few).name == "rose together"
