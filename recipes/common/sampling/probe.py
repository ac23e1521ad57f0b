"""The probe of a recipe: the trainer completes and scores some prompts as in training, and takes no
step.
"""

import json
import random
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from recipes.common.checks.batch import check_batch, completions_of_a_call
from recipes.common.checks.rewards_on_rows import check_gates
from recipes.common.data.recipe import Recipe, load_recipe
from recipes.common.data.split import first_rows
from recipes.common.evaluation.metrics import Metric, evaluate_all
from recipes.common.evaluation.scores import independent_metric
from recipes.common.sampling.idle import idle_trainer, sample
from recipes.common.sampling.learning import Figures, Scored, figures, notes, table, verdict
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOTrainer, Scores
from recipes.common.training.completion import Rollout, decoding_of
from recipes.common.training.gates import advantages_of, is_right
from recipes.common.training.guard import FAILURES, NOT_APPLICABLE
from recipes.common.training.push import pushes
from recipes.common.utils.machine import versions
from recipes.common.utils.run_files import PROBE_FIGURES as FIGURES
from recipes.common.utils.run_files import read_json, read_rows, write_json, write_rows
from rewards import full_reward, reward_kind, reward_name
from rewards.audit.audit import unusable_rows
from rewards.contract import is_model, prepare_reward, scores_task
from rewards.steps import total

ROWS, COMPLETIONS, SAMPLING = "rows.jsonl", "completions.jsonl", "sampling.json"
OTHERS = 19  # prompts that each completion is handed to: a chance of one in twenty
OTHER_TESTS = 3  # the same of programs, each of which has to be run


@dataclass
class Samples:
    """Rows, their completions (`row` is the number of theirs), and how these were drawn."""

    rows: list[dict]
    completions: list[dict[str, Any]]
    settings: dict[str, Any]


def probe(options: Namespace, overrides: list[str]) -> bool:
    """Sample or read samples, print and keep the figures, return whether it will learn.

    `options` are those of scripts/probe.py, `overrides` win over the YAML; ValueError with every
    problem, one a line.
    """
    recipe = load_recipe(options.config, overrides, rows=options.replay is None)
    training, output = recipe.args.training, options.output
    at_once = completions_of_a_call(training, options.num_processes)
    if options.replay:
        samples = read_samples(options.replay, recipe.args)
        check(recipe, samples.rows, options.num_processes, is_part=True)
        trainer = idle_trainer(recipe, weights=False)
    else:
        rows = first_rows(recipe.train_rows)
        check(recipe, rows, options.num_processes, is_part=False)
        trainer = idle_trainer(recipe)
        group = options.completions or training["num_generations"]
        samples = draw(trainer, recipe.args, rows, options.prompts, group, at_once)
    if output:  # before anything is scored: a reward that fails costs no sampling
        write_rows(output / ROWS, samples.rows)
        write_rows(output / COMPLETIONS, samples.completions)
        write_json(output / SAMPLING, samples.settings)
    scored = score(trainer, samples, at_once)
    masked, limit = training["mask_truncated_completions"], training["max_completion_length"]
    step = training["per_device_train_batch_size"] * training["gradient_accumulation_steps"]
    groups_a_step = step * options.num_processes / training["num_generations"]
    elsewhere = right_elsewhere(recipe.module.metric, samples)
    found = figures(scored, recipe.rewards, groups_a_step, limit, masked, elsewhere)
    learns, sentence = verdict(found)
    pushed = pushes_of_rewards(recipe.module.metric, samples, scored)
    shown = report(samples, found, training["num_generations"], pushed)
    print(f"Probe of {options.config}: {shown}\n{sentence}", flush=True)
    if output:
        pairs = zip(samples.completions, scored, strict=True)
        write_rows(output / COMPLETIONS, [{**line, **asdict(one)} for line, one in pairs])
        record = {
            "will_learn": learns,
            "verdict": sentence,
            **asdict(found),
            "config": str(options.config),
            "push": pushed,
            "sampling": samples.settings,
            **versions(),
        }
        write_json(output / FIGURES, record)
        print(f"Kept in {output}; --replay {output} scores it again.")
    return learns


def check(recipe: Recipe, rows: list[dict], processes: int, is_part: bool) -> None:
    """Check batch, rows and rewards, and prepare these; ValueError with every problem."""
    rewards, training = recipe.rewards, recipe.args.training
    there = {row.get("task") for row in rows}
    # Of a part of the rows, those that are replayed, none may be of a reward's task.
    active = [r for r in rewards if not is_part or any(scores_task(r, task) for task in there)]
    problems, weights = check_batch(training, processes, None), training["reward_weights"]
    if weights and len(weights) != len(rewards):
        problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards.")
    if not problems:
        refused = "is a reward model, which the probe does not load: leave it out of reward_funcs."
        problems = [f"{reward_name(r)} {refused}" for r in active if is_model(r)]
        gates = training["reward_gates"] or {}
        problems += unusable_rows(rows, active) + check_gates(gates, rows, rewards)
    if problems:
        raise ValueError("\n".join(problems))
    for reward in active:
        at_once = completions_of_a_call(training, processes)
        prepare_reward(reward, at_once, training["reward_timeout_s"])


