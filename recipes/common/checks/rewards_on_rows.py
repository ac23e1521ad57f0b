"""Rows against rewards: the reference answer earns its due, an empty completion nothing, and a
wrong answer less than the right one.
"""

from collections.abc import Callable
from typing import Any

from recipes.common.checks.model import check_reward_model
from recipes.common.data.overlap import check_duplicates, check_held_out
from recipes.common.data.recipe import check_reference
from recipes.common.settings import Arguments
from recipes.common.training.process import check_loss
from recipes.common.training.tools import takes_environments
from recipes.common.utils.problems import collected
from recipes.common.utils.screen import bar
from rewards.audit import try_tricks
from rewards.audit.call import graded
from rewards.contract import Reward, reward_of
from rewards.rows import NumberedRow, rows_by_task

PART = 200  # rows of one call
Reference = Callable[[dict], Any]  # a row's own answer in the asked format, or None


def check_rewards(
    args: Arguments,
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Reward],
    reference: Reference,
    is_stream: bool = False,
) -> list[dict[str, Any]]:
    """Hold the rewards to training and evaluation rows; the table of what each gives on each task.

    A step reward is checked by the sum of its steps, on whole completions, like any other.
    """
    problems = args.problems
    problems += check_settings_of_rewards(args.training, rows, rewards)
    wrong = check_columns(rows, args) or check_reference(rows, reference)
    problems += wrong
    if wrong:
        return []
    weights = args.training["reward_weights"] or []
    weights = weights if len(weights) == len(rewards) else [1.0] * len(rewards)
    lines, sound = [], []
    for reward, weight in zip(rewards, weights, strict=True):
        if takes_environments(reward):  # outside a rollout there are none
            continue
        of_reward, wrong = reward_lines(rows, reward, reference, weight)
        lines += of_reward
        problems += wrong
        sound += [] if wrong else [reward]
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    lines.sort(key=lambda line: tasks.index(line["task"]))
    if not args.training["environment_factory"]:
        problems += check_every_task_is_scored(lines, rows)
    if not is_stream:  # the tasks of a stream's later rows are not known
        problems += check_every_reward_scores(lines, rewards, broken=set(rewards) - set(sound))
    for reward in sound if rows else ():
        with collected(problems, f"reward {reward.name!r}"):
            try_to_cheat(args, rows, reward, reference)
    problems += check_eval_rows(args, rows, eval_rows, sound, reference)
    return lines


def check_settings_of_rewards(
    training: dict[str, Any], rows: list[dict], rewards: list[Reward]
) -> list[str]:
    """Weights, gates and the loss go with the rewards that there are."""
    weights, names = training["reward_weights"] or [], ", ".join(each.name for each in rewards)
    problems = []
    if rewards and weights and len(weights) != len(rewards):
        problems.append(
            f"reward_weights has {len(weights)} values for {len(rewards)} rewards: {names}."
        )
    if weights and not any(weights):
        problems.append(f"reward_weights is {weights}; one must not be 0.")
    if any(reward.kind == "step" for reward in rewards):
        with collected(problems):
            check_loss(
                training["loss_type"],
                training["importance_sampling_level"],
                training["off_policy_mask_threshold"],
            )
        if training["tools"] or training["environment_factory"]:
            problems.append("a step reward cannot be placed among the turns of tools: remove it.")
    for reward in rewards:
        if isinstance(reward.call, str):
            with collected(problems, f"the reward model {reward.call!r}"):
                check_reward_model(reward.call)
    return problems + check_gates(training["reward_gates"] or {}, rows, rewards)


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Reward]
) -> list[str]:
    """A gate is a verifier or a format reward, and scores every task of what it gates."""
    named = {reward.name: reward for reward in map(reward_of, rewards)}
    tasks = sorted({row["task"] for row in rows if row.get("task")})
    problems = []
    for gated, names in gates.items():
        names = [names] if isinstance(names, str) else names
        if not (isinstance(names, list) and names):
            problems.append(
                f"reward_gates gives {gated!r} {names!r}: give the name of a reward, or a list of "
                "names."
            )
        elif unknown := [name for name in (gated, *names) if name not in named]:
            problems.append(
                f"reward_gates names {', '.join(map(repr, unknown))}, which is not in reward_funcs "
                f"({', '.join(named)})."
            )
        elif gated in names:
            problems.append(f"reward_gates opens {gated!r} by itself: {names}.")
        elif named[gated].kind in ("verifier", "step") or any(
            named[name].kind not in ("verifier", "format") for name in names
        ):
            problems.append(
                f"reward_gates opens {gated!r} by {names}: a gate is a verifier or a format "
                "reward, and what it gates is another reward, neither a verifier nor a step reward."
            )
        elif shut := [
            repr(task)
            for task in tasks
            if named[gated].scores(task) and not any(named[name].scores(task) for name in names)
        ]:
            problems.append(
                f"reward_gates would never open {gated!r} for task {', '.join(shut)}: {names} do "
                "not score it."
            )
    return problems


