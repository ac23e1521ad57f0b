"""GRPO written out sequence by sequence and token by token: what `test_grpo_arithmetic.py` holds
TRL's loss to.

The formulas and their papers are in docs/grpo.md. Arguments have TRL's names. Whatever is masked is
dropped before anything is computed, so that no mask can be forgotten afterwards; tensors are
float64.

Not covered: the other loss types of TRL (sapo, luspo, vespo), `delta`, the entropy terms, the
off-policy mask, the correction for tokens sampled by vLLM, more than one process.
"""

import torch


def k3(new: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """Schulman's estimate of KL(policy || reference) at tokens that the policy drew."""
    return torch.exp(ref - new) - (ref - new) - 1


def surrogate(
    ratio: torch.Tensor, advantage: torch.Tensor, epsilon: float, epsilon_high: float
) -> torch.Tensor:
    """What one token is worth: at most as at 1 + epsilon_high, a bad one as at 1 - epsilon."""
    return advantage * (min(ratio, 1 + epsilon_high) if advantage > 0 else max(ratio, 1 - epsilon))


def token_losses(
    new,
    old,
    ref,
    advantages,
    loss_type,
    epsilon,
    epsilon_high,
    beta,
    use_bias_correction_kl,
    importance_sampling_level,
) -> torch.Tensor:
    """The loss of each token of one sequence; `advantages` has one value a token."""
    log_ratio = new - old
    if importance_sampling_level == "sequence":
        log_ratio = log_ratio.mean().expand_as(new)
    ratios = log_ratio.exp()
    if loss_type == "cispo":
        gains = ratios.detach().clamp(max=epsilon_high) * advantages * new
    else:
        pairs = zip(ratios, advantages, strict=True)
        gains = torch.stack([surrogate(*pair, epsilon, epsilon_high) for pair in pairs])
    return beta * k3(new, ref) * (ratios if use_bias_correction_kl else 1) - gains


def grpo_loss(
    new,
    old,
    ref,
    advantages,
    mask,
    loss_type,
    max_completion_length,
    num_items_in_batch,
    **settings,
) -> torch.Tensor:
    """The loss of (completions, tokens); dapo and cispo divide by `num_items_in_batch`."""
    rows = zip(new, old, ref, advantages, mask.bool(), strict=True)
    kept = [[tokens[real] for tokens in row] for *row, real in rows if real.any()]
    sequences = [token_losses(*row, loss_type, **settings) for row in kept]
    if loss_type == "grpo":
        return sum(losses.mean() for losses in sequences) / len(mask)
    total = torch.cat(sequences).sum()
    divisors = {"bnpo": mask.sum(), "dr_grpo": len(mask) * max_completion_length}
    return total / divisors.get(loss_type, num_items_in_batch)
