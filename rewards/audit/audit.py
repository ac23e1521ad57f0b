"""The score that rewards give to cheap tricks on a run's own rows, against what they may give.

- A verifier gives every trick 0 or less.
- A format reward may give its full amount to any answer or program in the asked shape, and 0 to the
  other tricks.
- A step reward, by the sum of its steps, may give a trick what it gives the reference answer.
- Any other reward may leave a trick unpunished (0), and gives it no more than that.
- Beyond that a reward other than a verifier may give its `allowances`; one that declares itself
  `farmable` is named and not held to a limit.

There is no tokenizer: rewards that count tokens get one for every four characters of a word.
"""

import functools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rewards.audit.call import Raised, graded, unchanged
from rewards.audit.parts import GOLD_COLUMNS, fill, gold_column
from rewards.audit.tricks import (
    ASKED,
    EVERYTHING,
    FORMS,
    LONG,
    PROGRAM,
    REFERENCE,
    SAME_AS,
    SHORT,
    UNREADABLE,
    tricks,
)
from rewards.contract import (
    declared,
    full_reward,
    reward_columns,
    reward_kind,
    reward_name,
    reward_tasks,
    scores_task,
)
from rewards.rows import NumberedRow, rows_by_task
from rewards.steps import sum_steps
from rewards.text import completion_text

ROWS_PER_TASK = 8
BATCH = 64  # completions in a batch, as from a trainer
SECONDS = 0.5  # for one completion, on average over all attempts
TINY = 1e-9
NOTHING = (0.0, "")  # the allowance of most tricks
SHOWN = 160  # characters of a completion in a message

Reference = Callable[[dict], str | list[dict] | None]  # messages where tools are called on the way


class Attempt(NamedTuple):
    """One completion for one row, its reference answer or a trick, with its score or failure."""

    number: int
    row: dict
    trick: str
    text: str | list[dict]
    score: float | None = None
    failure: str | None = None

    def shown(self) -> str:
        text = completion_text(self.text)
        length = f"... ({len(text)} characters)" if len(text) > SHOWN else ""
        return f"row {self.number}, {text[:SHOWN]!r}{length}"


@dataclass
class Audit:
    """The highest score by column (reward and task) and trick, of the reference the lowest.

    `tricks` are those that earned more than they may. Without a column nothing was scored, and
    `failures` says why.
    """

    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tricks: list[str] = field(default_factory=list)


def audit(
    rows: list[dict],
    rewards: list[Callable],
    reference: Reference | str,
    per_task: int = ROWS_PER_TASK,
) -> Audit:
    """Try every trick on every reward, on the first `per_task` rows of each of its tasks.

    Args:
        rows: rows with a prompt; those without a `task` are one task.
        rewards: rewards as `load_rewards` returns them.
        reference: row -> its own answer in the asked format; a row for which that is None is left
            out. Or a template such as `<answer>{answer}</answer>`, with columns of the row.
    """
    if isinstance(reference, str):
        reference = functools.partial(fill, reference)
    problems = unusable_rows(rows, rewards)
    if problems:
        return Audit(failures=problems)
    result = _try(EVERYTHING, rows, rewards, reference, per_task)
    if not result.scores:
        lacks = f"none of the {len(rows)} rows has a reference answer and a reward that scores it."
        result.failures.append(f"nothing was scored: {lacks}")
    return result


def check_tricks(rows: list[dict], rewards: list[Callable], reference: Reference) -> list[str]:
    """The short form, for preflight: a few tricks on one row of each task."""
    kinds = ("verifier", "format", "step")
    promising = [reward for reward in rewards if reward_kind(reward) in kinds]
    return _try(SHORT, rows, promising, reference).failures


def scores_of_tricks(rows: list[dict], reward: Callable, reference: Reference) -> list[float]:
    """What a reward gives to the reference answer and to tricks, on the first row of each task.

    Short texts alone; what it fails on, or does not score, is left out.
    """
    quick = EVERYTHING - {*LONG, *UNREADABLE}
    columns = _try(quick, rows, [reward], reference).scores.values()
    return [score for column in columns for score in column.values() if score is not None]


