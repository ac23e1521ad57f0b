"""Generated one-line functions: references that pass, expressions and templates that training never sees."""

import pytest

from recipes.code.one_liners import NEW, TRAINED, one_liner_tasks
from recipes.code.prepare import load_tasks, prepare
from recipes.common.data.split import is_held_out


def held_out(expression: str) -> bool:
    return is_held_out(expression, one_in=8)


@pytest.fixture(scope="module")
def tasks() -> dict[str, list[dict]]:
    return one_liner_tasks(200, 41, 0, held_out)


def expressions(tasks: list[dict]) -> set[str]:
    return {task["name"].split(": ", 1)[1] for task in tasks}


def test_test_tasks_are_half_of_new_templates_and_half_of_expressions_that_are_not_trained_on(
    tasks,
):
    new = [task for task in tasks["test"] if task["name"].startswith("new/")]
    assert (len(tasks["train"]), len(tasks["test"]), len(new)) == (200, 41, 20)
    assert not expressions(tasks["train"]) & expressions(tasks["test"])
    assert (
        len(TRAINED) >= 20 and len(NEW) == 5 and not {e for _, e in TRAINED} & {e for _, e in NEW}
    )


def test_the_same_seed_gives_the_same_tasks_each_with_a_name_of_its_own(tasks):
    assert one_liner_tasks(200, 41, 0, held_out) == tasks != one_liner_tasks(200, 41, 1, held_out)
    assert len({task["name"] for split in tasks.values() for task in split}) == 241


def test_a_task_shows_its_first_test_and_its_reference():
    (task, *_) = load_tasks("one_liners", None, train=1, test=2, seed=0, held_out=held_out)["train"]
    function, expression = task["name"].removeprefix("trained/").split(": ")
    assert task["solution"].startswith(f"def {function}(") and task["solution"].endswith(
        f"    return {expression}"
    )
    assert (
        task["prompt"].endswith("\nYour code should pass this test:\n" + task["tests"][0])
        and len(task["tests"]) == 6
    )


def test_more_tasks_than_the_templates_give_are_refused():
    with pytest.raises(ValueError, match="only 400 of 900 distinct tasks"):
        one_liner_tasks(1, 1800, 0, held_out)


@pytest.mark.slow
def test_each_template_passes_its_tests_in_the_sandbox_and_some_tasks_are_too_trivial(
    tmp_path, capsys
):
    assert (
        prepare("one_liners", tmp_path / "out", train=60, test=10, seed=3, held_out=held_out) == 0
    )
    printed = capsys.readouterr().out
    assert "the reference fails" not in printed and "a trivial solution passes" in printed
