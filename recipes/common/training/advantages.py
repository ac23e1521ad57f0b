"""From rewards to advantages: void failed completions, gate rewards, find groups with spread.

Shapes in names, here and in trainer.py: C completions of all ranks (a batch of P prompts, one group
of G completions after another), R rewards of completions, A all rewards, step rewards included.
NaN means that the reward gave no score.
"""

import math
import statistics

import torch

EPSILON = 1e-4  # TRL adds this to the deviation before it divides
TOLERANCE = 1e-6  # relative to the full amount of a reward
ROUNDING = 4 * 2.0**-23  # relative: TRL's rewards are float32, and a total adds up a few of them


def openers_of(gates: dict[str, list[str] | str] | None) -> dict[str, list[str]]:
    """The setting `reward_gates` in lists: `{"length": "right"}` gives `{"length": ["right"]}`."""
    return {
        gated: [openers] if isinstance(openers, str) else list(openers or ())
        for gated, openers in (gates or {}).items()
    }


def void_and_gate(
    rewards_CR: torch.Tensor, failed_C: torch.Tensor, names: list[str], gates: dict[str, list[str]]
) -> torch.Tensor:
    """Return a copy with NaN for failed completions and for rewards whose gates are all shut.

    A reward that `gates` names is kept only where one of its gates scored above 0.

    Example: with `gates={"length": ["correct"]}`, rows `[0.0, 1.0]` and `[2.0, 1.0]` of (correct,
    length) become `[0.0, nan]` and `[2.0, 1.0]`.
    """
    scored_CR = rewards_CR.clone()
    scored_CR[failed_C] = torch.nan
    gated_CR = scored_CR.clone()
    for name, openers in gates.items():
        openers_CR = scored_CR[:, [names.index(opener) for opener in openers]]
        is_open_C = (openers_CR > 0).any(dim=1)  # NaN opens nothing
        gated_CR[~is_open_C, names.index(name)] = torch.nan
    return gated_CR


def group_spread(
    rewards_CR: torch.Tensor, weights_R: torch.Tensor, num_generations: int, aggregation: str
) -> torch.Tensor:
    """Return for each group, (P,), whether the weighted totals of its completions differ.

    Groups of `num_generations` completions follow one another. A group without spread teaches
    nothing. TRL's `frac_reward_zero_std` misses many such groups: it counts rounding as spread.
    `aggregation` is TRL's: by `normalize_then_sum` each reward is first normalised by itself.
    """
    if aggregation == "normalize_then_sum":
        rewards_CR = each_normalised(rewards_CR, num_generations)
    is_scored_C = ~torch.isnan(rewards_CR).all(dim=1)
    totals_C = (rewards_CR * weights_R).nan_to_num(0.0).sum(dim=1)
    groups = zip(totals_C.split(num_generations), is_scored_C.split(num_generations), strict=True)
    spread_P = [has_spread(totals[is_scored].tolist()) for totals, is_scored in groups]
    return torch.tensor(spread_P, device=rewards_CR.device)


def each_normalised(rewards_CR: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Normalise each reward in its groups by itself: 0 where it has no spread; NaN stays."""
    normalised_RC = []
    for amounts_C in rewards_CR.T.tolist():
        known_C = [None if math.isnan(amount) else amount for amount in amounts_C]
        normalised_RC.append(advantages_of(known_C, num_generations))
    normalised_CR = torch.tensor(normalised_RC).T.to(rewards_CR)
    return normalised_CR.where(~rewards_CR.isnan(), torch.nan)


def has_spread(amounts: list[float | None]) -> bool:
    """Whether the amounts differ by more than rounding; None is ignored.

    Example: `has_spread([0.1 + 0.2, 0.3]) is False`; `has_spread([1e6, 1e6 + 1]) is True`
    """
    known = [amount for amount in amounts if amount is not None]
    # Below 1 the limit is absolute, 5e-7: a sum that cancels can leave 1e-17, which is no spread.
    return bool(known) and max(known) - min(known) > ROUNDING * max(1.0, *map(abs, known))


def is_correct(amount: float, full: float | None) -> bool:
    """Whether a verifier's reward means a correct answer.

    That is the full amount, or any amount above 0 if the verifier declares no full amount (None).
    """
    return amount > 0.0 if full is None else amount >= full - TOLERANCE * abs(full)


def normalise(
    rewards_C: list[list[float]], num_generations: int, scale_rewards: str = "group"
) -> list[list[float]]:
    """Subtract the mean of the group from each step reward, and divide by the deviation.

    `rewards_C` has a list of step rewards for each completion. `scale_rewards` is TRL's setting:
    `group`, `batch` (the deviation of all steps in the batch), or `none` (no division).

    Example: `normalise([[1.0, -1.0], []], 2)` is `[[0.7071, -0.7071], []]`, rounded (the
    deviation is 1.4142); 0.0 where all steps of a group have the same reward.
    """
    normalised = []
    for start in range(0, len(rewards_C), num_generations):
        group = rewards_C[start : start + num_generations]
        rewards = pool(group)
        if not has_spread(rewards):
            normalised += [[0.0] * len(steps) for steps in group]
            continue
        mean = statistics.fmean(rewards)
        scaled_by = pool(rewards_C) if scale_rewards == "batch" else rewards
        divisor = 1.0
        if scale_rewards != "none" and len(scaled_by) > 1:
            divisor = statistics.stdev(scaled_by) + EPSILON
        normalised += [[(reward - mean) / divisor for reward in steps] for steps in group]
    return normalised


def pool(rewards_C: list[list[float]]) -> list[float]:
    """Join the step rewards of several completions: `pool([[1.0, -1.0], [], [0.5]])` has three."""
    return [reward for steps in rewards_C for reward in steps]


def advantages_of(
    totals_C: list[float | None], num_generations: int, scale_rewards: str = "group"
) -> list[float]:
    """GRPO's advantages of total rewards; 0.0 for a total of None or a group without spread.

    >>> [round(advantage, 4) for advantage in advantages_of([1.0, 0.0, 1.0, 0.0], 4)]
    [0.8659, -0.8659, 0.8659, -0.8659]
    """
    rewards_C = [[] if total is None else [total] for total in totals_C]
    normalised_C = normalise(rewards_C, num_generations, scale_rewards)
    return [sum(one) for one in normalised_C]  # of one advantage or none
