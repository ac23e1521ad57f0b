"""Rows against rewards: the columns are there, the reference answer earns its due, an empty one nothing."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from datasets import Dataset

from rewards import full_reward, reward_columns, reward_kind, reward_name, reward_tasks
from rewards.audit.call import score
from rewards.contract import scores_task

NumberedRow = tuple[int, dict]  # a row and its place in the data set, for messages


class Problem(NamedTuple):
    """What is wrong, and of which reward or task: of one subject the training rows say enough."""

    subject: str
    text: str


def reward_table(
    rows: list[dict],
    rewards: list[Callable],
    weights: list[float] | None,
    reference: Callable[[dict], str | None],
    problems: list[Problem],
) -> list[dict[str, Any]]:
    """One line per task and reward: rows scored, what the reference and the empty completion earn."""
    if weights and len(weights) != len(rewards):
        said = f"reward_weights has {len(weights)} values for {len(rewards)} rewards: {_names(rewards)}."
        problems.append(Problem("reward_weights", said))
        weights = None
    table = []
    for task, numbered in rows_by_task(rows, problems).items():
        lines = [
            {"task": task, "weight": weight, **_line(numbered, rows, reward, reference, problems)}
            for reward, weight in zip(rewards, weights or [1.0] * len(rewards), strict=True)
        ]
        # A task may do without step rewards, but not without any other.
        outcomes = [reward for reward in rewards if reward_kind(reward) != "step"]
        if outcomes and not any(line["rows scored"] for line in lines):
            said = f"task {task!r}: none of the rewards {_names(rewards)} scores its {len(numbered)} rows."
            problems.append(Problem(task, said))
        table += lines
    return table


def rows_by_task(rows: list[dict], problems: list[Problem]) -> dict[str, list[NumberedRow]]:
    """The rows of each task; one without a prompt or a task is a problem, said once for each lack."""
    tasks: dict[str, list[NumberedRow]] = {}
    for number, row in enumerate(rows):
        missing = [name for name in ("prompt", "task") if not row.get(name)]
        said = f"rows lack {', '.join(missing)}: every row has a prompt and a task (its columns: {sorted(row)})."
        if missing and Problem("rows", said) not in problems:
            problems.append(Problem("rows", said))
        if not missing:
            tasks.setdefault(row["task"], []).append((number, row))
    return dict(sorted(tasks.items()))


def check_tasks(rows: list[dict], rewards: list[Callable], problems: list[Problem]) -> None:
    """A reward may only be meant for tasks that there are: a misspelt one would silently never be scored."""
    there = sorted({row["task"] for row in rows if row.get("task")})
    for reward in rewards:
        name, unknown = reward_name(reward), sorted(set(reward_tasks(reward) or ()) - set(there))
        if unknown and there:
            said = f"reward {name!r} is for rows of task {', '.join(map(repr, unknown))}, but the rows have only: "
            problems.append(Problem(name, f"{said}{', '.join(there)}. Mend reward_tasks or the rows."))


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Callable], problems: list[Problem]
) -> None:
    """A gate judges (verifier or format) every task of what it gates, and that is another reward, and no verifier."""
    named = {reward_name(reward): reward for reward in rewards}
    kinds = {name: reward_kind(reward) for name, reward in named.items()}
    for gated, openers in gates.items():
        openers = [openers] if isinstance(openers, str) else openers
        is_list = isinstance(openers, list) and openers
        unknown = [name for name in (gated, *openers) if name not in named] if is_list else []
        if not is_list:
            said = f"pays {gated!r} by {openers!r}: give the name of a reward, or a list of names."
        elif unknown:
            said = f"names {', '.join(map(repr, unknown))}, which is not in reward_funcs ({_names(rewards)})."
        elif (
            kinds[gated] == "verifier" or gated in openers or not {kinds[o] for o in openers} <= {"verifier", "format"}
        ):
            said = f"pays {gated!r} by {openers}: a gate is a verifier or a format reward, what it gates another one."
        else:
            shut = _tasks_without_gate(rows, named[gated], [named[name] for name in openers])
            if not shut:
                continue
            said = f"would never pay {gated!r} for task {', '.join(map(repr, shut))}: {openers} do not score it."
        problems.append(Problem("reward_gates", f"reward_gates {said}"))


def _tasks_without_gate(rows: list[dict], gated: Callable, openers: list[Callable]) -> list[str]:
    tasks = sorted({row["task"] for row in rows if row.get("task") and scores_task(gated, row["task"])})
    return [task for task in tasks if not any(scores_task(opener, task) for opener in openers)]


def check_held_out(train_rows: list[dict], eval_rows: Dataset, problems: list[Problem]) -> None:
    """No evaluation row may be a training row: what is compared is the prompt."""
    trained = {json.dumps(row["prompt"]) for row in train_rows if row.get("prompt")}
    prompts = eval_rows["prompt"] if "prompt" in eval_rows.column_names else []
    leaked = [i for i, prompt in enumerate(prompts) if json.dumps(prompt) in trained]
    if leaked:
        said = (
            f"{len(leaked)} of {len(eval_rows)} evaluation rows are also training rows (the first is row {leaked[0]}): "
        )
        problems.append(
            Problem("", said + "accuracy on them would measure memory. Give the evaluation rows of its own.")
        )


def format_table(table: list[dict[str, Any]]) -> str:
    """Plain text columns, as wide as their widest cell."""
    if not table:
        return "  (no rows or rewards to judge)"
    names = list(table[0])
    cells = [names] + [["-" if row[name] is None else str(row[name]) for name in names] for row in table]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def _line(
    numbered: list[NumberedRow], all_rows: list[dict], reward: Callable, reference: Callable, problems: list[Problem]
) -> dict[str, Any]:
    """What one reward pays on the rows of one task; a promise of its kind that it breaks is a problem."""
    name, rows = reward_name(reward), [row for _, row in numbered]
    line = {"reward": name, "kind": reward_kind(reward), "rows scored": 0, "reference earns": None}
    line |= {"full": full_reward(reward), "empty earns": None}
    if not scores_task(reward, rows[0]["task"]):
        return line
    missing = _missing_columns(numbered, reward)
    routed = reward_tasks(reward) is not None
    if missing and (routed or not any(row.get(column) is not None for row in all_rows for column in missing)):
        problems.append(_lacks(name, missing, numbered))
        return line
    sure = [item for item in numbered if reference(item[1]) is not None]  # rows of one's own need no reference answer
    try:
        golds, logged = [reference(row) for _, row in sure], {}
        paid = score(reward, [row for _, row in sure], golds, log_extra=logged.__setitem__) if sure else []
        empty = score(reward, rows, [""] * len(rows))
        failed = next((said for said in logged.get(f"outcome/{name}", []) if str(said).startswith("error: ")), None)
    except Exception as error:
        failed = f"error: {type(error).__name__}: {error}"
    if failed:
        problems.append(_lacks(name, missing, numbered) if missing else _fails(name, failed))
        return line
    scored = [amount for amount in paid if amount is not None]
    unsure = [(item, amount) for item, amount in zip(numbered, empty, strict=True) if reference(item[1]) is None]
    ungraded = [item for item, amount in unsure if amount is None]
    line["rows scored"] = len(scored) + len(unsure) - len(ungraded)
    line["reference earns"] = min(scored, default=None)
    line["empty earns"] = max((amount for amount in empty if amount is not None), default=None)
    if line["rows scored"] and missing:
        problems.append(_lacks(name, missing, numbered))
    elif line["rows scored"]:
        _check_promises(line, sure, golds, paid, problems)
        problems += _cannot_grade(name, ungraded) if reward_kind(reward) == "verifier" else []
    elif reward_kind(reward) == "verifier":  # another reward that pays None to a whole task does not apply to it
        problems.append(_grades_none(name, rows[0]["task"], all_rows))
    return line


def _missing_columns(numbered: list[NumberedRow], reward: Callable) -> list[str]:
    return [name for name in reward_columns(reward) if any(row.get(name) is None for _, row in numbered)]


def _grades_none(name: str, task: str, all_rows: list[dict]) -> Problem:
    others = sorted({row["task"] for row in all_rows if row.get("task")} - {task})
    remedy = (
        f" If they are not meant for it, say so: reward_tasks: {{{name}: [{', '.join(others)}]}}." if others else ""
    )
    return Problem(name, f"reward {name!r} can grade none of the rows of task {task!r}.{remedy}")


def _cannot_grade(name: str, ungraded: list[NumberedRow]) -> list[Problem]:
    """Of rows without a reference answer: those that not even an empty one is graded for."""
    count, first = len(ungraded), ungraded[0][0] if ungraded else None
    said = f"reward {name!r} cannot grade {count} of the rows without a reference answer; the first is row {first}."
    return [Problem(name, said)] if ungraded else []


def _lacks(name: str, missing: list[str], numbered: list[NumberedRow]) -> Problem:
    number, row = next(item for item in numbered if item[1].get(missing[0]) is None)
    has = sorted(key for key, value in row.items() if value is not None)
    said = f"reward {name!r} needs the column {', '.join(missing)}, which row {number} lacks (its columns: {has})."
    return Problem(name, said)


def _fails(name: str, said: str) -> Problem:
    return Problem(name, f"reward {name!r} fails on the reference answers: {said.removeprefix('error: ')}")


def _check_promises(
    line: dict, numbered: list[NumberedRow], golds: list[str], paid: list[float | None], problems: list[Problem]
) -> None:
    name = line["reward"]
    if line["kind"] == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(
            Problem(name, f"reward {name!r} is a verifier but pays {line['empty earns']} for an empty answer.")
        )
    if line["kind"] not in ("verifier", "format") or line["full"] is None:
        return
    short = [i for i, amount in enumerate(paid) if amount is None or amount < line["full"]]
    if short:
        (number, row), first = numbered[short[0]], short[0]
        said = (
            f"reward {name!r} pays {paid[first]} instead of {line['full']} for the reference answer of "
            f"{len(short)} of {len(paid)} rows of task {row['task']!r}; the first is row {number}: {golds[first]!r}."
        )
        problems.append(Problem(name, said))


def _names(rewards: list[Callable]) -> str:
    return ", ".join(reward_name(reward) for reward in rewards)
