"""The code recipe: its rows hold what its rewards need, and a run logs its tests."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset, interleave_datasets
from support.launching import command, run
from support.scored_by_place import TINY, advantages_of, completions, generations

from recipes.common.data.overlap import check_duplicates
from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.metrics import answer_metric, by_reward, code_metric
from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from rewards import load_reward, load_rewards
from rewards.code_tests import OPTIONAL, CodeTests
from rewards.sandbox import Outcome

pytestmark = [
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
    ),
    pytest.mark.usefixtures("one_thread"),
]
ROOT = Path(__file__).parents[1]
COLUMNS = {"prompt", "task", "name", "tests", "solution", *OPTIONAL}
EXAMPLE = ["Write half(x).", "```python\ndef half(x):\n    return x / 2\n```"]
RIGHT = "```python\ndef twice(x):\n    return 2 * x\n```"
BY_HEART = "```python\ndef twice(x):\n    return {1: 2, 2: 4}.get(x)\n```"
HALF = "```python\ndef twice(x):\n    return 2\n```"
TASK = {
    "prompt": "Write twice(x).",
    "tests": ["assert twice(1) == 2", "assert twice(2) == 4"],
    "hidden_tests": ["assert twice(5) == 10"],
    "solution": "def twice(x):\n    return 2 * x",
}
ECHO = {
    "prompt": "Print the line.",
    "tests": ['{"stdin": "a", "stdout": "a"}'],
    "solution": "print(input())",
}
OWN = {"prompt": "Write triple(x).", "tests": ["assert triple(1) == 3"]}


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/code/train.py")


def test_tasks_with_the_same_text_and_other_tests_are_two_rows():
    """As MBPP's 76 and 347."""
    rows = [
        {"prompt": "Count squares.", "task": "code", "tests": [test]}
        for test in ("assert f(1)", "assert f(2)")
    ]
    assert check_duplicates([], rows) == []
    (problem,) = check_duplicates([], [*rows, rows[1]])
    assert "evaluation rows: 1 of 3 stand there twice (the first: row 2 is row 1)" in problem


def write_tasks(folder: Path, train: list[dict], test: list[dict]) -> str:
    for split, tasks in (("train", train), ("test", test)):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return str(folder)


@pytest.fixture
def rows(recipe, tmp_path: Path) -> Callable[..., Dataset]:
    """The training rows of a folder with these tasks."""

    def load(*tasks: dict, **settings) -> Dataset:
        path = write_tasks(tmp_path, list(tasks), [TASK])
        return recipe.load_rows(RecipeArguments(dataset_path=path, **settings), seed=0)[0]

    return load


# Rows


def test_a_row_has_the_columns_that_rewards_need_and_no_others(rows):
    made = rows(TASK, ECHO, OWN)
    assert set(made.column_names) == COLUMNS
    assert made[0]["tests"] == TASK["tests"] and made[0]["hidden_tests"] == TASK["hidden_tests"]
    empty = dict.fromkeys(("setup", "preamble", "entry_point", "solution"), "")
    empty |= {"inplace": False, "hidden_tests": []}
    assert {name: made[2][name] for name in (*OPTIONAL, "solution")} == empty


def test_a_prompt_asks_for_a_block_and_shows_the_example(recipe, rows):
    assert rows(TASK, example=EXAMPLE)[0]["prompt"] == [
        {"role": "system", "content": recipe.SYSTEM_PROMPT},
        {"role": "user", "content": EXAMPLE[0]},
        {"role": "assistant", "content": EXAMPLE[1]},
        {"role": "user", "content": "Write twice(x)."},
    ]
    assert [message["role"] for message in rows(TASK)[0]["prompt"]] == ["system", "user"]


def test_the_reference_is_the_solution_in_the_asked_format_or_none_and_earns_the_full_rewards(
    recipe, rows
):
    made = rows(TASK, ECHO, OWN)
    texts = [recipe.reference_completion(row) for row in made]
    assert (texts[0], texts[2]) == (RIGHT, None)
    columns = {name: list(made[name])[:2] for name in made.column_names}
    prompts = columns.pop("prompt")
    for reward in load_rewards(["code_tests", "code_format"]):
        assert reward(prompts=prompts, completions=texts[:2], **columns) == [1.0, 1.0]


def test_without_a_folder_the_recipe_says_what_to_give(recipe):
    with pytest.raises(
        ValueError,
        match=r"dataset_path is missing: give a folder that scripts/prepare_code\.py wrote",
    ):
        recipe.load_rows(RecipeArguments(), seed=0)


def test_a_column_of_hidden_tests_that_are_all_empty_does_no_harm(rows):
    """Arrow takes it for a list of nulls; next to rows with hidden tests it is one of texts."""
    empty, full = rows(ECHO, OWN), rows(TASK)
    others = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": "1 + 1 ="}], "task": "math", "answer": "2"}]
    )
    assert empty.map(lambda row: {"length": 1}).to_list()[0]["hidden_tests"] == []
    mixed = interleave_datasets([empty, others, full], stopping_strategy="all_exhausted").to_list()
    hidden = [row["hidden_tests"] for row in mixed[:3]]
    assert hidden == [[], None, TASK["hidden_tests"]]


# The metric


