r"""Process supervision (DeepSeekMath, section 4.1.3): from the rewards of steps to an advantage for
each token.

The rewards of all steps in a group are normalised together. The advantage of a token is the sum of
those of the steps that end at or after it.

Several step rewards are normalised each by itself, and then weighted: a weight before it would be
divided out again, and two rewards of different scale would have a spread between them where neither
has one.

The tokens of a step are found in the text that TRL shows to rewards, `decode(ids,
skip_special_tokens=True)`: tokens as they were sampled, not those of the text tokenized anew. A
character of several byte-level tokens belongs to the token that completes it.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from recipes.common.training.advantages import has_spread, normalise, pool
from recipes.common.training.guard import ERROR, Graded, Guard
from rewards.contract import at_once
from rewards.text import completion_text

TokenStep = tuple[int, float]  # the index of the last token of a step, and its reward
# With these a token's gradient follows its own advantage; tests/test_grpo_arithmetic.py holds TRL
# to the formulas.
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo")


def check_loss(
    loss_type: str, importance_sampling_level: str, off_policy_mask_threshold: float | None
) -> None:
    """Raise ValueError for a loss in which an advantage for each token would not act."""
    if loss_type not in LOSS_TYPES:
        raise ValueError(
            "step rewards need an advantage for each token, tested with loss_type "
            f"{', '.join(LOSS_TYPES)}; given: {loss_type}."
        )
    if importance_sampling_level != "token":
        raise ValueError(
            "step rewards need importance_sampling_level: token; given: "
            f"{importance_sampling_level}, where every token of a completion is moved by the mean "
            "of its advantages, so that steps are not distinguished."
        )
    if off_policy_mask_threshold is not None:
        raise ValueError(
            "step rewards do not go with off_policy_mask_threshold, which keeps or drops a whole "
            "completion by the sign of its one advantage: leave it out."
        )


def token_advantages(steps: list[list[TokenStep]], tokens: int) -> torch.Tensor:
    """For each token, (c, T), the sum over the steps that end at or after it.

    `steps` holds for each completion pairs (index of the token that a step ends with, its
    normalised reward).

    Example: `token_advantages([[(1, 0.5), (2, -1.0)]], 4)` is `[[-0.5, -0.5, -1.0, 0.0]]`.
    """
    ends = torch.zeros(len(steps), tokens, dtype=torch.float64)
    for row, pairs in enumerate(steps):
        for token, amount in pairs:
            ends[row, token] += amount
    return ends.flip(1).cumsum(1).flip(1)


@dataclass
class StepRewards:
    """The S step rewards of a run, which our trainer asks; shapes in names: trainer.py."""

    guards: list[Guard]
    weights: list[float]

    def grade(
        self, tokenizer: PreTrainedTokenizerBase, columns: dict[str, Any]
    ) -> tuple[dict[str, Graded], list[list[list[TokenStep]]]]:
        """Call each as TRL does; steps are logged, and found in their tokens.

        A completion with steps whose text is not what its tokens decode to loses them, and its
        outcome becomes an error.
        """
        graded_S, steps_Sc = {}, []
        for guard in self.guards:
            graded_S[guard.name] = graded = at_once(guard.grade(**columns))
            shown = [shown_steps(steps) for steps in graded.amounts]
            columns["log_extra"](f"steps/{guard.name}", shown)
            steps_c: list[list[TokenStep]] = []
            for row, steps in enumerate(graded.amounts):
                ends, text = [end for end, _ in steps or []], columns["completions"][row]
                ids, tokens = columns["completion_ids"][row], []
                try:
                    if ends:
                        tokens = tokens_that_hold(tokenizer, ids, completion_text(text), ends)
                except ValueError as error:
                    graded.outcomes[row], steps = ERROR, []
                    guard.first_failure = guard.first_failure or str(error)
                amounts = [amount for _, amount in steps or []]
                steps_c.append(list(zip(tokens, amounts, strict=True)))
            steps_Sc.append(steps_c)
        return graded_S, steps_Sc

    def weigh(
        self,
        steps_Sc: list[list[list[TokenStep]]],
        counts_CS: list[list[bool]],
        rank: int,
        num_generations: int,
        scale_rewards: str,
    ) -> tuple[list[list[TokenStep]], dict[str, float]]:
        """Pairs (last token, weighted normalised reward) by completion, and what to log.

        `counts_CS` tells whether the steps of a completion count. A group may span ranks, and a
        completion has any number of steps.
        """
        own_cS = [
            [[amount for _, amount in steps] for steps in steps_S]
            for steps_S in zip(*steps_Sc, strict=True)
        ]
        amounts_CS = gather_object(own_cS)
        weighed_c: list[list[TokenStep]] = [[] for _ in own_cS]
        own = slice(rank * len(own_cS), (rank + 1) * len(own_cS))
        metrics, differ_P = {}, [False] * (len(amounts_CS) // num_generations)
        for s, (guard, weight) in enumerate(zip(self.guards, self.weights, strict=True)):
            counts_C = [counts_S[s] for counts_S in counts_CS]
            amounts_C = [
                amounts_S[s] if counts else []
                for amounts_S, counts in zip(amounts_CS, counts_C, strict=True)
            ]
            normalised_c = normalise(amounts_C, num_generations, scale_rewards)[own]
            for weighed, steps, amounts in zip(weighed_c, steps_Sc[s], normalised_c, strict=True):
                tokens = [token for token, _ in steps] if amounts else []
                pairs = zip(tokens, amounts, strict=True)
                weighed += [(token, weight * amount) for token, amount in pairs]
            pooled = pool(amounts_C)
            mean = sum(pooled) / len(pooled) if pooled else math.nan
            metrics[f"step_rewards/{guard.name}/mean"] = mean
            metrics[f"steps/{guard.name}/count"] = len(pooled) / max(1, sum(counts_C))
            for group in range(len(differ_P)):
                start = group * num_generations
                differ_P[group] |= has_spread(pool(amounts_C[start : start + num_generations]))
        metrics["frac_groups_without_step_spread"] = 1 - sum(differ_P) / len(differ_P)
        return weighed_c, metrics


def shown_steps(steps: list[TokenStep] | None) -> str | None:
    """Steps as a table shows them: `shown_steps([(9, 1.0), (20, -1.0)]) == "9:+1 20:-1"`."""
    return None if steps is None else " ".join(f"{end}:{amount:+g}" for end, amount in steps)


def tokens_that_hold(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str, ends: list[int]
) -> list[int]:
    """For each end (as in a slice) the index of the token that holds the character before it.

    The tokenizer's stream gives the place of most tokens in one pass. Where it held several of them
    back (a character in parts), and where a tokenizer has no stream or tidies the text up
    afterwards, the shortest prefix is searched that shows the character.

    Args:
        ids: the tokens of a completion, special ones included.
        text: their text.
        ends: places in it, 1 to `len(text)`.

    Raises:
        ValueError: `text` is not the text of these tokens, as of a completion with tool calls or a
        parsed response.

    Example: with tokens `3`, ` +`, ` 4`, ` =`, ` 7`, end of sequence, the ends `[1, 9]` of `"3 + 4
    = 7"` give `[0, 4]`.
    """
    if tokenizer.decode(ids, skip_special_tokens=True) != text:
        raise ValueError(
            f"the completion {text[:200]!r} is not what its tokens decode to, so steps have no "
            "tokens in it: step rewards go with the plain text alone, not with tool calls or a "
            "tokenizer's response_schema."
        )
    # Where the text after so many tokens ends, none of its characters unfinished.
    tokens, characters = _marks(tokenizer, ids, text)
    holders = []
    for end in ends:
        # The last token of the shortest prefix that shows `text[:end]`, between two marks.
        place = bisect_left(characters, end)
        too_few, enough = tokens[place - 1], tokens[place]
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if tokenizer.decode(ids[:middle], skip_special_tokens=True).startswith(text[:end]):
                enough = middle
            else:
                too_few = middle
        holders.append(enough - 1)
    return holders


def _marks(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str
) -> tuple[list[int], list[int]]:
    """Counts of tokens and of their characters, of which the tokenizer's stream is sure.

    The first and the last are known in any case.
    """
    tokens, characters = [0], [0]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    stream = DecodeStream(skip_special_tokens=True)
    for i, token in enumerate(ids if backend is not None else []):
        try:
            piece = stream.step(backend, token)
        except Exception:  # it refuses bytes that are not text: the search above finds those
            break
        if piece and not text.startswith(piece, characters[-1]):
            break
        if piece:
            tokens.append(i + 1)
            characters.append(characters[-1] + len(piece))
    return [*tokens, len(ids)], [*characters, len(text)]
