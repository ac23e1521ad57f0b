"""Any reward function, by its name: audited on a file of rows, and held against labelled pairs.

It may be in TRL's, verl's or verifiers' style. Completions are scored in another process with a
limit on their time, so that a crash and a hang are findings.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.audit.apart import IMPORT_S, Apart, Ended, Late, Raised
from rewards.audit.audit import ROWS_PER_TASK, Attempt, Audit, audit, score_attempts
from rewards.audit.parts import GOLD_COLUMNS, fill
from rewards.jsonl import read_jsonl, with_keys
from rewards.text import completion_text

FIELDS = ("gold", "prediction", "label")
PATIENCE = 4  # a batch has so many times the seconds of one completion
BUDGET_S, LEAST_S = 120.0, 0.1  # for calls that are late, all together; for one when that is spent


class ForeignReward:
    """A reward under TRL's contract that has the function `spec` score in a process of its own.

    This process never imports the function: what its module does at import stays there.

    Raises:
        ValueError: it cannot be imported, or called in any style.
    """

    def __init__(self, spec: str, style: str | None, kind: str, seconds: float):
        self.apart, self.seconds, self.late_s = Apart(spec, style=style), seconds, 0.0
        try:
            found = self.apart.start(IMPORT_S)
        except Raised as error:
            self.apart.close()
            raise ValueError(str(error).removeprefix("ValueError: ")) from None
        except (Late, Ended) as failure:
            is_late = isinstance(failure, Late)
            what = f"takes more than {IMPORT_S:g} s" if is_late else "ends its process"
            remedy = "What its module does besides definitions, move away."
            raise ValueError(f"reward {spec!r}: importing it {what}. {remedy}") from None
        self.__name__, columns = found.pop("name"), found.pop("columns")
        for name, value in found.items():
            if value is not None:
                setattr(self, name, value)
        self.kind = found["kind"] or kind
        named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in columns]
        rest = inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD)
        self.__signature__ = inspect.Signature([*named, rest])  # the columns that it needs

    def __call__(
        self,
        prompts: list,
        completions: list,
        completion_ids: Any,
        trainer_state: Any,
        log_extra: Any,
        log_metric: Any,
        **columns: list,
    ) -> list[float | None]:
        columns["prompt"] = prompts
        rows = [{name: values[i] for name, values in columns.items()} for i in range(len(prompts))]
        texts = [completion_text(completion) for completion in completions]
        limit_s = self.seconds if self.late_s < BUDGET_S else LEAST_S
        if len(texts) > 1:
            limit_s *= PATIENCE
        try:
            return self.apart.score(rows, texts, limit_s)
        except Late:
            self.late_s += limit_s
            raise Raised(f"it takes more than {self.seconds:g} s") from None
        except Ended:
            raise Raised("its process died") from None


def audit_by_name(
    spec: str,
    rows_file: Path,
    reference: str,
    style: str | None = None,
    kind: str = "verifier",
    seconds: float = 5.0,
    per_task: int = ROWS_PER_TASK,
) -> tuple[Audit, list[Callable]]:
    """Audit the reward named `spec` on the rows of a JSON Lines file; the audit and its rewards.

    Args:
        style: trl, verl or verifiers, where the parameters of the reward do not say.
        kind: of a reward that declares none.
        seconds: the limit for one completion.

    Raises:
        ValueError: a reward or a file of rows that cannot be used.
    """
    rows = read_jsonl(rows_file, with_keys({"prompt": (str, list)}))
    reward = ForeignReward(spec, style, kind, seconds)
    try:
        return audit(rows, [reward], reference, per_task), [reward]
    finally:
        reward.apart.close()


@dataclass
class Agreement:
    """Labelled pairs by what a reward made of them; in `accuracy` no score is a mistake."""

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
    r"""Score the predictions of a JSON Lines file with `gold`, `prediction` and `label`.

    Args:
        spec, style, seconds: as of `audit_by_name`.
        completion: what the model would write, with fields in braces: `\boxed{{prediction}}`.

    Raises:
        ValueError: a reward or a file that cannot be used.
    """
    from scipy.stats import binomtest  # takes seconds

    pairs, attempts = read_pairs(file), []
    for number, pair in enumerate(pairs):
        prompt = [{"role": "user", "content": pair.get("prompt", "")}]
        row = {"prompt": prompt, **dict.fromkeys(GOLD_COLUMNS, str(pair["gold"]))}
        attempts.append(Attempt(number, row, "labelled", fill(completion, pair), []))
    reward = ForeignReward(spec, style, "verifier", seconds)
    try:
        scores = [scored.score for scored in score_attempts(reward, attempts)]
    finally:
        reward.apart.close()
    found = [None if value is None or math.isnan(value) else value > 0.0 for value in scores]
    right = sum(verdict is pair["label"] for verdict, pair in zip(found, pairs, strict=True))

    def mistakes(verdict: bool | None) -> list[dict]:
        of_kind = [pair for pair, given in zip(pairs, found, strict=True) if given is verdict]
        return [pair for pair in of_kind if pair["label"] is not verdict]

    low, high = binomtest(right, len(pairs)).proportion_ci(method="wilson")
    kinds = (mistakes(True), mistakes(False), mistakes(None))
    return Agreement(len(pairs), right / len(pairs), (float(low), float(high)), *kinds)


def read_pairs(file: Path, fields: tuple[str, ...] = FIELDS) -> list[dict]:
    """The labelled pairs of a JSON Lines file; ValueError names each that lacks a field."""

    def accept(pair: Any) -> dict:
        is_pair = isinstance(pair, dict) and set(fields) <= set(pair)
        if not is_pair or not isinstance(pair["label"], bool):
            needed = f"a pair has {', '.join(fields)} (true or false)"
            raise ValueError(f"{needed}, not {str(pair)[:80]}")
        return pair

    return read_jsonl(file, accept)
