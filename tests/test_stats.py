"""Statistics and figures against published values, and every docstring example of the tools."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.common.tools import folder, stats, tables
from recipes.common.tools.stats import mcnemar_p, paired_interval, t_interval, t_quantile, wilson_interval


@pytest.mark.parametrize("module", [folder, stats, tables])
def test_the_examples_of_the_docstrings_are_right(module):
    found = doctest.testmod(module)
    assert found.attempted >= 2 and found.failed == 0


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3 (score without continuity correction)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    assert tuple(round(bound, 4) for bound in wilson_interval(successes, n)) == (low, high)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_share_and_mirrors(case):
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1.0
    mirrored = wilson_interval(n - successes, n)
    assert (1 - high, 1 - low) == pytest.approx(mirrored, abs=1e-12)


def pairs(won: int, lost: int, kept: int = 0) -> tuple[list[bool], list[bool]]:
    return [False] * won + [True] * lost + [True] * kept, [True] * won + [False] * lost + [True] * kept


@pytest.mark.parametrize(
    ("won", "lost", "kept", "p"),
    [
        (1, 9, 0, 22 / 1024),
        (9, 1, 1000, 22 / 1024),  # rows that did not change do not count
        (1, 0, 0, 1.0),
        (2, 0, 0, 0.5),
        (5, 0, 0, 1 / 16),
        (6, 0, 0, 1 / 32),
        (10, 0, 0, 2 / 1024),
        (8, 2, 0, 112 / 1024),
        (5, 5, 0, 1.0),
        (3, 2, 0, 1.0),
        (0, 0, 0, 1.0),
        (0, 0, 5, 1.0),
        (3000, 0, 0, 0.0),
        (2000, 2000, 0, 1.0),
        # the textbook table 101, 121 / 59, 33; R's binom.test(59, 180) says 4.434e-06
        (121, 59, 134, pytest.approx(4.434e-06, abs=5e-10)),
    ],
)
def test_mcnemar_p_is_the_two_sided_binomial(won, lost, kept, p):
    assert mcnemar_p(*pairs(won, lost, kept)) == p


@pytest.mark.parametrize("function", [mcnemar_p, paired_interval])
def test_rows_must_be_paired(function):
    with pytest.raises(ValueError, match="zip"):
        function([True], [True, False])


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [  # by hand from t tables: half widths 12.706 / 2, 4.3027 / sqrt(3), 2.7764 * sqrt(2.5 / 5)
        ([0.0, 1.0], 0.5 - 6.3531, 0.5 + 6.3531),
        ([1.0, 2.0, 3.0], -0.4841, 4.4841),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 1.0368, 4.9632),
    ],
)
def test_t_interval_matches_the_tables(values, low, high):
    assert t_interval(values) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert t_quantile(29) == pytest.approx(2.0484, abs=1e-4)  # 28 degrees of freedom


def test_t_interval_of_one_value_is_none_and_bounds_cut():
    assert t_interval([0.5]) is None
    assert t_interval([0.0, 1.0], 0.0, 1.0) == (0.0, 1.0)


def test_paired_interval_by_hand():
    # 4 won of 32: 5 and 1 of 34, 4 / 34 +- 1.96 * sqrt((6 / 34 - (4 / 34) ** 2) / 34)
    low, high = paired_interval([False] * 32, [True] * 4 + [False] * 28)
    assert (low, high) == (pytest.approx(0.1176 - 0.1356, abs=1e-4), pytest.approx(0.1176 + 0.1356, abs=1e-4))
    assert paired_interval([False] * 8, [False] * 8)[1] > 0.2  # eight rows without a change prove little
    assert paired_interval([], []) == (-1.0, 1.0)
