"""Which rows a run sees: its own or those of a file, and none that the curve or a file shares."""

import itertools

import pytest
from datasets import Dataset
from test_preflight import SETTINGS, make_rows

from recipes.common.data.overlap import QUESTIONS, normal_question, question_digest
from recipes.common.data.split import load_split, split_distinct, use_only_rows
from recipes.common.utils.run_files import WARM_START, write_json, write_rows

CURVE = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "num_validation_rows": 5}


def questions(rows) -> list[str]:
    return [normal_question(row["prompt"]) for row in rows]


def split(parse, rows=None, seed=0, **settings):
    """Training and validation rows of a recipe that loads the first of twenty."""
    rows = make_rows(*range(20)) if rows is None else rows
    args = parse({**SETTINGS, **CURVE, "seed": seed, **settings})

    def load_rows(recipe, seed):
        return rows.take(recipe.num_train_rows or len(rows)), None

    train, _, validation = load_split(args, load_rows)
    return questions(train), questions(validation)


def test_of_all_rows_those_for_validation_are_drawn_by_the_seed_and_removed(parse):
    train, validation = split(parse)
    assert sorted(train + validation) == sorted(questions(make_rows(*range(20))))
    assert len(validation) == 5 and validation != questions(make_rows(*range(15, 20)))
    assert split(parse)[1] == validation != split(parse, seed=1)[1]


def test_a_task_with_too_few_questions_does_not_run_for_ever():
    items = ({"question": str(number % 20)} for number in itertools.count())
    with pytest.raises(ValueError, match="only 20 training and 0 test questions differ"):
        split_distinct(items, train=50, held_out=4)


def test_a_question_of_the_validation_rows_is_not_trained_on_wherever_the_rows_come_from(
    parse, tmp_path
):
    file = tmp_path / "rows.jsonl"
    write_rows(file, make_rows(7, 8, 9, 30, 8).to_list())
    train, validation = split(parse, only_rows=str(file), num_train_rows=8)
    assert validation == questions(make_rows(*range(8, 13)))
    assert train == questions(make_rows(7, 30))
    twice = Dataset.from_list([*make_rows(*range(13)), *make_rows(10)])
    assert split(parse, twice, num_train_rows=9)[0] == questions(make_rows(*range(9)))


def test_a_question_of_the_warm_start_is_neither_trained_on_nor_on_the_curve(parse, tmp_path):
    digests = [question_digest(row["prompt"]) for row in make_rows(2, 9)]
    write_json(tmp_path / WARM_START, {QUESTIONS: digests})
    train, validation = split(parse, num_train_rows=8, model_name_or_path=str(tmp_path))
    assert train == questions(make_rows(0, 1, 3, 4, 5, 6)), "13 rows, without 2 of the warm start"
    assert validation == questions(make_rows(7, 8, 10, 11, 12))


def test_a_file_that_holds_no_rows_of_one_kind_is_refused(tmp_path):
    file = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError, match="only_rows: there is no file"):
        use_only_rows(str(file), None)
    file.write_text('{"prompt": "p"}')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 1: task missing"):
        use_only_rows(str(file), None)
    file.write_text('{"prompt": "p", "task": "t", "n": 1}\n{"prompt": "p", "task": "t", "n": "1"}')
    with pytest.raises(ValueError, match=r"rows\.jsonl: n is of several kinds"):
        use_only_rows(str(file), None)
