"""A row that fails costs itself alone, and a line of a file that is no use is named."""

import gzip

import pytest

from rewards.rows import read_each, read_jsonl, rows_by_task, score_rows, with_keys


def test_rows_are_grouped_by_task_with_their_places():
    assert rows_by_task([{"task": "b"}, {"task": ""}, {}, {"task": "a"}]) == {
        None: [(1, {"task": ""}), (2, {})],
        "a": [(3, {"task": "a"})],
        "b": [(0, {"task": "b"})],
    }


def brittle(answer, gold):
    if answer == "odd":
        raise IndexError("pop from empty list")
    return None if gold is None else float(answer == 1 / gold)


@pytest.mark.parametrize(
    ("answer", "gold", "score", "outcome"),
    [
        (1.0, 1, 1.0, "graded"),
        (2.0, 1, 0.0, "graded"),
        (1.0, None, None, "unparsed"),
        ("odd", 1, 0.0, "wrong: IndexError: pop from empty list"),  # the completion's fault
        ("odd", None, None, "unparsed"),
        ("odd", 0, None, "error: IndexError: pop from empty list"),  # the gold's
    ],
)
def test_a_row_is_scored_by_whose_fault_it_is_and_costs_no_other(answer, gold, score, outcome):
    logged = {}
    scores = score_rows("mine", brittle, [1.0, answer], [1, gold], log_extra=logged.__setitem__)
    assert (scores, logged) == ([1.0, score], {"outcome/mine": ["graded", outcome]})


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), "one"])
def test_a_score_that_is_not_finite_or_no_number_is_none(returned):
    assert score_rows("mine", lambda value: value, [1.0, returned]) == [1.0, None]


def test_an_answer_that_no_reader_can_take_is_none():
    assert read_each(float, ["1.5", "one"]) == [1.5, None]


def test_ctrl_c_ends_the_call_and_columns_of_different_length_are_an_error():
    def interrupted(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_rows("mine", interrupted, [2])
    with pytest.raises(ValueError, match="shorter"):
        score_rows("mine", lambda a, b: 0.0, [1, 2], [1])


# Files


def test_a_file_is_read_line_by_line_packed_or_as_one_list(tmp_path):
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
        (b'[{"a": "1", "a": "2"}]', "the key 'a' stands twice in one object"),  # of a list too
        (b'[{"a": "1"},\n]', "it is not JSON (Expecting value, line 2, column 1)"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_use_is_named(tmp_path, data, message):
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ValueError) as refused:
        read_jsonl(tmp_path / "a.jsonl", with_keys({"a": (str,)}))
    assert message in str(refused.value)
