"""What does a reward pay for wrong answers? Every trick is tried on it, on a run's own rows.

    cheats = try_tricks(reward_of(my_reward), rows, lambda row: f"#### {row['answer']}")
    cheats.sentence()  # "pays 7 of 66 wrong answers, such as 'answer: another or gold' (1): ..."
    assert cheats.problem is None

A trick is *paid* where it earns more than 0 and more than the reward declares for it: a format
reward its full amount for any answer in the asked shape, a step reward what the steps of the
reference answer earn, each its `allowances`. There is no tokenizer: rewards that count tokens get
one for every four characters of a word.
"""

import builtins
import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from rewards.audit.call import graded
from rewards.audit.tricks import ASKED, MARK, MARKS, PROGRAM, Reference, tricks
from rewards.contract import UNDECLARED, Reward
from rewards.rows import rows_by_task
from rewards.text import completion_text

BATCH = 64  # completions of a call, as from a trainer
TINY = 1e-9
SHOWN = 100  # characters of a completion in a message


class Attempt(NamedTuple):
    """A wrong answer, what it earned, what it may earn and what the row's reference answer does."""

    trick: str
    completion: str
    score: float
    limit: float
    due: float

    def shown(self) -> str:
        text = completion_text(self.completion)
        more = f"... ({len(text)} characters)" if len(text) > SHOWN else ""
        return f"{text[:SHOWN]!r}{more}"


@dataclass
class Cheats:
    """What a reward pays for tricks, each of them a wrong answer to a row.

    Attributes:
        attempts: the tricks that it scored.
        reference: the least that a reference answer earned; None where none was scored.
        failed: of the tricks that it fails on, the exception in words.
        faults: what it does besides scoring: changes its arguments, runs programs.
    """

    reward: Reward
    attempts: list[Attempt] = field(default_factory=list)
    reference: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.reward.name

    @property
    def tried(self) -> int:
        """How many wrong answers it scored."""
        return len(self.attempts)

    @property
    def paid(self) -> list[tuple[str, str, float]]:
        """The wrong answers that it pays: (trick, completion, score)."""
        paid = [one for one in self.attempts if one.score > one.limit + TINY]
        return [(one.trick, one.completion, one.score) for one in paid]

    @property
    def is_by_design(self) -> bool:
        """Whether it is meant to be earned without doing the task."""
        return self.reward.kind == "control" or self.reward.farmable is not None

    def sentence(self) -> str:
        """What it pays, in words that follow its name."""
        if not self.tried and not self.failed:
            return "was not tried: no row that it scores has a reference answer"
        text = f"pays none of {self.tried} wrong answers"
        if self.paid:
            best = max(self.attempts, key=lambda one: one.score - one.limit)
            text = (
                f"pays {len(self.paid)} of {self.tried} wrong answers, such as {best.trick!r} "
                f"({best.score:g}): {best.shown()}"
            )
        if self.reward.farmable:
            text += f"; by design: {self.reward.farmable}"
        if self.failed:
            trick, message = next(iter(self.failed.items()))
            text += f"; fails on {len(self.failed)}, such as {trick!r} ({message})"
        return text

    @property
    def problem(self) -> str | None:
        """Why nobody should train on it, and what to do; None where nothing is wrong."""
        if self.faults:
            return f"reward {self.name!r} {self.faults[0]}: correct it."
        over = [one for one in self.attempts if one.score > max(one.limit, one.due) + TINY]
        if over and not self.is_by_design:
            worst = max(over, key=lambda one: one.score - one.due)
            return (
                f"reward {self.name!r} gives {worst.score:g} to the wrong answer {worst.trick!r} "
                f"and {worst.due:g} to the reference answer: {worst.shown()}. Correct it, or "
                "declare how it is `farmable`."
            )
        amounts = {self.reference, *(one.score for one in self.attempts)}
        if self.reward.kind == UNDECLARED and len(amounts) == 1 and any(amounts):
            return (
                f"reward {self.name!r} gives {self.reference:g} to each of the {self.tried + 1} "
                "completions that were tried, right, wrong and empty: the same score for every "
                "completion teaches nothing. A completion of chat messages is a list: its text is "
                'completion[0]["content"], and its length the number of messages. If it scores '
                f'what was not tried: {self.name}.kind = "shaping".'
            )
        return None


def try_tricks(reward: Reward, rows: list[dict], reference: Reference, per_task: int = 1) -> Cheats:
    """Try every trick on a reward, on the first `per_task` rows of each task that it scores.

    A reward model is not tried.

    Args:
        rows: rows with a prompt; those without a `task` are one task.
        reference: row -> its own answer in the asked format, None for a row to leave out.
    """
    cheats = Cheats(reward)
    for task, numbered in rows_by_task(rows).items() if reward.kind != "model" else ():
        known = [row for _, row in numbered if reward.scores(task) and reference(row) is not None]
        for row in known[:per_task]:
            battery = tricks(row, reference, known)
            # First and alone: where programs run in this process, another one would end it.
            score_texts(cheats, row, [battery.get(MARKS, "")])
            if cheats.faults:
                return cheats
            (right, _), *scored = score_texts(cheats, row, [reference(row), *battery.values()])
            due = right or 0.0
            cheats.reference = min(due, due if cheats.reference is None else cheats.reference)
            for (trick, text), (amount, failure) in zip(battery.items(), scored, strict=True):
                if failure:
                    cheats.failed.setdefault(trick, failure)
                if amount is not None:
                    limit = limit_of(reward, trick, due)
                    cheats.attempts.append(Attempt(trick, text, amount, limit, due))
    return cheats


def score_texts(
    cheats: Cheats, row: dict, texts: list[str | list[dict]]
) -> list[tuple[float | None, str | None]]:
    """The score or the failure of each completion; where a call fails, one completion a call."""
    scored = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        rows = [copy.deepcopy(row) for _ in batch]
        try:
            scored += graded(cheats.reward, rows, batch)
        except (Exception, SystemExit) as error:
            failure = (None, f"{type(error).__name__}: {error}")
            alone = batch if len(batch) > 1 else []
            scored += [score_texts(cheats, row, [text])[0] for text in alone] or [failure]
        if vars(builtins).pop(MARK, False):
            cheats.faults.append("runs programs of the model in its own process, the trainer's")
        if any(one != row for one in rows):  # TRL hands the same lists to the next reward
            cheats.faults.append("changes the columns that it is called with")
    return scored


def limit_of(reward: Reward, trick: str, due: float) -> float:
    """The most that a reward may give to a trick on a row whose reference answer earned `due`."""
    allowed, _ = reward.allowances.get(trick, (0.0, ""))
    if reward.kind == "format" and trick.startswith((ASKED, PROGRAM)):
        allowed = max(allowed, due if reward.full is None else reward.full)
    return max(0.0, allowed, due if reward.kind == "step" else 0.0)
