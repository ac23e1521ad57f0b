"""Audit: what each reward pays for a battery of cheap tricks on the run's own rows, and what it may pay.

- A verifier pays nothing, or less, for every trick.
- A format reward may pay its full amount for any answer in the asked shape, and nothing for the other tricks.
- A step reward, judged by the sum of its steps, may pay a trick what it pays the reference answer of that row.
- Any other reward may leave a trick unpunished (0.0), and pays no more for it.
- Beyond that a reward that is no verifier may pay its `allowances`; one that declares itself `farmable`
  is not judged, and is named.

There is no tokenizer here: rewards that count tokens are shown one token for every four characters of a
word or its rest.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from recipes.common.before.rows import NumberedRow, Problem, format_table, rows_by_task
from rewards import full_reward, reward_columns, reward_kind, reward_name
from rewards.audit.call import score
from rewards.audit.tricks import ASKED, SHORT, tricks
from rewards.contract import farmable, reward_allowances, reward_tasks, scores_task

ROWS_PER_TASK = 8
SECONDS = 5.0  # for one reward on all attempts of up to `ROWS_PER_TASK` rows; in proportion for more
REFERENCE = "reference answer"
SHOWN = 160  # characters of a completion in a message
_PIECE = re.compile(r"\s+|\S{1,4}")


class Attempt(NamedTuple):
    """One completion for one row: its reference answer, or a trick."""

    number: int
    row: dict
    trick: str
    text: str
    token_ids: list[int]


class Payment(NamedTuple):
    """What an attempt was paid, or why it could not be graded."""

    attempt: Attempt
    amount: float | None
    failure: str | None


@dataclass
class Audit:
    """Most that was paid by column (reward and task) and trick; what is wrong; what a reader should know."""

    paid: dict[str, dict[str, float | None]] = field(default_factory=dict)
    failures: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def audit(
    rows: list[dict],
    rewards: list[Callable],
    reference: Callable[[dict], str | None],
    per_task: int = ROWS_PER_TASK,
    only: tuple[str, ...] | None = None,
) -> Audit:
    """Judge every reward on the first `per_task` rows of each of its tasks.

    Args:
        rows: rows with a prompt and a task.
        reference: row -> its own answer in the asked format; a row for which that is None is left out.
        only: names of the tricks to try; all when None.
    """
    result = Audit()
    by_task = rows_by_task(rows, [])
    for task, numbered in by_task.items():
        judges = [reward for reward in rewards if scores_task(reward, task)]
        sure = [(number, row) for number, row in numbered if reference(row) is not None]
        if judges and not sure:
            result.notes.append(f"task {task!r}: no row has a reference answer, so nothing was tried on it.")
            continue
        attempts = _attempts(sure, per_task, reference, only) if judges else []
        for reward in judges:
            name = reward_name(reward)
            _judge(reward, name if len(by_task) == 1 else f"{name} ({task})", attempts, result)
        if judges and not any(attempt.trick.startswith(ASKED) for attempt in attempts):
            said = f"task {task!r}: the reference answer shows no column `answer`, so no trick plays on the answer"
            result.notes.append(said + ".")
    return result


def check_tricks(
    rows: list[dict], rewards: list[Callable], reference: Callable[[dict], str | None], problems: list[Problem]
) -> None:
    """The short form, for preflight: a few tricks on one row a task, for verifiers, format and step rewards."""
    blamed = {problem.subject for problem in problems}
    promising = [reward for reward in rewards if reward_kind(reward) in ("verifier", "format", "step")]
    sound = [reward for reward in promising if reward_name(reward) not in blamed]
    if sound and "rows" not in blamed:
        problems += audit(rows, sound, reference, per_task=1, only=SHORT).failures


def unusable_rows(rows: list[dict], rewards: list[Callable]) -> list[str]:
    """What keeps rows from being judged at all: no prompt or task, or a column that a reward needs."""
    if not rows:
        return ["there are no training rows to judge."]
    lacking = [i for i, row in enumerate(rows) if not (row.get("prompt") and row.get("task"))]
    problems = [f"row {i} lacks a prompt or a task (its columns: {sorted(rows[i])})." for i in lacking[:1]]
    for reward in rewards:
        mine = [row for row in rows if scores_task(reward, row.get("task"))]
        missing = [name for name in reward_columns(reward) if not any(row.get(name) is not None for row in mine)]
        if not mine:
            problems.append(f"reward {reward_name(reward)!r} is for {reward_tasks(reward)}; no row is of these tasks.")
        elif missing:
            problems.append(f"reward {reward_name(reward)!r} needs the column {', '.join(missing)}; no row has it.")
    return problems


def report(result: Audit, rewards: list[Callable]) -> str:
    """The table trick x reward, then failures and notes in words, and which rewards are farmable by design."""
    names = dict.fromkeys(trick for column in result.paid.values() for trick in column)
    table = [{"trick": name} | {column: _cell(paid, name) for column, paid in result.paid.items()} for name in names]
    farmed = [f"{reward_name(r)}: {farmable(r)}" for r in rewards if farmable(r)]
    lines = [format_table(table), "", *(f"  Note: {note}" for note in dict.fromkeys(result.notes))]
    lines += [f"  Farmable by design: {said}" for said in farmed or ["none of these rewards."]]
    count = len(result.failures)
    lines.append(f"\n{count} failure{'s' * (count > 1)}:" if count else "  No reward pays more than it may.")
    return "\n".join(lines + [f"  - {text}" for _, text in result.failures])


def _cell(paid: dict[str, float | None], trick: str) -> float | None:
    amount = paid.get(trick)
    return amount if amount is None else round(amount, 4)


def _attempts(
    numbered: list[NumberedRow], per_task: int, reference: Callable[[dict], str | None], only: tuple[str, ...] | None
) -> list[Attempt]:
    """The reference answer and the tricks of the first rows of one task."""
    rows, attempts = [row for _, row in numbered], []
    for number, row in numbered[:per_task]:
        battery = tricks(row, reference, rows)
        chosen = {name: text for name, text in battery.items() if only is None or name in only}
        named = {REFERENCE: reference(row)} | chosen
        attempts += [Attempt(number, row, name, text, stand_in_ids(text)) for name, text in named.items()]
    return attempts


def _judge(reward: Callable, column: str, attempts: list[Attempt], result: Audit) -> None:
    """Pay all attempts for rows of one task; add to `result` what was paid and what is wrong with it."""
    start = time.perf_counter()
    payments = _pay(reward, attempts)
    taken = time.perf_counter() - start
    earned = {p.attempt.number: p.amount for p in payments if p.attempt.trick == REFERENCE}
    if reward_kind(reward) != "verifier" and not any(p.failure or p.amount is not None for p in payments):
        return  # it says itself that it does not apply to this task
    too_slow = taken > SECONDS * max(1.0, len(earned) / ROWS_PER_TASK)
    said = [f"takes {taken:.1f} s for {len(attempts)} completions: too slow to train with."] if too_slow else []
    said += _failed(payments) + _short(reward, payments)
    paid = result.paid[column] = {}
    for name, group in _by_trick(payments).items():
        choose = min if name == REFERENCE else max
        paid[name] = choose((p.amount for p in group if p.amount is not None), default=None)
        if name != REFERENCE:
            said += _overpaid(reward, name, group, earned)
    result.failures += [Problem(reward_name(reward), f"reward {column!r} {text}") for text in said]
    result.notes += _notes(reward, column, payments, earned)


def _pay(reward: Callable, attempts: list[Attempt]) -> list[Payment]:
    """What each attempt is paid; where the whole batch fails, one by one, to find which."""
    logged: dict[str, list] = {}
    rows, texts = [attempt.row for attempt in attempts], [attempt.text for attempt in attempts]
    try:
        amounts = score(reward, rows, texts, [attempt.token_ids for attempt in attempts], logged.__setitem__)
    except Exception as error:
        if len(attempts) > 1:
            return [_pay(reward, [attempt])[0] for attempt in attempts]
        return [Payment(attempts[0], None, f"{type(error).__name__}: {error}")]
    outcomes = logged.get(f"outcome/{reward_name(reward)}") or [None] * len(attempts)
    return [_payment(*values) for values in zip(attempts, amounts, outcomes, strict=True)]


def _payment(attempt: Attempt, amount: float | None, outcome: str | None) -> Payment:
    if amount is not None and not math.isfinite(amount):
        return Payment(attempt, None, f"it paid {amount}")
    failed = str(outcome).startswith("error")
    return Payment(attempt, amount, str(outcome).removeprefix("error: ") if failed else None)


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: equal pieces of at most four characters, or of white space, have equal ids.

    Example: `stand_in_ids("one and one") == [0, 1, 2, 1, 0]`
    """
    ids: dict[str, int] = {}
    return [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)]