def check_columns(rows: list[dict], args: Arguments) -> list[str]:
    """Every row has a prompt, a text or messages that end in a text, and a task.

    Where an environment makes the question, the text may be empty.
    """
    may_be_empty = bool(args.training["environment_factory"])
    problems: dict[str, str] = {}  # the first of each kind
    for number, row in enumerate(rows):
        missing = ", ".join(name for name in ("prompt", "task") if not row.get(name))
        if missing:
            problems.setdefault(
                missing,
                f"rows lack {missing}: every row has a prompt and a task (its columns: "
                f"{sorted(row)}).",
            )
        elif not isinstance(row["task"], str):
            problems.setdefault(
                "task", f"the task of row {number} is {row['task']!r}; it must be text."
            )
        elif not _is_prompt(row["prompt"], may_be_empty):
            problems.setdefault(
                "prompt",
                f"the prompt of row {number} must be text, or messages with a role and a text: "
                f"{repr(row['prompt'])[:200]}.",
            )
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


# --------------------------------------------------------------------------- what a reward gives


def reward_lines(
    rows: list[dict], reward: Reward, reference: Reference, weight: float = 1.0
) -> tuple[list[dict[str, Any]], list[str]]:
    """Score the rows of each task: a line for each, and the promises that the reward breaks."""
    lines, problems = [], []
    for task, numbered in rows_by_task(rows).items():
        line = {
            "task": task,
            "weight": weight,
            "reward": reward.name,
            "kind": reward.kind,
            "rows scored": 0,
            "reference earns": None,
            "full": reward.full,
            "empty earns": None,
        }
        if reward.scores(task):
            problems += _score_task(line, numbered, rows, reward, reference)
        lines.append({k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()})
    return lines, problems


def _score_task(
    line: dict[str, Any],
    numbered: list[NumberedRow],
    all_rows: list[dict],
    reward: Reward,
    reference: Reference,
) -> list[str]:
    """Fill in what a reward gives to the rows of a task, and list the promises that it breaks."""
    name, task, rows = reward.name, line["task"], [row for _, row in numbered]
    lacks = _lacks_column(numbered, reward)
    # A reward that sees every row may pass over a task that lacks its columns.
    is_elsewhere = any(row.get(column) is not None for row in all_rows for column in reward.columns)
    if lacks and not (is_elsewhere and reward.tasks is None and reward.kind != "model"):
        return lacks
    if reward.kind == "model":  # each score is a call of a model: none is asked before the run
        line["rows scored"] = len(rows)
        return []
    golds = [reference(row) for row in rows]  # a row of one's own needs no reference answer: None
    sure = [i for i, gold in enumerate(golds) if gold is not None]
    failures: list[str] = []
    try:
        amounts = _score(reward, [rows[i] for i in sure], [golds[i] for i in sure], failures)
        empty = _score(reward, rows, [""] * len(rows), [])
    except (Exception, SystemExit) as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        return lacks or [f"reward {name!r} fails on the reference answers: {failures[0]}"]
    known = [amount for amount in amounts if amount is not None]
    # Not even an empty completion is graded.
    ungraded = [i for i, amount in enumerate(empty) if golds[i] is None and amount is None]
    line["rows scored"] = len(known) + len(rows) - len(sure) - len(ungraded)
    line["reference earns"] = min(known, default=None)
    line["empty earns"] = max((amount for amount in empty if amount is not None), default=None)
    problems = []
    if not line["rows scored"]:  # but for a verifier: it does not apply to this task
        others = ", ".join(sorted({row["task"] for row in all_rows} - {task}))
        if reward.kind == "verifier":
            problems.append(
                f"reward {name!r} can grade none of the rows of task {task!r}."
                + f" If they are not meant for it, set reward_tasks: {{{name}: [{others}]}}"
                * bool(others)
            )
        return problems
    if lacks:
        return lacks
    if reward.kind == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(
            f"reward {name!r} is a verifier but scores an empty completion {line['empty earns']}."
        )
    short = [
        (i, amount)
        for i, amount in zip(sure, amounts, strict=True)
        if reward.kind in ("verifier", "format")
        and reward.full is not None
        and (amount is None or amount < reward.full)
    ]
    if short:
        first, amount = short[0]
        problems.append(
            f"reward {name!r} scores {amount} instead of {reward.full} for the reference answer of "
            f"{len(short)} of {len(sure)} rows of task {task!r}; the first is row "
            f"{numbered[first][0]}: {golds[first]!r}."
        )
    if ungraded and reward.kind == "verifier":
        problems.append(
            f"reward {name!r} cannot grade {len(ungraded)} of the rows without a reference answer; "
            f"the first is row {numbered[ungraded[0]][0]}."
        )
    return problems


