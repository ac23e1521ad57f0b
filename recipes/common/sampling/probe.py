"""The probe: what the rewards of a recipe would teach its untrained model.

The trainer completes and scores some prompts as in training, but does not train. GRPO learns from
differences within a group. A group is useful if its completions differ in total reward by more than
rounding (after voids and gates, without control rewards), or in their step rewards. With
`mask_truncated_completions` at least one completion must not be truncated, too.

Not covered: how fast and how long the model learns, and whether it learns the task: a lucky guess
counts as a right answer.
"""

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from recipes.common.checks.rewards_on_rows import check_columns, check_settings
from recipes.common.data.recipe import load_recipe
from recipes.common.data.split import first_rows
from recipes.common.evaluation.metrics import Metric, measure_or_fail
from recipes.common.sampling.idle import idle_trainer, sample
from recipes.common.trainer import GRPOTrainer
from recipes.common.training.advantages import advantages_of, has_spread, is_correct
from recipes.common.training.guard import FAILURES
from recipes.common.training.push import pushes
from recipes.common.utils.machine import versions
from recipes.common.utils.run_files import PROBE_FIGURES, write_json, write_rows
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import format_table, in_words, percent
from rewards import Reward
from rewards.contract import total
from rewards.text import completion_text

ROWS, COMPLETIONS, KEPT = "rows.jsonl", "completions.jsonl", "kept.jsonl"
USEFUL_A_STEP = 0.5  # with fewer useful groups, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 4  # a task with fewer groups may have no useful group by chance


