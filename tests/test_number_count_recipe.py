"""The number-count recipe: passages cut to prompts, chat or plain, from a file or a stream."""

import pytest
from datasets import IterableDataset
from support.launching import ROOT, command, run

from recipes.common.data.recipe import import_recipe
from recipes.common.utils.run_files import read_rows, write_rows

WORDS = [f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(400)]


@pytest.fixture(scope="module")
def recipe():
    return import_recipe(ROOT / "recipes/number_count/train.py")


@pytest.fixture(scope="module")
def passages(tmp_path_factory):
    """Forty passages of forty words, in a folder that `load_dataset` reads as a data set."""
    folder = tmp_path_factory.mktemp("passages")
    texts = [" ".join(WORDS[i : i + 40]) for i in range(0, 360, 9)]
    write_rows(folder / "train.jsonl", [{"text": text} for text in texts])
    return folder


@pytest.mark.parametrize("chat", [True, False])
def test_a_prompt_is_the_instruction_and_the_first_words_in_a_chat_or_plain(recipe, chat):
    args = recipe.RecipeArguments(num_prompt_words=2, chat=chat)
    row = recipe.to_row({"text": "one two three four"}, args)
    text = row["prompt"][-1]["content"] if chat else row["prompt"]
    assert (text, row["task"]) == (f"{recipe.INSTRUCTION}\n\none two", "number_count")


def test_the_recipes_own_passages_have_no_digits_and_two_splits_whatever_the_seed(recipe):
    splits = [recipe.load_rows(recipe.RecipeArguments(num_eval_rows=15), seed) for seed in (0, 1)]
    (train, first), (_, second) = (
        [[row["prompt"][-1]["content"] for row in rows] for rows in pair] for pair in splits
    )
    assert (len(train), len(first), len({*train, *first})) == (33, 15, 48)
    assert not any(character.isdigit() for prompt in (*train, *first) for character in prompt)
    assert set(first) == set(second) and first != second


def test_a_stream_trains_on_what_follows_the_held_out_rows(recipe, passages):
    args = recipe.RecipeArguments(dataset_name=str(passages), num_eval_rows=5, chat=False)
    train, held_out = recipe.load_rows(args, seed=0)
    assert isinstance(train, IterableDataset) and len(held_out) == 5
    assert held_out[0]["prompt"].endswith("\n\n" + " ".join(WORDS[:25]))
    assert next(iter(train))["prompt"].endswith("\n\n" + " ".join(WORDS[45:70]))


@pytest.mark.slow
def test_a_streamed_plain_text_run_trains_on_rows_without_a_chat(model, passages, tmp_path):
    settings = {"dataset_name": passages, "chat": "false", "num_eval_rows": 4, "max_steps": 2}
    settings |= {"num_eval_samples": 1, "launch": None}
    run(command("number_count", "hack", model, tmp_path / "hack", **settings))
    rows = read_rows(tmp_path / "hack/evaluation/after.jsonl")
    assert all(isinstance(row["prompt"], str) for row in rows)
    assert all(len(row["sampled_completions"]) == 1 for row in rows)
