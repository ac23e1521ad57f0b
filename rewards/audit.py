"""Audit a reward: score tricks (wrong answers) made from a run's own rows.

    cheats = try_tricks(reward_of(my_reward), rows, lambda row: f"#### {row['answer']}")
    cheats.sentence()  # "pays 7 of 50 wrong answers, such as 'answer: another or gold' (1): ..."
    assert cheats.problem is None

A trick is *paid* if it scores more than its limit: 0, or for a trick in the asked format the full
score of a format reward, and for a step reward the score of the reference answer; for a reward that
judges the answer that score too, if it is below 0. No tokenizer is loaded: rewards that read token
ids get one token per four characters of a word.
"""

import builtins
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from rewards.boundary import describe, score
from rewards.contract import UNDECLARED, Reward
from rewards.rows import rows_by_task
from rewards.tricks import ANOTHER, ASKED, MARK, MARKS, PROGRAM, Reference, tricks

TINY = 1e-9
LIMIT_S = 300.0  # seconds for all tricks on a reward, as for one of its calls in training


class Attempt(NamedTuple):
    """A wrong answer on a row: its score, the highest allowed one, and that of a right answer."""

    trick: str
    completion: str
    score: float
    limit: float
    reference: float


@dataclass
class Cheats:
    """The result of an audit of one reward.

    Attributes:
        attempts: the tricks that the reward scored, on each row.
        reference: the lowest score of a reference answer; None if none was scored.
        failed: trick -> message of the exception that the reward raised, or of its time limit.
        ungraded: tricks that the reward gave None, on rows whose reference answer it scored.
        runs_programs: whether the reward runs the model's programs in its own process.
    """

    reward: Reward
    attempts: list[Attempt] = field(default_factory=list)
    reference: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    ungraded: list[str] = field(default_factory=list)
    runs_programs: bool = False

    @property
    def paid(self) -> list[Attempt]:
        """The wrong answers that the reward pays more than their limit."""
        return [attempt for attempt in self.attempts if attempt.score > attempt.limit + TINY]

    @property
    def may_pay(self) -> bool:
        """Whether the reward declares that it pays without the task being done."""
        return self.reward.kind == "control" or self.reward.farmable is not None

    @property
    def is_fooled(self) -> bool:
        """Whether a declared verifier pays a wrong answer as much as a right one."""
        is_promised = self.reward.kind == "verifier" and not self.may_pay
        return is_promised and any(one.score >= one.reference - TINY for one in self.paid)

    def sentence(self) -> str:
        """The result as a sentence that follows the name of the reward."""
        if self.reward.kind == "model":
            return "was not tried: a model is not called before the run"
        tried, paid = len(self.attempts), self.paid
        if not (tried or self.failed or self.ungraded):
            return "was not tried: no row that it scores has a reference answer"
        text = f"pays none of {tried} wrong answers"
        if paid:
            best = max(paid, key=lambda attempt: attempt.score - attempt.limit)
            text = (
                f"pays {len(paid)} of {tried} wrong answers, such as {best.trick!r} "
                f"({best.score:g}): {best.completion!r:.100}"
            )
        if self.is_fooled:
            text = f"PAYS A WRONG ANSWER AS MUCH AS A RIGHT ONE, though it is a verifier: {text}"
        names = [attempt.trick for attempt in self.attempts]
        if names and not any("gold" in name or name.startswith(PROGRAM) for name in names):
            text += "; none has the row's own answer: the reference answer holds no `answer`"
        if self.reward.farmable:
            text += f"; by design: {self.reward.farmable}"
        if self.ungraded:
            text += f"; gives None to {len(self.ungraded)}, such as {self.ungraded[0]!r}"
        if self.failed:
            trick, message = next(iter(self.failed.items()))
            text += f"; fails on {len(self.failed)}, such as {trick!r} ({message})"
        return text

    @property
    def problem(self) -> str | None:
        """Why nobody should train on this reward, and what to do; None if nothing is wrong."""
        title = f"reward {self.reward.name!r}"
        if self.runs_programs:
            return (
                f"{title} runs programs of the model in its own process, the trainer's: correct it."
            )
        worst = max(self.paid, key=lambda one: one.score - one.reference, default=None)
        if worst and worst.score > worst.reference + TINY and not self.may_pay:
            return (
                f"{title} gives {worst.score:g} to the wrong answer {worst.trick!r} and "
                f"{worst.reference:g} to the reference answer: {worst.completion!r:.100}. "
                "Correct it, or declare how it is `farmable`."
            )
        scores = {self.reference, *(attempt.score for attempt in self.attempts)}
        # A penalty may give 0 to all that was tried, too; what reads a column judges the answer.
        is_judge = self.reward.kind in ("verifier", "format") or (
            self.reward.kind == UNDECLARED and (any(scores) or self.reward.columns)
        )
        if is_judge and self.attempts and len(scores) == 1:
            return (
                f"{title} gives {self.reference:g} to each of the {len(self.attempts) + 1} "
                "completions that were tried, right, wrong and empty: the same score for every "
                "completion teaches nothing. A completion of chat messages is a list: its text is "
                'completion[0]["content"], and its length the number of messages. If it asks for '
                "another form than the reference answer has, ask for that form in the recipe "
                "(`reference` in recipes/math, else `reference_completion` in its train.py). If it "
                f'scores what was not tried: {self.reward.name}.kind = "shaping". It was tried at '
                "step 0, with token ids that are stand-ins."
            )
        return None


