"""The probe: what the rewards of a recipe would teach its untrained model.

The trainer completes and scores some prompts as in training, but does not train. GRPO learns from
differences within a group. A group is useful if its completions differ in total reward by more than
rounding (after failures and gates, without control rewards), or in their step rewards. With
`mask_truncated_completions` at least one completion must not be truncated, too.

Not covered: how fast and how long the model learns, and whether it learns the task: a lucky guess
counts as a right answer.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from recipes.common.checks.rewards_on_rows import check_columns, check_settings
from recipes.common.data.recipe import load_recipe
from recipes.common.data.split import first_rows
from recipes.common.evaluation.metrics import Metric, measure_or_fail
from recipes.common.evaluation.scores import independent_metrics
from recipes.common.sampling.idle import idle_trainer, sample
from recipes.common.trainer import GRPOTrainer
from recipes.common.training.advantages import advantages_of, has_spread, is_correct
from recipes.common.training.guard import FAILURES
from recipes.common.training.push import pushes
from recipes.common.utils.machine import versions
from recipes.common.utils.run_files import PROBE_FIGURES, write_json, write_rows
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import format_table, in_words
from rewards import Reward
from rewards.contract import total
from rewards.text import completion_text

ROWS, COMPLETIONS, KEPT = "rows.jsonl", "completions.jsonl", "kept.jsonl"
SAMPLE_FIELDS = ("completion", "token_ids", "tokens", "truncated")  # kept of a rollout
USEFUL_A_STEP = 0.5  # with fewer useful groups, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 14  # with fewer, none may be useful by chance, although a fifth of all are
ALL = "all rewards"
ADVICE = (
    "Where little is right, take easier questions (--keep 0.1 0.9) or begin with "
    "scripts/warm_start.py; where almost all is, harder ones; where much is cut off, raise "
    "max_completion_length. A larger num_generations makes more groups useful."
)
LEGEND = """\
  right: completions with the full correctness reward. useful groups: prompts whose completions
  are not all paid alike; only these teach. median tokens: of completions that were not cut off.
  failed: completions that a reward could not score. pull: training on this reward alone raises (+)
  or lowers (-) it."""


def probe(
    config: Path,
    overrides: list[str],
    prompts: int,
    num_processes: int,
    output: Path,
    keep: tuple[float, float] | None,
) -> bool:
    """Sample, score, print, write to `output`; return whether there is enough to learn from.

    `num_processes` is that of the run to come, `keep` as in `keep_rows`; the others are those of
    scripts/probe.py. Raises ValueError with all problems, one a line.
    """
    recipe = load_recipe(config, overrides)
    training, rewards = recipe.args.training, recipe.rewards
    rows, group_size = first_rows(recipe.train_rows), training["num_generations"]
    # In completions: whole groups, as many as fit into the run's batch, but at least one.
    batch_size = group_size * max(1, training["per_device_train_batch_size"] // group_size)
    check(training, rewards, rows, batch_size)
    if keep and not any(reward.kind == "verifier" for reward in rewards):
        raise ValueError(
            "--keep needs a correctness reward, which says what is right: write below yours "
            'NAME.kind = "verifier" and NAME.full = the score of a right answer.'
        )
    trainer = idle_trainer(recipe)
    rows = random.Random(training["seed"]).sample(rows, min(prompts, len(rows)))
    samples = []
    for number, rollouts in enumerate(sample(trainer, rows, group_size, batch_size)):
        for rollout in rollouts:
            sample_fields = {name: getattr(rollout, name) for name in SAMPLE_FIELDS}
            samples.append({"row": number, **sample_fields})
    # Written before scoring, so that the samples survive a reward that raises.
    write_rows(output / ROWS, rows)
    write_rows(output / COMPLETIONS, samples)
    scored = score(trainer, rewards, rows, samples, batch_size)
    figures = figures_of(scored, rewards)
    batch = training["per_device_train_batch_size"] * training["gradient_accumulation_steps"]
    weights = training["reward_weights"] or [1.0] * len(rewards)
    unused = [reward.name for reward, weight in zip(rewards, weights, strict=True) if weight == 0]
    of_used = figures[~figures["reward"].isin(unused)]
    is_enough, sentence = verdict(of_used, groups_a_step=batch * num_processes / group_size)
    moving = [not (line["truncated"] and trainer.mask_truncated_completions) for line in samples]
    scale = trainer.scale_rewards
    pushed = compute_pushes(recipe.module.metric, rows, samples, moving, scored, rewards, scale)
    print(f"\n{config} before training: {len(rows)} prompts, {group_size} completions of each")
    print(f"{report(figures, pushed)}\n{sentence}", flush=True)
    record = {
        "enough": is_enough,
        "verdict": sentence,
        "rewards": figures.replace({np.nan: None}).to_dict("records"),
        "push": pushed,
        "config": str(config),
        **versions(),
    }
    write_json(output / PROBE_FIGURES, record)
    if keep:  # last: where no row is in the range it raises
        print(keep_rows(scored, rows, keep, output / KEPT))
    return is_enough


def check(training: dict[str, Any], rewards: list[Reward], rows: list[dict], batch: int) -> None:
    """Check that a probe can score these rows, then start what rewards need, such as a sandbox.

    `training` are the recipe's settings, `batch` is the number of completions that a reward gets in
    one call. Raises ValueError with all problems, one a line.
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
            reward.prepare(batch, training["reward_timeout_s"])


