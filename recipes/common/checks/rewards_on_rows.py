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
from rewards.audit import try_tricks
from rewards.boundary import describe
from rewards.boundary import score as score_part
from rewards.contract import Reward
from rewards.rows import NumberedRow, rows_by_task

PART = 200  # rows in one call of a reward
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
    wrong = check_columns(rows, may_be_empty) or check_reference(rows, reference)
    problems += wrong
    if wrong:
        return []
    weights = training["reward_weights"] or []
    if len(weights) != len(rewards):
        weights = [1.0] * len(rewards)
    lines, sound = [], []  # the table, and the rewards without a problem
    for reward, weight in zip(rewards, weights, strict=True):
        if takes_environments(reward):  # it needs the environments of a rollout
            continue
        of_reward, wrong = [], []
        with collect_errors(wrong, f"reward {reward.name!r}"):
            of_reward, wrong = reward_lines(rows, reward, reference, weight)
        problems += wrong or check_scores(reward, of_reward, is_stream)
        lines += of_reward
        sound += [] if wrong else [reward]
    gates = {} if args.is_refused("reward_gates") else openers_of(training["reward_gates"])
    for line in lines if gates else ():
        line["counts only if"] = " or ".join(gates.get(line["reward"], ())) or None
    order = list(dict.fromkeys(line["task"] for line in lines))
    lines.sort(key=lambda line: order.index(line["task"]))
    if not may_be_empty and len(sound) == len(rewards):
        problems += check_every_task_is_scored(lines, rows)
    for reward in sound if rows else ():
        cheats = try_tricks(reward, rows, reference)
        if cheats.problem:
            problems.append(cheats.problem)
        elif not reward.is_model:
            args.notes.append(f"{reward.name} {cheats.sentence()}")
    # The same checks on evaluation rows, with the rewards that had no problem.
    if wrong := check_columns(eval_rows, may_be_empty):
        problems += [f"evaluation rows: {problem}" for problem in wrong]
        return lines
    held_out_lines = []
    for reward in sound:
        of_reward, problems_of_reward = reward_lines(eval_rows, reward, reference)
        held_out_lines += of_reward
        wrong += problems_of_reward
    tasks = {row["task"] for row in rows}  # unscored tasks of the training rows are reported above
    others = [row for row in eval_rows if tasks and row["task"] not in tasks]
    wrong += check_every_task_is_scored(held_out_lines, others)
    problems += [f"evaluation rows: {problem}" for problem in wrong if problem not in problems]
    problems += check_held_out(rows, eval_rows, args.model["model_name_or_path"])
    problems += check_duplicates(rows, eval_rows)
    return lines


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
    problems += check_gates(training["reward_gates"] or {}, rows, rewards)


def check_gates(
    gates: dict[str, list[str] | str], rows: list[dict], rewards: list[Reward]
) -> list[str]:
    """Problems of gates: one must be a verifier or format reward that scores the gated tasks."""
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
    """A problem for the first row without a task, or whose prompt is missing or empty."""
    for number, row in enumerate(rows):
        if missing := [name for name in ("prompt", "task") if not row.get(name)]:
            return [
                f"rows lack {', '.join(missing)}: every row has a prompt and a task (the columns "
                f"of row {number}: {sorted(row)})."
            ]
        prompt, task = row["prompt"], row["task"]
        if not isinstance(task, str):
            return [f"the task of row {number} is {task!r}; it must be text."]
        messages = [] if isinstance(prompt, str) else prompt
        if any(
            not (isinstance(each, dict) and {"role", "content"} <= each.keys()) for each in messages
        ):
            return [
                f"the prompt of row {number} is {repr(prompt)[:200]}; it must be text, or messages "
                "with role and content."
            ]
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if not (may_be_empty or str(text or "").strip()):
            return [f"the prompt of row {number} asks nothing: {repr(prompt)[:200]}."]
    return []


# --------------------------------------------------------------------------- what a reward gives


