"""The power of an evaluation: against its definition, a simulation, and in words for a user."""

import pytest
from scipy.stats import binom, binomtest

from recipes.common.utils.power import (
    mcnemar_power,
    power_line,
    smallest_change,
)


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


def test_the_smallest_change_has_the_power_and_grows_with_the_rows_that_change():
    change = smallest_change(160)
    assert mcnemar_power(160, change) >= 0.8 > mcnemar_power(160, change - 0.001)
    assert smallest_change(160, 0.0) == pytest.approx(0.049, abs=0.001)  # six rows or more, all won
    assert smallest_change(160, 0.0) < smallest_change(160, 0.1) < change
    assert "5 held-out rows show no change, however large" in power_line(5, 0.25, "if a quarter")