def score(
    trainer: GRPOTrainer,
    rewards: list[Reward],
    rows: list[dict],
    samples: list[dict],
    batch_size: int,
) -> pd.DataFrame:
    """Score the drawn completions (`samples`), in batches of whole groups; one line for each.

    Columns: row (the index of its prompt in `rows`), task, tokens, truncated, each reward (NaN if
    it gives none, 0 where its gates are shut), total, right (NaN if no correctness reward scored),
    useful (its group teaches something), and failed (names of rewards that could not score it).
    """
    # The group size of a trainer that does not train.
    trainer.num_generations_eval = len(samples) // len(rows)
    controls = [reward.name for reward in rewards if reward.kind == "control"]
    for i, name in enumerate(trainer.reward_func_names):
        if name in controls:  # such as a random reward, which would make any group look useful
            trainer.reward_weights[i] = 0.0
    lines = []
    for start in tqdm(range(0, len(samples), batch_size), desc="scoring"):
        batch = samples[start : start + batch_size]
        rows_of_batch = [rows[drawn["row"]] for drawn in batch]
        scores = trainer.score(
            rows_of_batch,
            [row["prompt"] for row in rows_of_batch],
            [drawn["completion"] for drawn in batch],
            [drawn["token_ids"] for drawn in batch],
        )
        for i, drawn in enumerate(batch):
            results = scores.graded.items()  # name of a reward, its result for each completion
            failed = [name for name, result in results if result.outcomes[i] in FAILURES]
            values = scores.rewards_CR[i].tolist()  # one for each reward
            amounts = dict(zip(trainer.reward_func_names, values, strict=True))
            for name in trainer.reward_gates:  # a shut gate pays 0, if the row has any score
                if scores.graded[name].amounts[i] is not None and not np.isnan(values).all():
                    amounts[name] = np.nan_to_num(amounts[name])
            for guard in trainer.steps.guards:  # of step rewards: many a completion, summed up
                steps = None if failed else scores.graded[guard.name].amounts[i]
                amounts[guard.name] = np.nan if steps is None else total(steps)
            lines.append(
                {
                    "row": drawn["row"],
                    "task": rows_of_batch[i]["task"],
                    "tokens": drawn["tokens"],
                    "truncated": drawn["truncated"],
                    "failed": failed,
                    "useful": bool(scores.teaches_C[i]),
                    **amounts,
                }
            )
    scored = pd.DataFrame(lines)
    weighted = scored[trainer.reward_func_names] * trainer.reward_weights.tolist()
    scored["total"] = weighted.sum(axis="columns", min_count=1)
    verifiers = [reward for reward in rewards if reward.kind == "verifier"]
    hits = [is_full(scored[verifier.name], verifier) for verifier in verifiers]
    # Right by one verifier and wrong by another counts as wrong.
    scored["right"] = pd.concat(hits, axis="columns").min(axis="columns") if hits else np.nan
    return scored


