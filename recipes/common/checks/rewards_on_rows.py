"""Rows against rewards: the reference answer earns its due, an empty completion nothing."""

import numbers
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rewards import full_reward, reward_columns, reward_kind, reward_name, reward_tasks
from rewards.contract import LARGEST, scores_task
from rewards.rows import NumberedRow, rows_by_task

PART = 200  # rows of one call


@dataclass
class RewardLine:
    """One reward on the rows of one task: what is earned there, and what is wrong."""

    task: str
    weight: float
    reward: str
    kind: str
    full: float | None
    rows_scored: int = 0
    reference_earns: float | None = None
    empty_earns: float | None = None
    problems: list[str] = field(default_factory=list)

    def cells(self) -> dict[str, Any]:
        """The line for people, and for preflight.json."""
        reference, empty = (
            None if score is None else round(score, 6)
            for score in (self.reference_earns, self.empty_earns)
        )
        return {
            "task": self.task,
            "weight": self.weight,
            "reward": self.reward,
            "kind": self.kind,
            "rows scored": self.rows_scored,
            "reference earns": reference,
            "full": self.full,
            "empty earns": empty,
        }


def reward_lines(
    rows: list[dict],
    rewards: list[Callable],
    weights: list[float] | None,
    reference: Callable[[dict], str | None],
) -> list[RewardLine]:
    """Score the rows of each task by each reward, one line each."""
    if check_columns(rows):
        return []
    return [
        _line(numbered, rows, reward, weight, reference)
        for numbered in rows_by_task(rows).values()
        for reward, weight in zip(rewards, weights or [1.0] * len(rewards), strict=True)
    ]


def check_columns(rows: list[dict]) -> list[str]:
    """Every row has a prompt, a text or messages that end in a text, and a task."""
    problems = {}
    for number, row in enumerate(rows):
        missing = [name for name in ("prompt", "task") if not row.get(name)]
        if missing:
            has = f"every row has a prompt and a task (its columns: {sorted(row)})"
            message = f"rows lack {', '.join(missing)}: {has}."
        elif not isinstance(row["task"], str):
            message = f"the task of row {number} is {row['task']!r}; it must be text."
        elif not _is_prompt(row["prompt"]):
            shown = repr(row["prompt"])[:200]
            wanted = "must be text, or messages with a role and a text"
            message = f"the prompt of row {number} {wanted}: {shown}."
        else:
            continue
        problems.setdefault(
            re.sub(r"row \d+ .*", "", message), message
        )  # the first row of each kind
    return list(problems.values())


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return bool(prompt.strip())
    sound = isinstance(prompt, list) and all(
        isinstance(m, dict) and m.get("role") and "content" in m for m in prompt
    )
    return (
        sound
        and bool(prompt)
        and all(isinstance(m["content"], str | list) for m in prompt)
        and bool(prompt[-1]["content"])
    )


def check_every_task_is_scored(lines: list[RewardLine], rows: list[dict]) -> list[str]:
    """A task may do without step rewards, but not without any other."""
    problems = []
    for task, numbered in rows_by_task(rows).items():
        outcomes = [line for line in lines if line.task == task and line.kind != "step"]
        if outcomes and not any(line.rows_scored for line in outcomes):
            names = ", ".join(line.reward for line in outcomes)
            problems.append(
                f"task {task!r}: none of the rewards {names} scores its {len(numbered)} rows."
            )
    return problems


def check_every_reward_scores(lines: list[RewardLine], rewards: list[Callable]) -> list[str]:
    """A reward for tasks that there are scores some of their rows, or it does nothing."""
    problems = []
    for reward in rewards:
        mine = [
            line
            for line in lines
            if line.reward == reward_name(reward) and scores_task(reward, line.task)
        ]
        if mine and not any(line.rows_scored or line.problems for line in mine):
            remedy = "remove it, or correct reward_tasks or the rows"
            problems.append(f"reward {reward_name(reward)!r} scores none of the rows: {remedy}.")
    return problems