def unusable_rows(rows: list[dict], rewards: list[Callable]) -> list[str]:
    """Say what keeps rows from being scored: no prompt, no row of a task, no column."""
    if not rows:
        return ["there are no rows."]
    lacking = [i for i, row in enumerate(rows) if not row.get("prompt")]
    problems = [f"row {i} lacks a prompt (its columns: {sorted(rows[i])})." for i in lacking[:1]]
    for reward in rewards:
        name = f"reward {reward_name(reward)!r}"
        mine = [row for row in rows if scores_task(reward, row.get("task"))]
        has = {column for row in mine for column, value in row.items() if value is not None}
        missing = [column for column in reward_columns(reward) if column not in has]
        if not mine:
            problems.append(f"{name} is for {reward_tasks(reward)}; no row is of these tasks.")
        elif missing:
            problems.append(f"{name} needs the column {', '.join(missing)}; no row has it.")
    return problems


def _try(
    names: Collection[str],
    rows: list[dict],
    rewards: list[Callable],
    reference: Reference,
    per_task: int = 1,
) -> Audit:
    """The audit with the tricks of these names."""
    result, by_task = Audit(), rows_by_task(rows)
    models = [reward_name(reward) for reward in rewards if reward_kind(reward) == "model"]
    result.notes += [f"{name} is of the kind model: nothing was tried on it." for name in models]
    rewards = [sum_steps(reward) for reward in rewards if reward_kind(reward) != "model"]
    for task, numbered in by_task.items():
        of_task = [reward for reward in rewards if scores_task(reward, task)]
        if not of_task:
            continue
        label = f"task {task!r}" if task else "rows without a task"
        known = [(number, row) for number, row in numbered if reference(row) is not None]
        if not known:
            lacks = "no row has a reference answer, so nothing was tried on it."
            result.notes.append(f"{label}: {lacks}")
            continue
        attempts = _attempts(known, per_task, reference, names)
        for reward in of_task:
            suffix = f" ({task or 'no task'})" if len(by_task) > 1 else ""
            _audit_reward(reward, reward_name(reward) + suffix, attempts, result)
        if not any(attempt.trick.startswith(ASKED) for attempt in attempts):
            lacks = f"the reference answer shows no text column {', '.join(GOLD_COLUMNS)}"
            result.notes.append(f"{label}: {lacks}, so no trick plays on the answer.")
    return result


def _attempts(
    numbered: list[NumberedRow], per_task: int, reference: Reference, names: Collection[str]
) -> list[Attempt]:
    """The reference answer and the tricks of the first rows of one task, equal tricks together."""
    rows, by_trick = [row for _, row in numbered], {}

    def last_turn(row: dict) -> str:
        whole = reference(row)
        return whole if isinstance(whole, str) else completion_text(whole[-1:])

    for number, row in numbered[:per_task]:
        whole, battery = reference(row), tricks(row, last_turn, rows)
        tried = {REFERENCE: Attempt(number, row, REFERENCE, whole)}
        for name, text in battery.items():
            if name in LONG and number != numbered[0][0]:
                continue
            if name.startswith(REFERENCE) and not isinstance(whole, str):  # a form of the last turn
                text = [*whole[:-1], whole[-1] | {"content": text}]
            tried[name] = Attempt(number, row, name, text)
        column = gold_column(row)
        wrong = battery.get(ASKED + "another row's", battery.get(ASKED + "gold plus one"))
        if column and wrong is not None:  # without a gold no completion is right
            for name, gold in UNREADABLE.items():
                tried[name] = Attempt(number, row | {column: gold}, name, wrong)
        for name, attempt in tried.items():
            if name == REFERENCE or name in names:
                by_trick.setdefault(name, []).append(attempt)
    return [attempt for tried in by_trick.values() for attempt in tried]


