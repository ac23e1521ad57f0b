"""Before and after: the same rows, the same decoding, row by row, whatever the number of processes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from support.tiny_model import build_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.common.evaluation.evaluate import evaluate, evaluate_in_training
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.evaluation.scores import compare, comparison_table, summarize
from recipes.common.sampling.generate import generate
from recipes.common.sampling.load_model import load_model
from recipes.common.utils.machine import make_head_input_contiguous
from recipes.common.utils.run_files import read_rows, write_rows
from rewards import load_reward

ROWS = [
    {
        "prompt": [{"role": "user", "content": f"{i} + {'1' * (i % 3 + 1)} ="}],
        "task": "sum",
        "answer": str(i),
    }
    for i in range(7)
]

MODULE = "recipes.common.evaluation.evaluate"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def evaluated(model, rank=0, world_size=1, **options):
    rewards = [load_reward("xml_format"), load_reward("gsm8k_correctness")]
    options = {"max_new_tokens": 8, "batch_size": 2, "decoding": {"temperature": 1.0}, **options}
    return evaluate(
        *model, ROWS, rewards, answer_metric, rank=rank, world_size=world_size, **options
    )


def evaluated_row(strict, lenient, prompt="p", tokens=10, truncated=False, reward=0.0):
    metrics = {"strict": strict, "lenient": lenient, "format": strict}
    return {
        "prompt": prompt,
        "metrics": metrics,
        "tokens": tokens,
        "truncated": truncated,
        "rewards": {"r": reward},
    }


def test_two_ranks_together_evaluate_every_row_once_as_one_process_does(model, monkeypatch):
    expected, parts = [(i, row["prompt"]) for i, row in enumerate(ROWS)], []
    assert [(row["row"], row["prompt"]) for row in evaluated(model)] == expected
    monkeypatch.setattr(f"{MODULE}.gather_object", lambda rows: parts.append(rows) or rows)
    for rank in (0, 1):
        with pytest.raises(KeyError):  # one rank alone does not hold all rows
            evaluated(model, rank=rank, world_size=2, samples=1)
    merged = {row["row"]: row for part in parts for row in part}
    assert [merged[i] for i in range(7)] == evaluated(model, samples=1)


def test_ranks_generate_equally_often(model, monkeypatch):
    """Under ZeRO-3 a rank that has one batch less would leave the others waiting."""
    calls = []
    monkeypatch.setattr(f"{MODULE}.gather_object", lambda rows: rows)
    monkeypatch.setattr(f"{MODULE}.generate", lambda *a, **k: calls.append(1) or generate(*a, **k))
    counts = []
    for rank in range(3):
        calls.clear()
        with pytest.raises(KeyError):
            evaluated(model, rank=rank, world_size=3)
        counts.append(len(calls))
    assert counts == [2, 2, 2]


def test_sampling_is_repeatable_and_leaves_the_greedy_answers_and_the_model_alone(model):
    before = {name: tensor.clone() for name, tensor in model[0].state_dict().items()}
    once, again = evaluated(model, samples=2, seed=1), evaluated(model, samples=2, seed=1)
    assert once == again and len(once[0]["samples"]) == 2
    assert [row["completion"] for row in once] == [row["completion"] for row in evaluated(model)]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model[0].state_dict().items())


def test_training_draws_the_same_numbers_after_an_evaluation_as_without_one(model):
    def unsteady(completions, **kwargs):
        return [random.random() + np.random.rand() for _ in completions]

    network, tokenizer = model
    args = dict.fromkeys(
        ("gradient_checkpointing_kwargs", "generation_kwargs", "chat_template_kwargs", "min_p")
    )
    args |= {
        "max_completion_length": 4,
        "per_device_eval_batch_size": 4,
        "ds3_gather_for_generation": True,
        "seed": 0,
    }
    args |= {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}
    parts = {"model_wrapped": network, "processing_class": tokenizer, "reward_funcs": [unsteady]}
    parts |= {"tools": [], "environment_factories": None}
    trainer = SimpleNamespace(
        args=SimpleNamespace(**args), accelerator=Accelerator(cpu=True), **parts
    )
    draws = []
    for evaluated in (False, True):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if evaluated:
            evaluate_in_training(trainer, ROWS, answer_metric, samples=1, title="before")
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]


def test_rewards_see_the_token_ids_that_they_score_and_a_plain_prompt_needs_no_chat_template(model):
    def length(completion_ids, **kwargs):
        return [float(len(ids)) for ids in completion_ids]

    rows = [*ROWS[:2], {"prompt": "1 + 1 =", "task": "sum", "answer": "2"}]
    found = evaluate(*model, rows, [length], answer_metric, max_new_tokens=8, batch_size=1)
    assert [row["rewards"]["length"] for row in found] == [
        float(row["tokens"]) for row in found
    ] and len(found) == 3


def test_a_row_answers_alike_alone_and_in_a_padded_batch(model):
    network, tokenizer = model
    together = generate(network, tokenizer, ROWS[:3], 8)
    assert together == [generate(network, tokenizer, [row], 8)[0] for row in ROWS[:3]]


def test_a_model_without_a_pad_token_is_loaded_as_in_a_run(tmp_path):
    folder = build_tiny_model(tmp_path / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    args = SimpleNamespace(
        training={"use_cpu": True, "trust_remote_code": False, "chat_template_path": None},
        model={"model_revision": None, "dtype": None, "attn_implementation": None},
    )
    assert AutoTokenizer.from_pretrained(folder).pad_token is None
    assert load_model(str(folder), args)[1].pad_token == "<|end|>"


def test_what_comes_after_the_end_of_sequence_is_cut_and_an_open_end_counts_as_truncated(model):
    network, tokenizer = model
    for _, token_ids, truncated, *_ in generate(network, tokenizer, ROWS, 8):
        assert truncated == (1 not in token_ids) and 1 not in token_ids[:-1] and len(token_ids) <= 8
    network.generation_config.eos_token_id = list(
        range(len(tokenizer))
    )  # whatever comes first ends it
    try:
        assert {(len(ids), cut) for _, ids, cut, *_ in generate(network, tokenizer, ROWS, 8)} == {
            (1, False)
        }
    finally:
        network.generation_config.eos_token_id = 1


def test_answer_metric_tells_format_from_skill():
    row = {"answer": "7"}
    formatted = "<reasoning>3 + 4 = 7</reasoning><answer>7</answer>"
    assert answer_metric(row, formatted) == {"strict": True, "lenient": True, "format": True}
    assert answer_metric(row, "3 + 4 = 7") == {"strict": False, "lenient": True, "format": False}
    assert answer_metric(row, formatted + " so 7") == {
        "strict": False,
        "lenient": True,
        "format": False,
    }
    assert answer_metric(row, formatted.replace("7", "8")) == {
        "strict": False,
        "lenient": False,
        "format": True,
    }


def test_summarize_counts_shares_means_and_intervals():
    summary = summarize(
        [
            evaluated_row(True, True, reward=2.0),
            evaluated_row(False, True, tokens=20, truncated=True),
        ]
    )
    assert (
        summary["n"] == 2
        and summary["strict"]["share"] == 0.5
        and summary["lenient"]["share"] == 1.0
    )
    assert (summary["truncated"], summary["mean_length"], summary["rewards"]) == (
        0.5,
        15.0,
        {"r": 1.0},
    )
    low, high = summary["strict"]["interval"]
    assert (round(low, 4), round(high, 4)) == (0.0945, 0.9055)


def test_compare_tests_the_paired_rows_shows_the_change_in_points_and_refuses_others():
    before = [evaluated_row(False, True, prompt=i) for i in range(10)]
    after = [evaluated_row(i < 9, True, prompt=i) for i in range(10)]
    assert compare(before, after) == {"strict": 0.00390625, "lenient": 1.0, "format": 0.00390625}
    table = comparison_table(
        summarize(before[5:]), summarize(after[5:]), compare(before[5:], after[5:])
    )
    assert "0.0 % (0-43)" in table and "80.0 % (38-96)" in table and "+80.0 pt" in table
    with pytest.raises(ValueError, match="same rows"):
        compare([evaluated_row(True, True, prompt="a")], [evaluated_row(True, True, prompt="b")])


def test_rows_are_read_back_as_written_and_nothing_half_written_stays(tmp_path):
    rows = [evaluated_row(True, False, prompt="«é»\u2028\x85\n")]
    write_rows(tmp_path / "e" / "before.jsonl", rows)
    assert read_rows(tmp_path / "e" / "before.jsonl") == rows
    assert [path.name for path in (tmp_path / "e").iterdir()] == ["before.jsonl"]


def test_a_models_own_repetition_penalty_does_not_reach_the_evaluation(model):
    network, tokenizer = model
    decoding = {"repetition_penalty": 1.0}
    before = generate(network, tokenizer, ROWS, 8, None, decoding)
    network.generation_config.repetition_penalty = 5.0
    try:
        assert generate(network, tokenizer, ROWS, 8, None, decoding) == before
        assert generate(network, tokenizer, ROWS, 8) != before, "the penalty would have been seen"
    finally:
        network.generation_config.repetition_penalty = None


def test_on_a_cpu_the_head_sees_a_contiguous_last_position_and_answers_as_before(model):
    seen, (network, _) = [], model
    ids = torch.arange(5, 25).view(4, 5)
    options = dict(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False
    )
    before = network.generate(**options)
    network.lm_head.register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0].is_contiguous())
    )
    network.generate(**options)
    assert not all(seen), (
        "the prompt's last position is contiguous by itself: the hook is not needed any more"
    )
    seen.clear()
    make_head_input_contiguous(network)
    after = network.generate(**options)
    assert all(seen) and torch.equal(before, after)
