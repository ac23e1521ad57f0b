"""Rows by task, and from files: a line that is no use is named."""

import gzip

import pytest

from rewards.rows import read_jsonl, rows_by_task, with_keys


def test_rows_are_grouped_by_task_with_their_places():
    assert rows_by_task([{"task": "b"}, {"task": ""}, {}, {"task": "a"}]) == {
        None: [(1, {"task": ""}), (2, {})],
        "a": [(3, {"task": "a"})],
        "b": [(0, {"task": "b"})],
    }


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
        (b'{"a": "1"}\n\xff', "line 2: it is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_use_is_named(tmp_path, data, message):
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ValueError) as refused:
        read_jsonl(tmp_path / "a.jsonl", with_keys({"a": (str,)}))
    assert message in str(refused.value)