def is_full(amounts: pd.Series, reward: Reward) -> pd.Series:
    """1.0 for a full reward, 0.0 for less, NaN where the reward gave none."""
    return amounts.map(lambda amount: float(is_correct(amount, reward.full)), na_action="ignore")


# --- What the scores say


def figures_of(scored: pd.DataFrame, rewards: list[Reward]) -> pd.DataFrame:
    """Summarise what `score` returns: for each task a line of all rewards, then one of each reward.

    `groups` is the number of scored groups, and `useful` of those whose completions are not all
    paid alike. `right` (the full correctness reward), `cut_off` and `failed` are shares of the
    completions, from 0 to 1.
    """
    lines: list[dict[str, Any]] = []
    for task, of_task in scored.groupby("task"):
        useful = of_task.groupby("row")["useful"].first()
        lines.append(
            {
                "task": task,
                "reward": ALL,
                "mean": of_task["total"].mean(),
                "right": of_task["right"].astype(float).mean(),
                "useful": useful.sum(),
                "groups": len(useful),
                "cut_off": of_task["truncated"].mean(),
                "median_tokens": of_task[~of_task["truncated"]]["tokens"].median(),
            }
        )
        for reward in rewards:
            amounts = of_task[reward.name].dropna()
            failed = np.mean([reward.name in names for names in of_task["failed"]])
            if amounts.empty and not failed:  # the reward is for other tasks
                continue
            useful = amounts.groupby(of_task["row"]).agg(has_spread).astype(bool)
            is_verifier = reward.kind == "verifier"
            lines.append(
                {
                    "task": task,
                    "reward": reward.name,
                    "kind": reward.kind,
                    "mean": amounts.mean(),
                    "right": is_full(amounts, reward).mean() if is_verifier else np.nan,
                    "useful": useful.sum(),
                    "groups": len(useful),
                    "failed": failed,
                }
            )
    return pd.DataFrame(lines)


def verdict(figures: pd.DataFrame, groups_a_step: float) -> tuple[bool, str]:
    """Whether enough groups are useful (not all paid alike) to learn from, and a sentence why."""
    tasks = figures[figures["reward"] == ALL]  # the line of all rewards of each task
    useful, groups = tasks["useful"].sum(), tasks["groups"].sum()
    low, high = wilson_interval(useful, groups)
    expected = groups_a_step * useful / groups
    words = (
        f"{expected:.2g} useful groups are expected in an optimizer step of {groups_a_step:g} "
        f"(95 %: {groups_a_step * low:.2g} to {groups_a_step * high:.2g})"
    )
    if expected < USEFUL_A_STEP:
        problem = f"too little to learn from: {words}, at least {USEFUL_A_STEP:g} are needed"
        return False, f"{problem}. {ADVICE}"
    single = figures[figures["kind"].notna()]  # the line of all rewards has no kind
    kinds = single.groupby("task")["kind"].agg(set)
    if unread := [task for task, of_task in kinds.items() if of_task <= {"format", "control"}]:
        problem = f"no reward of {', '.join(unread)} that counts reads the answer"
        return False, f"only the form of an answer can be learnt: {problem}. Add one that does."
    sampled = tasks[tasks["groups"] >= ENOUGH_GROUPS]["task"]
    answers = single[single["task"].isin(sampled) & single["kind"].isin(["verifier", "step"])]
    most_useful = answers.groupby("task")["useful"].max()  # of the task's correctness rewards
    alike = most_useful.index[most_useful == 0]
    if len(alike):
        fewest = answers[answers["task"].isin(alike)]["groups"].min()
        problem = (
            f"no correctness reward told completions of {', '.join(alike)} apart in {fewest} "
            f"groups (up to {wilson_interval(0, fewest)[1]:.0%} may be useful)"
        )
        return False, f"only the form of an answer can be learnt: {problem}. {ADVICE}"
    return True, f"enough to learn from: {words}"


