"""Checks of the rewards on the rows: a reference answer earns the full reward, an empty completion
earns nothing, and a wrong answer earns less than the right one.
"""

from collections.abc import Callable
from typing import Any

from recipes.common.checks.model import check_reward_model
from recipes.common.data.overlap import check_questions
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
from rewards.rows import rows_by_task

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
    if unusable := check_columns(rows, may_be_empty) or check_reference(rows, reference):
        problems += unusable
        return []
    limit_s = training["reward_timeout_s"]
    # A reward that takes environments needs those of a rollout.
    called = [reward for reward in rewards if not takes_environments(reward)]
    lines, wrong = score_rows(rows, called, reference, limit_s)  # wrong: reward -> its problem
    if not is_stream:  # later rows may have other tasks
        wrong = check_tasks(lines, called) | wrong
    problems += wrong.values()
    sound = [reward for reward in called if reward.name not in wrong]
    if len(sound) == len(rewards) and not may_be_empty:
        outcomes = [line for line in lines if line["kind"] != "step"]
        scored = {line["task"] for line in outcomes if line["rows scored"]}
        for task in sorted({line["task"] for line in outcomes} - scored):
            problems.append(f"task {task!r}: no reward scores its rows.")
    for reward in sound if rows else ():
        with collect_errors(problems, f"reward {reward.name!r}"):
            cheats = try_tricks(reward, rows, reference, limit_s=limit_s)
            if cheats.problem:  # one row of each task was tried: look at more before refusing
                cheats = try_tricks(reward, rows, reference, per_task=PART, limit_s=limit_s)
            if cheats.problem:
                problems.append(cheats.problem)
            elif reward.kind != "model":
                place = 0 if cheats.is_fooled else len(args.notes)  # the worst news first
                args.notes.insert(place, f"{reward.name} {cheats.sentence()}")
    # The same checks on evaluation rows, with the rewards that had no problem.
    if wrong_rows := check_columns(eval_rows, may_be_empty):
        problems += [f"evaluation rows: {problem}" for problem in wrong_rows]
    else:
        wrong = score_rows(eval_rows, sound, reference, limit_s)[1]
        problems += [f"evaluation rows: {problem}" for problem in wrong.values()]
        problems += check_questions(rows, eval_rows, args.model["model_name_or_path"])
    weights = training["reward_weights"] or [1.0] * len(rewards)
    weight_of = {reward.name: weight for reward, weight in zip(rewards, weights, strict=False)}
    gates = {} if args.is_refused("reward_gates") else openers_of(training["reward_gates"])
    for line in lines:
        line["weight"] = weight_of.get(line["reward"])
        if gates:
            line["counts only if"] = " or ".join(gates.get(line["reward"], ())) or None
        line |= {name: round(value, 6) for name, value in line.items() if isinstance(value, float)}
    return lines


# --- Settings and columns


def check_settings(
    training: dict[str, Any], rows: list[dict], rewards: list[Reward], problems: list[str]
) -> None:
    """Add a problem where weights, gates, the loss or a reward model do not fit the rewards."""
    weights = training["reward_weights"]
    if rewards and weights and len(weights) != len(rewards):
        problems.append(
            f"reward_weights has {len(weights)} values for {len(rewards)} rewards: "
            f"{', '.join(reward.name for reward in rewards)}."
        )
    for reward, weight in zip(rewards, weights or [], strict=False):
        is_goal = reward.kind == "verifier" or (len(rewards) == 1 and reward.kind != "shaping")
        if is_goal and weight < 0:
            problems.append(
                f"reward_weights gives {reward.name} ({reward.kind}) {weight:g}: the run would "
                "train away from what it pays for. Give a positive weight, or 0 to log it only."
            )
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
    """Raise ValueError if the rewards `names` cannot open the gate of the reward `gated`.

    With the gate `{"length": ["boxed_math"]}`, `length` counts only where `boxed_math` scored above
    0: a wrong answer earns nothing by its length. `rewards` has the run's rewards by name.
    """
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list) and names):
        raise ValueError("give the name of a reward, or a list of names.")
    if unknown := [name for name in (gated, *names) if name not in list(rewards)]:
        raise ValueError(
            f"{', '.join(map(str, unknown))} is not in reward_funcs ({', '.join(rewards)})."
        )
    openers = [rewards[name] for name in names]
    is_gate = all(opener.kind in ("verifier", "format") for opener in openers)
    if gated in names or not is_gate or rewards[gated].kind in ("verifier", "step"):
        raise ValueError(
            "a gate is a verifier or a format reward, and what it gates is another reward, neither "
            "a verifier nor a step reward."
        )
    for task in sorted({row["task"] for row in rows if row.get("task")}):
        if rewards[gated].scores(task) and not any(opener.scores(task) for opener in openers):
            raise ValueError(f"they do not score task {task}.")


def check_columns(rows: list[dict], may_be_empty: bool) -> list[str]:
    """A problem for the first row without a task, or whose prompt is missing or empty.

    `may_be_empty`: an environment asks the question, so that a prompt may have no text.
    """
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


