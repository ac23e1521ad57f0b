"""Checks of the rewards on the rows: a reference answer earns the full reward, an empty completion
earns nothing, and a wrong answer earns less than the right one.
"""

from collections.abc import Callable
from typing import Any

from recipes.common.checks.model import check_reward_model
from recipes.common.data.overlap import check_duplicates, check_held_out
from recipes.common.data.recipe import check_reference
from recipes.common.settings import Arguments
from recipes.common.training.advantages import openers_of
from recipes.common.training.process import check_loss
from recipes.common.training.tools import takes_environments
from recipes.common.utils.problems import collect_errors
from recipes.common.utils.screen import bar
from rewards import boundary
from rewards.audit import try_tricks
from rewards.contract import Reward
from rewards.rows import NumberedRow, rows_by_task

PART = 32  # rows in one call of a reward, about as many as in a call of the training
Reference = Callable[[dict], Any]  # row -> its answer as a completion, or None


def check_rewards(
    args: Arguments,
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Reward],
    reference: Reference,
    is_stream: bool = False,
) -> list[dict[str, Any]]:
    """Check the rewards on training and evaluation rows; return a table by task and reward.

    Problems, and notes of what a reward pays for tricks, are added to those of `args`.
    """
    problems, training = args.problems, args.training
    check_settings(training, rows, rewards, problems)
    may_be_empty = bool(training["environment_factory"])  # the environment asks the question
    if wrong := check_columns(rows, may_be_empty) or check_reference(rows, reference):
        problems += wrong
        return []
    limit_s = training["reward_timeout_s"]
    weights = training["reward_weights"] or []
    if len(weights) != len(rewards):
        weights = [1.0] * len(rewards)
    lines, sound = [], []  # the table, and the rewards without a problem
    for reward, weight in zip(rewards, weights, strict=True):
        if takes_environments(reward):  # it needs the environments of a rollout
            continue
        of_reward, wrong = [], []
        with collect_errors(wrong, f"reward {reward.name!r}"):
            of_reward, wrong = reward_lines(rows, reward, reference, weight, limit_s)
            wrong = wrong or check_tasks(reward, of_reward, is_stream)
        problems += wrong
        lines += of_reward
        if not wrong:
            sound.append(reward)
    if not may_be_empty and len(sound) == len(rewards):
        problems += check_every_task_is_scored(lines, rows)
    for reward in sound if rows else ():
        with collect_errors(problems, f"reward {reward.name!r}"):
            try_to_cheat(args, rows, reward, reference)
    # The same checks on evaluation rows, with the rewards that had no problem.
    if not (wrong := check_columns(eval_rows, may_be_empty)):
        for reward in sound:
            _, of_reward = reward_lines(eval_rows, reward, reference, limit_s=limit_s)
            wrong += of_reward
        problems += check_held_out(rows, eval_rows, args.model["model_name_or_path"])
        problems += check_duplicates(rows, eval_rows)
    problems += [f"evaluation rows: {problem}" for problem in wrong if problem not in problems]
    if training["reward_gates"] and not args.is_refused("reward_gates"):
        gates = openers_of(training["reward_gates"])
        for line in lines:
            line["counts only if"] = " or ".join(gates.get(line["reward"], ())) or None
    order = list(dict.fromkeys(line["task"] for line in lines))
    return sorted(lines, key=lambda line: order.index(line["task"]))


def try_to_cheat(args: Arguments, rows: list[dict], reward: Reward, reference: Reference) -> None:
    """Note what a reward pays for cheap tricks; a problem if it pays them more than the answer."""
    cheats = try_tricks(reward, rows, reference, limit_s=args.training["reward_timeout_s"])
    if cheats.problem:
        args.problems.append(cheats.problem)
    elif not reward.is_model:
        place = 0 if cheats.is_fooled else len(args.notes)  # the worst news first
        args.notes.insert(place, f"{reward.name} {cheats.sentence()}")


# --- Settings and columns