def check_tasks(rows: list[dict], rewards: list[Callable]) -> list[str]:
    """A reward is meant for tasks that there are: a misspelt one would never be scored."""
    there, problems = sorted({row["task"] for row in rows if row.get("task")}), []
    for reward in rewards:
        unknown = sorted(set(reward_tasks(reward) or ()) - set(there))
        if unknown and there:
            problems.append(
                f"reward {reward_name(reward)!r} is for rows of task "
                f"{', '.join(map(repr, unknown))}, but the rows have only: {', '.join(there)}. "
                "Correct reward_tasks or the rows."
            )
    return problems


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Callable]
) -> list[str]:
    """A gate is a verifier or a format reward, and scores every task of what it gates."""
    named = {reward_name(reward): reward for reward in rewards}
    kinds, problems = {name: reward_kind(reward) for name, reward in named.items()}, []
    for gated, openers in gates.items():
        openers = [openers] if isinstance(openers, str) else openers
        if not (isinstance(openers, list) and openers):
            problems.append(
                f"reward_gates gives {gated!r} {openers!r}: give the name of a reward, or a list "
                "of names."
            )
        elif unknown := [name for name in (gated, *openers) if name not in named]:
            names, there = ", ".join(map(repr, unknown)), ", ".join(named)
            problems.append(f"reward_gates names {names}, which is not in reward_funcs ({there}).")
        elif {kinds[gated], *(kinds[o] for o in openers)} & {"step"}:
            problems.append(
                f"reward_gates names a step reward in {gated!r}: {openers}: steps are not gated."
            )
        elif (
            kinds[gated] == "verifier"
            or gated in openers
            or {kinds[o] for o in openers} - {"verifier", "format"}
        ):
            problems.append(
                f"reward_gates opens {gated!r} by {openers}: a gate is a verifier or a format "
                "reward, and what it gates is another reward and not a verifier."
            )
        elif shut := _tasks_without_gate(rows, named[gated], [named[name] for name in openers]):
            tasks = ", ".join(map(repr, shut))
            problems.append(
                f"reward_gates would never open {gated!r} for task {tasks}: {openers} do not score "
                "it."
            )
    return problems


def _tasks_without_gate(rows: list[dict], gated: Callable, openers: list[Callable]) -> list[str]:
    tasks = sorted(
        {row["task"] for row in rows if row.get("task") and scores_task(gated, row["task"])}
    )
    return [task for task in tasks if not any(scores_task(opener, task) for opener in openers)]


# --------------------------------------------------------------------------- one reward on the rows
# of one task


def _line(
    numbered: list[NumberedRow],
    all_rows: list[dict],
    reward: Callable,
    weight: float,
    reference: Callable,
) -> RewardLine:
    """Score the rows of one task; a promise of its kind that the reward breaks is a problem."""
    name, rows = reward_name(reward), [row for _, row in numbered]
    line = RewardLine(rows[0]["task"], weight, name, reward_kind(reward), full_reward(reward))
    if not scores_task(reward, line.task):
        return line
    missing = [
        column for column in reward_columns(reward) if any(row.get(column) is None for row in rows)
    ]
    routed = reward_tasks(reward) is not None
    is_called = (
        line.kind != "model"
    )  # each score is a call of a model: none is loaded or asked before the run
    there = any(row.get(column) is not None for row in all_rows for column in missing)
    if missing and (routed or not is_called or not there):
        line.problems.append(_lacks(name, missing, numbered))
        return line
    if not is_called:
        line.rows_scored = len(rows)
        return line
    golds = [reference(row) for row in rows]  # a row of one's own needs no reference answer: None
    sure = [i for i, gold in enumerate(golds) if gold is not None]
    logged: dict[str, list] = {}
    try:
        scores = _score(reward, [rows[i] for i in sure], [golds[i] for i in sure], logged)
        empty = _score(reward, rows, [""] * len(rows), {})
        check_amounts([*scores, *empty])
        failures = [
            str(outcome)
            for outcome in logged.get(f"outcome/{name}", [])
            if str(outcome).startswith("error: ")
        ]
    except (Exception, SystemExit) as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        failure = (
            f"reward {name!r} fails on the reference answers: {failures[0].removeprefix('error: ')}"
        )
        line.problems.append(_lacks(name, missing, numbered) if missing else failure)
        return line
    ungraded = [
        numbered[i] for i, amount in enumerate(empty) if golds[i] is None and amount is None
    ]
    known = [amount for amount in scores if amount is not None]
    line.rows_scored = len(known) + len(rows) - len(sure) - len(ungraded)
    line.reference_earns = min(known, default=None)
    line.empty_earns = max((amount for amount in empty if amount is not None), default=None)
    if line.rows_scored and missing:
        line.problems.append(_lacks(name, missing, numbered))
    elif line.rows_scored:
        line.problems += _broken_promises(line, [(numbered[i], golds[i]) for i in sure], scores)
        if ungraded and line.kind == "verifier":  # not even an empty completion is graded
            first = f"the first is row {ungraded[0][0]}"
            line.problems.append(
                f"reward {name!r} cannot grade {len(ungraded)} of the rows without a reference "
                f"answer; {first}."
            )
    elif (
        line.kind == "verifier"
    ):  # another reward that scores a whole task None does not apply to it
        line.problems.append(_grades_none(name, line.task, all_rows))
    return line