def score_attempts(reward: Callable, attempts: list[Attempt]) -> list[Attempt]:
    """Score the attempts in batches; where a whole batch fails, one by one, to find which."""
    scored = []
    for start in range(0, len(attempts), BATCH):
        batch = _score_batch(reward, attempts[start : start + BATCH])
        if len(batch) > 1 and all(one.failure for one in batch):
            alone = [_score_batch(reward, [one])[0] for one in batch]
            if any(one.failure for one in alone):
                batch = alone
            else:
                batch = [one._replace(failure=f"{one.failure} (only in a batch)") for one in batch]
        scored += batch
    return scored


def _score_batch(reward: Callable, attempts: list[Attempt]) -> list[Attempt]:
    rows, texts = [one.row for one in attempts], [one.text for one in attempts]
    try:
        found = graded(unchanged(reward), rows, texts)
    except Exception as error:
        why = str(error) if isinstance(error, Raised) else f"{type(error).__name__}: {error}"
        found = [(None, why)] * len(attempts)
    pairs = zip(attempts, found, strict=True)
    return [one._replace(score=value, failure=failure) for one, (value, failure) in pairs]


def _audit_reward(reward: Callable, column: str, attempts: list[Attempt], result: Audit) -> None:
    """Score all attempts for rows of one task; add the scores and what is wrong with them."""
    start = time.perf_counter()
    scored = score_attempts(reward, [one for one in attempts if one.trick not in UNREADABLE])
    seconds = time.perf_counter() - start
    is_silent = all(one.score is None and not one.failure for one in scored)
    if is_silent and reward_kind(reward) != "verifier":
        return  # it does not apply to this task
    earned = {one.number: one.score or 0.0 for one in scored if one.trick == REFERENCE}
    messages = [*_broken_promises(reward, scored, seconds)]
    without_gold = score_attempts(reward, [one for one in attempts if one.trick in UNREADABLE])
    scored += [one for one in without_gold if not one.failure]  # an error is an answer here
    highest = result.scores[column] = {}
    for trick in dict.fromkeys(one.trick for one in scored):
        given = [one for one in scored if one.trick == trick and one.score is not None]
        is_form = trick.startswith(REFERENCE)
        highest[trick] = (min if is_form else max)((one.score for one in given), default=None)
        if above := [] if is_form else _above_limit(reward, trick, given, earned):
            messages += above
            result.tricks.append(trick)
    result.failures += [f"reward {column!r} {text}" for text in messages]
    result.notes += [f"{column} {text}" for text in _notes(reward, scored, earned)]


def _broken_promises(reward: Callable, scored: list[Attempt], seconds: float) -> Iterator[str]:
    """What is wrong with scores, but for those of tricks."""
    kind, count = reward_kind(reward), f"{len(scored)} completions"
    if seconds > SECONDS * len(scored):
        yield f"takes {seconds:.1f} s for {count}: too slow to train with."
    failed = [one for one in scored if one.failure]
    if failed:
        which = f"{failed[0].failure}. The first: {failed[0].shown()}"
        yield f"fails on {len(failed)} of {count}: {which}"
    if kind in ("verifier", "format"):
        graded = [one for one in scored if not one.failure]
        yield from _short(full_reward(reward), graded)
        yield from _sensitive(graded)
    if kind != "control":  # which may look at all of its batch
        yield from _unsteady(reward, scored)


def _short(full: float | None, graded: list[Attempt]) -> Iterator[str]:
    """The reference answer must earn the full reward; more than 0 where that is not declared."""
    references = [one for one in graded if one.trick == REFERENCE]
    short = [one for one in references if one.score is None or one.score < (full or TINY)]
    if short:
        given = "nothing" if short[0].score is None else f"{short[0].score:g}"
        due = "more than 0" if full is None else f"{full:g}"
        rows = f"{len(short)} of {len(references)} rows"
        yield f"gives {given} instead of {due} for the {REFERENCE} of {rows}: {short[0].shown()}"


