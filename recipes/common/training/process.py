r"""Process supervision (DeepSeekMath, section 4.1.3): step rewards give each token an advantage.

The rewards of all steps in a group are normalised together. The advantage of a token is the sum of
the normalised rewards of the steps that end at or after the token.

Each step reward is normalised separately and then weighted. A weight before normalisation would be
divided out again, and two constant rewards of different scale would together have spread.

The tokens of a step are found in the text that TRL shows to rewards, `decode(ids,
skip_special_tokens=True)`: the sampled tokens are used, and the text is not tokenized again. A
character made of several byte-level tokens belongs to the last of these tokens.
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
# With these losses the gradient of a token follows the advantage of that token;
# tests/test_grpo_arithmetic.py checks TRL against the formulas.
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo")


def check_loss(
    loss_type: str, importance_sampling_level: str, off_policy_mask_threshold: float | None
) -> None:
    """Raise ValueError for a loss that cannot use a separate advantage for each token."""
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
    """For each token, (c, T), the sum of the rewards of the steps that end at or after the token.

    `steps` holds for each completion pairs (index of the last token of a step, normalised reward
    of the step).

    Example: `token_advantages([[(1, 0.5), (2, -1.0)]], 4)` is `[[-0.5, -0.5, -1.0, 0.0]]`.
    """
    ends = torch.zeros(len(steps), tokens, dtype=torch.float64)
    for row, pairs in enumerate(steps):
        for token, amount in pairs:
            ends[row, token] += amount
    return ends.flip(1).cumsum(1).flip(1)


@dataclass
class StepRewards:
    """The S step rewards of a run; trainer.py explains the shapes in names."""

    guards: list[Guard]
    weights: list[float]

    def grade(
        self, tokenizer: PreTrainedTokenizerBase, columns: dict[str, Any]
    ) -> tuple[dict[str, Graded], list[list[list[TokenStep]]]]:
        """Call each step reward, log the steps, and find the last token of each step.

        If the tokens of a completion do not decode to its text, its steps are dropped and its
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
        """Return pairs (last token, weighted normalised reward) by completion, and metrics.

        `counts_CS` says whether a step reward counts for a completion. A group may span ranks,
        and a completion may have any number of steps.
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
    """Format steps for a table: `shown_steps([(9, 1.0), (20, -1.0)]) == "9:+1 20:-1"`."""
    return None if steps is None else " ".join(f"{end}:{amount:+g}" for end, amount in steps)


def tokens_that_hold(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str, ends: list[int]
) -> list[int]:
    """For each end (as in a slice), return the token index of the last character before the end.

    The tokenizer's decode stream gives the place of most tokens in one pass. The stream fails if a
    character has several tokens, or if the tokenizer has no stream or cleans up the text. Then a
    binary search finds the shortest prefix of tokens that shows the character.

    Args:
        ids: the tokens of a completion, special ones included.
        text: the decoded text of the tokens.
        ends: places in the text, 1 to `len(text)`.

    Raises:
        ValueError: the tokens do not decode to `text`, for example if the completion has tool calls
        or a parsed response.

    Example: with tokens `3`, ` +`, ` 4`, ` =`, ` 7`, end of sequence, the ends `[1, 9]` of `"3 + 4
    = 7"` give `[0, 4]`.
    """
    if tokenizer.decode(ids, skip_special_tokens=True) != text:
        raise ValueError(
            f"the completion {text[:200]!r} is not what its tokens decode to, so steps have no "
            "tokens in it: step rewards go with the plain text alone, not with tool calls or a "
            "tokenizer's response_schema."
        )
    # After tokens[i] tokens the text has characters[i] characters, all of them complete.
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
    """Return token counts, and how many characters of `text` that many tokens decode to.

    Only places that the decode stream is sure of are listed, and always the start and the end.
    """
    tokens, characters = [0], [0]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    stream = DecodeStream(skip_special_tokens=True)
    for i, token in enumerate(ids if backend is not None else []):
        try:
            piece = stream.step(backend, token)
        except Exception:  # the stream refuses bytes that are not text: the search goes on
            break
        if piece and not text.startswith(piece, characters[-1]):
            break
        if piece:
            tokens.append(i + 1)
            characters.append(characters[-1] + len(piece))
    return [*tokens, len(ids)], [*characters, len(text)]