def check_settings(
    training: dict[str, Any], rows: list[dict], rewards: list[Reward], problems: list[str]
) -> None:
    """Add a problem where weights, gates, the loss or a reward model do not fit the rewards."""
    weights = training["reward_weights"] or []
    if rewards and weights and len(weights) != len(rewards):
        problems.append(
            f"reward_weights has {len(weights)} values for {len(rewards)} rewards: "
            f"{', '.join(reward.name for reward in rewards)}."
        )
    if weights and not any(weights):
        problems.append(f"reward_weights is {weights}; one must not be 0.")
    if any(reward.kind == "step" for reward in rewards):
        with collect_errors(problems):
            check_loss(
                training["loss_type"],
                training["importance_sampling_level"],
                training["off_policy_mask_threshold"],
            )
        if training["tools"] or training["environment_factory"]:
            problems.append("a step reward cannot be placed among the turns of tools: remove it.")
    for reward in rewards:
        if isinstance(reward.call, str):
            with collect_errors(problems, f"the reward model {reward.call!r}"):
                check_reward_model(reward.call)
    by_name = {reward.name: reward for reward in rewards}
    for gated, names in (training["reward_gates"] or {}).items():
        with collect_errors(problems, f"reward_gates opens {gated!r} by {names!r}"):
            check_gate(gated, names, rows, by_name)


def check_gate(gated: str, names: Any, rows: list[dict], rewards: dict[str, Reward]) -> None:
    """Raise ValueError if the rewards of these names cannot open a gate of the reward `gated`."""
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list) and names):
        raise ValueError("give the name of a reward, or a list of names.")
    if unknown := [name for name in (gated, *names) if name not in list(rewards)]:
        raise ValueError(
            f"{', '.join(map(str, unknown))} is not in reward_funcs ({', '.join(rewards)})."
        )
    if gated in names:
        raise ValueError("a reward cannot open its own gate: name another.")
    openers = [rewards[name] for name in names]
    is_outcome = rewards[gated].kind in ("verifier", "step")
    if is_outcome or any(opener.kind not in ("verifier", "format") for opener in openers):
        raise ValueError(
            "a gate is a verifier or a format reward, and what it gates is another reward, neither "
            "a verifier nor a step reward."
        )
    tasks = sorted({row["task"] for row in rows if row.get("task")})
    gated_tasks = [task for task in tasks if rewards[gated].scores(task)]
    shut = [task for task in gated_tasks if not any(opener.scores(task) for opener in openers)]
    if shut:
        raise ValueError(f"they do not score task {', '.join(shut)}.")


def check_columns(rows: list[dict], may_be_empty: bool) -> list[str]:
    """A problem for the first row without a task, or whose prompt is missing or empty."""
    for number, row in enumerate(rows):
        if missing := [name for name in ("prompt", "task") if not row.get(name)]:
            return [
                f"rows lack {', '.join(missing)}: every row has a prompt and a task (the columns "
                f"of row {number}: {sorted(row)})."
            ]
        prompt, task = row["prompt"], row["task"]
        messages = [{"role": "", "content": prompt}] if isinstance(prompt, str) else prompt
        is_chat = all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in messages)
        if not (is_chat and isinstance(task, str)):
            return [
                f"row {number} has the task {task!r:.50} and the prompt {prompt!r:.200}; a task is "
                "text, and a prompt text or messages with role and content."
            ]
        if not (may_be_empty or str(messages[-1]["content"] or "").strip()):
            return [f"the prompt of row {number} asks nothing: {prompt!r:.200}."]
    return []


# --- What a reward gives


