"""What does a reward pay for wrong answers? Every trick is tried on it, on a run's own rows.

    cheats = try_tricks(reward_of(my_reward), rows, lambda row: f"#### {row['answer']}")
    cheats.sentence()  # "pays 7 of 66 wrong answers, such as 'answer: another or gold' (1): ..."
    assert cheats.problem is None

A trick is *paid* where it earns more than 0 and more than the reward declares for it: a format
reward its full amount for any answer in the asked shape, a step reward what the steps of the
reference answer earn, each its `allowances`. There is no tokenizer: rewards that count tokens get
one for every four characters of a word.
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
NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward
_PIECE = re.compile(r"\s+|\S{1,4}")


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
    """The most that a reward may give to a trick on a row whose reference answer earned `due`."""
    allowed, _ = reward.allowances.get(trick, (0.0, ""))
    if reward.kind == "format" and trick.startswith((ASKED, PROGRAM)):
        allowed = max(allowed, due if reward.full is None else reward.full)
    return max(0.0, allowed, due if reward.kind == "step" else 0.0)


# --- Call a reward outside a trainer, as its trainer does inside


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    log_extra: Callable[[str, list], None] = lambda column, values: None,
) -> list[float | None]:
    """Score each row's completion, a text or messages, as `GRPOTrainer._calculate_rewards` does.

    Of a step reward the score is the sum of its steps. The columns that the reward logs go to
    `log_extra`, its metrics nowhere; the state is that before step 1. Without token ids a reward
    that names them gets `stand_in_ids`.

    Raises:
        ValueError: the reward returned what `read_scores` refuses.
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
    """Each score, and why the reward says that it failed on the row; None where it did not."""
    logged: dict[str, list] = {}
    scores = score(reward, rows, texts, log_extra=logged.__setitem__)
    outcomes = logged.get(f"outcome/{reward_of(reward).name}") or [None] * len(texts)
    failures = [
        str(outcome).removeprefix("error: ") if str(outcome).startswith("error") else None
        for outcome in outcomes
    ]
    return list(zip(scores, failures, strict=True))


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: pieces of up to four characters, or of white space.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]
