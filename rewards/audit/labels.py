"""Agreement of a reward with labelled pairs: is it right, next to whether it can be fooled."""

import math
from dataclasses import dataclass
from pathlib import Path

from rewards.audit.any_reward import WorkerReward, read_rows
from rewards.audit.audit import fill
from rewards.audit.call import score
from rewards.audit.tricks import GOLD_COLUMNS

FIELDS = ("gold", "prediction", "label")


@dataclass
class Agreement:
    """Pairs by what the reward made of them; one without a score counts as a mistake in `accuracy`."""

    pairs: int
    accuracy: float
    interval: tuple[float, float]
    false_positives: list[dict]
    false_negatives: list[dict]
    not_scored: list[dict]


def agreement(
    spec: str, file: Path, completion: str = "{prediction}", style: str | None = None, seconds: float = 5.0
) -> Agreement:
    r"""Score each prediction of a JSON Lines file with `gold`, `prediction` and `label`, and compare with its label.

    Args:
        spec: the reward, as for `audit_by_name`.
        completion: what the model would write, with fields of the pair in braces: `\boxed{{prediction}}`.

    Raises:
        ValueError: a reward or a file that cannot be used.
    """
    pairs = read_pairs(file)
    rows = [
        {
            "prompt": [{"role": "user", "content": pair.get("prompt", "")}],
            **dict.fromkeys(GOLD_COLUMNS, str(pair["gold"])),
        }
        for pair in pairs
    ]
    reward = WorkerReward(spec, style, "verifier", seconds)
    try:
        scores = score(reward, rows, [fill(completion, pair) for pair in pairs])
    finally:
        reward.pool.close()
    found = [None if value is None or math.isnan(value) else value > 0.0 for value in scores]
    right = sum(is_right is pair["label"] for is_right, pair in zip(found, pairs, strict=True))

    def mistakes(verdict: bool | None) -> list[dict]:
        of_kind = [pair for pair, is_right in zip(pairs, found, strict=True) if is_right is verdict]
        return [pair for pair in of_kind if pair["label"] is not verdict]

    share = right / len(pairs)
    return Agreement(len(pairs), share, wilson(right, len(pairs)), mistakes(True), mistakes(False), mistakes(None))


def read_pairs(file: Path, fields: tuple[str, ...] = FIELDS) -> list[dict]:
    """The labelled pairs of a JSON Lines file; `ValueError` names the first that lacks a field or has another label."""
    pairs = read_rows(file)
    for number, pair in enumerate(pairs):
        if set(fields) - set(pair) or not isinstance(pair["label"], bool):
            raise ValueError(f"{file}: pair {number} needs {', '.join(fields)} (true or false); it has {sorted(pair)}.")
    if not pairs:
        raise ValueError(f"{file} holds no pairs.")
    return pairs


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's formula."""
    share, spread = successes / n, z * z / n
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return ((share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread))
