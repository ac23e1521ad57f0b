"""Wilson intervals and the exact McNemar test against published values."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.common.tools.stats import (
    T_95,
    Z_95,
    mcnemar_p,
    paired_difference,
    paired_interval,
    t_interval,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3 (score without continuity correction)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # the example of the docstring
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilson_interval_matches_published_values(successes, n, low, high):
    assert tuple(round(bound, 4) for bound in wilson_interval(successes, n)) == (low, high)


def test_wilson_interval_of_nothing_is_everything():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_wilson_interval_with_z_of_one_is_exact():
    # one of one: centre (1 + 1/2) / 2, half width sqrt(0 + 1/4) / 2
    assert wilson_interval(1, 1, z=1.0) == (0.5, 1.0)
    assert wilson_interval(0, 1, z=1.0) == (0.0, 0.5)


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
    ("won", "lost", "p"),
    [
        (9, 1, 22 / 1024),
        (1, 9, 22 / 1024),
        (1, 0, 1.0),
        (2, 0, 0.5),
        (5, 0, 1 / 16),
        (6, 0, 1 / 32),
        (10, 0, 2 / 1024),
        (8, 2, 112 / 1024),
        (5, 5, 1.0),
        (3, 2, 1.0),
        (0, 0, 1.0),
    ],
)
def test_mcnemar_p_is_the_two_sided_binomial(won, lost, p):
    assert mcnemar_p(*pairs(won, lost)) == p


def test_mcnemar_p_of_a_published_table():
    # the textbook table 101, 121 / 59, 33; R's binom.test(59, 180) says 4.434e-06
    assert mcnemar_p(*pairs(121, 59)) == pytest.approx(4.434e-06, abs=5e-10)


def test_rows_that_did_not_change_do_not_count():
    assert mcnemar_p(*pairs(9, 1, kept=1000)) == mcnemar_p(*pairs(9, 1))


def test_mcnemar_p_of_no_rows_is_one():
    assert mcnemar_p([], []) == 1.0


def test_mcnemar_p_of_thousands_of_rows_is_a_number():
    assert mcnemar_p(*pairs(3000, 0)) == 0.0
    assert mcnemar_p(*pairs(2000, 2000)) == 1.0


def test_mcnemar_p_needs_paired_rows():
    with pytest.raises(ValueError, match="zip"):
        mcnemar_p([True], [True, False])


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


def test_t_interval_of_one_value_is_none_and_bounds_cut():
    assert t_interval([0.5]) is None
    assert t_interval([0.0, 1.0], 0.0, 1.0) == (0.0, 1.0)


def test_t_quantiles_fall_towards_the_normal_one():
    assert len(T_95) == 28
    assert all(a > b for a, b in pairwise((*T_95, Z_95)))


def test_paired_interval_by_hand():
    # 4 won of 32: 5 and 1 of 34, 4 / 34 +- 1.96 * sqrt((6 / 34 - (4 / 34) ** 2) / 34)
    low, high = paired_interval([False] * 32, [True] * 4 + [False] * 28)
    assert (low, high) == (pytest.approx(0.1176 - 0.1356, abs=1e-4), pytest.approx(0.1176 + 0.1356, abs=1e-4))
    assert paired_interval([False] * 8, [False] * 8)[1] > 0.2  # eight rows without a change prove little
    assert paired_interval([], []) == (-1.0, 1.0)


def test_paired_difference_by_hand():
    assert paired_difference([0, 0, 1, 0], [1, 0, 1, 1]) == (0.5, pytest.approx((1 / 3) ** 0.5 / 2))
    assert paired_difference([True, False], [True, False]) == (0.0, 0.0)
    assert paired_difference([False], [True]) == (1.0, None)
