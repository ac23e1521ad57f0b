"""Is it still English? Perplexity under the untrained model, and how much of a text repeats itself."""

import itertools
import math

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from recipes.common.evaluation.generate import prompt_text


@torch.no_grad()
def perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str | list[dict]],
    texts: list[str],
    chat_template_kwargs: dict | None = None,
) -> float:
    """exp of the mean negative log-likelihood of a token of `texts` after their prompts, all tokens weighted alike.

    Low for what the model would say itself, endless repetition included: read it beside `distinct_n`.

    Raises:
        ValueError: no text has a token.
    """
    total, count = 0.0, 0
    for prompt, text in zip(prompts, texts, strict=True):
        before = prompt_text(tokenizer, prompt, chat_template_kwargs)
        start = tokenizer(before, add_special_tokens=isinstance(prompt, str))["input_ids"]
        added = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([start + added], device=model.device)
        # The last token predicts nothing, the token before the first of the text predicts it.
        logits = model(ids, logits_to_keep=len(added) + 1).logits[0, :-1].float() if added else None
        if logits is not None:
            targets = ids[0, len(start) :]
            total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
            count += len(added)
    if not count:
        raise ValueError("no text has a token, so there is no perplexity")
    return math.exp(total / count)


def distinct_n(texts: list[str], n: int, within: bool = False) -> float:
    """The share of word n-grams that differ, over all texts (Li et al. 2016), or `within` each text alone.

    Returns:
        0.0 to 1.0; 1.0 where no text has n words.

    Example: `distinct_n(["a b a", "a b"], 2) == 2 / 3`; `distinct_n(["a b a", "a b"], 2, within=True) == 1.0`
    """
    grams = [_ngrams(text.split(), n) for text in texts]
    total = sum(len(g) for g in grams)
    different = sum(len(set(g)) for g in grams) if within else len(set(itertools.chain(*grams)))
    return different / total if total else 1.0


def _ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))