def _lacks_column(numbered: list[NumberedRow], reward: Reward) -> list[str]:
    """The first row that lacks a column of a reward."""
    for number, row in numbered:
        if missing := [column for column in reward.columns if row.get(column) is None]:
            has = sorted(column for column, value in row.items() if value is not None)
            return [
                f"reward {reward.name!r} needs the column {', '.join(missing)}, which row {number} "
                f"lacks (its columns: {has})."
            ]
    return []


def _score(
    reward: Reward, rows: list[dict], texts: list[str], failures: list[str]
) -> list[float | None]:
    """Score texts; the rows on which the reward says that it failed go to `failures`."""
    scores = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward.name}"):
        part = slice(start, start + PART)
        for value, failure in graded(reward, rows[part], texts[part]):
            scores.append(value)
            failures += [failure] if failure else []
    return scores


# --------------------------------------------------------------------------- all of them together


def check_every_task_is_scored(lines: list[dict], rows: list[dict]) -> list[str]:
    """A task may do without step rewards, but not without any other."""
    problems = []
    for task, numbered in rows_by_task(rows).items():
        outcomes = [line for line in lines if line["task"] == task and line["kind"] != "step"]
        if outcomes and not any(line["rows scored"] for line in outcomes):
            names = ", ".join(line["reward"] for line in outcomes)
            problems.append(
                f"task {task!r}: none of the rewards {names} scores its {len(numbered)} rows."
            )
    return problems


def check_every_reward_scores(
    lines: list[dict], rewards: list[Reward], broken: set[Reward]
) -> list[str]:
    """A reward is for tasks that there are, and scores some of their rows, or it does nothing."""
    tasks, problems = sorted({line["task"] for line in lines}), []
    for reward in rewards:
        unknown = sorted(set(reward.tasks or ()) - set(tasks))
        mine = [line for line in lines if line["reward"] == reward.name]
        mine = [line for line in mine if reward.scores(line["task"])]
        if unknown and tasks:
            problems.append(
                f"reward {reward.name!r} is for rows of task {', '.join(map(repr, unknown))}, but "
                f"the rows have only: {', '.join(tasks)}. Correct reward_tasks or the rows."
            )
        if mine and reward not in broken and not any(line["rows scored"] for line in mine):
            problems.append(
                f"reward {reward.name!r} scores none of the rows: remove it, or correct "
                "reward_tasks or the rows."
            )
    return problems


def try_to_cheat(args: Arguments, rows: list[dict], reward: Reward, reference: Reference) -> None:
    """Say what a reward pays for wrong answers; more than for the right one is a problem."""
    if reward.kind == "model":
        return
    cheats = try_tricks(reward, rows, reference)
    if cheats.problem:
        args.problems.append(cheats.problem)
    else:
        args.notes.append(f"{reward.name} {cheats.sentence()}")


def check_eval_rows(
    args: Arguments,
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Reward],
    reference: Reference,
) -> list[str]:
    """The same of evaluation rows, by the rewards that are sound; and no question is seen twice."""
    if problems := check_columns(eval_rows, args):
        return [f"evaluation rows: {problem}" for problem in problems]
    lines = []
    for reward in rewards:
        of_reward, wrong = reward_lines(eval_rows, reward, reference)
        lines += of_reward
        problems += wrong
    tasks = {row["task"] for row in rows}  # theirs are reported of the training rows
    others = [row for row in eval_rows if tasks and row["task"] not in tasks]
    problems += check_every_task_is_scored(lines, others)
    return [
        *(f"evaluation rows: {problem}" for problem in problems if problem not in args.problems),
        *check_held_out(rows, eval_rows, args.model["model_name_or_path"]),
        *check_duplicates(rows, eval_rows),
    ]
