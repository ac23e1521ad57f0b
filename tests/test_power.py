"""The power of an evaluation: against its definition, against a simulation, and in the words for a user."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest, ttest_1samp

from recipes.common.evaluation.scores import compare, rows_changed, summarize
from recipes.common.report.record import final_table
from recipes.common.utils import power
from recipes.common.utils.power import (
    expected_to_change,
    mcnemar_power,
    power_line,
    rows_needed,
    seeds_needed,
    smallest_change,
)
from recipes.common.utils.run_files import write_json
from recipes.common.utils.stats import mcnemar_p


def test_the_examples_of_the_docstrings_are_right():
    found = doctest.testmod(power)
    assert found.attempted >= 4 and found.failed == 0


def test_the_power_is_the_sum_over_all_outcomes_of_few_rows():
    n, change, changed = 12, 0.3, 0.5
    won = 0.5 + change / changed / 2
    by_hand = sum(
        binom.pmf(rows, n, changed) * binom.pmf(gained, rows, won)
        for rows in range(1, n + 1)
        for gained in range(rows + 1)
        if binomtest(gained, rows).pvalue <= 0.05
    )
    assert mcnemar_power(n, change, changed) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    ("n", "change", "changed"), [(64, 0.17, 0.25), (160, 0.114, 0.25), (256, 0.05, 0.1)]
)
def test_the_power_is_the_share_of_simulated_evaluations_that_show_the_change(n, change, changed):
    random = np.random.default_rng(0)
    chances = [(changed + change) / 2, (changed - change) / 2, 1 - changed]
    draws = random.multinomial(n, chances, size=1500)
    shown = np.mean(
        [mcnemar_p([0] * won + [1] * lost, [1] * won + [0] * lost) < 0.05 for won, lost, _ in draws]
    )
    assert shown == pytest.approx(mcnemar_power(n, change, changed), abs=3 * np.sqrt(0.25 / 1500))


def test_without_a_change_the_power_is_the_rate_of_false_alarms_and_few_rows_are_enough_where_none_is_lost():
    assert 0.03 < mcnemar_power(1319, 0.0) <= 0.05
    assert mcnemar_power(100, 0.0, 0.0) == 0.0
    assert smallest_change(160, changed=0.0) == pytest.approx(
        0.049, abs=0.001
    )  # six rows or more, all won
    assert (
        smallest_change(160, changed=0.0) < smallest_change(160, changed=0.1) < smallest_change(160)
    )


@pytest.mark.parametrize("rows", [64, 160, 1319])
def test_rows_needed_and_the_smallest_change_are_the_inverse_of_each_other(rows):
    change = smallest_change(rows)
    assert mcnemar_power(rows, change) >= 0.8 > mcnemar_power(rows, change - 0.001)
    assert rows_needed(change) <= rows < rows_needed(change - 0.001)


def test_a_change_that_no_evaluation_shows_is_refused():
    with pytest.raises(
        ValueError, match=r"a change of 0\.1 points takes more than 1000000 held-out rows"
    ):
        rows_needed(0.001)
    assert "5 held-out rows show no change, however large" in power_line(
        5, 0.25, "if a quarter of the rows change"
    )


def test_seeds_needed_show_the_mean_difference_of_those_at_hand():
    differences = [0.0, 30.0, 10.0, 2.5, 13.8]
    needed, random = seeds_needed(differences), np.random.default_rng(0)
    draws = random.normal(np.mean(differences), np.std(differences, ddof=1), size=(2000, needed))
    assert np.mean(ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05) == pytest.approx(0.82, abs=0.03)
    assert needed == 11


def test_the_table_at_the_end_counts_the_rows_that_changed():
    before, after = ([evaluated(row, right) for row in range(160)] for right in (30, 70))
    n, changed = rows_changed(before, after)["lenient"].values()
    assert (n, changed) == (160, 0.25)
    outcome = {
        "before": summarize(before),
        "after": summarize(after),
        "mcnemar_p": compare(before, after),
    }
    run = {"steps": 3, "minutes": 1.0, "hardware": "a CPU", "changed": rows_changed(before, after)}
    run |= {
        "verdict": {"sentence": "Nothing moved."},
        "stopped": None,
        "best_checkpoint": None,
        "voided": None,
    }
    line = "\n  160 held-out rows show a change of 11.4 points or more (80 % power, as 25 % of them changed in lenient)\n"
    assert line in final_table(Path("run"), run | outcome)


def evaluated(row: int, right: int) -> dict:
    """A held-out row; the first `right` of them are right."""
    outcome = {"metrics": {"lenient": row < right}, "rewards": {}, "truncated": False, "tokens": 3}
    return {"prompt": f"question {row}", **outcome}


def test_a_probe_of_the_same_model_tells_how_many_rows_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert expected_to_change("recipes/x/mine.yaml", "m") == (
        0.25,
        "if a quarter of the rows change",
    )
    probe = {
        "config": "recipes/x/mine.yaml",
        "changed": 0.1,
        "sampling": {"model_name_or_path": "m"},
    }
    write_json(tmp_path / "runs/probe-mine/figures.json", probe)
    changed, condition = expected_to_change("recipes/x/mine.yaml", "m")
    assert changed == 0.1
    assert condition.startswith(
        "if 10 % of the rows change, as often as two samples of a prompt differ in runs/probe-"
    )
    assert expected_to_change("recipes/x/mine.yaml", "another")[0] == 0.25
    assert expected_to_change("recipes/y/mine.yaml", "m")[0] == 0.25
