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
from rewards.audit import graded, try_tricks
from rewards.contract import Reward
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

    Problems and what a reward pays for tricks join those of `args`.
    """
    problems, training = args.problems, args.training
    check_settings(training, rows, rewards, problems)
    may_be_empty = bool(training["environment_factory"])  # which asks the question
    wrong = check_columns(rows, may_be_empty) or check_reference(rows, reference)
    problems += wrong
    if wrong:
        return []
    weights = training["reward_weights"] or []
    weights = weights if len(weights) == len(rewards) else [1.0] * len(rewards)
    lines, sound = [], []
    for reward, weight in zip(rewards, weights, strict=True):
        if takes_environments(reward):  # outside a rollout there are none
            continue
        of_reward, wrong = reward_lines(rows, reward, reference, weight)
        problems += wrong or check_scores(reward, of_reward, is_stream)
        lines += of_reward
        sound += [] if wrong else [reward]
    order = list(dict.fromkeys(line["task"] for line in lines))
    lines.sort(key=lambda line: order.index(line["task"]))
    if not may_be_empty:
        problems += check_every_task_is_scored(lines, rows)
    for reward in sound if rows else ():
        cheats = try_tricks(reward, rows, reference)
        if cheats.problem:
            problems.append(cheats.problem)
        elif not reward.is_model:
            args.notes.append(f"{reward.name} {cheats.sentence()}")
    # The same of evaluation rows, by the rewards that are sound.
    if wrong := check_columns(eval_rows, may_be_empty):
        problems += [f"evaluation rows: {problem}" for problem in wrong]
        return lines
    held_out = [reward_lines(eval_rows, reward, reference) for reward in sound]
    wrong = [problem for _, problems_of_reward in held_out for problem in problems_of_reward]
    tasks = {row["task"] for row in rows}  # theirs are reported of the training rows
    others = [row for row in eval_rows if tasks and row["task"] not in tasks]
    wrong += check_every_task_is_scored([line for part, _ in held_out for line in part], others)
    problems += [f"evaluation rows: {problem}" for problem in wrong if problem not in problems]
    problems += check_held_out(rows, eval_rows, args.model["model_name_or_path"])
    problems += check_duplicates(rows, eval_rows)
    return lines


def check_settings(
    training: dict[str, Any], rows: list[dict], rewards: list[Reward], problems: list[str]
) -> None:
    """Weights, gates and the loss go with the rewards that there are."""
    weights, names = training["reward_weights"] or [], ", ".join(each.name for each in rewards)
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
    problems += check_gates(training["reward_gates"] or {}, rows, rewards)


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Reward]
) -> list[str]:
    """A gate is a verifier or a format reward, and scores every task of what it gates."""
    named = {reward.name: reward for reward in rewards}
    tasks = sorted({row["task"] for row in rows if row.get("task")})
    problems = []
    for gated, names in gates.items():
        names = [names] if isinstance(names, str) else names
        if not (isinstance(names, list) and names):
            wrong = f"by {names!r}: give the name of a reward, or a list of names."
        elif unknown := [name for name in (gated, *names) if name not in named]:
            wrong = f"by {names}, and {', '.join(unknown)} is not in reward_funcs: {list(named)}."
        elif gated in names:
            wrong = f"by itself: {names}."
        elif named[gated].kind in ("verifier", "step") or any(
            named[name].kind not in ("verifier", "format") for name in names
        ):
            wrong = (
                f"by {names}: a gate is a verifier or a format reward, and what it gates is "
                "another reward, neither a verifier nor a step reward."
            )
        else:
            mine = [task for task in tasks if named[gated].scores(task)]
            shut = [task for task in mine if not any(named[name].scores(task) for name in names)]
            wrong = f"by {names}, which do not score task {', '.join(shut)}." * bool(shut)
        problems += [f"reward_gates opens {gated!r} {wrong}"] if wrong else []
    return problems


def check_columns(rows: list[dict], may_be_empty: bool) -> list[str]:
    """Every row has a task and a prompt, a text or messages that end in one; the first without."""
    for number, row in enumerate(rows):
        if missing := [name for name in ("prompt", "task") if not row.get(name)]:
            return [
                f"rows lack {', '.join(missing)}: every row has a prompt and a task (the columns "
                f"of row {number}: {sorted(row)})."
            ]
        prompt, task = row["prompt"], row["task"]
        if not isinstance(task, str):
            return [f"the task of row {number} is {task!r}; it must be text."]
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if not (may_be_empty or str(text or "").strip()):
            return [f"the prompt of row {number} asks nothing: {repr(prompt)[:200]}."]
    return []


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
            problems += score_task(line, numbered, rows, reward, reference)
        lines.append({k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()})
    return lines, problems


def score_task(
    line: dict[str, Any],
    numbered: list[NumberedRow],
    all_rows: list[dict],
    reward: Reward,
    reference: Reference,
) -> list[str]:
    """Fill in what a reward gives to the rows of a task, and list the promises that it breaks."""
    rows, title = [row for _, row in numbered], f"reward {reward.name!r}"
    lacks = []
    for number, row in numbered:
        missing = [column for column in reward.columns if row.get(column) is None]
        if missing and not lacks:
            lacks = [
                f"{title} needs the column {', '.join(missing)}, which row {number} lacks (its "
                f"columns: {sorted(name for name, value in row.items() if value is not None)})."
            ]
    # A reward that sees every row may pass over a task that lacks its columns.
    is_elsewhere = any(row.get(column) is not None for row in all_rows for column in reward.columns)
    if lacks and not (is_elsewhere and reward.tasks is None and reward.kind != "model"):
        return lacks
    if reward.kind == "model":  # each score is a call of a model: none is asked before the run
        line["rows scored"] = len(rows)
        return []
    golds = [reference(row) for row in rows]  # a row of one's own needs no reference answer: None
    sure = [i for i, gold in enumerate(golds) if gold is not None]
    try:
        amounts, failures = score(reward, [rows[i] for i in sure], [golds[i] for i in sure])
        empty, _ = score(reward, rows, [""] * len(rows))
    except (Exception, SystemExit) as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        return lacks or [f"{title} fails on the reference answers: {failures[0]}"]
    known = [amount for amount in amounts if amount is not None]
    # Not even an empty completion is graded.
    ungraded = [i for i, amount in enumerate(empty) if golds[i] is None and amount is None]
    line["rows scored"] = len(known) + len(rows) - len(sure) - len(ungraded)
    line["reference earns"] = min(known, default=None)
    line["empty earns"] = max((amount for amount in empty if amount is not None), default=None)
    is_verifier, problems = reward.kind == "verifier", []
    if not line["rows scored"]:
        if not is_verifier:  # it does not apply to this task
            return []
        others = ", ".join(sorted({row["task"] for row in all_rows} - {line["task"]}))
        return [
            f"{title} can grade none of the rows of task {line['task']!r}. If they are not meant "
            f"for it, set reward_tasks: {{{reward.name}: [{others}]}}."
        ]
    if is_verifier and (line["empty earns"] or 0.0) > 0.0:
        problems.append(
            f"{title} is a verifier but scores an empty completion {line['empty earns']}."
        )
    promises = (is_verifier or reward.kind == "format") and reward.full is not None
    scored = zip(sure, amounts, strict=True)
    short = [(i, one) for i, one in scored if promises and (one is None or one < reward.full)]
    if short:
        first, amount = short[0]
        problems.append(
            f"{title} scores {amount} instead of {reward.full} for the reference answer of "
            f"{len(short)} of {len(sure)} rows of task {line['task']!r}; the first is row "
            f"{numbered[first][0]}: {golds[first]!r}."
        )
    if ungraded and is_verifier:
        problems.append(
            f"{title} cannot grade {len(ungraded)} of the rows without a reference answer; the "
            f"first is row {numbered[ungraded[0]][0]}."
        )
    return lacks or problems


def score(
    reward: Reward, rows: list[dict], texts: list[Any]
) -> tuple[list[float | None], list[str]]:
    """The score of each text, and why the reward says that it failed on a row."""
    found = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward.name}"):
        part = slice(start, start + PART)
        found += graded(reward, rows[part], texts[part])
    return [amount for amount, _ in found], [failure for _, failure in found if failure]


def check_scores(reward: Reward, lines: list[dict], is_stream: bool) -> list[str]:
    """A reward is for tasks that there are, and scores some of their rows, or it does nothing."""
    tasks = sorted({line["task"] for line in lines})
    if not tasks or is_stream:  # the tasks of a stream's later rows are not known
        return []
    unknown = sorted(set(reward.tasks or ()) - set(tasks))
    if unknown:
        return [
            f"reward {reward.name!r} is for rows of task {', '.join(map(repr, unknown))}, but the "
            f"rows have only: {', '.join(tasks)}. Correct reward_tasks or the rows."
        ]
    if not any(line["rows scored"] for line in lines):
        return [
            f"reward {reward.name!r} scores none of the rows: remove it, or correct reward_tasks "
            "or the rows."
        ]
    return []


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
