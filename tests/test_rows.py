"""Rows: a row that fails costs itself alone, each row logs its outcome, and rows are grouped by task."""

import pytest

from rewards.rows import rows_by_task, score_rows


def inverse(number: float) -> float | None:
    """A scorer with everything that can happen to one."""
    return (
        None
        if number == 7
        else {8: float("nan"), 9: float("inf"), 10: "one"}.get(number, 0) or 1 / number
    )


def outcomes(*columns: list, scorer=inverse) -> tuple[list, dict]:
    logged = {}
    return score_rows("mine", scorer, *columns, log_extra=logged.__setitem__), logged


def test_rows_are_grouped_by_task_with_their_places():
    assert rows_by_task([{"task": "b"}, {"task": ""}, {}, {"task": "a"}]) == {
        None: [(1, {"task": ""}), (2, {})],
        "a": [(3, {"task": "a"})],
        "b": [(0, {"task": "b"})],
    }


def test_each_row_is_scored_with_its_own_values():
    scores, logged = outcomes(["a", "bb"], [2, 3], scorer=lambda text, n: float(len(text) * n))
    assert (scores, logged) == ([2.0, 6.0], {"outcome/mine": ["graded", "graded"]})
    assert outcomes([]) == ([], {"outcome/mine": []})


@pytest.mark.parametrize(
    ("number", "score", "outcome"),
    [
        (4, 0.25, "graded"),
        (7, None, "unparsed"),
        (0, None, "error: ZeroDivisionError: division by zero"),
        (8, None, "error: ValueError: it returned nan"),
        (9, None, "error: ValueError: it returned inf"),
        (10, None, "error: TypeError: must be real number, not str"),
    ],
)
def test_a_row_without_a_finite_score_is_lost_alone(number, score, outcome):
    assert outcomes([2, number, 4]) == (
        [0.5, score, 0.25],
        {"outcome/mine": ["graded", outcome, "graded"]},
    )
    assert score_rows("mine", inverse, [2, number]) == [0.5, score]  # where nothing can be logged


def test_zero_is_a_score():
    assert outcomes([1], scorer=lambda n: 0.0) == ([0.0], {"outcome/mine": ["graded"]})


def test_columns_of_different_length_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        outcomes([1, 2], [1], scorer=lambda a, b: 0.0)


def test_ctrl_c_in_a_scorer_is_not_a_failed_row():
    def interrupted(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcomes([1], scorer=interrupted)
