"""A warm start: what it trains on, what it leaves, and the questions that later runs leave out."""

import sys
from pathlib import Path

import pytest
from support.launching import ROOT, run

from recipes.common.data.overlap import QUESTIONS, check_questions, question_digest
from recipes.common.data.recipe import load_recipe
from recipes.common.utils.run_files import WARM_START, read_json, write_json
from recipes.common.warm_start import reference_examples, train, warm_start

CONFIG = ROOT / "recipes/arithmetic/warm.yaml"
SIZES = ["--num_train_rows", "12", "--num_eval_rows", "4", "--eval_strategy", "no"]
SIZES += ["--num_validation_rows", "0"]


def warm_model(folder: Path, questions: list[str]) -> str:
    """A folder that says which questions its warm start used."""
    write_json(folder / WARM_START, {QUESTIONS: [question_digest(text) for text in questions]})
    return str(folder)


def test_a_run_that_evaluates_on_the_questions_of_its_warm_start_is_refused(tmp_path):
    words = ("one", "two", "three")
    rows = [{"task": "words", "prompt": [{"role": "user", "content": text}]} for text in words]
    (message,) = check_questions([], rows, warm_model(tmp_path, ["Two", "four"]))
    assert "1 of 3 evaluation rows were in the warm start of" in message
    assert "the first: 'two'" in message
    assert check_questions([], rows, warm_model(tmp_path, ["four"])) == []
    assert check_questions([], rows, "org/model") == []


def test_a_warm_start_on_test_questions_is_refused(tmp_path, monkeypatch):
    recipe = load_recipe(CONFIG, SIZES)
    recipe.eval_rows = recipe.train_rows.select([3])
    monkeypatch.setattr("recipes.common.warm_start.load_recipe", lambda *_: recipe)
    with pytest.raises(ValueError, match="1 of 1 evaluation rows are also training rows"):
        warm_start(CONFIG, SIZES, 12, 2, None, tmp_path / "warm")


def test_prompts_that_begin_the_answer_are_refused():
    prompt = [{"role": "user", "content": "Go on"}, {"role": "assistant", "content": "It is "}]
    recipe = load_recipe(CONFIG, SIZES)
    recipe.train_rows = recipe.train_rows.map(lambda row: {"prompt": prompt})
    with pytest.raises(ValueError, match="the prompts begin the answer"):
        reference_examples(recipe, 4)


def test_the_examples_have_the_template_that_the_run_will_have():
    words = ["--chat_template_kwargs", '{"enable_thinking": false}']
    (example,) = reference_examples(load_recipe(CONFIG, SIZES + words), 1)
    assert example["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_learning_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match=f"--learning_rate is {rate}; it must be above 0"):
        warm_start(CONFIG, SIZES, 4, 2, rate, None)


def test_the_model_is_loaded_with_the_settings_of_the_run(model, tmp_path, monkeypatch):
    seen = {}

    def not_trained(args, **parts):
        seen.update(args.model_init_kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr("recipes.common.warm_start.SFTTrainer", not_trained)
    words = ["--model_name_or_path", str(model), "--dtype", "float32"]
    words += ["--model_init_kwargs", '{"attention_dropout": 0.5}']
    recipe = load_recipe(CONFIG, SIZES + words)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, [{"prompt": [], "completion": []}], 1, 0.1, tmp_path)
    assert (seen["attention_dropout"], seen["dtype"]) == (0.5, "float32")


@pytest.mark.slow
def test_a_warm_start_leaves_a_checkpoint_that_writes_the_references_more_likely(model, tmp_path):
    folder = tmp_path / "warm"
    words = ["--config", CONFIG, *SIZES, "--model_name_or_path", model, "--rows", "8"]
    words += ["--max_completion_length", "8", "--steps", "2", "--output_dir", folder]
    words += ["--dtype", "float32", "--bf16", "true"]  # on a CPU too, as a run
    command = list(map(str, [sys.executable, ROOT / "scripts/warm_start.py", *words]))
    printed = run(command)
    assert f"Train from it: --model_name_or_path {folder}" in printed
    assert "'num_tokens':" in printed
    record = read_json(folder / WARM_START)
    assert (len(record[QUESTIONS]), record["steps"], record["model"]) == (8, 2, str(model))
    assert reference_loss(folder) < reference_loss(model)
    assert f"{folder} exists" in run(command, expect=1)


def reference_loss(name: Path) -> float:
    """The loss of a checkpoint, which loads without an adapter, on a reference completion."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    recipe = load_recipe(CONFIG, SIZES)
    text = recipe.module.reference_completion(recipe.train_rows[0])
    tokens = torch.tensor([AutoTokenizer.from_pretrained(name)(text)["input_ids"]])
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(name)(tokens, labels=tokens).loss.item()
