"""Is it still English? Perplexity under the untrained model, and how much of a text repeats itself."""

import itertools
import math
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from recipes.common.sampling.generate import prompt_text
from recipes.common.utils.run_files import RECORD, read_evaluation, read_json
from rewards.fluency import word_share


@torch.no_grad()
def perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str | list[dict]],
    texts: list[str],
    chat_template_kwargs: dict | None = None,
) -> float:
    """exp of the mean negative log-likelihood of a token of `texts` after their prompts, all tokens weighted alike.

    Low for what the model itself would write, endless repetition included: read it together with `distinct_n`.
    """
    total, count = 0.0, 0
    for prompt, text in zip(prompts, texts, strict=True):
        before = prompt_text(tokenizer, prompt, chat_template_kwargs)
        start = tokenizer(before, add_special_tokens=isinstance(prompt, str))["input_ids"]
        added = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([start + added], device=model.device)
        if (
            added
        ):  # the last token predicts nothing, the token before the first of the text predicts it
            logits = model(ids, logits_to_keep=len(added) + 1).logits[0, :-1].float()
            total += torch.nn.functional.cross_entropy(
                logits, ids[0, len(start) :], reduction="sum"
            ).item()
            count += len(added)
    if not count:
        raise ValueError("no text has a token, so there is no perplexity")
    return math.exp(total / count)


def distinct_n(texts: list[str], n: int, within: bool = False) -> float:
    """The share of word n-grams that differ, over all texts (Li et al. 2016) or `within` each; 1.0 of none."""
    words = [text.split() for text in texts]
    grams = [list(zip(*(text[i:] for i in range(n)), strict=False)) for text in words]
    total = sum(len(g) for g in grams)
    different = sum(len(set(g)) for g in grams) if within else len(set(itertools.chain(*grams)))
    return different / total if total else 1.0


def fluency_table(folder: Path) -> list[dict[str, Any]]:
    """A line of figures each for before and after a run, of the sampled held-out completions or the greedy ones."""
    evaluated, config = read_evaluation(folder), read_json(folder / RECORD)
    name, revision = config["model_name_or_path"], {"revision": config["model_revision"]}
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **revision).eval()
    tokenizer, template = (
        AutoTokenizer.from_pretrained(name, **revision),
        config["chat_template_kwargs"],
    )
    lines = []
    for when, rows in zip(("before", "after"), evaluated, strict=True):
        sampled = [row.get("sampled_completions", [row["completion"]]) for row in rows]
        texts = [text for of_row in sampled for text in of_row]
        prompts = [row["prompt"] for row, of_row in zip(rows, sampled, strict=True) for _ in of_row]
        means = {}
        for name in rows[0]["rewards"]:
            scores = [row["rewards"][name] for row in rows if row["rewards"][name] is not None]
            means[f"{name} (greedy)"] = round(mean(scores or [0.0]), 3)
        likely = round(perplexity(model, tokenizer, prompts, texts, template), 2)
        shown = {"run": folder.name, "": when, "texts": len(texts), **means, "perplexity": likely}
        distinct = {f"distinct-{n}": round(distinct_n(texts, n), 3) for n in (1, 2)}
        distinct["distinct-2 within"] = round(distinct_n(texts, 2, within=True), 3)
        lines.append({**shown, "words %": round(100 * word_share(" ".join(texts)), 1), **distinct})
    return lines
