"""Scoring row by row: a row that fails costs itself alone, and each row says how it went."""

import pytest

from rewards.rows import score_rows


def inverse(number: float) -> float | None:
    """A scorer with everything that can happen to one."""
    return None if number == 7 else {8: float("nan"), 9: float("inf"), 10: "one"}.get(number, 0) or 1 / number


def outcomes(*columns: list, scorer=inverse) -> tuple[list, dict]:
    logged = {}
    return score_rows("mine", scorer, *columns, log_extra=logged.__setitem__), logged


def test_each_row_is_scored_with_its_own_values():
    paid, logged = outcomes(["a", "bb"], [2, 3], scorer=lambda text, n: float(len(text) * n))
    assert (paid, logged) == ([2.0, 6.0], {"outcome/mine": ["graded", "graded"]})


def test_a_row_on_which_the_scorer_raises_is_lost_alone():
    paid, logged = outcomes([2, 0, 4])
    assert paid == [0.5, None, 0.25]
    assert logged == {"outcome/mine": ["graded", "error: ZeroDivisionError: division by zero", "graded"]}


def test_none_of_a_scorer_is_unparsed_and_zero_is_graded():
    assert outcomes([7, 2]) == ([None, 0.5], {"outcome/mine": ["unparsed", "graded"]})
    assert outcomes([1], scorer=lambda n: 0.0) == ([0.0], {"outcome/mine": ["graded"]})


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (8, "error: ValueError: it returned nan"),
        (9, "error: ValueError: it returned inf"),
        (10, "error: TypeError: must be real number, not str"),
    ],
)
def test_a_row_that_is_paid_no_finite_number_is_lost_alone(number, said):
    assert outcomes([2, number]) == ([0.5, None], {"outcome/mine": ["graded", said]})


def test_it_scores_where_nothing_can_be_logged():
    assert score_rows("mine", inverse, [2, 0]) == [0.5, None]


def test_no_rows_are_no_error():
    assert outcomes([]) == ([], {"outcome/mine": []})


def test_columns_of_different_length_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        outcomes([1, 2], [1], scorer=lambda a, b: 0.0)


def test_ctrl_c_in_a_scorer_is_no_failed_row():
    def interrupted(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcomes([1], scorer=interrupted)
