"""Agreement of a reward with labelled pairs: is it right, next to whether it can be fooled."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.audit.any_reward import WorkerReward
from rewards.audit.audit import fill
from rewards.audit.call import score
from rewards.audit.tricks import GOLD_COLUMNS
from rewards.jsonl import read_jsonl

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
    spec: str,
    file: Path,
    completion: str = "{prediction}",
    style: str | None = None,
    seconds: float = 5.0,
) -> Agreement:
    r"""Score each prediction of a JSON Lines file with `gold`, `prediction` and `label`, and compare with its label.

    Args:
        spec: the reward, as for `audit_by_name`.
        completion: what the model would write, with fields of the pair in braces: `\boxed{{prediction}}`.

    Raises:
        ValueError: a reward or a file that cannot be used.
    """
    from scipy.stats import binomtest  # takes seconds

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

    low, high = binomtest(right, len(pairs)).proportion_ci(method="wilson")
    kinds = (mistakes(True), mistakes(False), mistakes(None))
    return Agreement(len(pairs), right / len(pairs), (float(low), float(high)), *kinds)


def read_pairs(file: Path, fields: tuple[str, ...] = FIELDS) -> list[dict]:
    """The labelled pairs of a JSON Lines file; `ValueError` names each that lacks a field or has another label."""

    def accept(pair: Any) -> dict:
        if (
            not isinstance(pair, dict)
            or set(fields) - set(pair)
            or not isinstance(pair["label"], bool)
        ):
            raise ValueError(
                f"a pair has {', '.join(fields)} (true or false), not {str(pair)[:80]}"
            )
        return pair

    return read_jsonl(file, accept)
