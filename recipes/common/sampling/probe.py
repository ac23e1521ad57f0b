"""The probe: what the rewards of a recipe would teach its untrained model.

The trainer completes and scores some prompts as in training, and takes no step. GRPO learns from
what differs within a group, so a group is useful where its completions differ in total reward by
more than rounding (after voids and gates; controls teach nothing), or in the scores of their steps;
with `mask_truncated_completions` one of them must have ended, too.

Not covered: how fast it learns, for how long, and whether what it learns is the task. A guess that
is right by luck counts as a right answer; the share that is right on other prompts shows it.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from recipes.common.checks.batch import check_batch, completions_of_a_call
from recipes.common.checks.rewards_on_rows import check_gates
from recipes.common.data.recipe import Recipe, load_recipe
from recipes.common.data.split import first_rows
from recipes.common.evaluation.metrics import Metric, evaluate_all
from recipes.common.evaluation.scores import independent_metric
from recipes.common.sampling.idle import idle_trainer, sample
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOTrainer
from recipes.common.training.advantages import advantages_of, has_spread, is_hit
from recipes.common.training.completion import decoding_of
from recipes.common.training.guard import FAILURES
from recipes.common.training.push import pushes
from recipes.common.utils.machine import versions
from recipes.common.utils.run_files import (
    PROBE_FIGURES,
    read_json,
    read_rows,
    write_json,
    write_rows,
)
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import format_table, percent
from rewards import full_reward, reward_kind, reward_name
from rewards.contract import is_model, prepare_reward, reward_of, scores_task
from rewards.rows import unusable_rows
from rewards.steps import total

ROWS, COMPLETIONS, SAMPLING, KEPT = "rows.jsonl", "completions.jsonl", "sampling.json", "kept.jsonl"
USEFUL_A_STEP = 0.5  # below, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 4  # with fewer a task is not found to be without a useful one


def probe(
    config: Path,
    overrides: list[str],
    prompts: int,
    completions: int | None,
    num_processes: int,
    output: Path | None,
    replay: Path | None,
    keep: tuple[float, float] | None,
) -> bool:
    """Sample or read samples, score them, print and keep the figures; whether there is enough.

    The options are those of scripts/probe.py; ValueError with every problem, one a line.
    """
    recipe = load_recipe(config, overrides, rows=replay is None)
    training = recipe.args.training
    rows = read_rows(replay / ROWS) if replay else first_rows(recipe.train_rows)
    check(recipe, rows, num_processes, is_part=replay is not None)
    at_once = completions_of_a_call(training, num_processes)
    trainer = idle_trainer(recipe, weights=replay is None)
    if replay:
        samples = read_samples(replay, recipe.args)
    else:
        group = completions or training["num_generations"]
        rows = random.Random(training["seed"]).sample(rows, min(prompts, len(rows)))
        samples = draw(trainer, rows, group, at_once)
    if output:  # before anything is scored: a reward that fails costs no sampling
        write_rows(output / ROWS, rows)
        write_rows(output / COMPLETIONS, samples)
        write_json(output / SAMPLING, sampling_settings(recipe.args))
    scored = score(trainer, rows, samples, at_once)
    step = training["per_device_train_batch_size"] * training["gradient_accumulation_steps"]
    groups_a_step = step * num_processes / training["num_generations"]
    figures = figures_of(scored, recipe.rewards)
    is_enough, sentence = verdict(scored, figures, groups_a_step)
    pushed = pushes_of_rewards(recipe.module.metric, rows, samples, scored, recipe.rewards)
    right = right_on_prompts(recipe.module.metric, rows, samples)
    print(f"Probe of {config}: {len(rows)} prompts, {len(samples)} completions")
    print(report(scored, figures, pushed, right, training["max_completion_length"]))
    print(sentence, flush=True)
    if keep:
        print(keep_rows(scored, rows, keep, output / KEPT))
    if output:
        lines = figures.replace({np.nan: None}).to_dict("records")
        kept = {"enough": is_enough, "verdict": sentence, "groups_a_step": groups_a_step}
        kept |= {"rewards": lines, "push": pushed, "right": right, "config": str(config)}
        write_json(output / PROBE_FIGURES, {**kept, **versions()})
    return is_enough


def check(recipe: Recipe, rows: list[dict], processes: int, is_part: bool) -> None:
    """Check batch, rows and rewards, and prepare these; ValueError with every problem."""
    rewards, training = recipe.rewards, recipe.args.training
    tasks = {row.get("task") for row in rows}
    # Of a part of the rows, those that are replayed, none may be of a reward's task.
    active = [r for r in rewards if not is_part or any(scores_task(r, task) for task in tasks)]
    problems, weights = check_batch(training, processes, None), training["reward_weights"]
    if weights and len(weights) != len(rewards):
        problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards.")
    if training["environment_factory"]:
        problems.append(
            "the probe scores completions that were drawn before, and an environment lives as long "
            "as its rollout: leave out environment_factory."
        )
    if not problems:
        refused = "is a reward model, which the probe does not load: leave it out of reward_funcs."
        problems = [f"{reward_name(r)} {refused}" for r in active if is_model(r)]
        gates = training["reward_gates"] or {}
        problems += unusable_rows(rows, list(map(reward_of, active))) + check_gates(
            gates, rows, rewards
        )
    if problems:
        raise ValueError("\n".join(problems))
    at_once = completions_of_a_call(training, processes)
    for reward in active:
        prepare_reward(reward, at_once, training["reward_timeout_s"])


# --- Samples: one mapping a completion; those of a row follow one another


def draw(trainer: GRPOTrainer, rows: list[dict], group: int, at_once: int) -> list[dict]:
    """Complete each row `group` times, in batches of whole groups."""
    drawn = sample(trainer, rows, group, batch_size=group * max(1, at_once // group))
    samples = []
    for number, of_row in enumerate(drawn):
        for one in of_row:
            line = {"row": number, "text": one.text, "token_ids": one.token_ids}
            line |= {"tokens": one.tokens, "truncated": one.truncated}
            samples.append({**line, "messages": one.completion} if one.turns else line)
    return samples


def sampling_settings(args: Arguments) -> dict[str, Any]:
    """The settings that completions depend on, as plain data."""
    of_model = ("model_name_or_path", "model_revision", "dtype")
    of_training = ("max_completion_length", "chat_template_kwargs", "seed")
    settings = {name: args.model[name] for name in of_model}
    settings |= {name: args.training[name] for name in of_training}
    return json.loads(json.dumps({**settings, "decoding": decoding_of(args.training)}, default=str))


def read_samples(folder: Path, args: Arguments) -> list[dict]:
    """Read what an earlier probe sampled; ValueError where its settings were others."""
    before, now = read_json(folder / SAMPLING), sampling_settings(args)
    other = [
        f"{name} {before[name]!r}, not {now[name]!r}" for name in now if before[name] != now[name]
    ]
    if other:
        raise ValueError(f"{folder} was sampled with {'; '.join(other)}: sample anew.")
    return read_rows(folder / COMPLETIONS)


# --- Scores: one line a completion


def score(
    trainer: GRPOTrainer, rows: list[dict], samples: list[dict], at_once: int
) -> pd.DataFrame:
    """Score every completion by the trainer, in calls of whole groups.

    The columns are row, task, tokens, truncated, one for each reward (NaN where it does not count),
    total, right (NaN where no verifier could tell), useful (its group), and failed.
    """
    group = len(samples) // len(rows)
    size = group * max(1, at_once // group)
    trainer.num_generations_eval = group
    for i, reward in enumerate(trainer.reward_funcs):
        if reward_kind(reward) == "control":
            trainer.reward_weights[i] = 0.0
    batches = [samples[start : start + size] for start in range(0, len(samples), size)]
    parts = [_score_batch(trainer, rows, batch) for batch in tqdm(batches, desc="scoring")]
    scored = pd.concat(parts, ignore_index=True)
    in_group = scored.groupby("row")
    scored["useful"] |= in_group["steps_differ"].transform("any")
    if trainer.args.mask_truncated_completions:
        scored["useful"] &= ~in_group["truncated"].transform("all")
    return scored.drop(columns="steps_differ")


def _score_batch(trainer: GRPOTrainer, rows: list[dict], batch: list[dict]) -> pd.DataFrame:
    of_row = [rows[one["row"]] for one in batch]
    completions = [_completion(row, one) for row, one in zip(of_row, batch, strict=True)]
    prompts, ids = [row["prompt"] for row in of_row], [one["token_ids"] for one in batch]
    scores = trainer.score(of_row, prompts, completions, ids)
    amounts = pd.DataFrame(scores.rewards_CR.tolist(), columns=trainer.reward_func_names)
    weights = trainer.reward_weights.tolist()
    verifiers = [r for r in trainer.reward_funcs if reward_kind(r) == "verifier"]
    hits = pd.DataFrame({reward_name(r): hits_of(amounts[reward_name(r)], r) for r in verifiers})
    frame = pd.DataFrame(batch)[["row", "tokens", "truncated"]]
    frame["task"] = [row["task"] for row in of_row]
    frame["failed"] = [
        [name for name, graded in scores.graded.items() if graded.outcomes[i] in FAILURES]
        for i in range(len(batch))
    ]
    frame[amounts.columns] = amounts
    frame["total"] = (amounts * weights).sum(axis="columns", min_count=1)
    frame["right"] = hits.min(axis="columns") if verifiers else np.nan
    frame["useful"] = scores.teaches_C.tolist()
    for name in scores.step_rewards:
        frame[name] = [
            np.nan if failed else total(steps)
            for steps, failed in zip(scores.graded[name].amounts, frame["failed"], strict=True)
        ]
    # Steps that do not differ within their group are normalised to 0.
    steps = scores.steps or [[]] * len(batch)
    frame["steps_differ"] = [any(amount for _, amount in of_one) for of_one in steps]
    return frame


def _completion(row: dict, one: dict) -> str | list[dict]:
    """A completion as TRL hands it to a reward."""
    if "messages" in one or isinstance(row["prompt"], str):
        return one.get("messages", one["text"])
    return [{"role": "assistant", "content": one["text"]}]


def hits_of(amounts: pd.Series, reward: Any) -> pd.Series:
    """1.0 where a reward scored in full, 0.0 where less, NaN where it did not score."""
    full = full_reward(reward)
    return amounts.map(lambda amount: float(is_hit(amount, full)), na_action="ignore")


# --- What they say


def figures_of(scored: pd.DataFrame, rewards: list) -> pd.DataFrame:
    """A line for each task and reward that scored it.

    `spread` is the mean standard deviation within a group (with n - 1, as TRL's); `without` is the
    share of groups whose completions all score alike.
    """
    lines = []
    for task, of_task in scored.groupby("task"):
        for reward in rewards:
            name = reward_name(reward)
            known = of_task[of_task[name].notna()]
            groups = known.groupby("row")[name]
            differ = groups.agg(has_spread).astype(bool)
            failed = of_task["failed"].map(lambda names, name=name: name in names).mean()
            if known.empty and not failed:  # not of its task
                continue
            lines.append(
                {
                    "task": task,
                    "reward": name,
                    "kind": reward_kind(reward),
                    "mean": known[name].mean(),
                    "most": known[name].max(),
                    "hits": hits_of(known[name], reward).mean(),
                    "spread": groups.std().where(differ, 0.0).mean(),
                    "without": 1.0 - differ.mean(),
                    "failed": failed,
                }
            )
    return pd.DataFrame(lines)


def verdict(scored: pd.DataFrame, figures: pd.DataFrame, groups_a_step: float) -> tuple[bool, str]:
    """Tell whether there is enough to learn from, and why, in one sentence."""
    groups = scored.drop_duplicates("row")
    by_task = groups.groupby("task")["useful"].agg(["size", "sum"])
    seen = by_task[by_task["size"] >= ENOUGH_GROUPS]
    barren = seen.index[seen["sum"] == 0]
    if len(barren):
        why = "; ".join(_why_alike(scored, figures, task) for task in barren)
        return False, f"nothing to learn from: no group of {', '.join(barren)} is useful ({why})"
    low, high = (
        groups_a_step * end for end in wilson_interval(groups["useful"].sum(), len(groups))
    )
    expected = f"{groups_a_step * groups['useful'].mean():.2g} useful groups are expected in an "
    expected += f"optimizer step of {groups_a_step:g} (95 %: {low:.2g} to {high:.2g})"
    if groups_a_step * groups["useful"].mean() < USEFUL_A_STEP:
        return False, f"too little to learn from: {expected}, at least {USEFUL_A_STEP:g} are needed"
    of_answers = figures[
        figures["kind"].isin(["verifier", "step"]) & figures["task"].isin(seen.index)
    ]
    alike = of_answers.groupby("task")["without"].min() == 1.0
    if alike.any():
        tasks = ", ".join(alike.index[alike])
        return False, f"only the form of an answer: no verifier tells completions of {tasks} apart"
    return True, f"enough to learn from: {expected}"


def _why_alike(scored: pd.DataFrame, figures: pd.DataFrame, task: str) -> str:
    """What was seen that makes completions score alike, each with its remedy."""
    of_task, lines = scored[scored["task"] == task], figures[figures["task"] == task]
    cut_off, causes = of_task["truncated"].mean(), []
    if (lines["failed"] > 0.5).any():
        causes.append("most completions could not be graded: correct the rows or the reward")
    if cut_off > 0.5:
        causes.append(f"{percent(cut_off)} were cut off: raise max_completion_length")
    dead = lines[(lines["most"] <= 0.0) & (lines["kind"] != "control")]["reward"]
    if len(dead):
        easier = "show a worked example, take easier rows"
        causes.append(f"{', '.join(dead)} never gave more than 0: {easier}")
    alike = "its completions score alike: raise num_generations, or take rows of other difficulty"
    return "; ".join(causes or [alike])


def report(
    scored: pd.DataFrame,
    figures: pd.DataFrame,
    pushed: dict[str, dict[str, float]],
    right: dict[str, list[float]],
    limit: int,
) -> str:
    """The table of tasks and rewards, and what was cut off, right and pushed."""
    shown = figures.drop(columns="most").rename(columns={"without": "groups without"})
    for column in ("hits", "groups without", "failed"):
        shown[column] = shown[column].map(percent)
    for column in ("mean", "spread"):
        shown[column] = shown[column].map("{:.3f}".format)
    lines = [format_table(shown.to_dict("records"))]
    for task, of_task in scored.groupby("task"):
        groups = of_task.drop_duplicates("row")["useful"]
        ended = of_task[~of_task["truncated"]]["tokens"]
        own, others = right[task]
        lines.append(
            f"  {task}: {groups.sum()} of {len(groups)} groups useful; "
            f"{percent(of_task['truncated'].mean())} cut off at {limit} tokens, the median of the "
            f"others {ended.median():g}; {percent(own)} right on their own prompts, "
            f"{percent(others)} on others"
        )
    for metric, by_reward in pushed.items():
        each = ", ".join(f"{name} {value:+.2f}" for name, value in by_reward.items())
        lines.append(f"  Push on {metric} by each reward alone: {each}")
    return "\n".join(lines)


def right_on_prompts(
    metric: Metric, rows: list[dict], samples: list[dict]
) -> dict[str, list[float | None]]:
    """By task, the share of right completions on their own prompts, and on the next of the task."""
    shares = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        numbers = [i for i, row in enumerate(rows) if row["task"] == task]
        following = dict(zip(numbers, numbers[1:] + numbers[:1], strict=True))
        of_task = [one for one in samples if one["row"] in following]
        texts = [one["text"] for one in of_task]
        own = evaluate_all(metric, [rows[one["row"]] for one in of_task], texts)
        other = evaluate_all(metric, [rows[following[one["row"]]] for one in of_task], texts)
        name = independent_metric(dict.fromkeys(name for outcome in own for name in outcome))
        known = [[of[name] for of in outcomes if name in of] for outcomes in (own, other)]
        shares[task] = [float(np.mean(outcomes)) if outcomes else None for outcomes in known]
    return shares


def pushes_of_rewards(
    metric: Metric, rows: list[dict], samples: list[dict], scored: pd.DataFrame, rewards: list
) -> dict[str, dict[str, float]]:
    """Which way each reward, were it alone, pushes each metric: metric -> reward -> push."""
    group = len(samples) // len(rows)
    outcomes = [metric(rows[one["row"]], one["text"]) for one in samples]
    pushed: dict[str, dict[str, float]] = {}
    for name in map(reward_name, rewards):
        amounts = scored[name].astype(object).where(scored[name].notna(), None).tolist()
        for of, value in pushes(outcomes, advantages_of(amounts, group), group).items():
            pushed.setdefault(of, {})[name] = round(value, 3)
    return pushed


def keep_rows(scored: pd.DataFrame, rows: list[dict], keep: tuple[float, float], file: Path) -> str:
    """Write the rows solved in a share of their completions between two bounds, for `only_rows`.

    A row without a verifier has no such share, and is kept.
    """
    rates = scored.groupby("row")["right"].mean()
    kept = rates.index[rates.isna() | rates.between(*keep)]
    if not len(kept):
        raise ValueError(f"no row was solved in {keep[0]:g} to {keep[1]:g} of its completions.")
    write_rows(file, [rows[number] for number in kept])
    return f"{len(kept)} of {len(rows)} rows are kept: --only_rows {file}"
