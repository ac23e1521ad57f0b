"""The verdict on curves whose truth is known."""

import pytest

from recipes.common.report.verdict import verdict_of_run

FLAT = [1.0, 1.2, 0.9, 1.1, 1.0, 0.8, 1.2, 1.0, 0.9, 1.1, 1.0, 1.2]
RISING = [value + 0.2 * step for step, value in enumerate(FLAT)]
# Welch's test of the first and the last quarter gives p = 0.07.
NOISY = [0.9, 0.4, 1.3, 0.8, 1.6, 1.1, 1.9, 1.4, 2.1, 1.6, 1.5, 2.4]


def log(rewards):
    return [{"step": step, "reward": reward} for step, reward in enumerate(rewards, 1)]


def evaluations(*rows_right, n=100, metric="lenient", other="strict"):
    """Evaluations at steps 0, 10, 20, ...: so many of the first rows are right in `metric`."""
    return [
        {"step": 10 * k, "metrics": {other: [False] * n, metric: [row < right for row in range(n)]}}
        for k, right in enumerate(rows_right)
    ]


def rows(right, n=100, metric="lenient", golds=None, **columns):
    """Evaluated rows of which so many of the first are right."""
    made = [{"metrics": {metric: row < right}, **columns} for row in range(n)]
    return [{**row, "answer": gold} for row, gold in zip(made, golds or [None] * n, strict=True)]


TOGETHER = "Reward and correct answer on the {} rose together: "
DIVERGED = "The reward rose and correct answer on the {} fell: "
REWARD_ALONE = "The reward rose, and no rise of correct answer on the {} is shown: "
NO_RISE = "rise of the reward beyond drift"
ALONE = f"Correct answer on the {{}} rose, and no {NO_RISE} is shown: "
NOTHING = f"No change of correct answer on the {{}} is shown, nor a {NO_RISE}: "
FELL = "Correct answer on the {} fell: "
UNKNOWN = "Whether the model got better is not known: no rows were evaluated before and after."


@pytest.mark.parametrize(
    ("rewards", "rows_right", "name", "opening"),
    [
        (RISING, (20, 30, 45), "rose together", f"{TOGETHER}reward 1.23 to 3.10; "),
        (NOISY, (20, 30, 45), "rose together", f"{TOGETHER}reward 0.87 to 1.83; "),
        (RISING, (60, 50, 20), "diverged", DIVERGED),
        (RISING, (60, 61), "reward alone", REWARD_ALONE),
        (RISING, (20, 70, 45), "accuracy fell", FELL),
        (FLAT, (60, 50, 20), "accuracy fell", FELL),
        (RISING, (50, 57, 50), "accuracy fell", FELL),  # seven rows lost: p = 0.016
        (RISING, (50, *[57] * 5, 50), "reward alone", REWARD_ALONE),  # the best of five: 0.05 / 5
        (FLAT, (20, 30, 45), "accuracy alone", ALONE),
        (FLAT, (20, 21, 19), "nothing moved", NOTHING),
        (RISING, (20,), "not known", UNKNOWN),
        ([float("nan")] * 9, (20, 30), "not known", "Whether the reward rose is not known: 0 step"),
    ],
)
def test_without_test_questions_the_verdict_follows_from_the_curve(
    rewards, rows_right, name, opening
):
    found = verdict_of_run(log(rewards), evaluations(*rows_right), [], [])
    assert found.name == name
    assert found.sentence.startswith(opening.format("validation rows"))


def test_test_questions_decide_and_a_fall_of_the_validation_rows_is_told_beside_them():
    few = evaluations(3, 4, 5, n=10)
    assert verdict_of_run(log(RISING), few, [], []).name == "reward alone"
    found = verdict_of_run(log(RISING), few, rows(50, n=200), rows(80, n=200))
    assert found.sentence.startswith(TOGETHER.format("test questions"))
    assert "on 200 rows" in found.sentence
    found = verdict_of_run(log(RISING), evaluations(20, 70, 45), rows(20), rows(60))
    assert found.name == "rose together" and found.sentence.endswith(
        "correct answer 20.0 % to 60.0 %, +40.0 pt (+29 to +49), on 100 rows. On the validation "
        "rows correct answer was highest at step 10 and lower at step 20, where this model is "
        "from: 70.0 % to 45.0 %, -25.0 pt (-33 to -16), on 100 rows."
    )