def draw(
    trainer: GRPOTrainer, args: Arguments, rows: list[dict], count: int, group: int, at_once: int
) -> Samples:
    """`count` rows, or all, with `group` completions each, in batches of whole groups."""
    drawn = random.Random(args.training["seed"]).sample(rows, min(count, len(rows)))
    rollouts = sample(trainer, drawn, group, batch_size=group * max(1, at_once // group))
    lines = [_line(i, one) for i, of_row in enumerate(rollouts) for one in of_row]
    prompt_ids, *_ = trainer._tokenize_prompts([drawn[0]["prompt"]])
    missed = {row.get("task") for row in rows} - {row.get("task") for row in drawn}
    settings = {
        **sampling_settings(args),
        "missed_tasks": sorted(filter(None, missed)),
        "opens_think": trainer._tokenizer.decode(prompt_ids[0]).rstrip().endswith("<think>"),
    }
    return Samples(drawn, lines, settings)


def _line(row: int, one: Rollout) -> dict[str, Any]:
    line = {"row": row, "text": one.text, "tokens": one.tokens, "truncated": one.truncated}
    messages = {"messages": one.completion} if one.turns else {}
    return {**line, **messages, "token_ids": one.token_ids}


def sampling_settings(args: Arguments) -> dict[str, Any]:
    """The arguments that completions depend on, as plain data; the rows are kept themselves."""
    of_model, of_training = (
        ("model_name_or_path", "model_revision", "dtype"),
        ("max_completion_length", "chat_template_kwargs", "seed"),
    )
    settings = {name: args.model[name] for name in of_model}
    settings |= {name: args.training[name] for name in of_training}
    settings["decoding"] = decoding_of(args.training)
    return json.loads(json.dumps(settings, default=str))


def read_samples(folder: Path, args: Arguments) -> Samples:
    """Read what an earlier probe sampled; ValueError where its settings were others."""
    check_files("--replay", folder, ROWS, COMPLETIONS, SAMPLING)
    settings = read_json(folder / SAMPLING)
    other = [
        f"{name} {settings.get(name)!r}, not {value!r}"
        for name, value in sampling_settings(args).items()
        if settings[name] != value
    ]
    if other:
        raise ValueError(
            f"{folder} was sampled with {'; '.join(other)}: sample anew, without --replay."
        )
    return Samples(read_rows(folder / ROWS), read_rows(folder / COMPLETIONS), settings)


def check_files(option: str, folder: Path, *names: str) -> None:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{option} {folder} has no {', '.join(missing)}: give the output folder of "
            "scripts/probe.py."
        )


def score(trainer: GRPOTrainer, samples: Samples, at_once: int) -> list[Scored]:
    """Every completion scored by the trainer, in calls of whole groups."""
    group = len(samples.completions) // len(samples.rows)
    size, scored = group * max(1, at_once // group), []
    trainer.num_generations_eval = group
    trainer.environments = None  # a tool's calls are played again: they were those of many batches
    for i, reward in enumerate(trainer.reward_funcs):
        if reward_kind(reward) == "control":  # its spread teaches nothing
            trainer.reward_weights[i] = 0.0
    for start in tqdm(range(0, len(samples.completions), size), desc="scoring", unit="call"):
        lines = samples.completions[start : start + size]
        rows = [samples.rows[line["row"]] for line in lines]
        completions = [_completion(*pair) for pair in zip(rows, lines, strict=True)]
        ids = [line["token_ids"] for line in lines]
        scores = trainer.score(rows, [row["prompt"] for row in rows], completions, ids)
        teaches = scores.teaches_C.tolist()
        for first in range(0, len(lines), group):
            # Steps that do not differ within their group are normalised to 0.
            of_steps = [amount for of in scores.steps[first : first + group] for _, amount in of]
            for i in range(first, first + group):
                is_useful = teaches[i] or any(of_steps)
                scored.append(_scored(trainer, rows[i], lines[i], scores, i, is_useful))
    return scored


def _completion(row: dict, line: dict) -> str | list[dict]:
    """A completion as TRL hands it to a reward."""
    if "messages" in line or isinstance(row["prompt"], str):
        return line.get("messages", line["text"])
    return [{"role": "assistant", "content": line["text"]}]


def _scored(
    trainer: GRPOTrainer, row: dict, line: dict, scores: Scores, i: int, teaches: bool
) -> Scored:
    given = {name: graded.amounts[i] for name, graded in scores.graded.items()}
    given |= {name: total(given[name]) for name in scores.step_rewards}
    outcomes = {name: graded.outcomes[i] for name, graded in scores.graded.items()}
    failed = tuple(name for name, outcome in outcomes.items() if outcome in FAILURES)
    kept = zip(trainer.reward_func_names, scores.rewards_CR[i].isnan().tolist(), strict=True)
    lost = {name for name, is_lost in kept if is_lost} | set(scores.step_rewards if failed else ())
    rewards = {
        name: None if name in lost else amount
        for name, amount in given.items()
        if outcomes[name] != NOT_APPLICABLE
    }
    weights = zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)
    parts = [weight * given[name] for name, weight in weights if name not in lost]
    verifiers = [r for r in trainer.reward_funcs if reward_kind(r) == "verifier"]
    full = {reward_name(reward): full_reward(reward) for reward in verifiers}
    return Scored(
        *(line["row"], row["task"], line["tokens"], line["truncated"], rewards),
        total=sum(parts) if parts else None,
        teaches=teaches,
        right=None if failed else is_right(given, full),
        failed=failed,
    )


def right_elsewhere(metric: Metric, samples: Samples) -> dict[str, list[float]]:
    """By task: the share of right completions for their own prompt, then for others of the task.

    Right is what the metric of the verdict on a run says. The completions of each prompt are handed
    to the next prompt of their task, to the one after that, and so on, up to 19 times; programs,
    each of which has to be run, 3 times; what is never right on its own prompt, not at all.
    """
    shares = {}
    for task in dict.fromkeys(row["task"] for row in samples.rows):
        numbers = [i for i, row in enumerate(samples.rows) if row["task"] == task]
        rows = [samples.rows[i] for i in numbers]
        texts = [[of["text"] for of in samples.completions if of["row"] == i] for i in numbers]
        most = min(len(rows) - 1, OTHER_TESTS if "tests" in rows[0] else OTHERS)
        handed = [rows[shift:] + rows[:shift] for shift in range(1, most + 1)]
        shares[task] = _shares_right(metric, [rows], texts)
        if shares[task][0] and handed:
            shares[task] += _shares_right(metric, handed, texts)
    return shares


def _shares_right(metric: Metric, given: list[list[dict]], texts: list[list[str]]) -> list[float]:
    """The share of right completions, of `texts` by row, for each way to give them rows."""
    of_rows = [pair for rows in given for pair in zip(rows, texts, strict=True)]
    pairs = [(row, text) for row, of in of_rows for text in of]
    outcomes = evaluate_all(metric, *map(list, zip(*pairs, strict=True)))
    names = dict.fromkeys(name for outcome in outcomes for name in outcome)
    name = independent_metric(names) if names else ""
    size = len(outcomes) // len(given)
    parts = [outcomes[start : start + size] for start in range(0, len(outcomes), size)]
    right = [[outcome[name] for outcome in part if name in outcome] for part in parts]
    return [fmean(part) if part else 0.0 for part in right]


def pushes_of_rewards(
    metric: Metric, samples: Samples, scored: list[Scored]
) -> dict[str, dict[str, float]]:
    """Which way each reward, were it alone, pushes each metric: metric -> reward -> push."""
    group = len(samples.completions) // len(samples.rows)
    outcomes = [metric(samples.rows[line["row"]], line["text"]) for line in samples.completions]
    pushed: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for one in scored for name in one.rewards):
        advantages = advantages_of([one.rewards.get(name) for one in scored], group)
        for of, value in pushes(outcomes, advantages, group).items():
            pushed.setdefault(of, {})[name] = round(value, 3)
    return pushed