def _by_trick(payments: list[Payment]) -> dict[str, list[Payment]]:
    groups: dict[str, list[Payment]] = {}
    for payment in payments:
        groups.setdefault(payment.attempt.trick, []).append(payment)
    return groups


def _failed(payments: list[Payment]) -> list[str]:
    """The first attempt that could not be graded, and how many there are."""
    failed = [payment for payment in payments if payment.failure]
    if not failed:
        return []
    first = failed[0]
    return [f"fails on {len(failed)} of {len(payments)} completions: {first.failure}. The first: {_shown(first)}"]


def _short(reward: Callable, payments: list[Payment]) -> list[str]:
    """The gold in the asked format must earn the full reward."""
    full = full_reward(reward)
    if reward_kind(reward) not in ("verifier", "format") or full is None:
        return []
    references = [p for p in payments if p.attempt.trick == REFERENCE and not p.failure]
    short = [p for p in references if p.amount is None or p.amount < full]
    return [
        f"pays {'nothing' if p.amount is None else f'{p.amount:g}'} instead of {full:g} for the {REFERENCE} of "
        f"{len(short)} of {len(references)} rows: {_shown(p)}"
        for p in short[:1]
    ]


def _overpaid(reward: Callable, trick: str, group: list[Payment], earned: dict[int, float | None]) -> list[str]:
    """The payment furthest above what may be paid for a trick, if one is."""
    if farmable(reward) and reward_kind(reward) != "verifier":
        return []
    above = [(p.amount - _limit(reward, trick, earned[p.attempt.number]), p) for p in group if p.amount is not None]
    excess, worst = max(above, key=lambda pair: pair[0], default=(0.0, None))
    if excess <= 1e-9:
        return []
    limit = _limit(reward, trick, earned[worst.attempt.number])
    return [f"pays {worst.amount:g} for the trick {trick!r}; {_may(reward, limit)}: {_shown(worst)}"]