def try_tricks(
    reward: Reward,
    rows: list[dict],
    reference: Reference,
    per_task: int = 1,
    limit_s: float = LIMIT_S,
) -> Cheats:
    """Score every trick (a wrong answer) on the first `per_task` rows of each task of the reward.

    A reward model is not called. What the reward raises is in the result; what it has not scored
    after `limit_s` seconds in all has failed.

    Args:
        rows: rows with a prompt; rows without a `task` form one task.
        reference: row -> its reference completion; a row for which it returns None is left out.
    """
    cheats, end = Cheats(reward), time.monotonic() + limit_s
    if reward.kind == "model":
        return cheats
    for task, numbered in rows_by_task(rows).items():
        if not reward.scores(task):
            continue
        known = [row for _, row in numbered if reference(row) is not None]
        for row in known[:per_task]:
            try_on_row(cheats, row, tricks(row, reference, known), reference(row), end)
            if cheats.runs_programs:
                return cheats
    return cheats


def try_on_row(
    cheats: Cheats,
    row: dict,
    texts: dict[str, str | list[dict]],
    right: str | list[dict],
    end: float,
) -> None:
    """Score the tricks on one row, and its reference answer; add the results to `cheats`.

    Args:
        texts: trick -> its completion.
        right: the reference completion of the row.
        end: the time (`time.monotonic`) until which the reward is called.
    """
    reward = cheats.reward
    # First and alone: if the reward runs programs here, the next one would end the process.
    score_texts(reward, row, [texts.get(MARKS, "")], end)  # this program sets `builtins.<MARK>`
    if vars(builtins).pop(MARK, False):
        cheats.runs_programs = True
        return
    judges = reward.kind == "verifier" or (reward.kind == UNDECLARED and reward.columns)
    if not judges:  # it does not promise to read the answer, and all else in that text is right
        texts = {trick: text for trick, text in texts.items() if trick != ANOTHER}
    of_right, *of_tricks = score_texts(reward, row, [right, *texts.values()], end)
    is_graded = of_right != (None, None)  # else its score is None: not applicable
    earned = of_right[0] or 0.0
    cheats.reference = earned if cheats.reference is None else min(earned, cheats.reference)
    for (trick, text), (amount, failure) in zip(texts.items(), of_tricks, strict=True):
        if failure:
            cheats.failed.setdefault(trick, failure)
        elif amount is not None:
            limit = 0.0  # of a penalty too, which gives 0 to what it does not punish
            if judges:
                limit = min(0.0, earned)  # a group is told apart below 0, too
            elif reward.kind == "step":
                limit = max(0.0, earned)  # its right steps
            elif reward.kind == "format" and trick.startswith((ASKED, PROGRAM)):
                # A wrong answer in the asked format may earn what a right one does.
                limit = max(0.0, earned if reward.full is None else reward.full)
            cheats.attempts.append(Attempt(trick, text, amount, limit, earned))
        elif is_graded:
            cheats.ungraded.append(trick)


def score_texts(
    reward: Reward, row: dict, texts: list[str | list[dict]], end: float
) -> list[tuple[float | None, str | None]]:
    """Return (score, failure) per completion; if the call fails, score them one by one.

    A call takes at most a quarter of the time that is left until `end`, one of them at most a
    tenth: so time is left for the others where the reward hangs on one.
    """
    left = end - time.monotonic()
    if left <= 0:
        return [(None, "no time is left to try it")] * len(texts)
    limit_s = left / (10 if len(texts) == 1 else 4)
    try:
        scores, failures = score(reward, [row] * len(texts), texts, limit_s=limit_s)
    except Exception as error:
        if len(texts) == 1:
            return [(None, describe(error))]
        return [score_texts(reward, row, [text], end)[0] for text in texts]
    return list(zip(scores, failures, strict=True))
