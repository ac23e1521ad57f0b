"""Statistics and figures against published values, and every docstring example of the tools."""

import doctest

import numpy as np
import pytest

from recipes.common.utils import run_files as folder
from recipes.common.utils import stats, tables
from recipes.common.utils.stats import (
    bootstrap_interval,
    mcnemar_p,
    moving_average,
    paired_interval,
    t_interval,
    t_quantile,
    wilson_interval,
)


@pytest.mark.parametrize("module", [folder, stats, tables])
def test_the_examples_of_the_docstrings_are_right(module):
    found = doctest.testmod(module)
    assert found.attempted >= 2 and found.failed == 0


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3 (score without continuity correction)
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    assert tuple(round(bound, 4) for bound in wilson_interval(successes, n)) == (low, high)


@pytest.mark.parametrize(
    ("won", "lost", "kept", "p"),
    [
        (1, 9, 0, 22 / 1024),
        (9, 1, 1000, 22 / 1024),  # rows that did not change do not count
        (1, 0, 0, 1.0),
        (0, 0, 5, 1.0),
        (3000, 0, 0, 0.0),
        # the textbook table 101, 121 / 59, 33; R's binom.test(59, 180) says 4.434e-06
        (121, 59, 134, pytest.approx(4.434e-06, abs=5e-10)),
    ],
)
def test_mcnemar_p_is_the_two_sided_binomial(won, lost, kept, p):
    before = [False] * won + [True] * (lost + kept)
    assert mcnemar_p(before, [True] * won + [False] * lost + [True] * kept) == p


@pytest.mark.parametrize("function", [mcnemar_p, paired_interval])
def test_rows_must_be_paired(function):
    with pytest.raises(ValueError, match="zip"):
        function([True], [True, False])


def test_t_interval_matches_the_tables_is_cut_and_of_one_value_is_none():
    assert t_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(
        (1.0368, 4.9632), abs=1e-4
    )  # 2.7764 * sqrt(2.5 / 5)
    assert t_quantile(29) == pytest.approx(2.0484, abs=1e-4)  # 28 degrees of freedom
    assert (t_interval([0.0, 1.0], 0.0, 1.0), t_interval([0.5])) == (
        (0.0, 1.0),
        None,
    )  # 0.5 +- 6.3531


def test_a_paired_interval_needs_rows_to_be_narrow():
    assert (
        paired_interval([False] * 8, [False] * 8)[1] > 0.2
    )  # eight rows without a change prove little
    assert paired_interval([], []) == (-1.0, 1.0)


def test_a_bootstrap_follows_its_seed_needs_values_and_of_many_is_that_of_the_normal_distribution():
    values = list(np.random.default_rng(0).random(40))
    assert (
        bootstrap_interval(values, 1)
        == bootstrap_interval(values, 1)
        != bootstrap_interval(values, 2)
    )
    normal = pytest.approx((0.5 - 1.96 * 0.025, 0.5 + 1.96 * 0.025), abs=0.004)
    assert bootstrap_interval([0.0] * 200 + [1.0] * 200) == normal
    with pytest.raises(ValueError, match="a bootstrap of 0 values"):
        bootstrap_interval([])


def test_bootstrap_intervals_hold_the_truth_about_as_often_as_they_say():
    """200 experiments of 40 problems with a true mean of 1/3: 95 % of them are 190, and these seeds give 188."""
    random, held = np.random.default_rng(0), 0
    for seed in range(200):
        low, high = bootstrap_interval(list(random.beta(1, 2, 40)), seed, draws=400)
        held += low <= 1 / 3 <= high
    assert held == 188


def test_a_moving_average_does_not_lag():
    line = [float(step) for step in range(36)]
    assert moving_average(line) == pytest.approx(
        line, abs=1e-9
    )  # an average of the values so far ends four behind
    assert moving_average([*[0.0] * 35, 7.0])[-1] < 4.0  # the last value alone does not carry it
    assert min(moving_average([1.0] * 30 + [0.5, 0.0, 0.0])) == 0.0
    assert (moving_average([]), moving_average([2.0])) == ([], [2.0])
