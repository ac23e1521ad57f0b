"""Audit: the score that each reward gives to a battery of cheap tricks on a run's own rows, against what it may give.

- A verifier gives every trick 0 or less.
- A format reward may give its full amount to any answer or program in the asked shape, and 0 to the other tricks.
- A step reward, by the sum of its steps, may give a trick what it gives the reference answer of that row.
- Any other reward may leave a trick unpunished (0), and gives it no more than that.
- Beyond that a reward other than a verifier may give its `allowances`; one that declares itself `farmable` is named
  and not held to a limit.

There is no tokenizer here: rewards that count tokens get one token for every four characters of a word or its rest.
"""

import functools
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rewards.audit.call import score, stand_in_ids, unchanged
from rewards.audit.shapes import SAME_AS, variants
from rewards.audit.tricks import (
    ASKED,
    GOLD_COLUMNS,
    LONG,
    SHORT,
    UNREADABLE,
    gold_column,
    gold_of,
    tricks,
)
from rewards.contract import (
    farmable,
    full_reward,
    reward_allowances,
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
SECONDS = 0.5  # for one completion, on average over all attempts
REFERENCE = "reference answer"
BLIND = tuple(UNREADABLE)  # attempts on rows without a gold
TINY = 1e-9
SHOWN = 160  # characters of a completion in a message

Reference = Callable[[dict], str | list[dict] | None]  # messages where tools are called on the way


class Attempt(NamedTuple):
    """One completion for one row: its reference answer, or a trick."""

    number: int
    row: dict
    trick: str
    text: str | list[dict]
    token_ids: list[int]


class Scored(NamedTuple):
    """The score of an attempt, or why there is none."""

    attempt: Attempt
    score: float | None
    failure: str | None


@dataclass
class Audit:
    """The highest score by column (reward and task) and trick, of the reference the lowest; failures; notes.

    Without a column nothing was scored, and `failures` says why.
    """

    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
        reference: row -> its own answer in the asked format; a row for which that is None is left out. Or a template
            such as `<answer>{answer}</answer>`, with columns of the row.
    """
    if isinstance(reference, str):
        reference = functools.partial(fill, reference)
    problems = unusable_rows(rows, rewards)
    result = (
        Audit(failures=problems)
        if problems
        else _try_tricks(rows, rewards, reference, per_task, None)
    )
    if not result.scores and not problems:
        nothing = f"nothing was scored: none of the {len(rows)} rows has a reference answer and a reward that scores it."
        result.failures.append(nothing)
    return result


def fill(template: str, row: dict) -> str:
    r"""The template with columns of the row in place of their names in braces.

    Example: `fill(r"\boxed{{answer}}", {"answer": "18"}) == r"\boxed{18}"`
    """
    return re.sub(r"\{(\w+)\}", lambda found: str(row.get(found[1], found[0])), template)


def check_tricks(rows: list[dict], rewards: list[Callable], reference: Reference) -> list[str]:
    """The short form, for preflight: a few tricks on one row of each task, for verifiers, format and step rewards."""
    promising = [
        reward for reward in rewards if reward_kind(reward) in ("verifier", "format", "step")
    ]
    return _try_tricks(rows, promising, reference, 1, SHORT).failures


def unusable_rows(rows: list[dict], rewards: list[Callable]) -> list[str]:
    """Say what keeps rows from being scored at all: no prompt, no row of a task, no column that a reward needs."""
    if not rows:
        return ["there are no rows."]
    lacking = [i for i, row in enumerate(rows) if not row.get("prompt")]
    problems = [f"row {i} lacks a prompt (its columns: {sorted(rows[i])})." for i in lacking[:1]]
    for reward in rewards:
        mine = [row for row in rows if scores_task(reward, row.get("task"))]
        missing = [
            name
            for name in reward_columns(reward)
            if not any(row.get(name) is not None for row in mine)
        ]
        if not mine:
            problems.append(
                f"reward {reward_name(reward)!r} is for {reward_tasks(reward)}; no row is of these tasks."
            )
        elif missing:
            problems.append(
                f"reward {reward_name(reward)!r} needs the column {', '.join(missing)}; no row has it."
            )
    return problems


def _try_tricks(
    rows: list[dict],
    rewards: list[Callable],
    reference: Reference,
    per_task: int,
    only: tuple[str, ...] | None,
) -> Audit:
    """The audit with the tricks named in `only`; with all of them when it is None."""
    result, by_task = Audit(), rows_by_task(rows)
    models = [reward for reward in rewards if reward_kind(reward) == "model"]
    result.notes += [
        f"{reward_name(reward)} is of the kind model: nothing was tried on it." for reward in models
    ]
    rewards = [reward for reward in rewards if reward not in models]
    for task, numbered in by_task.items():
        of_task = [sum_steps(reward) for reward in rewards if scores_task(reward, task)]
        known = (
            [(number, row) for number, row in numbered if reference(row) is not None]
            if of_task
            else []
        )
        attempts = _attempts(known, per_task, reference, only)
        for reward in of_task if known else []:
            name = reward_name(reward)
            _audit_reward(
                reward,
                name if len(by_task) == 1 else f"{name} ({task or 'no task'})",
                attempts,
                result,
            )
        label = f"task {task!r}" if task else "rows without a task"
        if of_task and not known:
            result.notes.append(
                f"{label}: no row has a reference answer, so nothing was tried on it."
            )
        elif of_task and not any(attempt.trick.startswith(ASKED) for attempt in attempts):
            columns = ", ".join(GOLD_COLUMNS)
            no_gold = f"the reference answer shows no text column {columns}, so no trick plays on the answer."
            result.notes.append(f"{label}: {no_gold}")
        if of_task and len(known[:per_task]) > 1 and only is None:
            only_first = f"on row {known[0][0]} alone, being long: {', '.join(LONG)}."
            result.notes.append(f"{label}: tried on {len(known[:per_task])} rows; {only_first}")
    return result


def _attempts(
    numbered: list[NumberedRow], per_task: int, reference: Reference, only: tuple[str, ...] | None
) -> list[Attempt]:
    """The reference answer and the tricks of the first rows of one task."""
    rows, attempts = [row for _, row in numbered], []

    def last_turn(row: dict) -> str:
        whole = reference(row)
        return whole if isinstance(whole, str) else completion_text(whole[-1:])

    for number, row in numbered[:per_task]:
        battery = tricks(row, last_turn, rows)
        chosen = {name: text for name, text in battery.items() if only is None or name in only}
        if attempts:
            chosen = {name: text for name, text in chosen.items() if name not in LONG}
        named = {REFERENCE: reference(row)} | chosen
        unreadable: dict[str, dict] = {}
        if only is None:
            whole, forms = named[REFERENCE], variants(gold_of(row), last_turn(row))
            if not isinstance(whole, str):  # the turns before stay as they are
                forms = {
                    name: [*whole[:-1], {**whole[-1], "content": text}]
                    for name, text in forms.items()
                }
            named |= {f"{REFERENCE} {name}": form for name, form in forms.items()}
            if column := gold_column(
                row
            ):  # no completion is right there, so that a reward is None, 0 or less
                unreadable = {name: row | {column: text} for name, text in UNREADABLE.items()}
            wrong = battery.get(ASKED + "another row's", battery.get(ASKED + "gold plus one"))
            named |= {name: wrong for name in unreadable if wrong is not None}
        for name, text in named.items():
            attempts.append(
                Attempt(
                    number,
                    unreadable.get(name, row),
                    name,
                    text,
                    stand_in_ids(completion_text(text)),
                )
            )
    return attempts


def _audit_reward(reward: Callable, column: str, attempts: list[Attempt], result: Audit) -> None:
    """Score all attempts for rows of one task; add to `result` the scores and what is wrong with them."""
    start = time.perf_counter()
    scored = _score(reward, [attempt for attempt in attempts if attempt.trick not in BLIND])
    seconds = time.perf_counter() - start
    earned = {one.attempt.number: one.score for one in scored if one.attempt.trick == REFERENCE}
    if reward_kind(reward) != "verifier" and not any(
        one.failure or one.score is not None for one in scored
    ):
        return  # it does not apply to this task
    too_slow = seconds > SECONDS * len(scored)
    messages = (
        [f"takes {seconds:.1f} s for {len(scored)} completions: too slow to train with."]
        if too_slow
        else []
    )
    messages += (
        _failed(scored)
        + _short(reward, scored)
        + _sensitive(reward, scored)
        + _unsteady(reward, scored)
    )
    blind = [attempt for attempt in attempts if attempt.trick in BLIND]
    scored += [
        one for one in (_score(reward, blind) if blind else []) if not one.failure
    ]  # an error is an answer here
    highest = result.scores[column] = {}
    for name in dict.fromkeys(one.attempt.trick for one in scored):
        group = [one for one in scored if one.attempt.trick == name]
        choose = min if name.startswith(REFERENCE) else max
        highest[name] = choose((one.score for one in group if one.score is not None), default=None)
        if not name.startswith(REFERENCE):
            messages += _above_limit(reward, name, group, earned)
    result.failures += [f"reward {column!r} {text}" for text in messages]
    result.notes += _notes(reward, column, scored, earned)


def _score(reward: Callable, attempts: list[Attempt]) -> list[Scored]:
    """Score the attempts; where the whole batch fails, one by one, to find which."""
    logged: dict[str, list] = {}
    rows, texts = [attempt.row for attempt in attempts], [attempt.text for attempt in attempts]
    try:
        scores = score(
            unchanged(reward),
            rows,
            texts,
            [attempt.token_ids for attempt in attempts],
            logged.__setitem__,
        )
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        if len(attempts) == 1:
            return [Scored(attempts[0], None, failure)]
        alone = [_score(reward, [attempt])[0] for attempt in attempts]
        in_batch = [Scored(attempt, None, f"{failure} (only in a batch)") for attempt in attempts]
        return alone if any(one.failure for one in alone) else in_batch
    outcomes = logged.get(f"outcome/{reward_name(reward)}") or [None] * len(attempts)
    return [_scored(*values) for values in zip(attempts, scores, outcomes, strict=True)]


def _scored(attempt: Attempt, value: float | None, outcome: str | None) -> Scored:
    if value is not None and not math.isfinite(value):
        return Scored(attempt, None, f"it returned {value}")
    failed = str(outcome).startswith("error")
    return Scored(attempt, value, str(outcome).removeprefix("error: ") if failed else None)


def _failed(scored: list[Scored]) -> list[str]:
    """The first attempt without a score through a failure, and how many there are."""
    failed = [one for one in scored if one.failure]
    count = f"fails on {len(failed)} of {len(scored)} completions"
    return [f"{count}: {one.failure}. The first: {_shown(one)}" for one in failed[:1]]


def _unsteady(reward: Callable, scored: list[Scored]) -> list[str]:
    """The completions of one row again, in another order and batch, and the first of them alone: the same scores."""
    first = [one for one in scored if one.attempt.number == scored[0].attempt.number]
    again = _score(reward, [one.attempt for one in first][::-1])[::-1] + _score(
        reward, [first[0].attempt]
    )
    pairs = [
        (a, b)
        for a, b in zip([*first, first[0]], again, strict=True)
        if None not in (a.score, b.score)
    ]
    different = [(a, b) for a, b in pairs if abs(a.score - b.score) > TINY]
    return [
        f"gives {a.score:g} and then {b.score:g} for the same completion, in another order and batch: {_shown(a)}"
        for a, b in different[-1:]
    ]


def _short(reward: Callable, scored: list[Scored]) -> list[str]:
    """The reference answer must earn the full reward; more than 0 where that is not declared."""
    full = full_reward(reward)
    if reward_kind(reward) not in ("verifier", "format"):
        return []
    references = [one for one in scored if one.attempt.trick == REFERENCE and not one.failure]
    short = [one for one in references if one.score is None or one.score < (full or TINY)]
    due = "more than 0" if full is None else f"{full:g}"
    return [
        f"gives {'nothing' if one.score is None else f'{one.score:g}'} instead of {due} for the {REFERENCE} of "
        f"{len(short)} of {len(references)} rows: {_shown(one)}"
        for one in short[:1]
    ]


def _sensitive(reward: Callable, scored: list[Scored]) -> list[str]:
    """The forms of the reference answer that earn nothing where another with the same meaning earns something."""
    if reward_kind(reward) not in ("verifier", "format"):
        return []
    scores = {
        (one.attempt.number, one.attempt.trick): one.score for one in scored if not one.failure
    }
    messages = {}
    for one in scored:
        number, trick = one.attempt.number, one.attempt.trick
        form = trick.removeprefix(f"{REFERENCE} ")
        other = f"{REFERENCE} {SAME_AS[form]}" if form in SAME_AS else REFERENCE
        may_differ = form == trick or form in SAME_AS.values()
        if not (may_differ or one.failure) and (one.score or 0.0) <= 0.0 < (
            scores.get((number, other)) or 0.0
        ):
            given = f"gives {one.score or 0.0:g} for the {trick}, and {scores[number, other]:g} for the {other}"
            messages.setdefault(trick, f"{given}: {_shown(one)}")
    return list(messages.values())


def _above_limit(
    reward: Callable, trick: str, group: list[Scored], earned: dict[int, float | None]
) -> list[str]:
    """The score furthest above what a trick may get, if one is."""
    if farmable(reward) and reward_kind(reward) != "verifier":
        return []
    limits = {number: _limit(reward, trick, amount) for number, amount in earned.items()}
    above = [
        one
        for one in group
        if one.score is not None and one.score > limits[one.attempt.number] + TINY
    ]
    if not above:
        return []
    worst = max(above, key=lambda one: one.score - limits[one.attempt.number])
    allowed = f"it may give {limits[worst.attempt.number]:g}: for more it declares `allowances` with a reason, or "
    allowed += "how it is `farmable`"
    if reward_kind(reward) == "verifier":
        allowed = "a verifier gives 0 or less"
    return [f"gives {worst.score:g} for the trick {trick!r}; {allowed}: {_shown(worst)}"]


def _limit(reward: Callable, trick: str, earned: float | None) -> float:
    """The most a reward may give to a trick on a row whose reference answer earned `earned`."""
    kind, (allowed, _) = reward_kind(reward), reward_allowances(reward).get(trick, (0.0, ""))
    if kind == "verifier":
        return 0.0
    if kind == "format":
        in_shape = trick.startswith(
            (ASKED, "code: ")
        )  # a program has the shape that a program was asked in
        return max(allowed, full_reward(reward) or earned or 0.0) if in_shape else allowed
    return max(0.0, allowed, (earned or 0.0) if kind == "step" else 0.0)


def _shown(one: Scored) -> str:
    text = completion_text(one.attempt.text)
    return f"row {one.attempt.number}, {text[:SHOWN]!r}" + f"... ({len(text)} characters)" * (
        len(text) > SHOWN
    )


def _notes(
    reward: Callable, column: str, scored: list[Scored], earned: dict[int, float | None]
) -> list[str]:
    """The allowances that were used, with their reasons; else the trick that escapes a penalty best."""
    if reward_kind(reward) == "verifier" or farmable(reward):
        return []
    given, used = [one for one in scored if one.score is not None], {}
    for one in given:
        allowance = reward_allowances(reward).get(one.attempt.trick)
        if allowance and (one.score > 0 or one.score == allowance[0]):
            used.setdefault(allowance, {})[one.attempt.trick] = None
    if used or reward_kind(reward) == "format":
        return [
            f"{column} may give {most:g} for {', '.join(names)}: {why}."
            for (most, why), names in used.items()
        ]
    better = [one for one in given if one.score > (earned[one.attempt.number] or 0.0) + TINY]
    return [
        f"{column} gives {one.score:g} for the trick {one.attempt.trick!r}, more than for the {REFERENCE} "
        f"({earned[one.attempt.number]:g}): gate it by a verifier (reward_gates)."
        for one in sorted(better, key=lambda one: -one.score)[:1]
    ]
