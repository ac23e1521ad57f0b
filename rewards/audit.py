"""Audit a reward: score tricks (wrong answers) made from a run's own rows.

    cheats = try_tricks(reward_of(my_reward), rows, lambda row: f"#### {row['answer']}")
    cheats.sentence()  # "pays 7 of 66 wrong answers, such as 'answer: another or gold' (1): ..."
    assert cheats.problem is None

A trick is *paid* if it scores more than its limit. The limit is 0 or the reward's allowance for the
trick, whichever is more. For a format reward it is at least the full score, if the trick has the
asked format; for a step reward at least the score of the reference answer. No tokenizer is loaded:
rewards that read token ids get one token per four characters of a word.
"""

import asyncio
import builtins
import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rewards.contract import UNDECLARED, Reward, named_parameters, read_scores, reward_of, total
from rewards.rows import rows_by_task
from rewards.text import completion_text
from rewards.tricks import ASKED, MARK, MARKS, PROGRAM, Reference, tricks

TINY = 1e-9
SHOWN = 100  # characters of a completion in a message
NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL does not pass on
_PIECE = re.compile(r"\s+|\S{1,4}")


class Attempt(NamedTuple):
    """One trick on one row: its score, its limit, and the reference answer's score (`due`)."""

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
    """The result of an audit of one reward.

    Attributes:
        attempts: the tricks that the reward scored.
        reference: the lowest score of a reference answer; None if none was scored.
        failed: trick -> message of the exception that the reward raised.
        faults: forbidden side effects: the reward changes its arguments, or runs the model's
            programs in its own process.
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
        """The number of wrong answers that the reward scored."""
        return len(self.attempts)

    @property
    def paid(self) -> list[tuple[str, str, float]]:
        """The wrong answers that the reward pays: (trick, completion, score)."""
        paid = [one for one in self.attempts if one.score > one.limit + TINY]
        return [(one.trick, one.completion, one.score) for one in paid]

    @property
    def is_by_design(self) -> bool:
        """Whether the reward pays by design without the task being done (control, farmable)."""
        return self.reward.kind == "control" or self.reward.farmable is not None

    def sentence(self) -> str:
        """The result as a sentence that follows the name of the reward."""
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
        """Why nobody should train on this reward, and what to do; None if nothing is wrong."""
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
    """Score every trick on the first `per_task` rows of each task that the reward scores.

    A reward model is not called.

    Args:
        rows: rows with a prompt; rows without a `task` form one task.
        reference: row -> its reference completion; a row for which it returns None is left out.
    """
    cheats = Cheats(reward)
    for task, numbered in rows_by_task(rows).items() if reward.kind != "model" else ():
        known = [row for _, row in numbered if reward.scores(task) and reference(row) is not None]
        for row in known[:per_task]:
            battery = tricks(row, reference, known)
            # First and alone: if the reward runs programs here, the next one would end the process.
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
    """Return (score, failure) per completion; if the call fails, score them one by one."""
    rows = [copy.deepcopy(row) for _ in texts]
    try:
        scored = graded(cheats.reward, rows, texts)
    except (Exception, SystemExit) as error:
        scored = [(None, f"{type(error).__name__}: {error}")]
        if len(texts) > 1:
            scored = [score_texts(cheats, row, [text])[0] for text in texts]
    if vars(builtins).pop(MARK, False):
        cheats.faults.append("runs programs of the model in its own process, the trainer's")
    if any(one != row for one in rows):  # TRL hands the same lists to the next reward
        cheats.faults.append("changes the columns that it is called with")
    return scored


def limit_of(reward: Reward, trick: str, due: float) -> float:
    """The highest allowed score of a trick on a row whose reference answer scores `due`."""
    allowed, _ = reward.allowances.get(trick, (0.0, ""))
    if reward.kind == "format" and trick.startswith((ASKED, PROGRAM)):
        allowed = max(allowed, due if reward.full is None else reward.full)
    return max(0.0, allowed, due if reward.kind == "step" else 0.0)


# --- Call a reward outside training, in the same way as the trainer


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """Score one completion (text or messages) per row, as `GRPOTrainer._calculate_rewards` does.

    The score of a step reward is the sum of its steps. Logged columns go to `log_extra`; logged
    metrics are dropped. `trainer_state` is the state before step 1. A reward that takes
    `completion_ids` gets `token_ids`, or else `stand_in_ids`.

    Raises:
        ValueError: `read_scores` refuses what the reward returned.
    """
    from transformers import TrainerState  # importing a recipe stays light

    columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED}
    prompts, completions = [row["prompt"] for row in rows], list(texts)
    for place, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        if isinstance(text, str) and not isinstance(prompt, str):  # in the form of its prompt
            completions[place] = [{"role": "assistant", "content": text}]
    if token_ids is None:
        takes_ids = "completion_ids" in named_parameters(reward)
        token_ids = [stand_in_ids(completion_text(text)) if takes_ids else [] for text in texts]
    scores = reward(
        prompts=prompts,
        completions=completions,
        completion_ids=token_ids,
        trainer_state=TrainerState(max_steps=1, epoch=0.0, num_train_epochs=1),
        log_extra=log_extra,
        log_metric=lambda name, value: None,
        **columns,
    )
    if inspect.iscoroutine(scores):
        scores = asyncio.run(scores)
    amounts = read_scores(reward, scores, texts)
    return [total(steps) for steps in amounts] if reward_of(reward).kind == "step" else amounts


def graded(
    reward: Callable, rows: list[dict], texts: list[str | list[dict]]
) -> list[tuple[float | None, str | None]]:
    """Return (score, failure) per row: the error that the reward logged for the row, or None."""
    logged: dict[str, list] = {}
    scores = score(reward, rows, texts, log_extra=logged.__setitem__)
    outcomes = logged.get(f"outcome/{reward_of(reward).name}") or [None] * len(texts)
    failures = [
        str(outcome).removeprefix("error: ") if str(outcome).startswith("error") else None
        for outcome in outcomes
    ]
    return list(zip(scores, failures, strict=True))


def stand_in_ids(text: str) -> list[int]:
    """Make token ids without a tokenizer: a token is up to four characters, or white space.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]