def report(figures: pd.DataFrame, pushed: dict[str, dict[str, float]]) -> str:
    """Format the figures as a table, with an explanation of its columns.

    `pushed` maps metric -> reward -> push: how far training on this reward alone would raise the
    metric (below 0: lower it). The table calls it pull.
    """

    def shown(values: pd.Series, form: str) -> list[str]:
        """Each value in this format; nothing for NaN."""
        return ["" if pd.isna(value) else form.format(value) for value in values]

    table = pd.DataFrame(
        {
            "task": figures["task"].where(figures["reward"] == ALL, ""),
            "paid by": figures["reward"],
            "mean": shown(figures["mean"], "{:.2f}"),
            "right": shown(figures["right"], "{:.0%}"),
            "useful groups": map("{} of {}".format, figures["useful"], figures["groups"]),
            "cut off": shown(figures["cut_off"], "{:.0%}"),
            "median tokens": shown(figures["median_tokens"], "{:g}"),
            "failed": shown(figures["failed"], "{:.0%}"),
        }
    )
    for metric in independent_metrics(pushed):
        pulls = figures["reward"].map(pushed[metric])
        table[f"pull on {in_words(metric)}"] = shown(pulls, "{:+.2f}")
    return f"{format_table(table.to_dict('records'))}\n{LEGEND}"


def compute_pushes(
    metric: Metric,
    rows: list[dict],
    samples: list[dict],
    moving: list[bool],
    scored: pd.DataFrame,
    rewards: list[Reward],
    scale_rewards: str,
) -> dict[str, dict[str, float]]:
    """Compute how far training on one reward alone would raise (+) or lower (-) each metric.

    The result maps metric -> reward -> push: the covariance of GRPO's advantage by this reward and
    the metric within a group, averaged over the groups. `moving` is False for a sample that the run
    would mask; `scale_rewards` is TRL's.
    """
    group_size = len(samples) // len(rows)
    outcomes = []
    for line in samples:
        text = completion_text(line["completion"])
        outcome, _ = measure_or_fail(metric, rows[line["row"]], text)
        outcomes.append(outcome)
    pushed: dict[str, dict[str, float]] = {}
    for reward in rewards:
        amounts = scored[reward.name].replace({np.nan: None}).tolist()
        advantages = advantages_of(amounts, group_size, scale_rewards)
        advantages = [one * moves for one, moves in zip(advantages, moving, strict=True)]
        for name, value in pushes(outcomes, advantages, group_size).items():
            pushed.setdefault(name, {})[reward.name] = round(value, 3)
    return pushed


def keep_rows(scored: pd.DataFrame, rows: list[dict], keep: tuple[float, float], file: Path) -> str:
    """Write the rows whose share of right completions lies in `keep`, such as (0.1, 0.9).

    The file is for `--only_rows`; returned is what to print. A row that no correctness reward
    scored is kept.
    """
    rates = scored.groupby("row")["right"].mean()
    solved = rates.index[rates.isna() | rates.between(*keep)]
    if not len(solved):
        raise ValueError(f"no row was solved in {keep[0]:g} to {keep[1]:g} of its completions.")
    write_rows(file, [rows[number] for number in solved])
    return f"{len(solved)} of {len(rows)} rows are kept: --only_rows {file}"
