"""Rows against rewards: the reference answer earns its due, an empty completion nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from recipes.common.utils.problems import told
from rewards import full_reward, reward_columns, reward_kind, reward_name, reward_tasks
from rewards.contract import scores_task
from rewards.rows import NumberedRow, rows_by_task

PART = 200  # rows of one call


@dataclass
class RewardLine:
    """One reward on the rows of one task: what is earned there, and what is wrong."""

    task: str
    weight: float
    reward: str
    kind: str
    rows_scored: int = 0
    reference_earns: float | None = None
    full: float | None = None
    empty_earns: float | None = None
    problems: list[str] = field(default_factory=list)

    def cells(self) -> dict[str, Any]:
        """The line for people, and for preflight.json."""
        names = [each.name for each in fields(self) if each.name != "problems"]
        shown = {name.replace("_", " "): getattr(self, name) for name in names}
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in shown.items()}


def reward_lines(
    rows: list[dict],
    rewards: list[Callable],
    weights: list[float] | None,
    reference: Callable[[dict], str | None],
) -> list[RewardLine]:
    """Score the rows of each task by each reward, one line each."""
    lines = []
    for task, numbered in rows_by_task(rows).items():
        for reward, weight in zip(rewards, weights or [1.0] * len(rewards), strict=True):
            line = RewardLine(task, weight, reward_name(reward), reward_kind(reward))
            line.full = full_reward(reward)
            if scores_task(reward, task):
                line.problems = _problems_of(line, numbered, rows, reward, reference)
            lines.append(line)
    return lines


def check_columns(rows: list[dict], is_asked_later: bool = False) -> list[str]:
    """Every row has a prompt, a text or messages that end in a text, and a task.

    With `is_asked_later` the text may be empty: an environment makes the question.
    """
    problems: dict[str, str] = {}  # the first of each kind
    for number, row in enumerate(rows):
        missing = ", ".join(name for name in ("prompt", "task") if not row.get(name))
        if missing:
            has = f"every row has a prompt and a task (its columns: {sorted(row)})"
            problems.setdefault(missing, f"rows lack {missing}: {has}.")
        elif not isinstance(row["task"], str):
            wrong = f"the task of row {number} is {row['task']!r}; it must be text."
            problems.setdefault("the task", wrong)
        elif not _is_prompt(row["prompt"], is_asked_later):
            wanted = "must be text, or messages with a role and a text"
            shown = f"the prompt of row {number} {wanted}: {repr(row['prompt'])[:200]}."
            problems.setdefault("the prompt", shown)
    return list(problems.values())


def _is_prompt(prompt: Any, may_be_empty: bool) -> bool:
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(message, dict) and message.get("role") for message in prompt)
        and all(isinstance(message.get("content"), str | list) for message in prompt)
        and (may_be_empty or bool(prompt[-1]["content"]))
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
    """A reward is for tasks that there are, and scores some of their rows, or it does nothing."""
    there, problems = sorted({line.task for line in lines}), []
    for reward in rewards:
        name = reward_name(reward)
        unknown = sorted(set(reward_tasks(reward) or ()) - set(there))
        mine = [line for line in lines if line.reward == name and scores_task(reward, line.task)]
        if unknown and there:
            problems.append(
                f"reward {name!r} is for rows of task {', '.join(map(repr, unknown))}, but the "
                f"rows have only: {', '.join(there)}. Correct reward_tasks or the rows."
            )
        if mine and not any(line.rows_scored or line.problems for line in mine):
            remedy = "remove it, or correct reward_tasks or the rows"
            problems.append(f"reward {name!r} scores none of the rows: {remedy}.")
    return problems


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Callable]
) -> list[str]:
    """A gate is a verifier or a format reward, and scores every task of what it gates."""
    named = {reward_name(reward): reward for reward in rewards}
    tasks = sorted({row["task"] for row in rows if row.get("task")})
    problems = []
    for gated, given in gates.items():
        openers = [given] if isinstance(given, str) else given
        if not (isinstance(openers, list) and openers):
            problems.append(
                f"reward_gates gives {gated!r} {openers!r}: give the name of a reward, or a list "
                "of names."
            )
            continue
        if unknown := [name for name in (gated, *openers) if name not in named]:
            names, there = ", ".join(map(repr, unknown)), ", ".join(named)
            problems.append(f"reward_gates names {names}, which is not in reward_funcs ({there}).")
            continue
        kinds = {reward_kind(named[name]) for name in openers}
        mine = [task for task in tasks if scores_task(named[gated], task)]
        opened = [task for task in mine for name in openers if scores_task(named[name], task)]
        shut = ", ".join(repr(task) for task in mine if task not in opened)
        table = {
            f"reward_gates opens {gated!r} by {openers}: a gate is a verifier or a format reward, "
            "and what it gates is another reward, neither a verifier nor a step reward.": (
                reward_kind(named[gated]) in ("verifier", "step") or kinds - {"verifier", "format"}
            ),
            f"reward_gates opens {gated!r} by itself: {openers}.": gated in openers,
            f"reward_gates would never open {gated!r} for task {shut}: {openers} do not score "
            "it.": shut,
        }
        problems += told(table)[:1]
    return problems


# ------------------------------------------------------------- one reward on the rows of one task


def _problems_of(
    line: RewardLine,
    numbered: list[NumberedRow],
    all_rows: list[dict],
    reward: Callable,
    reference: Callable,
) -> list[str]:
    """Fill in what a reward gives to the rows of a task, and list the promises that it breaks."""
    name, rows = line.reward, [row for _, row in numbered]
    missing = [
        column for column in reward_columns(reward) if any(row.get(column) is None for row in rows)
    ]
    lacks = []
    if missing:
        number, row = next(item for item in numbered if item[1].get(missing[0]) is None)
        has = sorted(key for key, value in row.items() if value is not None)
        lacks = [
            f"reward {name!r} needs the column {', '.join(missing)}, which row {number} lacks (its "
            f"columns: {has})."
        ]
    # A reward that sees every row may pass over a task that lacks its columns.
    there = any(row.get(column) is not None for row in all_rows for column in missing)
    if lacks and not (there and reward_tasks(reward) is None and line.kind != "model"):
        return lacks
    if line.kind == "model":  # each score is a call of a model: none is asked before the run
        line.rows_scored = len(rows)
        return []
    golds = [reference(row) for row in rows]  # a row of one's own needs no reference answer: None
    sure = [i for i, gold in enumerate(golds) if gold is not None]
    failures: list[str] = []
    try:
        given = _score(reward, [rows[i] for i in sure], [golds[i] for i in sure], failures)
        empty = _score(reward, rows, [""] * len(rows), [])
    except (Exception, SystemExit) as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        return lacks or [f"reward {name!r} fails on the reference answers: {failures[0]}"]
    scores = dict(zip(sure, given, strict=True))
    ungraded = [i for i, amount in enumerate(empty) if golds[i] is None and amount is None]
    known = [amount for amount in given if amount is not None]
    line.rows_scored = len(known) + len(rows) - len(sure) - len(ungraded)
    line.reference_earns = min(known, default=None)
    line.empty_earns = max((amount for amount in empty if amount is not None), default=None)
    is_verifier = line.kind == "verifier"
    if not line.rows_scored:  # but for a verifier: it does not apply to this task
        others = ", ".join(sorted({row["task"] for row in all_rows} - {line.task}))
        remedy = f" If they are not meant for it, set reward_tasks: {{{name}: [{others}]}}"
        none = f"reward {name!r} can grade none of the rows of task {line.task!r}."
        return [none + remedy * bool(others)] if is_verifier else []
    if lacks:
        return lacks
    promises = line.kind in ("verifier", "format") and line.full is not None
    short = [
        i for i, amount in scores.items() if promises and (amount is None or amount < line.full)
    ]
    first = short[0] if short else 0
    table = {
        f"reward {name!r} is a verifier but scores an empty completion {line.empty_earns}.": (
            is_verifier and (line.empty_earns or 0.0) > 0.0
        ),
        f"reward {name!r} scores {scores.get(first)} instead of {line.full} for the reference "
        f"answer of {len(short)} of {len(sure)} rows of task {line.task!r}; the first is row "
        f"{numbered[first][0]}: {golds[first]!r}.": short,
        # Not even an empty completion is graded.
        f"reward {name!r} cannot grade {len(ungraded)} of the rows without a reference answer; the "
        f"first is row {numbered[ungraded[0] if ungraded else 0][0]}.": ungraded and is_verifier,
    }
    return told(table)


def _score(
    reward: Callable, rows: list[dict], texts: list[str], failures: list[str]
) -> list[float | None]:
    """Score texts; the rows on which the reward says that it failed go to `failures`."""
    from recipes.common.utils.screen import bar  # importing a recipe stays light
    from rewards.audit.call import graded

    scores = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward_name(reward)}"):
        part = slice(start, start + PART)
        for value, failure in graded(reward, rows[part], texts[part]):
            scores.append(value)
            failures += [failure] if failure else []
    return scores
