"""The probe of a recipe: sample the untrained model as training would, keep that, score it, and report."""

import json
import random
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from recipes.common.checks.batch import check_batch, completions_of_a_call
from recipes.common.checks.rewards_on_rows import check_gates
from recipes.common.data.recipe import Recipe, load_recipe
from recipes.common.data.split import first_rows
from recipes.common.sampling.evaluate_model import sample_model
from recipes.common.sampling.generate import decoding_of
from recipes.common.sampling.learning import (
    Figures,
    Scored,
    columns_of,
    disagreement,
    figures,
    notes,
    table,
    verdict,
)
from recipes.common.settings import Arguments
from recipes.common.training.guard import ERROR, UNPARSED, guard
from recipes.common.utils.machine import versions
from recipes.common.utils.power import PROBE_FIGURES
from recipes.common.utils.run_files import read_json, read_rows, write_json, write_rows
from rewards import reward_kind, reward_name
from rewards.audit.audit import unusable_rows
from rewards.audit.call import score
from rewards.contract import is_model, prepare_reward, scores_task
from rewards.steps import total

ROWS, COMPLETIONS, SAMPLING, FIGURES = (
    "rows.jsonl",
    "completions.jsonl",
    "sampling.json",
    PROBE_FIGURES,
)


class Samples(NamedTuple):
    """Rows, their completions (`row` is the number of theirs) in the same order, and how these were drawn."""

    rows: list[dict]
    completions: list[dict[str, Any]]
    settings: dict[str, Any]


def probe(options: Namespace, overrides: list[str]) -> bool:
    """Sample a recipe's model, or read what was sampled, print and keep the figures, and return whether it will learn.

    `options` are those of scripts/probe.py, `overrides` win over the YAML; `ValueError` with every problem, one a line.
    """
    recipe = load_recipe(options.config, overrides, rows=options.replay is None)
    args, processes, output = recipe.args, options.num_processes, options.output
    group, at_once = (
        args.training["num_generations"],
        completions_of_a_call(args.training, processes),
    )
    if options.replay:
        samples = read_samples(options.replay, args)
        check(recipe, samples.rows, processes, is_part=True)
    else:
        rows = first_rows(recipe.train_rows)
        check(recipe, rows, processes, is_part=False)
        drawn = draw(rows, options.prompts, args.training["seed"])
        samples = sample(args, drawn, options.completions or group, at_once)
    if output:  # before anything is scored: a reward that fails costs no sampling
        write_rows(output / ROWS, samples.rows)
        write_rows(output / COMPLETIONS, samples.completions)
        write_json(output / SAMPLING, samples.settings)
    scored = score_all(args, samples, recipe.rewards, at_once)
    columns = columns_of(
        recipe.rewards, args.training["reward_weights"], args.training["reward_gates"]
    )
    masked = args.training["mask_truncated_completions"]
    step = (
        args.training["per_device_train_batch_size"]
        * args.training["gradient_accumulation_steps"]
        * processes
    )
    found = figures(
        scored, columns, step / group, samples.settings["max_completion_length"], masked
    )
    learns, sentence = verdict(found)
    print(f"Probe of {options.config}: {report(samples, found, group)}\n{sentence}", flush=True)
    if output:
        pairs = zip(samples.completions, scored, strict=True)
        kept = [
            {**line, "rewards": s.scores, "failed": s.failed, "steps": s.steps} for line, s in pairs
        ]
        write_rows(output / COMPLETIONS, kept)
        record = {
            "will_learn": learns,
            "verdict": sentence,
            **asdict(found),
            "mask_truncated_completions": masked,
        }
        record |= {"num_generations": group, "columns": [column._asdict() for column in columns]}
        record |= {
            "config": str(options.config),
            "changed": disagreement(scored, columns),
        }  # preflight reads it
        write_json(output / FIGURES, {**record, "sampling": samples.settings, **versions()})
        print(f"Kept in {output}; --replay {output} scores it again.")
    return learns


def draw(rows: list[dict], count: int, seed: int) -> Samples:
    """`count` rows, or all where there are fewer, still without completions; the tasks that were missed are kept."""
    drawn = random.Random(seed).sample(rows, min(count, len(rows)))
    missed = {row.get("task") for row in rows} - {row.get("task") for row in drawn}
    return Samples(drawn, [], {"missed_tasks": sorted(filter(None, missed))})


def check(recipe: Recipe, rows: list[dict], processes: int, is_part: bool) -> None:
    """Check batch, rows and rewards, and prepare the rewards; ValueError with every problem, one a line."""
    rewards, training, there = (
        recipe.rewards,
        recipe.args.training,
        {row.get("task") for row in rows},
    )
    # Of a part of the rows, those that are replayed, none may be of a reward's task.
    active = [r for r in rewards if not is_part or any(scores_task(r, task) for task in there)]
    problems, weights = check_batch(training, processes, None), training["reward_weights"]
    if weights and len(weights) != len(rewards):
        problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards.")
    if not problems:
        refused = "is a reward model, which the probe does not load: leave it out of reward_funcs."
        problems = [f"{reward_name(r)} {refused}" for r in active if is_model(r)]
        problems += unusable_rows(rows, active) + check_gates(
            training["reward_gates"] or {}, rows, rewards
        )
    if problems:
        raise ValueError("\n".join(problems))
    for reward in active:
        prepare_reward(
            reward, completions_of_a_call(training, processes), training["reward_timeout_s"]
        )


