"""The verdict on curves whose truth is known."""

import pytest

from recipes.common.report.verdict import verdict, verdict_of_run

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


TOGETHER = "Reward and correct answer on the test questions rose together: "
DIVERGED = "The reward rose and correct answer on the test questions fell: "
REWARD_ALONE = "The reward rose, and no rise of correct answer on the test questions is shown: "
NO_RISE = "rise of the reward beyond drift"
ALONE = f"Correct answer on the test questions rose, and no {NO_RISE} is shown: "
NOTHING = f"No change of correct answer on the test questions is shown, nor a {NO_RISE}: "
FELL = "Correct answer on the test questions fell after step 10: "
UNKNOWN = "Whether the model got better is not known: no rows were evaluated before and after."


@pytest.mark.parametrize(
    ("rewards", "rows_right", "name", "opening"),
    [
        (RISING, (20, 30, 45), "rose together", f"{TOGETHER}reward 1.23 to 3.10; "),
        (NOISY, (20, 30, 45), "rose together", f"{TOGETHER}reward 0.87 to 1.83; "),
        (RISING, (60, 50, 20), "diverged", DIVERGED),
        (RISING, (60, 61), "reward alone", REWARD_ALONE),
        (RISING, (20, 70, 45), "accuracy fell", FELL),
        (FLAT, (60, 50, 20), "accuracy fell", FELL.replace("10", "0")),
        (RISING, (50, 57, 50), "accuracy fell", FELL),  # seven rows lost: p = 0.016
        (RISING, (50, *[57] * 5, 50), "reward alone", REWARD_ALONE),  # the best of five: 0.05 / 5
        (FLAT, (20, 30, 45), "accuracy alone", ALONE),
        (FLAT, (20, 21, 19), "nothing moved", NOTHING),
        (RISING, (20,), "not known", UNKNOWN),
        ([float("nan")] * 9, (20, 30), "not known", "Whether the reward rose is not known: 0 step"),
    ],
)
def test_the_verdict_follows_from_what_moved(rewards, rows_right, name, opening):
    found = verdict(log(rewards), evaluations(*rows_right))
    assert found.name == name and found.sentence.startswith(opening)


FALL = (
    "the validation rows fell after step 10: 70.0 % to 45.0 %, -25.0 pt (-33 to -16), on 100 rows."
)


def test_the_sentence_holds_the_figures_with_their_interval_and_rows():
    assert verdict(log(RISING), evaluations(20, 70, 45)).sentence == (
        f"{FELL}reward 1.23 to 3.10; "
        f"correct answer 20.0 % to 45.0 %, +25.0 pt (+16 to +33), on 100 rows; {FALL}"
    )


def test_held_out_rows_decide_and_a_fall_of_the_validation_rows_is_told_beside_them():
    few, many = evaluations(3, 4, 5, n=10), evaluations(50, 80, n=200)
    assert verdict(log(RISING), few).name == "reward alone"
    found = verdict(log(RISING), few, many)
    assert found.sentence.startswith(TOGETHER) and "on 200 rows" in found.sentence
    found = verdict(log(RISING), evaluations(20, 70, 45), evaluations(20, 60))
    after = "correct answer 20.0 % to 60.0 %, +40.0 pt (+29 to +49), on 100 rows"
    assert found.name == "rose together" and found.sentence.endswith(f"{after}; {FALL}")


def test_held_out_rows_decide_alone_where_they_have_no_metric_of_the_validation_rows():
    held_out = rows(20, metric="tests"), rows(50, metric="tests")
    found = verdict_of_run(log(RISING), evaluations(20, 20), *held_out)
    assert "tests on the test questions rose" in found.sentence


def test_what_came_after_the_chosen_checkpoint_is_not_of_the_model():
    run = (log(RISING), evaluations(20, 50, 25), rows(20), rows(50))
    assert "fell after step 10" in verdict_of_run(*run).sentence
    assert "fell" not in verdict_of_run(*run, chosen=10).sentence
    assert "reward 1.23 to 2.20" in verdict_of_run(*run, chosen=8).sentence


def test_each_of_several_tasks_has_its_sentence():
    def both(maths, code):
        return [*rows(maths, metric="math lenient"), *rows(code, metric="code tests")]

    found = verdict_of_run(log(FLAT), [], both(20, 50), both(21, 90))
    assert found.name == "nothing moved, accuracy alone"
    nothing, rose = found.sentence.split(" Code tests on ")
    assert nothing.startswith(NOTHING.replace("correct", "math: correct"))
    assert rose.startswith("the test questions rose, and no rise of the reward beyond drift is ")


def test_a_rise_to_what_one_answer_reaches_is_said_to_be_no_better():
    golds, different = ["no"] * 60 + ["yes"] * 40, [str(gold) for gold in range(100)]
    run = (log(RISING), [], rows(10, golds=golds))
    sentence = verdict_of_run(*run, rows(65, golds=golds)).sentence
    same = "The model is not shown to beat one answer given to every question"
    assert sentence.startswith(TOGETHER)
    assert sentence.endswith(f" {same}: correct answer 65.0 % against 60.0 % for 'no'.")
    assert "one answer" not in verdict_of_run(*run, rows(65, golds=different)).sentence


def test_a_metric_that_scores_as_a_reward_does_is_not_called_independent():
    before, after = (rows(right, metric="tests", by_reward=["tests"]) for right in (0, 45))
    found = verdict_of_run(log(RISING), [], before, after)
    opening = "Reward and tests on the test questions (by the reward's own scorer) rose together: "
    assert found.sentence.startswith(opening)
    hidden = [{**row, "metrics": {**row["metrics"], "hidden": False}} for row in after]
    found = verdict_of_run(log(RISING), [], hidden, hidden)
    alone = REWARD_ALONE.replace("correct answer", "hidden tests")
    assert found.sentence.startswith(alone)
