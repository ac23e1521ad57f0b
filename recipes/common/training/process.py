"""Process supervision (DeepSeekMath, section 4.1.3): step rewards give each token an advantage.

docs/grpo.md has the formula. Each step reward is normalised separately and then weighted. A weight
before normalisation would be divided out again, and two constant rewards of different scale would
together have spread.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from recipes.common.training.advantages import has_spread, normalise, pool
from recipes.common.training.guard import ERROR, Graded, Guard
from rewards.contract import at_once
from rewards.text import completion_text


class TokenStep(NamedTuple):
    """A step of a completion: the index of its last token, and its reward."""

    token: int
    reward: float


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
    """For each completion and token, the sum of the rewards of the steps that end there or later.

    `steps` holds the steps of each completion, with normalised rewards.

    Example: steps of one completion that end at the tokens 1 and 2 with rewards 0.5 and -1.0 give
    `[[-0.5, -0.5, -1.0, 0.0]]` for 4 tokens.
    """
    rewards_cT = torch.zeros(len(steps), tokens, dtype=torch.float64)
    for c, steps_of_one in enumerate(steps):
        for step in steps_of_one:
            rewards_cT[c, step.token] += step.reward
    return rewards_cT.flip(1).cumsum(1).flip(1)


@dataclass
class StepRewards:
    """The S step rewards of a run.

    In names: C completions of all ranks (groups one after another), c those of this rank.
    """

    guards: list[Guard]
    weights: list[float]

    def grade(
        self, tokenizer: PreTrainedTokenizerBase, columns: dict[str, Any]
    ) -> tuple[dict[str, Graded], list[list[list[TokenStep]]]]:
        """Call each step reward with TRL's arguments, `columns`, and find the token of each step.

        For a completion a reward gives (end, reward) pairs; `end` is a place in its text.
        Returns the results by the name of the reward, and for each reward and completion its steps.
        If the tokens of a completion do not decode to its text, its steps are dropped and its
        outcome becomes an error.
        """
        graded_S: dict[str, Graded] = {}
        steps_Sc: list[list[list[TokenStep]]] = []
        for guard in self.guards:
            graded = at_once(guard.grade(**columns))  # step rewards are never async
            graded_S[guard.name] = graded
            columns["log_extra"](f"steps/{guard.name}", list(map(shown_steps, graded.amounts)))
            steps_c: list[list[TokenStep]] = [[] for _ in graded.amounts]
            for c, steps in enumerate(graded.amounts):
                if not steps:
                    continue
                ids, text = columns["completion_ids"][c], completion_text(columns["completions"][c])
                try:
                    tokens = tokens_that_hold(tokenizer, ids, text, [end for end, _ in steps])
                except ValueError as error:
                    graded.outcomes[c] = ERROR
                    guard.first_failure = guard.first_failure or str(error)
                    continue
                for token, (_, reward) in zip(tokens, steps, strict=True):
                    steps_c[c].append(TokenStep(token, reward))
            steps_Sc.append(steps_c)
        return graded_S, steps_Sc

    def normalise(
        self,
        steps_Sc: list[list[list[TokenStep]]],
        counts_CS: list[list[bool]],
        num_generations: int,
        scale_rewards: str,
        log: Callable[[str, float], None],
    ) -> tuple[list[list[TokenStep]], list[bool]]:
        """Normalise each step reward in its groups, weight it, and join the steps by completion.

        A group may span ranks, and a completion may have any number of steps.

        Args:
            steps_Sc: for each step reward, the steps of each completion of this rank.
            counts_CS: for each completion of all ranks, whether each step reward counts for it: it
                does not if it is not applicable, or if any reward failed.
            log: takes the name and the value of what to log.

        Returns:
            For each completion of this rank its steps with normalised rewards, and for each group
            of all ranks whether they differ.
        """
        weighted_c: list[list[TokenStep]] = [[] for _ in steps_Sc[0]]
        first = PartialState().process_index * len(weighted_c)  # of this rank's completions
        differ_P = [False] * (len(counts_CS) // num_generations)  # by group
        for s, (guard, weight) in enumerate(zip(self.guards, self.weights, strict=True)):
            rewards_C = gather_object([[step.reward for step in steps] for steps in steps_Sc[s]])
            counts_C = [counts_S[s] for counts_S in counts_CS]
            rewards_C = [rewards_C[c] if counts else [] for c, counts in enumerate(counts_C)]
            normalised_C = normalise(rewards_C, num_generations, scale_rewards)
            for c, weighted in enumerate(weighted_c):
                # strict=False: a completion that does not count has steps, but no rewards.
                for step, reward in zip(steps_Sc[s][c], normalised_C[first + c], strict=False):
                    weighted.append(TokenStep(step.token, weight * reward))
            rewards = pool(rewards_C)
            log(f"step_rewards/{guard.name}/mean", fmean(rewards) if rewards else math.nan)
            log(f"steps/{guard.name}/count", len(rewards) / max(1, sum(counts_C)))
            for group, start in enumerate(range(0, len(rewards_C), num_generations)):
                if weight and has_spread(pool(rewards_C[start : start + num_generations])):
                    differ_P[group] = True
        log("frac_groups_without_step_spread", 1 - fmean(differ_P))
        return weighted_c, differ_P


def shown_steps(steps: list[tuple[int, float]] | None) -> str | None:
    """Format steps for a table: `shown_steps([(9, 1.0), (20, -1.0)]) == "9:+1 20:-1"`."""
    return None if steps is None else " ".join(f"{end}:{amount:+g}" for end, amount in steps)


def tokens_that_hold(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str, ends: list[int]
) -> list[int]:
    """For each end (as in a slice), return the token index of the last character before the end.

    That is the last token of the shortest prefix that shows the text up to the end: a character of
    several byte-level tokens belongs to the last of them. The text is not tokenized again.

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

    @functools.cache
    def text_of(count: int) -> str:
        return tokenizer.decode(ids[:count], skip_special_tokens=True)

    if text_of(len(ids)) != text:
        raise ValueError(
            f"the completion {text[:200]!r} is not what its tokens decode to, so steps have no "
            "tokens in it: step rewards go with the plain text alone, not with tool calls or a "
            "tokenizer's response_schema."
        )
    prefixes = range(1, len(ids) + 1)  # the index of a prefix is that of its last token
    return [
        bisect_left(prefixes, True, key=lambda count: text_of(count).startswith(text[:end]))
        for end in ends
    ]