def _limit(reward: Callable, trick: str, earned: float | None) -> float:
    """What a reward may pay for a trick on a row whose reference answer earned `earned`."""
    kind, (allowed, _) = reward_kind(reward), reward_allowances(reward).get(trick, (0.0, ""))
    if kind == "verifier":
        return 0.0
    if kind == "format":
        return max(allowed, full_reward(reward) or earned or 0.0) if trick.startswith(ASKED) else allowed
    return max(0.0, allowed, (earned or 0.0) if kind == "step" else 0.0)


def _may(reward: Callable, limit: float) -> str:
    if reward_kind(reward) == "verifier":
        return "a verifier pays none of them"
    return f"it may pay {limit:g}: for more it declares `allowances` with a reason, or how it is `farmable`"


def _shown(payment: Payment) -> str:
    text = payment.attempt.text
    shown = repr(text[:SHOWN]) + f"... ({len(text)} characters)" * (len(text) > SHOWN)
    return f"row {payment.attempt.number}, {shown}"


def _notes(reward: Callable, column: str, payments: list[Payment], earned: dict[int, float | None]) -> list[str]:
    """Allowances that were used, with their reasons; a penalty that a trick escapes."""
    if reward_kind(reward) == "verifier" or farmable(reward):
        return []
    allowances, used = reward_allowances(reward), {}
    for payment in payments:
        allowance = allowances.get(payment.attempt.trick)
        if allowance and payment.amount is not None and (payment.amount > 0 or payment.amount == allowance[0]):
            used.setdefault(allowance, {})[payment.attempt.trick] = None
    said = [
        f"{column} may pay {amount:g} for {', '.join(names)}: {reason}." for (amount, reason), names in used.items()
    ]
    return said or _escapes(reward, column, payments, earned)


def _escapes(reward: Callable, column: str, payments: list[Payment], earned: dict[int, float | None]) -> list[str]:
    if reward_kind(reward) == "format":
        return []
    better = [p for p in payments if p.amount is not None and p.amount > (earned[p.attempt.number] or 0.0) + 1e-9]
    if not better:
        return []
    first = max(better, key=lambda p: p.amount)
    return [
        f"{column} pays {first.amount:g} for the trick {first.attempt.trick!r}, more than for the {REFERENCE} "
        f"({earned[first.attempt.number]:g}): gate it by a verifier (reward_gates)."
    ]
