"""The length family, in tokens: a target of one's own, and what `trl.rewards` has, under registry names."""

from trl.rewards import get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment

from rewards.boxed_math import boxed_answer, judge_pairs
from rewards.parsing import completion_text
from rewards.rows import LogExtra, log_answers


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

    def __call__(self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs) -> list[float]:
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

    def __call__(self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs) -> list[float]:
        return self.punishment(completion_ids=completion_ids)


class RepetitionPenalty:
    """TRL's penalty for repeated n-grams of tokens: 0.0 where none repeats, down to `max_penalty`."""

    __name__ = "repetition_penalty"
    kind = "shaping"
    allowances = {"empty": (0.0, "it punishes repetition alone, and nothing repeats nothing")}

    def __init__(self, ngram_size: int = 3, max_penalty: float = -1.0):
        self.penalty = get_repetition_penalty_reward(ngram_size, max_penalty)

    def __call__(self, prompts: list, completions: list, completion_ids: list[list[int]], **kwargs) -> list[float]:
        return self.penalty(completion_ids=completion_ids)


class CosineScaled:
    r"""TRL's cosine-scaled correctness: a right answer earns more when short, a wrong one loses less when long.

    What is right is judged as by `boxed_math`, with its limits; TRL's own judge runs in the trainer's process without
    any. Range `min_value_wrong` to `max_value_correct`; None where the gold is unusable. Logs `outcome/cosine_scaled`,
    `gold/cosine_scaled` and `parsed/cosine_scaled`.
    """

    __name__ = "cosine_scaled"
    kind = "verifier"

    def __init__(
        self,
        max_len: int,
        min_value_wrong: float = -1.0,
        max_value_wrong: float = -0.5,
        min_value_correct: float = 0.5,
        max_value_correct: float = 1.0,
        timeout_s: float = 2.0,
    ):
        self.full, self.timeout_s = min_value_correct, timeout_s  # the least that a right answer earns
        self.scaled = get_cosine_scaled_reward(
            max_len, min_value_wrong, max_value_wrong, min_value_correct, max_value_correct
        )

    def __call__(
        self,
        prompts: list,
        completions: list,
        completion_ids: list[list[int]],
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [boxed_answer(completion_text(completion)) for completion in completions]
        outcomes = judge_pairs(answer, texts, self.timeout_s)
        if log_extra is not None:
            log_extra("outcome/cosine_scaled", outcomes)
        log_answers(self.__name__, answer, texts, log_extra)
        # TRL scales what it judges itself, so it is shown an answer of which it cannot but think the same.
        shown = [[{"content": rf"\boxed{{{int(outcome == 'right')}}}"}] for outcome in outcomes]
        amounts = self.scaled(completions=shown, solution=["1"] * len(shown), completion_ids=completion_ids)
        failed = ("unparsed", "error")
        return [None if said in failed else amount for said, amount in zip(outcomes, amounts, strict=True)]