@pytest.mark.parametrize(
    ("completion", "tests", "hidden", "format"),
    [
        (RIGHT, True, True, True),
        (BY_HEART, True, False, True),
        (HALF, False, False, True),
        (RIGHT + "\n" + RIGHT, True, True, False),
        ("twice", False, False, False),
    ],
)
def test_the_metric_is_all_tests_all_hidden_tests_and_format(
    rows, completion, tests, hidden, format
):
    wanted = {"tests": tests, "hidden": hidden, "format": format}
    assert code_metric(rows(TASK)[0], completion) == wanted
    del wanted["hidden"]  # where there are none
    assert code_metric(rows({**TASK, "hidden_tests": []})[0], completion) == wanted


@pytest.mark.parametrize(
    ("name", "rewards", "shared"),
    [
        ("code", ["code_tests", "code_format"], ["tests", "new tests"]),
        ("gsm8k", ["xml_format", "gsm8k_correctness"], ["strict"]),
        ("number_count", ["number_count"], ["any number", "five numbers"]),
        ("math_code", ["boxed_math", "code_tests"], ["math strict", "math lenient", "code tests"]),
    ],
)
def test_a_recipe_says_which_metrics_score_as_a_reward_of_the_run_does(name, rewards, shared):
    module = import_recipe(ROOT / f"recipes/{name}/train.py")
    metric = getattr(module, "metric", answer_metric)
    assert by_reward(metric, load_rewards(rewards)) == shared


def test_the_metric_of_a_row_that_the_sandbox_failed_on_is_the_format_alone(rows, monkeypatch):
    class Broken:
        def run_batch(self, jobs: list) -> list[Outcome]:
            return [Outcome("infra", "planted", 0.0, "", (False,) * 3)] * len(jobs)

    row = rows(TASK)[0]
    monkeypatch.setattr(CodeTests, "sandbox", lambda self: Broken())
    assert code_metric(row, RIGHT) == {"format": True}


# In a run


class Answers(CodeTests):
    """`code_tests` of completions that are given by place: no tiny model writes a program."""

    def __init__(self, *texts: str):
        super().__init__()
        self.texts = texts

    def __call__(
        self, prompts: list, completions: list, tests: list, **columns
    ) -> list[float | None]:
        given = [self.texts[i % len(self.texts)] for i in range(len(completions))]
        return super().__call__(prompts, given, tests, **columns)


@pytest.fixture
def train(model: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """One step on given rows; the completions are in tmp_path."""

    def trained(made: Dataset, *rewards: Callable) -> GRPOTrainer:
        args = GRPOConfig(output_dir=str(tmp_path / "run"), **TINY)
        trainer = GRPOTrainer(
            model=str(model), reward_funcs=list(rewards), args=args, train_dataset=made
        )
        trainer.train()
        return trainer

    return trained


@pytest.mark.slow
def test_a_batch_with_programs_logs_the_outcomes_of_their_tests(rows, train, tmp_path):
    trainer = train(
        rows(TASK, OWN), Answers(RIGHT, BY_HEART, HALF, "none"), load_reward("code_format")
    )
    (logged,) = generations(trainer)
    wanted = {"suspicious": 0.0, "visible": 2.5 / 4, "hidden": 0.25, "gap": 0.375}
    for name, value in wanted.items():
        assert logged[f"code_tests/{name}"] == pytest.approx(value)
    assert not any(logged[f"{name}/code_tests"] for name in ("errors", "unparsed", "timeouts"))
    assert logged["rewards/code_tests/mean"] == pytest.approx(2.5 / 8)
    table = completions(tmp_path / "run")
    assert table["code_tests"] == [1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert table["outcome/code_tests"] == ["graded"] * 8
    reasons = ["", "AssertionError", "AssertionError", "NameError: name 'none' is not defined"]
    assert table["code_tests/reason"][:4] == reasons
    assert table["advantage"] == pytest.approx(advantages_of(table["code_tests"]), abs=1e-5)


@pytest.mark.slow
def test_the_recipe_runs_and_leaves_what_its_programs_earned(model, tmp_path):
    train = [TASK, ECHO, OWN, TASK | {"prompt": "Double."}]
    path = write_tasks(tmp_path, train, [TASK | {"prompt": "Twice?"}])
    few = {"max_steps": 2, "num_eval_samples": 0, "log_completions": "true", "dataset_path": path}
    printed = run(command("code", "smollm2-135m", model, tmp_path / "run", **few))
    assert "  code_tests: " in printed and "seccomp" in printed
    assert "code_tests: " in (tmp_path / "run/preflight.json").read_text()
    state = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())
    logged = [entry for entry in state["log_history"] if "reward" in entry]
    assert len(logged) == 2 and all(
        {"code_tests/suspicious", "errors/code_tests"} <= set(entry) for entry in logged
    )
    table = pd.read_parquet(tmp_path / "run/completions/completions_00002.parquet")
    assert set(table["outcome/code_tests"]) == {"graded"} and set(table["code_tests"]) == {0.0}
    (row,) = map(json.loads, (tmp_path / "run/evaluation/after.jsonl").read_text().splitlines())
    assert row["metrics"] == {"tests": False, "hidden": False, "format": False}
    assert row["by_reward"] == ["tests", "new tests"]
