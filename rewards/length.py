"""Rewards for length in tokens: a target, and TRL's penalty for what is nearly cut off."""

from trl.rewards import get_soft_overlong_punishment


def score_length(tokens: int, target: int, tolerance: int = 0) -> float:
    """1.0 within `tolerance` of `target`, falling linearly to 0.0 at `target` tokens beyond that.

    Example: `score_length(75, target=50, tolerance=5) == 0.6`
    """
    beyond = max(0, abs(tokens - target) - tolerance)
    return max(0.0, 1.0 - beyond / target)


class Length:
    """Shaping reward for completions of about `target` tokens, as TRL counts them (the end of sequence is one)."""

    __name__ = "length"
    kind = "shaping"
    farmable = "any text of about the target length earns it, so gate it by a verifier"

    def __init__(self, target: int, tolerance: int = 0):
        if target < 1 or tolerance < 0:
            raise ValueError(
                f"length: target is {target}, tolerance {tolerance}; they must be at least 1 and 0 tokens."
            )
        self.target, self.tolerance = target, tolerance

    def __call__(
        self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs
    ) -> list[float]:
        return [score_length(len(ids), self.target, self.tolerance) for ids in completion_ids]


class SoftOverlong:
    """TRL's soft overlong punishment (DAPO, eq. 13): 0.0 down to -1.0 over the last `soft_punish_cache` tokens."""

    __name__ = "soft_overlong"
    kind = "shaping"
    allowances = dict.fromkeys(
        ("empty", "whitespace"), (0.0, "it punishes length alone, and what says nothing is short")
    )

    def __init__(self, max_completion_len: int, soft_punish_cache: int):
        if not 0 <= soft_punish_cache <= max_completion_len:
            raise ValueError(
                f"soft_overlong: soft_punish_cache is {soft_punish_cache}; it must lie between 0 and "
                f"max_completion_len ({max_completion_len})."
            )
        self.punishment = get_soft_overlong_punishment(max_completion_len, soft_punish_cache)

    def __call__(
        self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs
    ) -> list[float]:
        return self.punishment(completion_ids=completion_ids)