def reward_lines(
    rows: list[dict], reward: Reward, reference: Reference, weight: float = 1.0
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
            problems += check_task(line, numbered, rows, reward, reference)
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
    answers = [reference(row) for row in rows]  # None: a row without a reference answer
    answered = [place for place, answer in enumerate(answers) if answer is not None]
    of_answers, failure = score(
        reward, [rows[place] for place in answered], [answers[place] for place in answered]
    )
    if failure:
        return lacks or [f"{title} fails on the reference answers: {failure}"]
    of_empty, failure = score(reward, rows, [""] * len(rows))
    if failure:
        return lacks or [
            f"{title} fails on an empty completion, which a model may write: {failure}. Score it "
            "0.0, as any wrong answer."
        ]
    earned = [amount for amount in of_answers if amount is not None]
    # Rows that the reward cannot grade: an empty completion gets None too.
    ungraded = [
        place for place, amount in enumerate(of_empty) if answers[place] is None and amount is None
    ]
    line["rows scored"] = len(earned) + len(rows) - len(answered) - len(ungraded)
    line["reference earns"] = min(earned, default=None)
    line["empty earns"] = max((amount for amount in of_empty if amount is not None), default=None)
    if not line["rows scored"]:
        if reward.kind != "verifier":  # the reward does not apply to this task
            return []
        others = ", ".join(sorted({row["task"] for row in all_rows} - {line["task"]}))
        return [
            f"{title} can grade none of the rows of task {line['task']!r}. If they are not meant "
            f"for it, set reward_tasks: {{{reward.name}: [{others}]}}."
        ]
    problems, earned_at = [], dict(zip(answered, of_answers, strict=True))
    if reward.kind == "verifier" and (line["empty earns"] or 0.0) > 0.0:
        problems.append(
            f"{title} is a verifier but scores an empty completion {line['empty earns']}."
        )
    if reward.kind in ("verifier", "format") and reward.full is not None:
        problems += below_full(reward, numbered, answers, earned_at)
    if ungraded and reward.kind == "verifier":
        problems.append(
            f"{title} cannot grade {len(ungraded)} of the rows without a reference answer; the "
            f"first is row {numbered[ungraded[0]][0]}."
        )
    return lacks or problems


def lacking_columns(reward: Reward, numbered: list[NumberedRow]) -> list[str]:
    """A problem for the first row that lacks a column which the reward needs."""
    for number, row in numbered:
        if missing := [column for column in reward.columns if row.get(column) is None]:
            return [
                f"reward {reward.name!r} needs the column {', '.join(missing)}, which row {number} "
                f"lacks (its columns: {sorted(name for name in row if row[name] is not None)})."
            ]
    return []


def below_full(
    reward: Reward, numbered: list[NumberedRow], answers: list[Any], earned: dict[int, float | None]
) -> list[str]:
    """A problem if the reference answer of a row earns less than the full reward.

    `earned` maps the place of a row in `numbered` to the score of its reference answer.
    """
    short = [place for place, amount in earned.items() if amount is None or amount < reward.full]
    if not short:
        return []
    number, row = numbered[short[0]]
    return [
        f"reward {reward.name!r} scores {earned[short[0]]} instead of {reward.full} for the "
        f"reference answer of {len(short)} of {len(earned)} rows of task {row['task']!r}; the "
        f"first is row {number}: {answers[short[0]]!r}."
    ]


def score(
    reward: Reward, rows: list[dict], texts: list[Any]
) -> tuple[list[float | None], str | None]:
    """The score of each text, and the first failure of the reward's code; None if it has none."""
    scores = []
    for start in bar(range(0, len(rows), PART), f"preflight, {reward.name}"):
        try:
            part = slice(start, start + PART)
            amounts, failures = score_part(reward, rows[part], texts[part])
        except (Exception, SystemExit) as error:
            return [], describe(error)
        if any(failures):
            return [], next(filter(None, failures))
        scores += amounts
    return scores, None


def check_scores(reward: Reward, lines: list[dict], is_stream: bool) -> list[str]:
    """A problem if a reward names an unknown task or scores no row."""
    tasks = sorted({line["task"] for line in lines})
    if not tasks or is_stream:  # later rows of a stream may have other tasks
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
