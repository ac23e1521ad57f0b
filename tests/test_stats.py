"""Statistics against published values, and the docstring examples, which are exact values, too."""

import doctest
import math

import numpy as np
import pytest

from recipes.common.evaluation import scores
from recipes.common.report import plots, verdict
from recipes.common.utils import run_files, screen, secrets, stats, tables
from recipes.common.utils.stats import mcnemar_p, power_line, slope_test, t_interval, t_quantile

MODULES = [plots, run_files, scores, screen, secrets, stats, tables, verdict]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings_are_right(module):
    found = doctest.testmod(module)
    assert found.attempted >= 1 and found.failed == 0


@pytest.mark.parametrize(
    ("won", "lost", "kept", "p"),
    [
        (9, 1, 1000, 22 / 1024),  # rows that did not change do not count
        (0, 0, 5, 1.0),
        # the textbook table 101, 121 / 59, 33; R's binom.test(59, 180) says 4.434e-06
        (121, 59, 134, pytest.approx(4.434e-06, abs=5e-10)),
    ],
)
def test_mcnemar_p_is_the_two_sided_binomial(won, lost, kept, p):
    before = [False] * won + [True] * (lost + kept)
    assert mcnemar_p(before, [True] * won + [False] * lost + [True] * kept) == p


def test_t_interval_matches_the_tables_is_cut_and_of_one_value_is_none():
    half = 2.7764 * 0.5**0.5  # sqrt(2.5 / 5)
    assert t_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - half, 3 + half), abs=1e-4)
    assert t_quantile(29) == pytest.approx(2.0484, abs=1e-4)  # 28 degrees of freedom
    assert t_interval([0.5]) is None
    assert stats.interval_of_mean([0.0, 1.0], 0.0, 1.0, None) == (0.0, 1.0)  # 0.5 +- 6.3531
    assert stats.interval_of_mean([0.5, 0.5], 0.0, 1.0, (0.2, 0.8)) == (0.2, 0.8)


def remembering(noise: np.ndarray, memory: float) -> np.ndarray:
    """Errors of which each keeps this share of the one before; 1.0 is a random walk."""
    errors = noise.copy()
    for step in range(1, noise.shape[1]):
        errors[:, step] = memory * errors[:, step - 1] + math.sqrt(1 - memory**2) * noise[:, step]
    return errors


def saturating(noise: np.ndarray) -> np.ndarray:
    """The noise on a rise of 20 points, most of it in the first third of the run."""
    return noise + 0.2 * (1 - np.exp(-6 * np.linspace(0.0, 1.0, noise.shape[1])))


# How many of 1,000 runs of 12, 24 and 60 steps are said to rise; of no rise 25 would be right. The
# noise is that of 32 completions of which half are right. RESULTS.md has this table.
NOISE = math.sqrt(0.25 / 32)


@pytest.mark.parametrize(
    ("rewards", "counts"),
    [
        (lambda noise: noise, [18, 17, 17]),
        (lambda noise: remembering(noise, 0.5), [63, 41, 24]),
        (lambda noise: np.cumsum(noise, axis=1), [139, 93, 84]),
        (lambda noise: saturating(noise), [278, 488, 901]),
        (lambda noise: saturating(remembering(noise, 0.5)), [275, 255, 449]),
    ],
    ids=["noise", "noise that remembers", "random walk", "rise", "rise, noise that remembers"],
)
def test_how_often_a_reward_is_said_to_rise(rewards, counts):
    rises = []
    for steps in (12, 24, 60):
        runs = rewards(np.random.default_rng(0).normal(scale=NOISE, size=(1000, steps)))
        rises.append(sum(slope > 0 and p < 0.05 for slope, p in map(slope_test, runs)))
    assert rises == counts


@pytest.mark.parametrize("value", [0.1, 0.7, 1.1])
def test_a_reward_that_never_changes_has_no_slope(value):
    assert slope_test([value] * 7) == (0.0, 1.0)


@pytest.mark.parametrize(("n", "shown"), [(20, "39.2"), (160, "11.1"), (1319, "3.9"), (5, "no")])
def test_the_change_that_can_be_shown_is_that_of_the_normal_distribution(n, shown):
    assert power_line(n).startswith(f"{n} test questions can show {'a ' * (shown != 'no')}")
    assert shown in power_line(n)