def sampling_settings(args: Arguments) -> dict[str, Any]:
    """The arguments that the completions depend on, as plain data; the rows are kept as they were."""
    settings = {
        **{name: args.model[name] for name in ("model_name_or_path", "model_revision", "dtype")},
        **{
            name: args.training[name]
            for name in ("max_completion_length", "chat_template_kwargs", "seed")
        },
        "decoding": decoding_of(args.training),
    }
    return json.loads(json.dumps(settings, default=str))


def sample(args: Arguments, samples: Samples, group: int, at_once: int) -> Samples:
    """`samples` with `group` completions of each row at the training's decoding, `at_once` in a batch: whole groups."""
    whole_groups = group * max(1, at_once // group)
    drawn, prompt = sample_model(
        args.model["model_name_or_path"], samples.rows, group, whole_groups, args
    )
    completions = [
        {
            "row": i,
            "text": c.text,
            "tokens": len(c.token_ids),
            "truncated": c.truncated,
            "token_ids": c.token_ids,
        }
        for i, of_row in enumerate(drawn)
        for c in of_row
    ]
    settings = {
        **sampling_settings(args),
        **samples.settings,
        "opens_think": prompt.rstrip().endswith("<think>"),
    }
    return Samples(samples.rows, completions, settings)


def read_samples(folder: Path, args: Arguments) -> Samples:
    """Read what an earlier probe sampled; `ValueError` where that had other settings than are now asked for."""
    missing = [name for name in (ROWS, COMPLETIONS, SAMPLING) if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"--replay {folder} has no {', '.join(missing)}: give the output folder of an earlier probe."
        )
    settings = read_json(folder / SAMPLING)
    asked = sampling_settings(args).items()
    other = [
        f"{name} {settings.get(name)!r}, not {value!r}"
        for name, value in asked
        if settings[name] != value
    ]
    if other:
        raise ValueError(
            f"{folder} was sampled with {'; '.join(other)}: sample anew, without --replay."
        )
    return Samples(read_rows(folder / ROWS), read_rows(folder / COMPLETIONS), settings)


def score_all(
    args: Arguments, samples: Samples, rewards: list[Callable], at_once: int
) -> list[Scored]:
    """Every completion scored by every reward, `at_once` of them in a call."""
    guarded = {
        reward_name(reward): guard(reward, args.training["reward_timeout_s"]) for reward in rewards
    }
    scored = []
    for start in tqdm(range(0, len(samples.completions), at_once), desc="scoring", unit="call"):
        batch = samples.completions[start : start + at_once]
        rows = [samples.rows[line["row"]] for line in batch]
        texts, ids = ([line[key] for line in batch] for key in ("text", "token_ids"))
        scores = {name: score(reward, rows, texts, ids) for name, reward in guarded.items()}
        steps = {
            name: scores[name] for name, reward in guarded.items() if reward_kind(reward) == "step"
        }
        scores |= {name: list(map(total, of_batch)) for name, of_batch in steps.items()}
        for i, (line, row) in enumerate(zip(batch, rows, strict=True)):
            failed = tuple(
                name for name, reward in guarded.items() if reward.outcomes[i] in (ERROR, UNPARSED)
            )
            own_steps = {
                name: [amount for _, amount in of_batch[i] or []]
                for name, of_batch in steps.items()
            }
            own = {name: amounts[i] for name, amounts in scores.items()}
            scored.append(
                Scored(
                    line["row"],
                    row["task"],
                    line["tokens"],
                    line["truncated"],
                    own,
                    failed,
                    own_steps,
                )
            )
    return scored


def report(samples: Samples, found: Figures, num_generations: int) -> str:
    """Everything but the verdict as text."""
    settings, (low, high) = samples.settings, found.useful_a_step_interval
    texts, group = notes(found), len(samples.completions) // len(samples.rows)
    texts += [
        f"task {task}: no prompt of it was drawn: raise --prompts"
        for task in settings["missed_tasks"]
    ]
    if group != num_generations:
        texts.append(f"groups of {group} were sampled, and num_generations is {num_generations}")
    if settings["opens_think"]:
        texts.append("the prompt ends with <think>: no reward sees that tag")
    temperature = settings["decoding"]["temperature"]
    lines = [
        f"{settings['model_name_or_path']}, {len(samples.rows)} prompts x {group} completions at {temperature=:g}",
        table(found),
        f"  Useful: {found.useful} of {found.groups} groups; {low:.2g} to {high:.2g} a step (95 % interval)",
    ]
    return "\n".join([*lines, *(f"  Note: {text}" for text in texts)])