def _score(
    reward: Callable, rows: list[dict], texts: list[str], logged: dict[str, list]
) -> list[float | None]:
    from recipes.common.utils.screen import bar  # importing a recipe stays light
    from rewards.audit.call import score

    scores = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward_name(reward)}"):
        part = slice(start, start + PART)
        scores += score(
            reward,
            rows[part],
            texts[part],
            log_extra=lambda name, got: logged.setdefault(name, []).extend(got),
        )
    return scores


def check_amounts(amounts: list) -> None:
    """Raise ValueError where a score is not None or a number that TRL's float32 can hold."""
    for amount in amounts:
        number = isinstance(amount, numbers.Real)
        if amount is not None and not (number and abs(amount) <= LARGEST):
            kind = (
                "is not finite in float32"
                if number
                else f"is {type(amount).__name__}, not a number"
            )
            raise ValueError(f"it returned {amount!r}, which {kind}; allowed are numbers and None")


def _lacks(name: str, missing: list[str], numbered: list[NumberedRow]) -> str:
    number, row = next(item for item in numbered if item[1].get(missing[0]) is None)
    has = sorted(key for key, value in row.items() if value is not None)
    return (
        f"reward {name!r} needs the column {', '.join(missing)}, which row {number} lacks (its "
        f"columns: {has})."
    )


def _grades_none(name: str, task: str, all_rows: list[dict]) -> str:
    others = sorted({row["task"] for row in all_rows if row.get("task")} - {task})
    remedy = (
        f" If they are not meant for it, set reward_tasks: {{{name}: [{', '.join(others)}]}}."
        if others
        else ""
    )
    return f"reward {name!r} can grade none of the rows of task {task!r}.{remedy}"


def _broken_promises(
    line: RewardLine, answered: list[tuple[NumberedRow, str]], scores: list[float | None]
) -> list[str]:
    problems = []
    if line.kind == "verifier" and (line.empty_earns or 0.0) > 0.0:
        problems.append(
            f"reward {line.reward!r} is a verifier but scores an empty completion "
            f"{line.empty_earns}."
        )
    promises_full = line.kind in ("verifier", "format") and line.full is not None
    short = [
        i
        for i, amount in enumerate(scores)
        if promises_full and (amount is None or amount < line.full)
    ]
    if short:
        (number, _), gold = answered[short[0]]
        problems.append(
            f"reward {line.reward!r} scores {scores[short[0]]} instead of {line.full} for the "
            f"reference answer of {len(short)} of {len(scores)} rows of task {line.task!r}; the "
            f"first is row {number}: {gold!r}."
        )
    return problems
