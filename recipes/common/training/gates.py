"""Arithmetic on the rewards of a batch: one row a completion, one column a reward, NaN where it gives none."""

import torch

TOLERANCE = (
    1e-6  # relative to the amounts: eight times -0.2 has a standard deviation of 1.6e-8 in float32
)


def apply_gates(
    rewards: torch.Tensor, names: list[str], gates: dict[str, list[str]]
) -> torch.Tensor:
    """Copy the rewards, (completions, rewards); one that `gates` names is kept only where one of its gates is above 0.

    Example: with `gates={"length": ["correct"]}`, rows `[0.0, 1.0]` and `[2.0, 1.0]` of (correct, length)
    become `[0.0, nan]` and `[2.0, 1.0]`.
    """
    kept = rewards.clone()
    for gated, openers in gates.items():
        opened = (rewards[:, [names.index(name) for name in openers]] > 0).any(
            dim=1
        )  # NaN opens nothing
        kept[~opened, names.index(gated)] = torch.nan
    return kept


def group_spread(
    rewards: torch.Tensor, weights: torch.Tensor, is_verifier: torch.Tensor, num_generations: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether each group has spread in the total reward, and in what the verifiers give; both (groups,).

    `rewards` is (completions, rewards), and a row of NaN is left out of its group; the others are (rewards,). A group
    without spread teaches nothing. TRL's `frac_reward_zero_std` misses many of them: it takes rounding for spread.
    """
    graded = ~torch.isnan(rewards).all(dim=1)
    weighted = (rewards * weights).nan_to_num(0.0)
    total, verified = weighted.sum(dim=1), weighted[:, is_verifier].sum(dim=1)
    return _has_spread(total, graded, num_generations), _has_spread(
        verified, graded, num_generations
    )


def _has_spread(amounts: torch.Tensor, graded: torch.Tensor, num_generations: int) -> torch.Tensor:
    """(groups,): whether the graded amounts of a group differ by more than rounding."""
    groups, kept = amounts.view(-1, num_generations), graded.view(-1, num_generations)
    high = groups.masked_fill(~kept, -torch.inf).max(dim=1).values
    low = groups.masked_fill(~kept, torch.inf).min(dim=1).values
    scale = groups.abs().max(dim=1).values.clamp(min=1.0)
    return high - low > TOLERANCE * scale


def has_spread(amounts: list[float | None]) -> bool:
    """Tell whether amounts differ by more than rounding; None is left out.

    Example: `has_spread([0.1 + 0.2, 0.3]) is False`; `has_spread([0.0, 1e-5]) is True`
    """
    known = [amount for amount in amounts if amount is not None]
    # Below 1 it is absolute: a sum that cancels leaves 1e-17, and TRL divides by the deviation plus 1e-4.
    return bool(known) and max(known) - min(known) > TOLERANCE * max(1.0, *map(abs, known))
