r"""Process supervision (DeepSeekMath, section 4.1.3): from the rewards of steps to an advantage for each token.

The rewards of all steps in a group are normalised together, and a token is worth the sum of the normalised rewards of
the steps that end at or after it: what a token is followed by, it helped to bring about.

Several step rewards are normalised each by itself, and then weighted: a weight before it would be divided out again,
and two rewards of different scale would have a spread between them where neither has one.
"""

import statistics

import torch

from recipes.common.forecast.learning import has_spread

EPSILON = 1e-4  # TRL's
# With these a token's gradient follows its own advantage; tests/test_grpo_arithmetic.py holds TRL to the formulas.
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo")


def check_loss(loss_type: str, importance_sampling_level: str, off_policy_mask_threshold: float | None) -> None:
    """Refuse a loss in which an advantage for each token would not do what it says.

    Raises:
        ValueError: what is set, why it does not go, what does.
    """
    if loss_type not in LOSS_TYPES:
        raise ValueError(
            f"step_reward_funcs need an advantage for each token, tested with loss_type {', '.join(LOSS_TYPES)}; "
            f"given: {loss_type}."
        )
    if importance_sampling_level != "token":
        raise ValueError(
            f"step_reward_funcs need importance_sampling_level: token; given: {importance_sampling_level}, where every "
            "token of a completion is moved by the mean of its advantages, so that steps are not told apart."
        )
    if off_policy_mask_threshold is not None:
        raise ValueError(
            "step_reward_funcs do not go with off_policy_mask_threshold, which keeps or drops a whole completion "
            "by the sign of its one advantage: leave it out."
        )


def normalise_steps(
    rewards: list[list[float]], num_generations: int, scale_rewards: str = "group"
) -> list[list[float]]:
    """How far each step is from the mean of all steps of its group, in their sample standard deviations.

    Args:
        rewards: the rewards of the steps of each completion; the completions of a group stand together.
        num_generations: completions in a group.
        scale_rewards: TRL's: `group`, `batch` (the deviation is that of all steps), or `none` (no division).

    Returns:
        The same shape; 0.0 for the steps of a group in which they are all paid alike.

    Example: `normalise_steps([[1.0, -1.0], []], 2)` is `[[0.7071, -0.7071], []]`, rounded (the deviation is 1.4142).
    """
    normalised, of_all = [], pool(rewards) if scale_rewards == "batch" else None
    whole = None if of_all is None else _divisor(of_all, scale_rewards)
    for start in range(0, len(rewards), num_generations):
        members = rewards[start : start + num_generations]
        pooled = pool(members)
        mean = statistics.fmean(pooled) if has_spread(pooled) else None
        divisor = _divisor(pooled, scale_rewards) if whole is None else whole
        normalised += [[0.0 if mean is None else (reward - mean) / divisor for reward in steps] for steps in members]
    return normalised


def pool(rewards: list[list[float]]) -> list[float]:
    """`pool([[1.0, -1.0], [], [0.5]]) == [1.0, -1.0, 0.5]`"""
    return [reward for steps in rewards for reward in steps]


def _divisor(pooled: list[float], scale_rewards: str) -> float:
    return 1.0 if scale_rewards == "none" or len(pooled) < 2 else statistics.stdev(pooled) + EPSILON


def groups_with_spread(rewards: list[list[float]], num_generations: int) -> list[bool]:
    """Of each group, whether its steps are paid differently.

    Example: `groups_with_spread([[1.0], [-1.0], [1.0], []], 2) == [True, False]`
    """
    starts = range(0, len(rewards), num_generations)
    return [has_spread(pool(rewards[start : start + num_generations])) for start in starts]


def token_advantages(steps: list[list[tuple[int, float]]], tokens: int) -> torch.Tensor:
    """For each token of each completion the sum over the steps that end at or after it.

    Args:
        steps: of each completion the pairs (index of the token that a step ends with, its normalised reward).
        tokens: length of the padded completions.

    Returns:
        (completions, tokens), float64; 0.0 behind the last step.

    Example: `token_advantages([[(1, 0.5), (2, -1.0)]], 4)` is `[[-0.5, -0.5, -1.0, 0.0]]`.
    """
    ends = torch.zeros(len(steps), tokens, dtype=torch.float64)
    for row, pairs in enumerate(steps):
        for token, amount in pairs:
            ends[row, token] += amount
    return ends.flip(1).cumsum(1).flip(1)
