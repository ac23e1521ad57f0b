"""Small rewards: length in tokens, the share of words, and controls that do not read the gold."""

import hashlib
import json
import re
from collections import Counter
from typing import Any

from rewards.answer import final_answer, last_box, last_tag
from rewards.rows import read_each
from rewards.text import answer_part, completion_text

_WORD = re.compile(r"[^\w\s]*[^\W\d_]+(?:['’-][^\W\d_]+)*[^\w\s]*")


class Length:
    """Shaping: 1.0 within `tolerance` tokens of `target`, falling to 0.0 `target` tokens further.

    The end-of-sequence token counts, as in TRL.

    Example: with target 50 and tolerance 5, 75 tokens score 0.6.
    """

    __name__ = "length"
    kind = "shaping"
    farmable = "any text of about the target length earns it: count it only with a right answer"

    def __init__(self, target: int, tolerance: int = 0):
        if target < 1 or tolerance < 0:
            raise ValueError(
                f"length: target is {target}, tolerance {tolerance}; they must be at least 1 and "
                "0 tokens."
            )
        self.target, self.tolerance = target, tolerance

    def __call__(
        self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs
    ) -> list[float]:
        beyond = [max(0, abs(len(ids) - self.target) - self.tolerance) for ids in completion_ids]
        return [max(0.0, 1.0 - tokens / self.target) for tokens in beyond]


class SoftOverlong:
    """Shaping: TRL's soft overlong punishment (DAPO, eq. 13), down to -1.0 at the limit."""

    __name__ = "soft_overlong"
    kind = "shaping"
    farmable = "it punishes length alone: a text that says nothing is short"

    def __init__(self, max_completion_len: int, soft_punish_cache: int):
        if not 0 <= soft_punish_cache <= max_completion_len:
            raise ValueError(
                f"soft_overlong: soft_punish_cache is {soft_punish_cache}; it must lie between 0 "
                f"and max_completion_len ({max_completion_len})."
            )
        from trl.rewards import get_soft_overlong_punishment

        self.punishment = get_soft_overlong_punishment(max_completion_len, soft_punish_cache)

    def __call__(
        self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs
    ) -> list[float]:
        return self.punishment(completion_ids=completion_ids)


def word_share(text: str) -> float:
    """The share of words, from 0.0 to 1.0, among the pieces that white space separates.

    A word is letters, with or without punctuation. A text without pieces scores 0.0.

    Example: `word_share("Don't go, 2013-07-25: (well)") == 0.75`
    """
    pieces = text.split()
    words = [piece for piece in pieces if _WORD.fullmatch(piece)]
    return len(words) / len(pieces) if pieces else 0.0


class Prose:
    """Format: `full` for a text with a `word_share` of at least `min_words`, else 0.0."""

    __name__ = "prose"
    kind = "format"
    farmable = "any words will do, in any order: it needs a KL term next to it"

    def __init__(self, min_words: float = 0.75, full: float = 1.0):
        self.min_words, self.full = min_words, full

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        shares = [word_share(completion_text(completion)) for completion in completions]
        return [self.full if share >= self.min_words else 0.0 for share in shares]


class Random:
    """Control: uniform in 0.0 to 1.0, hashed from seed, step and text, so resume repeats it."""

    __name__ = "random"
    kind = "control"
    farmable = "a control arm: it rewards any text"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __call__(
        self, prompts: list, completions: list, trainer_state: Any = None, **kwargs
    ) -> list[float]:
        step = getattr(trainer_state, "global_step", 0)
        keys = [f"{self.seed}/{step}/{completion_text(text)}" for text in completions]
        digests = [hashlib.sha256(key.encode(errors="surrogatepass")).digest() for key in keys]
        return [int.from_bytes(digest[:6], "big") / (2**48 - 1) for digest in digests]


class Constant:
    """Control: the same score for all completions, so every advantage is 0."""

    __name__ = "constant"
    kind = "control"
    farmable = "a control arm: it rewards any text"

    def __init__(self, value: float = 1.0):
        self.value = value

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [self.value for _ in completions]


class Majority:
    """Control: 1.0 for the most common final answer of the completion's group; reads no gold.

    A run with this reward improves by agreement alone (TTRL, arXiv 2504.16084). Compare a run with
    a verifier to see what the gold adds. Answers that are equally common all earn 1.0; a completion
    without an answer earns 0.0.

    Example: four completions of one prompt that end in 7, 8, 7 and nothing score 1, 0, 1 and 0.
    """

    __name__ = "majority"
    kind = "control"
    farmable = "a control arm: it rewards any answer that the group agrees on"

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        groups = [json.dumps(prompt) for prompt in prompts]
        answers = read_each(_final_answer_text, [completion_text(one) for one in completions])
        pairs = list(zip(groups, answers, strict=True))
        counts = Counter(pair for pair in _of_all_ranks(pairs) if pair[1] is not None)
        most = Counter()  # group -> the count of its most common answer
        for (group, _), count in counts.items():
            most[group] = max(most[group], count)
        winners = {pair for pair, count in counts.items() if count == most[pair[0]]}
        return [float(pair in winners) for pair in pairs]


def _final_answer_text(text: str) -> str | None:
    """The final answer as text: the value of a number, else the text in the tag or the box."""
    number, answer = final_answer(text), answer_part(text)
    return (last_tag(answer) or last_box(answer)) if number is None else str(number)


def _of_all_ranks(pairs: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Gather the (group, answer) pairs of all processes: a group may be spread over several.

    This needs every process to call the reward for each batch, which TRL does.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return pairs
    by_rank = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, pairs)
    return [pair for of_rank in by_rank for pair in of_rank]