def _sensitive(graded: list[Attempt]) -> Iterable[str]:
    """The forms of the reference answer that earn nothing where another one earns something."""
    scores = {(one.number, one.trick): one.score or 0.0 for one in graded}
    messages: dict[str, str] = {}  # the first of each form
    for one in graded:
        form = one.trick.removeprefix(f"{REFERENCE} ")
        if form not in FORMS or form in SAME_AS.values():
            continue
        other = f"{REFERENCE} {SAME_AS[form]}" if form in SAME_AS else REFERENCE
        given, due = scores[one.number, one.trick], scores.get((one.number, other), 0.0)
        if given <= 0.0 < due:
            text = f"gives {given:g} for the {one.trick}, and {due:g} for the {other}"
            messages.setdefault(one.trick, f"{text}: {one.shown()}")
    return messages.values()


def _unsteady(reward: Callable, scored: list[Attempt]) -> list[str]:
    """A completion of one row that scores otherwise in another order and batch, or alone."""
    first = [one for one in scored if one.number == scored[0].number]
    again = score_attempts(reward, first[::-1])[::-1] + score_attempts(reward, first[:1])
    messages = []
    for one, other in zip([*first, first[0]], again, strict=True):
        if None not in (one.score, other.score) and abs(one.score - other.score) > TINY:
            text = f"gives {one.score:g} and then {other.score:g} for the same completion"
            messages.append(f"{text}, in another order and batch: {one.shown()}")
    return messages[-1:]


def _above_limit(
    reward: Callable, trick: str, given: list[Attempt], earned: dict[int, float]
) -> list[str]:
    """The score furthest above what a trick may get, if one is."""
    limits = {number: _limit(reward, trick, amount) for number, amount in earned.items()}
    above = [one for one in given if one.score > limits[one.number] + TINY]
    if not above:
        return []
    worst = max(above, key=lambda one: one.score - limits[one.number])
    how = "declares `allowances` with a reason, or how it is `farmable`"
    allowed = f"it may give {limits[worst.number]:g}: for more it {how}"
    if reward_kind(reward) == "verifier":
        allowed = "a verifier gives 0 or less"
    return [f"gives {worst.score:g} for the trick {trick!r}; {allowed}: {worst.shown()}"]


def _limit(reward: Callable, trick: str, earned: float) -> float:
    """The most a reward may give to a trick on a row whose reference answer earned `earned`."""
    kind, (allowed, _) = reward_kind(reward), declared(reward, "allowances", {}).get(trick, NOTHING)
    if kind == "verifier":
        return 0.0
    if declared(reward, "farmable"):
        return math.inf
    if kind == "format":
        in_shape = trick.startswith((ASKED, PROGRAM))
        return max(allowed, full_reward(reward) or earned) if in_shape else allowed
    return max(0.0, allowed, earned if kind == "step" else 0.0)


def _notes(reward: Callable, scored: list[Attempt], earned: dict[int, float]) -> Iterator[str]:
    """The allowances that were used; else the trick that escapes a penalty best."""
    if reward_kind(reward) == "verifier" or declared(reward, "farmable"):
        return
    given = [one for one in scored if one.score is not None]
    used: dict[tuple[float, str], dict[str, None]] = {}  # an allowance -> the tricks that took it
    for one in given:
        most, reason = declared(reward, "allowances", {}).get(one.trick, NOTHING)
        if reason and (one.score > 0 or one.score == most):
            used.setdefault((most, reason), {})[one.trick] = None
    for (most, reason), names in used.items():
        yield f"may give {most:g} for {', '.join(names)}: {reason}."
    better = [one for one in given if one.score > earned[one.number] + TINY]
    if better and not used and reward_kind(reward) != "format":
        best = max(better, key=lambda one: one.score)
        than = f"more than for the {REFERENCE} ({earned[best.number]:g})"
        text = f"gives {best.score:g} for the trick {best.trick!r}, {than}"
        yield f"{text}: gate it by a verifier (reward_gates)."