def report(
    samples: Samples, found: Figures, num_generations: int, pushed: dict[str, dict[str, float]]
) -> str:
    """Everything but the verdict as text."""
    settings, (low, high) = samples.settings, found.useful_a_step_interval
    texts, group = notes(found), len(samples.completions) // len(samples.rows)
    for task in settings["missed_tasks"]:
        texts.append(f"task {task}: no prompt of it was drawn: raise --prompts")
    if group != num_generations:
        texts.append(f"groups of {group} were sampled, and num_generations is {num_generations}")
    if settings["opens_think"]:
        texts.append("the prompt ends with <think>: no reward sees that tag")
    sampled = f"{len(samples.rows)} prompts x {group} completions"
    temperature = settings["decoding"]["temperature"]
    interval = f"{low:.2g} to {high:.2g} a step (95 % interval)"
    lines = [
        f"{settings['model_name_or_path']}, {sampled} at {temperature=:g}",
        table(found),
        f"  Useful: {found.useful} of {found.groups} groups; {interval}",
    ]
    for metric, by in pushed.items():
        each = ", ".join(f"{name} {value:+.2f}" for name, value in by.items())
        lines.append(f"  Push on {metric} by each reward alone: {each}")
    return "\n".join([*lines, *(f"  Note: {text}" for text in texts)])
