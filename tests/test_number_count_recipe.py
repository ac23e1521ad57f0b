"""The number-count recipe: passages cut to prompts, chat or plain, from a file or a stream, and samples at the end."""

import json
from pathlib import Path

import pytest
from datasets import IterableDataset
from support.launching import command, run
from support.tiny_model import build_tiny_model

from recipes.common.before.recipe import import_recipe
from recipes.common.tools.folder import read_rows

ROOT = Path(__file__).parents[1]
WORDS = [f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(400)]


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/number_count/train.py")


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    """Forty passages of forty words, in a folder that `load_dataset` reads as a data set."""
    texts = [" ".join(WORDS[i : i + 40]) for i in range(0, 360, 9)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return tmp_path / "data"


def test_a_prompt_is_the_instruction_and_the_first_words(recipe):
    row = recipe.to_row({"text": "one two three four"}, recipe.RecipeArguments(num_prompt_words=2))
    assert row["prompt"][-1] == {"role": "user", "content": f"{recipe.INSTRUCTION}\n\none two"}
    assert row["task"] == "number_count"


def test_a_model_without_a_chat_template_gets_plain_text(recipe):
    row = recipe.to_row({"text": "one two three"}, recipe.RecipeArguments(num_prompt_words=2, chat=False))
    assert row["prompt"] == f"{recipe.INSTRUCTION}\n\none two"


def test_the_passages_that_come_with_it_have_no_digits_and_two_splits(recipe):
    train, held_out = recipe.load_rows(recipe.RecipeArguments(num_eval_rows=15), seed=0)
    prompts = [row["prompt"][-1]["content"] for rows in (train, held_out) for row in rows]
    assert (len(train), len(held_out), len(set(prompts))) == (33, 15, 48)
    assert not any(character.isdigit() for prompt in prompts for character in prompt)


def test_another_seed_holds_out_the_same_passages(recipe):
    held_out = [recipe.load_rows(recipe.RecipeArguments(num_eval_rows=15), seed)[1] for seed in (0, 1)]
    first, second = ([row["prompt"][-1]["content"] for row in rows] for rows in held_out)
    assert set(first) == set(second) and first != second


def test_a_folder_of_passages_will_do(recipe, tmp_path):
    args = recipe.RecipeArguments(dataset_path=str(tmp_path), num_eval_rows=15)
    with pytest.raises(ValueError, match="dataset_path: there is no"):
        recipe.load_rows(args, seed=0)
    (tmp_path / "passages.jsonl").write_bytes(recipe.OWN_PASSAGES.read_bytes())
    assert len(recipe.load_rows(args, seed=0)[0]) == 33


def test_more_held_out_passages_than_there_are_are_refused(recipe):
    with pytest.raises(ValueError, match="num_eval_rows is 16, but only 15 passages are held out"):
        recipe.load_rows(recipe.RecipeArguments(num_eval_rows=16), seed=0)


def test_a_stream_trains_on_what_follows_the_held_out_rows(recipe, passages):
    args = recipe.RecipeArguments(dataset_name=str(passages), num_eval_rows=5, chat=False)
    train, held_out = recipe.load_rows(args, seed=0)
    assert isinstance(train, IterableDataset) and len(held_out) == 5
    assert held_out[0]["prompt"].endswith("\n\n" + " ".join(WORDS[:25]))
    assert next(iter(train))["prompt"].endswith("\n\n" + " ".join(WORDS[45:70]))


@pytest.mark.slow
def test_a_streamed_plain_text_run_trains_and_shows_samples(passages, tmp_path):
    model = build_tiny_model(tmp_path / "model")
    plain = {"dataset_name": passages, "chat": "false", "max_steps": 2, "save_strategy": "no", "num_eval_rows": 4}
    printed = run(command("number_count", "hack", model, tmp_path / "run", num_eval_samples=1, **plain))
    rows = read_rows(tmp_path / "run/evaluation/after.jsonl")
    assert all(isinstance(row["prompt"], str) and len(row["sampled_completions"]) == 1 for row in rows)
    assert printed.count("\n  before  ") == printed.count("\n  after   ") == 3


@pytest.mark.slow
def test_the_cure_pays_numbers_in_prose_alone(tmp_path):
    """A tiny random model writes no prose: nothing is paid for its numbers."""
    model = build_tiny_model(tmp_path / "model")
    run(command("number_count", "cure", model, tmp_path / "run", max_steps=2, num_eval_samples=0))
    log = json.loads((tmp_path / "run/trainer_state.json").read_text())["log_history"]
    steps = [entry for entry in log if "reward" in entry]
    assert len(steps) == 2
    assert {entry["rewards/prose/mean"] for entry in steps} == {0.0}
    assert {entry["rewards/number_count/mean"] for entry in steps} == {None}  # a mean over nothing
