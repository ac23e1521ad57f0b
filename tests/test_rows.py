"""A row that fails costs itself alone, and a line of a file that is no use is named."""

import gzip
from pathlib import Path

import pytest

from rewards.rows import read_jsonl, rows_by_task, score_rows, with_keys


def outcomes(*columns: list, scorer) -> tuple[list, dict]:
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
    assert outcomes([], scorer=float) == ([], {"outcome/mine": []})


@pytest.mark.parametrize(
    ("returned", "score", "outcome"),
    [
        (0.0, 0.0, "graded"),
        (None, None, "unparsed"),
        (float("nan"), None, "error: ValueError: it returned nan"),
        (float("inf"), None, "error: ValueError: it returned inf"),
        ("one", None, "error: TypeError: must be real number, not str"),
    ],
)
def test_a_row_without_a_finite_score_is_lost_alone(returned, score, outcome):
    scores, logged = outcomes([1.0, returned, 2.0], scorer=lambda value: value)
    assert scores == [1.0, score, 2.0]
    assert logged == {"outcome/mine": ["graded", outcome, "graded"]}


def test_a_scorer_that_raises_costs_its_row_and_ctrl_c_the_call():
    def inverse(number):
        if number is None:
            raise KeyboardInterrupt
        return 1 / number

    assert score_rows("mine", inverse, [2, 0, 4]) == [0.5, None, 0.25]  # where nothing is logged
    with pytest.raises(KeyboardInterrupt):
        outcomes([2, None], scorer=inverse)


def test_columns_of_different_length_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        outcomes([1, 2], [1], scorer=lambda a, b: 0.0)


# Files


def test_a_file_is_read_line_by_line_packed_or_as_one_list(tmp_path: Path):
    for name, data in {
        "a.jsonl": b'\xef\xbb\xbf{"a": "1\\u2028"}\n\n{"a": "2"}\n',
        "b.json": b'[{"a": "1\\u2028"}, {"a": "2"}]',
        "c.jsonl.gz": gzip.compress(b'{"a": "1\\u2028"}\n{"a": "2"}'),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert read_jsonl(tmp_path / name, dict) == [{"a": "1\u2028"}, {"a": "2"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no rows"),
        (b'{"a": "1"}\n{"a": 1}\n{"a": 1}', "line 2 (and 1 more): a is 1; it must be text"),
        (b'{"b": "1"}', "line 1: a missing (its keys: b; wanted: a)"),
        (b"5", "line 1: it must be a JSON object with a, not '5'"),
        (b'{"a": "1"', "line 1: it is not JSON (Expecting ',' delimiter, column 10)"),
        (b'{"a": "1", "a": "2"}', "line 1: the key 'a' stands twice in one object"),
        (b'{"a": "1"}\n\xff', "line 2: it is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_use_is_named(tmp_path, data, message):
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ValueError) as refused:
        read_jsonl(tmp_path / "a.jsonl", with_keys({"a": (str,)}))
    assert message in str(refused.value)