def probe(
    config: Path,
    overrides: list[str],
    prompts: int,
    completions: int | None,
    num_processes: int,
    output: Path,
    keep: tuple[float, float] | None,
) -> bool:
    """Sample, score, print, write to `output`; return whether there is enough to learn from.

    The options are those of scripts/probe.py. Raises ValueError with all problems, one a line.
    """
    recipe = load_recipe(config, overrides)
    training, metric, rewards = recipe.args.training, recipe.module.metric, recipe.rewards
    rows = first_rows(recipe.train_rows)
    at_once = completions_of_a_call(training, num_processes)
    check(training, rewards, rows, at_once)
    trainer = idle_trainer(recipe)
    rows = random.Random(training["seed"]).sample(rows, min(prompts, len(rows)))
    group = completions or training["num_generations"]
    batch_size = group * max(1, at_once // group)  # whole groups, about `at_once` completions
    samples = draw(trainer, rows, group, batch_size)
    # Written before scoring, so that the samples survive a reward that raises.
    write_rows(output / ROWS, rows)
    write_rows(output / COMPLETIONS, samples)
    scored = score(trainer, rewards, rows, samples, batch_size)
    step = training["per_device_train_batch_size"] * training["gradient_accumulation_steps"]
    groups_a_step = step * num_processes / training["num_generations"]
    figures = figures_of(scored, rewards)
    is_enough, sentence = verdict(scored, figures, groups_a_step)
    pushed = pushes_of_rewards(metric, rows, samples, scored, rewards)
    print(f"Probe of {config}: {len(rows)} prompts, {len(samples)} completions")
    print(report(scored, figures, pushed, training["max_completion_length"]))
    print(sentence, flush=True)
    if keep:
        print(keep_rows(scored, rows, keep, output / KEPT))
    record = {
        "enough": is_enough,
        "verdict": sentence,
        "groups_a_step": groups_a_step,
        "rewards": figures.replace({np.nan: None}).to_dict("records"),
        "push": pushed,
        "config": str(config),
        **versions(),
    }
    write_json(output / PROBE_FIGURES, record)
    return is_enough


def check(training: dict[str, Any], rewards: list[Reward], rows: list[dict], at_once: int) -> None:
    """Check rows and rewards as preflight does, then prepare the rewards.

    Raises ValueError with all problems, one a line.
    """
    problems: list[str] = []
    check_settings(training, rows, rewards, problems)
    problems += check_columns(rows, may_be_empty=False)
    if training["environment_factory"]:
        problems.append(
            "the probe scores completions that were drawn before, and an environment lives as long "
            "as its rollout: leave out environment_factory."
        )
    if models := [reward.name for reward in rewards if reward.is_model]:
        problems.append(
            f"{', '.join(models)}: the probe loads no reward model; leave it out of reward_funcs."
        )
    if problems:
        raise ValueError("\n".join(problems))
    for reward in rewards:
        if reward.prepare is not None:
            reward.prepare(at_once, training["reward_timeout_s"])


def completions_of_a_call(training: dict[str, Any], processes: int) -> int:
    """How many completions TRL passes to a reward in one call, on each rank."""
    if training["generation_batch_size"]:
        return -(-training["generation_batch_size"] // processes)
    steps = training["steps_per_generation"] or training["gradient_accumulation_steps"]
    return training["per_device_train_batch_size"] * steps


def draw(trainer: GRPOTrainer, rows: list[dict], group: int, batch_size: int) -> list[dict]:
    """Complete each row `group` times; return one mapping for each completion, row by row."""
    return [
        {
            "row": number,
            "completion": rollout.completion,
            "token_ids": rollout.token_ids,
            "tokens": rollout.tokens,
            "truncated": rollout.truncated,
        }
        for number, rollouts in enumerate(sample(trainer, rows, group, batch_size))
        for rollout in rollouts
    ]


# --- Scores: one line for each completion


def score(
    trainer: GRPOTrainer,
    rewards: list[Reward],
    rows: list[dict],
    samples: list[dict],
    batch_size: int,
) -> pd.DataFrame:
    """Score the completions with the trainer, in batches of whole groups; one line for each.

    Columns: row, task, tokens, truncated, each reward (NaN if it gives none), total, right (NaN if
    no verifier scored), useful (of the group), and failed (the names of the rewards that failed).
    """
    # The group size of a trainer that does not train.
    trainer.num_generations_eval = len(samples) // len(rows)
    controls = [reward.name for reward in rewards if reward.kind == "control"]
    for i, name in enumerate(trainer.reward_func_names):  # a control reward must not add spread
        trainer.reward_weights[i] *= name not in controls
    verifiers = [reward for reward in rewards if reward.kind == "verifier"]
    parts = []
    for start in tqdm(range(0, len(samples), batch_size), desc="scoring"):
        parts.append(_score_batch(trainer, verifiers, rows, samples[start : start + batch_size]))
    scored = pd.concat(parts, ignore_index=True)
    in_group = scored.groupby("row")
    scored["useful"] |= in_group["steps_differ"].transform("any")
    if trainer.args.mask_truncated_completions:
        scored["useful"] &= ~in_group["truncated"].transform("all")
    return scored.drop(columns="steps_differ")


def _score_batch(
    trainer: GRPOTrainer, verifiers: list[Reward], rows: list[dict], batch: list[dict]
) -> pd.DataFrame:
    of_row = [rows[line["row"]] for line in batch]
    prompts, completions = [row["prompt"] for row in of_row], [line["completion"] for line in batch]
    scores = trainer.score(of_row, prompts, completions, [line["token_ids"] for line in batch])
    frame = pd.DataFrame(batch)[["row", "tokens", "truncated"]]
    frame["task"] = [row["task"] for row in of_row]
    frame["failed"] = [
        [name for name, graded in scores.graded.items() if graded.outcomes[i] in FAILURES]
        for i in range(len(batch))
    ]
    amounts = pd.DataFrame(scores.rewards_CR.tolist(), columns=trainer.reward_func_names)
    frame[amounts.columns] = amounts
    weighted = amounts * trainer.reward_weights.tolist()
    frame["total"] = weighted.sum(axis="columns", min_count=1)
    hits = pd.DataFrame(
        {reward.name: hits_of(amounts[reward.name], reward) for reward in verifiers}
    )
    frame["right"] = hits.min(axis="columns") if verifiers else np.nan
    frame["useful"] = scores.teaches_C.tolist()
    for guard in trainer.steps.guards:
        amounts_c = scores.graded[guard.name].amounts
        frame[guard.name] = [
            np.nan if failed else total(steps)
            for steps, failed in zip(amounts_c, frame["failed"], strict=True)
        ]
    # Step rewards that are equal within their group were normalised to 0.
    steps_c = scores.steps or [[]] * len(batch)
    frame["steps_differ"] = [any(amount for _, amount in steps) for steps in steps_c]
    return frame


def hits_of(amounts: pd.Series, reward: Reward) -> pd.Series:
    """1.0 for a full reward, 0.0 for less, NaN where the reward gave none."""
    return amounts.map(lambda amount: float(is_correct(amount, reward.full)), na_action="ignore")


# --- What the scores say


def figures_of(scored: pd.DataFrame, rewards: list[Reward]) -> pd.DataFrame:
    """One line for each task and each reward that scored rows of the task.

    `spread` is the mean standard deviation within a group (with n - 1, as in TRL). `without` is the
    share of groups whose completions all have the same reward.
    """
    lines = []
    for (task, of_task), reward in product(scored.groupby("task"), rewards):
        amounts = of_task[reward.name].dropna()
        failed = np.mean([reward.name in names for names in of_task["failed"]])
        if amounts.empty and not failed:  # a reward of other tasks
            continue
        groups = amounts.groupby(of_task["row"])
        differ = groups.agg(has_spread).astype(bool)
        lines.append(
            {
                "task": task,
                "reward": reward.name,
                "kind": reward.kind,
                "mean": amounts.mean(),
                "hits": hits_of(amounts, reward).mean(),
                "spread": groups.std().where(differ, 0.0).mean(),
                "without": 1.0 - differ.mean(),
                "failed": failed,
            }
        )
    return pd.DataFrame(lines)


def verdict(scored: pd.DataFrame, figures: pd.DataFrame, groups_a_step: float) -> tuple[bool, str]:
    """Whether there is enough to learn from, and a sentence that says why."""
    groups = scored.drop_duplicates("row")
    by_task = groups.groupby("task")["useful"].agg(["size", "sum"])
    seen = by_task[by_task["size"] >= ENOUGH_GROUPS]
    barren = ", ".join(seen.index[seen["sum"] == 0])
    if barren:
        return False, f"nothing to learn from: all completions of a prompt of {barren} score alike"
    low, high = wilson_interval(groups["useful"].sum(), len(groups))
    expected = groups_a_step * groups["useful"].mean()
    words = (
        f"{expected:.2g} useful groups are expected in an optimizer step of {groups_a_step:g} "
        f"(95 %: {groups_a_step * low:.2g} to {groups_a_step * high:.2g})"
    )
    if expected < USEFUL_A_STEP:
        return False, f"too little to learn from: {words}, at least {USEFUL_A_STEP:g} are needed"
    answers = figures[figures["kind"].isin(["verifier", "step"]) & figures["task"].isin(seen.index)]
    alike = answers.groupby("task")["without"].min() == 1.0
    if alike.any():
        tasks = ", ".join(alike.index[alike])
        return (
            False,
            f"only the form of an answer: no correctness reward tells completions of {tasks} apart",
        )
    return True, f"enough to learn from: {words}"


def report(
    scored: pd.DataFrame, figures: pd.DataFrame, pushed: dict[str, dict[str, float]], limit: int
) -> str:
    """The table of tasks and rewards; below it useful groups, truncation and pushes."""
    shown = figures.rename(columns={"without": "groups without"})
    for column in ("hits", "groups without", "failed"):
        shown[column] = shown[column].map(percent)
    for column in ("mean", "spread"):
        shown[column] = shown[column].map("{:.3f}".format)
    lines = [format_table(shown.to_dict("records"))]
    for task, of_task in scored.groupby("task"):
        groups = of_task.drop_duplicates("row")["useful"]
        lines.append(
            f"  {task}: {groups.sum()} of {len(groups)} groups useful; "
            f"{percent(of_task['truncated'].mean())} cut off at {limit} tokens, the median of the "
            f"others {of_task[~of_task['truncated']]['tokens'].median():g}"
        )
    for metric, by_reward in pushed.items():
        words = ", ".join(f"{name} {value:+.2f}" for name, value in by_reward.items())
        lines.append(f"  Pull on {in_words(metric)} by each reward alone: {words}")
    return "\n".join(lines)


def pushes_of_rewards(
    metric: Metric,
    rows: list[dict],
    samples: list[dict],
    scored: pd.DataFrame,
    rewards: list[Reward],
) -> dict[str, dict[str, float]]:
    """The push on each metric if each reward were the only one: metric -> reward -> push."""
    group = len(samples) // len(rows)
    outcomes = [
        measure_or_fail(metric, rows[line["row"]], completion_text(line["completion"]))[0]
        for line in samples
    ]
    pushed: dict[str, dict[str, float]] = {}
    for reward in rewards:
        amounts = scored[reward.name].replace({np.nan: None}).tolist()
        for name, value in pushes(outcomes, advantages_of(amounts, group), group).items():
            pushed.setdefault(name, {})[reward.name] = round(value, 3)
    return pushed


def keep_rows(scored: pd.DataFrame, rows: list[dict], keep: tuple[float, float], file: Path) -> str:
    """Write the rows whose share of right completions lies in `keep`; return what to print.

    The file is for `--only_rows`. A row that no verifier scored is kept.
    """
    rates = scored.groupby("row")["right"].mean()
    solved = rates.index[rates.isna() | rates.between(*keep)]
    if not len(solved):
        raise ValueError(f"no row was solved in {keep[0]:g} to {keep[1]:g} of its completions.")
    write_rows(file, [rows[number] for number in solved])
    return f"{len(solved)} of {len(rows)} rows are kept: --only_rows {file}"
