"""Training on a file of rows, as the probe keeps them."""

import pytest

from recipes.common.checks.notes import only_rows_notes
from recipes.common.data.split import use_only_rows
from recipes.common.utils.run_files import write_rows


def ask(question: str, *before: str) -> list[dict]:
    return [{"role": "user", "content": text} for text in (*before, question)]


@pytest.mark.parametrize(
    ("train", "held_out", "noted"),
    [
        (ask("1 + 1", "shown"), ask("2 + 2", "shown"), False),
        (ask("1 + 1", "shown"), ask("2 + 2"), True),
        (ask("1 + 1", "shown"), ask("2 + 2", "another"), True),
        (
            ask("1 + 1", "shown"),
            [{"role": "user", "content": "shown", "name": None}, *ask("2 + 2")],
            False,
        ),
        ("1 + 1", "2 + 2", False),
    ],
)
def test_a_note_names_a_probe_with_other_prompts_than_the_held_out_rows(train, held_out, noted):
    other = {
        "prompt": ask("f(x)", "a program"),
        "task": "code",
    }  # another task has prompts of its own
    notes = only_rows_notes(
        [{"prompt": train, "task": "math"}], [other, {"prompt": held_out, "task": "math"}]
    )
    assert [note.startswith("only_rows: ") for note in notes] == [True] * noted
    assert only_rows_notes([{"prompt": train, "task": "math"}], [other]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "only_rows: there is no file"),
        ("", "holds no rows"),
        ("{", "rows.jsonl, line 1: "),
        ('{"prompt": "p", "task": "t"}\n{"prompt": "p"}', "rows.jsonl, line 2: task missing"),
    ],
)
def test_a_file_that_holds_no_rows_is_refused_and_a_column_of_a_later_row_is_kept(
    tmp_path, text, message
):
    file = tmp_path / "rows.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=message):
        use_only_rows(str(file), None)
    write_rows(file, [{"prompt": "a", "task": "t"}, {"prompt": "b", "task": "t", "answer": "7"}])
    assert use_only_rows(str(file), None)["answer"][:] == [None, "7"]