def test_a_late_fall_that_chance_explains_is_told_as_such():
    """As in the quickstart: 23 of 40 validation rows at step 20, and 19 at the last."""
    curve = evaluations(6, 20, 23, 21, 19, n=40)
    curve[2]["metrics"]["lenient"] = [*[False] * 3, *[True] * 23, *[False] * 14]
    sentence = verdict_of_run(log(RISING), curve, rows(36), rows(70)).sentence
    assert "highest at step 20 and lower at step 40, where this model is from" in sentence
    assert sentence.endswith("on 40 rows; that may be chance.")
    chosen = verdict_of_run(log(RISING), curve, rows(36), rows(70), chosen=20)
    assert "lower" not in chosen.sentence


def test_a_metric_that_gives_nothing_for_some_rows_counts_on_the_others_and_for_all_is_told():
    before, after = rows(20), rows(50)
    before[0]["metrics"], after[99]["metrics"] = {}, {"lenient": None}
    assert "on 98 rows" in verdict_of_run(log(RISING), [], before, after).sentence
    nothing = verdict_of_run(log(RISING), [], [{"metrics": {}}], rows(1, n=1))
    assert nothing.name == "not known" and "no row an outcome both times" in nothing.sentence


def test_held_out_rows_decide_alone_where_they_have_no_metric_of_the_validation_rows():
    held_out = rows(20, metric="tests"), rows(50, metric="tests")
    found = verdict_of_run(log(RISING), evaluations(20, 20), *held_out)
    assert "tests on the test questions rose" in found.sentence


def test_what_came_after_the_chosen_checkpoint_is_not_of_the_model():
    run = (log(RISING), evaluations(20, 50, 25), rows(20), rows(50))
    assert "highest at step 10" in verdict_of_run(*run).sentence
    assert "highest" not in verdict_of_run(*run, chosen=10).sentence
    assert "reward 1.23 to 2.20" in verdict_of_run(*run, chosen=8).sentence


def test_each_of_several_tasks_has_its_sentence():
    def both(maths, code):
        return [*rows(maths, metric="math lenient"), *rows(code, metric="code tests")]

    found = verdict_of_run(log(FLAT), [], both(20, 50), both(21, 90))
    assert found.name == "nothing moved, accuracy alone"
    nothing, rose = found.sentence.split(" Code tests on ")
    assert nothing.startswith(NOTHING.format("test questions").replace("correct", "math: correct"))
    assert rose.startswith("the test questions rose, and no rise of the reward beyond drift is ")


def test_a_rise_to_what_one_answer_reaches_is_said_to_be_no_better():
    golds, different = ["no"] * 60 + ["yes"] * 40, [str(gold) for gold in range(100)]
    run = (log(RISING), [], rows(10, golds=golds))
    sentence = verdict_of_run(*run, rows(65, golds=golds)).sentence
    same = "The model is not shown to beat one answer given to every question"
    assert sentence.startswith(TOGETHER.format("test questions"))
    assert sentence.endswith(f" {same}: correct answer 65.0 % against 60.0 % for 'no'.")
    assert "one answer" not in verdict_of_run(*run, rows(65, golds=different)).sentence


def test_a_metric_that_scores_as_a_reward_does_is_not_called_independent():
    before, after = (rows(right, metric="tests", by_reward=["tests"]) for right in (0, 45))
    found = verdict_of_run(log(RISING), [], before, after)
    opening = "Reward and tests on the test questions (by the reward's own scorer) rose together: "
    assert found.sentence.startswith(opening)
    hidden = [{**row, "metrics": {**row["metrics"], "hidden": False}} for row in after]
    found = verdict_of_run(log(RISING), [], hidden, hidden)
    alone = REWARD_ALONE.format("test questions").replace("correct answer", "hidden tests")
    assert found.sentence.startswith(alone)
