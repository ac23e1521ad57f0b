"""Fluency figures: exact n-gram shares, and a perplexity that is the model's own likelihood."""

import math
import sys

import fluency as script
import pytest
import torch
from support.tiny_model import build_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.common.evaluation.fluency import distinct_n, perplexity
from recipes.common.sampling.generate import prompt_text
from rewards import load_reward
from rewards.fluency import word_share

CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(
        folder
    )


def test_distinct_n_is_pooled_or_within_each_text():
    assert (distinct_n(["a b a", "a b"], 2), distinct_n(["a b a", "a b"], 2, within=True)) == (
        2 / 3,
        1.0,
    )
    assert (distinct_n(["a a a a"], 1), distinct_n(["a"], 2)) == (0.25, 1.0)


def test_word_share_counts_what_is_between_white_space():
    assert word_share("Don't go, 2013-07-25: (well)") == 0.75
    assert (word_share("1 2 3"), word_share(""), word_share("état naïve")) == (0.0, 0.0, 1.0)


def test_prose_scores_from_its_share_of_words_on():
    reward = load_reward("prose", min_words=0.5, full=2.0)
    assert reward(prompts=["p"] * 4, completions=["a b c 1", "a b 1 2", "a 1 2", ""]) == [
        2.0,
        2.0,
        0.0,
        0.0,
    ]


def test_word_share_takes_linear_time(hostile, seconds):
    assert seconds(lambda: word_share(hostile)) < 0.05


def test_perplexity_weighs_every_token_of_the_texts_alike(tiny):
    model, tokenizer = tiny
    losses, prompts, texts = [], [CHAT, "plain"], ["ab", "c"]
    for prompt, text in zip(prompts, texts, strict=True):
        start = tokenizer(prompt_text(tokenizer, prompt))["input_ids"]
        ids = start + tokenizer(text)["input_ids"]
        log_p = torch.log_softmax(model(torch.tensor([ids])).logits[0].detach(), dim=-1)
        losses += [-log_p[i - 1, ids[i]].item() for i in range(len(start), len(ids))]
    assert len(losses) == 3
    assert perplexity(model, tokenizer, prompts, texts) == pytest.approx(
        math.exp(sum(losses) / 3), rel=1e-5
    )


def test_an_empty_text_adds_nothing_to_perplexity(tiny):
    assert perplexity(*tiny, [CHAT, CHAT], ["ab", ""]) == perplexity(*tiny, [CHAT], ["ab"])
    with pytest.raises(ValueError, match="no text has a token"):
        perplexity(*tiny, [CHAT], [""])


def test_a_folder_that_is_not_a_run_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fluency.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "missing: is" in capsys.readouterr().err