def reward_lines(
    rows: list[dict],
    reward: Reward,
    reference: Reference,
    weight: float = 1.0,
    limit_s: float | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Score the rows of each task: a table line for each task, and the problems of the reward."""
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
            problems += check_task(line, numbered, rows, reward, reference, limit_s)
        for name, value in line.items():
            line[name] = round(value, 6) if isinstance(value, float) else value
        lines.append(line)
    return lines, problems


def check_task(
    line: dict[str, Any],
    numbered: list[NumberedRow],
    all_rows: list[dict],
    reward: Reward,
    reference: Reference,
    limit_s: float | None,
) -> list[str]:
    """Fill in the table line of a task, and return the problems of the reward on its rows.

    `numbered` holds the rows of the task, `all_rows` those of all tasks.
    """
    rows, title = [row for _, row in numbered], f"reward {reward.name!r}"
    lacks = lacking_columns(reward, numbered)
    # A reward for all tasks may skip a task without its columns, if other rows have them.
    is_elsewhere = any(row.get(column) is not None for row in all_rows for column in reward.columns)
    if lacks and not (is_elsewhere and reward.tasks is None and reward.kind != "model"):
        return lacks
    if reward.kind == "model":  # scoring would call a model, which preflight does not
        line["rows scored"] = len(rows)
        return []
    answers = [reference(row) for row in rows]
    known = [place for place, answer in enumerate(answers) if answer is not None]
    try:
        of_answers = score(
            reward, [rows[place] for place in known], [answers[place] for place in known], limit_s
        )
    except ValueError as failure:
        return lacks or [f"{title} fails on the reference answers: {failure}"]
    try:
        of_empty = score(reward, rows, [""] * len(rows), limit_s)
    except ValueError as failure:
        return lacks or [
            f"{title} fails on an empty completion, which a model may write: {failure}. Score it "
            "0.0, as any wrong answer."
        ]
    earned = dict(zip(known, of_answers, strict=True))
    # A row without a reference answer is graded if its empty completion is.
    graded = [earned.get(place, of_empty[place]) is not None for place in range(len(rows))]
    line["rows scored"] = sum(graded)
    line["reference earns"] = min((a for a in of_answers if a is not None), default=None)
    line["empty earns"] = max((a for a in of_empty if a is not None), default=None)
    if not any(graded):
        if reward.kind != "verifier":  # the reward does not apply to this task
            return []
        others = ", ".join(sorted({row["task"] for row in all_rows} - {line["task"]}))
        return [
            f"{title} can grade none of the rows of task {line['task']!r}. If they are not meant "
            f"for it, set reward_tasks: {{{reward.name}: [{others}]}}."
        ]
    if lacks:
        return lacks
    problems = []
    if reward.kind == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(
            f"{title} is a verifier but scores an empty completion {line['empty earns']}."
        )
    short = []  # rows whose reference answer earns less than the full reward
    if reward.kind in ("verifier", "format") and reward.full is not None:
        short = [at for at, amount in earned.items() if amount is None or amount < reward.full]
    if short:
        problems.append(
            f"{title} scores {earned[short[0]]} instead of {reward.full} for the reference answer "
            f"of {len(short)} of {len(earned)} rows of task {line['task']!r}; the first is row "
            f"{numbered[short[0]][0]}: {answers[short[0]]!r}."
        )
    return problems


def lacking_columns(reward: Reward, numbered: list[NumberedRow]) -> list[str]:
    """A problem for the first row that lacks a column which the reward needs."""
    for number, row in numbered:
        if missing := [column for column in reward.columns if row.get(column) is None]:
            return [
                f"reward {reward.name!r} needs the column {', '.join(missing)}, which row {number} "
                f"lacks (its columns: {sorted(name for name in row if row[name] is not None)})."
            ]
    return []


def score(
    reward: Reward, rows: list[dict], texts: list[Any], limit_s: float | None
) -> list[float | None]:
    """The score of each text; ValueError with the first failure of the reward's code.

    A call may take `limit_s` seconds.
    """
    scores = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward.name}"):
        part = slice(start, start + PART)
        try:
            amounts, failures = boundary.score(reward, rows[part], texts[part], limit_s=limit_s)
        except (Exception, SystemExit) as error:
            raise ValueError(boundary.describe(error)) from error
        if any(failures):
            raise ValueError(next(filter(None, failures)))
        scores += amounts
    return scores


def check_tasks(reward: Reward, lines: list[dict], is_stream: bool) -> list[str]:
    """A problem if a reward names an unknown task or scores no row."""
    tasks = sorted({line["task"] for line in lines})
    unknown = sorted(set(reward.tasks or ()) - set(tasks))
    scores_none = not any(line["rows scored"] for line in lines)
    if not tasks or is_stream or not (unknown or scores_none):  # later rows may have other tasks
        return []
    named = f"is for rows of task {', '.join(map(repr, unknown))}" if unknown else "scores no row"
    return [
        f"reward {reward.name!r} {named}, but the rows have only: {', '.join(tasks)}. Correct "
        "reward_tasks or the rows, or remove it."
    ]


def check_every_task_is_scored(lines: list[dict], rows: list[dict]) -> list[str]:
    """A problem for each task that no reward scores; step rewards do not count."""
    problems = []
    for task, numbered in rows_by_task(rows).items():
        outcomes = [line for line in lines if line["task"] == task and line["kind"] != "step"]
        if outcomes and not any(line["rows scored"] for line in outcomes):
            names = ", ".join(line["reward"] for line in outcomes)
            problems.append(
                f"task {task!r}: none of the rewards {names} scores its {len(numbered)} rows."
            )
    return problems