def score_rows(
    rows: list[dict], rewards: list[Reward], reference: Reference, limit_s: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Score the reference answer and an empty completion of each row with each reward.

    Returns a line of the table for each task and reward, and a problem by the name of its reward.
    A call of a reward may take `limit_s` seconds.
    """
    lines, problems = [], {}
    columns = {name for row in rows for name, value in row.items() if value is not None}
    for task, numbered in rows_by_task(rows).items():
        for reward in rewards:
            line = {
                "task": task, "weight": None, "reward": reward.name, "kind": reward.kind,
                "rows scored": 0, "reference earns": None, "full": reward.full, "empty earns": None,
            }  # fmt: skip
            lines.append(line)
            wrong: list[str] = []
            with collect_errors(wrong, f"reward {reward.name!r}"):
                if reward.scores(task):
                    score_task(line, dict(numbered), reward, reference, limit_s, columns)
            if wrong:
                problems.setdefault(reward.name, wrong[0])
    return lines, problems


def score_task(
    line: dict[str, Any],
    rows: dict[int, dict],
    reward: Reward,
    reference: Reference,
    limit_s: float,
    columns: set[str],
) -> None:
    """Score the rows of a task, by their numbers, and fill in its line of the table of rewards.

    `columns` are those of the rows of all tasks. ValueError if a promise of the reward is broken.
    """
    lacks = None  # the first row without a column that the reward needs
    for number, row in rows.items():
        if missing := [name for name in reward.columns if row.get(name) is None]:
            has = sorted(name for name in row if row[name] is not None)
            lacks = f"needs the column {missing[0]}, which row {number} lacks (its columns: {has})."
            break
    # A reward for all tasks may skip a task without its columns, if other rows have them.
    is_elsewhere = not columns.isdisjoint(reward.columns)
    may_skip = is_elsewhere and reward.tasks is None and reward.kind != "model"
    if lacks and not may_skip:
        raise ValueError(lacks)
    if reward.kind == "model":  # scoring would call a model, which preflight does not
        line["rows scored"] = len(rows)
        return
    answers = {number: reference(row) for number, row in rows.items()}
    answers = {number: answer for number, answer in answers.items() if answer is not None}
    try:
        text = "the reference answers"
        earned = score(reward, rows, answers, limit_s)
        text = "an empty completion, which a model may write"
        of_empty = score(reward, rows, dict.fromkeys(rows, ""), limit_s)
    except ValueError as failure:
        raise ValueError(lacks or f"fails on {text}: {failure}") from failure
    # A row without a reference answer is graded if its empty completion is.
    graded = [number for number in rows if earned.get(number, of_empty[number]) is not None]
    lowest = min((amount for amount in earned.values() if amount is not None), default=None)
    highest = max((amount for amount in of_empty.values() if amount is not None), default=None)
    line |= {"rows scored": len(graded), "reference earns": lowest, "empty earns": highest}
    if not graded and (lacks or reward.kind != "verifier"):  # it does not apply to this task
        return
    if lacks:
        raise ValueError(lacks)
    if reward.kind == "verifier" and (highest or 0.0) > 0.0:
        raise ValueError(f"is a verifier but scores an empty completion {highest}.")
    if reward.kind in ("verifier", "format") and reward.full is not None:
        short = [n for n, amount in earned.items() if amount is None or amount < reward.full]
        if short:
            raise ValueError(
                f"scores {earned[short[0]]} instead of {reward.full} for the reference answer of "
                f"{len(short)} of {len(earned)} rows of task {line['task']!r}; the first is row "
                f"{short[0]}: {answers[short[0]]!r}."
            )
    if reward.kind == "verifier" and lowest is not None and lowest <= 0.0:
        worst = next(number for number, amount in earned.items() if amount == lowest)
        pays_some = any((amount or 0.0) > 0.0 for amount in earned.values())
        hint = "" if pays_some else " A constant added to all it gives changes no advantage."
        raise ValueError(
            f"is a verifier but gives the reference answer of row {worst} {lowest:g}, and 0 or "
            "less means wrong: in gates, and where cheap tricks are tried. It is "
            f"{answers[worst]!r:.80}.{hint}"
        )


def score(
    reward: Reward, rows: dict[int, dict], texts: dict[int, Any], limit_s: float
) -> dict[int, float | None]:
    """The scores of completions by the numbers of their rows: `{3: 2.0}` for `texts={3: "18"}`.

    A call of the reward has `PART` rows and may take `limit_s` seconds. ValueError with the first
    failure of the reward's code.
    """
    scores: dict[int, float | None] = {}
    numbers = list(texts)
    for start in bar(range(0, len(numbers), PART), f"preflight, {reward.name}"):
        part = numbers[start : start + PART]
        try:
            own_rows, own_texts = [rows[n] for n in part], [texts[n] for n in part]
            amounts, failures = boundary.score(reward, own_rows, own_texts, limit_s=limit_s)
        except (Exception, SystemExit) as error:
            raise ValueError(boundary.describe(error)) from error
        if any(failures):
            raise ValueError(next(filter(None, failures)))
        scores |= dict(zip(part, amounts, strict=True))
    return scores


def check_tasks(lines: list[dict[str, Any]], rewards: list[Reward]) -> dict[str, str]:
    """A problem, by its name, for each reward of an unknown task or that scores no row.

    `lines` is the table of rewards, with a line for each task and reward.
    """
    problems = {}
    for reward in rewards:
        rows_of = {one["task"]: one["rows scored"] for one in lines if one["reward"] == reward.name}
        unknown = sorted({*(reward.tasks or ())} - rows_of.keys())
        if rows_of and (unknown or not any(rows_of.values())):
            fault = f"is for rows of task {unknown[0]!r}" if unknown else "scores no row"
            problems[reward.name] = (
                f"reward {reward.name!r} {fault}, but the rows have only: {', '.join(rows_of)}. "
                "Correct reward_tasks or the rows, or remove it."
            )
    return problems
