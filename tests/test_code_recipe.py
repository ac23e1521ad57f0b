"""The code recipe: its rows hold what its rewards need, and a run logs its tests."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from datasets import Dataset
from support.launching import ROOT, command, run
from support.sandbox import on_linux
from support.scored_by_place import make_trainer

from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.evaluation.metrics import answer_metric, by_reward, code_metric
from recipes.common.sampling.idle import sample
from recipes.common.watch import Watch
from rewards import load_rewards
from rewards.code_tests import CodeTests
from rewards.sandbox import Outcome

pytestmark = on_linux
RIGHT = "```python\ndef twice(x):\n    return 2 * x\n```"
BY_HEART = "```python\ndef twice(x):\n    return {1: 2, 2: 4}.get(x)\n```"
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
UNSOLVED = {"prompt": "Write triple(x).", "tests": ["assert triple(1) == 3"]}


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/code/train.py")


def write_tasks(folder, train, test):
    for split, tasks in (("train", train), ("test", test)):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return str(folder)


@pytest.fixture
def rows(recipe, tmp_path):
    """The training rows of a folder with these tasks."""

    def load(*tasks, **settings):
        path = write_tasks(tmp_path, tasks, [TASK])
        return recipe.load_rows(recipe.RecipeArguments(dataset_path=path, **settings), seed=0)[0]

    return load


def test_a_folder_without_test_tasks_trains_where_none_are_evaluated(rows, recipe, tmp_path):
    assert len(rows(TASK, ECHO)) == 2
    (tmp_path / "test.jsonl").unlink()
    args = recipe.RecipeArguments(dataset_path=str(tmp_path))
    with pytest.raises(
        ValueError, match=r"no file .*test\.jsonl\. Prepare the tasks with --held_out"
    ):
        recipe.load_rows(args, seed=0)
    train, test = recipe.load_rows(replace(args, num_eval_rows=0), seed=0)
    assert (len(train), test) == (2, None)


def test_the_reference_is_the_solution_or_none_and_earns_the_full_rewards(recipe, rows):
    made = rows(TASK, ECHO, UNSOLVED)
    texts = [recipe.reference_completion(row) for row in made]
    assert (texts[0], texts[2]) == (RIGHT, None)
    columns = {name: list(made[name])[:2] for name in made.column_names}
    prompts = columns.pop("prompt")
    for reward in load_rewards(["code_tests", "code_format"]):
        assert reward(prompts=prompts, completions=texts[:2], **columns) == [1.0, 1.0]


STUB = {**TASK, "prompt": "Complete this Python function:\n\ndef twice(x):"}


def test_a_prompt_has_the_words_that_are_asked_for_around_the_task_and_begins_the_answer(rows):
    asked = rows(TASK, STUB)["prompt"]
    assert [prompt[-1]["content"] for prompt in asked] == [TASK["prompt"], STUB["prompt"]]
    words = {"user_prompt": "Go on:\n```\n{task}\n```", "answer_start": "```python\n"}
    system, question, answer = rows(STUB, system_prompt="Be brief.", **words)["prompt"][0]
    assert system == {"role": "system", "content": "Be brief."}
    assert question == {"role": "user", "content": "Go on:\n```\ndef twice(x):\n```"}
    assert answer == {"role": "assistant", "content": "```python\n"}
    with pytest.raises(ValueError, match="user_prompt is 'Go on', without"):
        rows(TASK, user_prompt="Go on")


@pytest.mark.parametrize("first", [0, 1], ids=["begun first", "begun last"])
def test_training_evaluation_probe_and_watch_read_a_begun_answer_whole_among_others(
    model, tmp_path, first
):
    scored, user = [], {"role": "user", "content": "Go on"}

    def reward(prompts, completions, **columns):
        scored.extend(completion[0]["content"] for completion in completions)
        return [float(i) for i in range(len(completions))]

    prompts = [[user, {"role": "assistant", "content": "It is "}], [user]]
    rows = [{"prompt": prompt, "task": "code"} for prompt in prompts]
    trainer = make_trainer(model, tmp_path, [reward], ["code", "code"], {})
    trainer.train_dataset = Dataset.from_list(rows[first:] + rows[:first])
    ids, *_ = trainer._tokenize_prompts(prompts[first:] + prompts[:first])
    texts = ["<|user|>Go on<|end|><|assistant|>It is ", "<|user|>Go on<|end|><|assistant|>"]
    assert trainer.processing_class.batch_decode(ids) == texts[first:] + texts[:first]
    trainer.train()
    begun = [text.startswith("It is ") for text in scored]
    assert begun == ([True] * 4 + [False] * 4)[:: 1 - 2 * first]
    (rollout,) = sample(trainer, rows[:1], 1, 1)[0]
    assert rollout.text.startswith("It is ") and rollout.tokens <= 4, "those of the model alone"
    watched = Watch(
        trainer, rows, lambda row, text: {"begun": text.startswith("It is ")}, None, None
    )
    evaluated = evaluate(trainer, rows, watched.metric, samples=1, complete=watched.complete)
    assert [row["metrics"]["begun"] for row in evaluated] == [True, False]
    assert [row["samples"][0]["begun"] for row in evaluated] == [True, False]
    assert [row["completion"].startswith("It is ") for row in evaluated] == [True, False]


@pytest.mark.parametrize(
    ("completion", "tests", "hidden", "format"),
    [
        (RIGHT, True, True, True),
        (BY_HEART, True, False, True),
        (RIGHT + "\n" + RIGHT, True, True, False),  # two blocks
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


def test_the_metric_of_a_row_that_the_sandbox_failed_on_is_the_format_alone(rows, monkeypatch):
    class Broken:
        def run_batch(self, jobs: list) -> list[Outcome]:
            return [Outcome("infra", "planted", 0.0, "", (False,) * 3)] * len(jobs)

    row = rows(TASK)[0]
    monkeypatch.setattr(CodeTests, "sandbox", lambda self: Broken())
    assert code_metric(row, RIGHT) == {"format": True}


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


@pytest.mark.slow
def test_the_recipe_runs_and_leaves_what_its_programs_earned(model, tmp_path):
    train = [TASK, ECHO, UNSOLVED, TASK | {"prompt": "Double."}]
    path = write_tasks(tmp_path, train, [TASK | {"prompt": "Twice?"}])
    few = {"max_steps": 2, "num_eval_samples": 0, "log_completions": "true", "dataset_path": path}
    printed = run(command("code", "smollm2-135m", model, tmp_path / "run", **few))
    assert "  code_tests: " in printed and "seccomp" in printed
    state = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())
    logged = [entry for entry in state["log_history"] if "reward" in entry]
    assert len(logged) == 2
    assert all("errors/code_tests" in entry for entry in logged)
    table = pd.read_parquet(tmp_path / "run/completions/completions_00002.parquet")
    assert set(table["outcome/code_tests"]) == {"graded"} and set(table["code_tests"]) == {0.0}
    (row,) = map(json.loads, (tmp_path / "run/evaluation/after.jsonl").read_text().splitlines())
    assert row["metrics"] == {"tests": False, "hidden": False, "format": False}
    assert row["by_reward"] == ["tests", "new tests"]
