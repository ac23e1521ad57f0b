"""Will a run learn? Sample the untrained model as training would, score it, and say so in words. Minutes, not hours.

    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml
    python scripts/probe.py --config recipes/gsm8k/smollm2-135m.yaml --prompts 16 --max_completion_length 64
    python scripts/probe.py --config recipes/gsm8k/smollm2-135m.yaml --replay runs/probe-smollm2-135m \\
        --reward_funcs my_reward.py:graded

N training prompts, drawn by `seed`, x G completions by the recipe's model, chat template and decoding. Any argument
of the recipe can be overridden. Prints mean, hit rate (the full reward, or more than 0 where a reward declares none)
and spread of each reward by task, what was cut off, and how many groups of an optimizer step will teach something;
the rule of the verdict stands in recipes/common/forecast/learning.py. --replay scores what an earlier probe sampled,
with the rewards, weights and gates now asked for: no model and no data set is loaded.

The output folder holds rows.jsonl, completions.jsonl, sampling.json and figures.json. Exit status: 0 when it will
learn, 1 when it will not, 2 when that cannot be judged. A reward that hangs ends the process as it ends a run.

*Not covered*: vLLM (transformers generates), quantized loading, rows beyond the first 1 000 of a stream.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from recipes.common.before.arguments import Arguments
    from recipes.common.forecast.learning import Scored

ROWS, COMPLETIONS, SAMPLING, FIGURES = "rows.jsonl", "completions.jsonl", "sampling.json", "figures.json"
PROMPTS = 32


class Samples(NamedTuple):
    """Rows, their completions (`row` is the number of theirs) in the same order, and how these were drawn."""

    rows: list[dict]
    completions: list[dict[str, Any]]
    settings: dict[str, Any]


def probe(options: argparse.Namespace, overrides: list[str]) -> int:
    """Read everything, sample or replay, print figures and verdict, and return the exit status."""
    from recipes.common.before.batch import completions_of_a_call

    args, rewards, samples = read(options, overrides)
    if args.problems:
        print("error: " + "\n".join(args.problems), file=sys.stderr)
        return 2
    at_once = completions_of_a_call(args.training, options.num_processes)
    if not options.replay:
        samples = sample(args, samples, options.completions or args.training["num_generations"], at_once)
    write_samples(options.output, samples)
    return judge(options, args, samples, score_all(args, samples, rewards, at_once), rewards)


def read(options: argparse.Namespace, overrides: list[str]) -> tuple[Arguments, list[Callable], Samples]:
    """Arguments, rewards (step rewards last), and what is replayed, or rows that are still without completions."""
    from recipes.common.before.step_checks import check_step_rewards

    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.preflight import first_rows
    from recipes.common.before.recipe import import_recipe
    from rewards import load_rewards, load_step_rewards
    from rewards.contract import scores_task

    recipe = import_recipe(options.config)
    args = parse_arguments(recipe.RecipeArguments, ["--config", str(options.config), *overrides])
    named = args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks
    rewards = args.attempt(load_rewards, *named) or []
    step_named = args.recipe.step_reward_funcs, args.recipe.step_reward_kwargs, args.recipe.step_reward_tasks
    step_rewards = args.attempt(load_step_rewards, *step_named)
    every = [*rewards, *(step_rewards or [])]
    if options.replay:
        samples = args.attempt(read_samples, options.replay, args) or Samples([], [], {})
        rows = samples.rows
    else:
        train_rows, _ = args.attempt(recipe.load_rows, args.recipe, args.training["seed"]) or (None, None)
        rows = first_rows(train_rows)
        samples = draw(rows, options.prompts, args.training["seed"])
    there = {row.get("task") for row in rows}
    # Of a few rows that are replayed none may be of a reward's task.
    judging = [r for r in every if any(scores_task(r, task) for task in there)] if options.replay else every
    check_step_rewards(args, rewards, step_rewards)
    check(args, rows, rewards, judging, options.num_processes)
    return args, every, samples


def judge(
    options: argparse.Namespace, args: Arguments, samples: Samples, paid: list[Scored], rewards: list[Callable]
) -> int:
    """Figures and verdict of what was scored, printed and kept; returns the exit status."""
    from recipes.common.forecast.learning import columns_of, figures

    columns = columns_of(rewards, weights_of(args, rewards), args.recipe.reward_gates)
    group, masked = args.training["num_generations"], args.training["mask_truncated_completions"]
    groups_a_step = completions_of_a_step(args, options.num_processes) / group
    found = figures(paid, columns, groups_a_step, samples.settings["max_completion_length"], masked)
    judged_by = {"columns": [c._asdict() for c in columns], "mask_truncated_completions": masked}
    return conclude(options, samples, paid, {**found, "num_generations": group, **judged_by})


def weights_of(args: Arguments, rewards: list[Callable]) -> list[float]:
    """The weight of each reward, those of the step rewards last."""
    from rewards import reward_kind

    steps = sum(reward_kind(reward) == "step" for reward in rewards)
    outcomes = args.training["reward_weights"] or [1.0] * (len(rewards) - steps)
    return [*outcomes, *(args.recipe.step_reward_weights or [1.0] * steps)]


def completions_of_a_step(args: Arguments, processes: int) -> int:
    """Completions that one optimizer step learns from."""
    return args.training["per_device_train_batch_size"] * args.training["gradient_accumulation_steps"] * processes


def draw(rows: list[dict], count: int, seed: int) -> Samples:
    """`count` rows, or all where there are fewer, still without completions; what tasks were missed is kept."""
    drawn = random.Random(seed).sample(rows, min(count, len(rows)))
    missed = {row.get("task") for row in rows} - {row.get("task") for row in drawn}
    return Samples(drawn, [], {"missed_tasks": sorted(filter(None, missed))})


def check(args: Arguments, rows: list[dict], rewards: list[Callable], judging: list[Callable], processes: int) -> None:
    """Note what keeps batch, rows and rewards from being judged, and let the rewards get ready."""
    from recipes.common.before.batch import check_batch, completions_of_a_call
    from recipes.common.before.rows import check_gates
    from rewards.audit.audit import unusable_rows
    from rewards.contract import prepare_reward

    weights, gates = args.training["reward_weights"], []
    check_batch(args.training, processes, None, args.problems)
    length = args.training["max_completion_length"]
    if not isinstance(length, int) or length < 1:
        args.problems.append(f"max_completion_length is {length!r}; it must be a whole number of at least 1.")
    if rewards and weights and len(weights) != len(rewards):
        args.problems.append(f"reward_weights has {len(weights)} values for {len(rewards)} rewards.")
    if not args.problems:
        args.problems += unusable_rows(rows, judging)
        check_gates(args.recipe.reward_gates or {}, rows, rewards, gates)
        args.problems += [problem.text for problem in gates]
    for reward in [] if args.problems else judging:
        call = completions_of_a_call(args.training, processes)
        args.attempt(prepare_reward, reward, call, args.recipe.reward_timeout_s)


def sampling_settings(args: Arguments) -> dict[str, Any]:
    """What of the arguments the completions depend on, as plain data; the rows besides are kept as they were."""
    from recipes.common.evaluation.generate import decoding_of

    model, training = args.model, args.training
    settings = {
        **{name: model[name] for name in ("model_name_or_path", "model_revision", "dtype")},
        **{name: training[name] for name in ("max_completion_length", "chat_template_kwargs", "seed")},
        "decoding": decoding_of(training),
    }
    return json.loads(json.dumps(settings, default=str))


def sample(args: Arguments, samples: Samples, group: int, at_once: int) -> Samples:
    """`samples` with `group` completions of each row at the training's decoding, `at_once` in a batch: whole groups."""
    import torch
    from tqdm import tqdm

    from recipes.common.evaluation.generate import decoding_of, generate, prompt_text
    from recipes.common.evaluation.load_model import load_model, precision_of_a_run

    model, tokenizer = load_model(args.model["model_name_or_path"], args)
    template, decoding = args.training["chat_template_kwargs"], {**decoding_of(args.training), "do_sample": True}
    rows, prompts = samples.rows, max(1, at_once // group)
    torch.manual_seed(args.training["seed"])
    completions = []
    for start in tqdm(range(0, len(rows), prompts), desc="sampling", unit="batch"):
        numbers = [i for i in range(start, min(start + prompts, len(rows))) for _ in range(group)]
        with precision_of_a_run(model.device, args):
            drawn = generate(
                model, tokenizer, [rows[i] for i in numbers], args.training["max_completion_length"], template, decoding
            )
        completions += [as_line(i, completion) for i, completion in zip(numbers, drawn, strict=True)]
    opens_think = prompt_text(tokenizer, rows[0]["prompt"], template).rstrip().endswith("<think>")
    return Samples(rows, completions, {**sampling_settings(args), **samples.settings, "opens_think": opens_think})


def as_line(row: int, completion: Any) -> dict[str, Any]:
    """A completion as a line of completions.jsonl."""
    ids = completion.token_ids
    return {
        "row": row,
        "text": completion.text,
        "tokens": len(ids),
        "truncated": completion.truncated,
        "token_ids": ids,
    }


def write_samples(folder: Path | None, samples: Samples) -> None:
    """Before anything is scored: a reward that fails costs no sampling."""
    from recipes.common.tools.folder import write_json, write_rows

    if folder:
        write_rows(folder / ROWS, samples.rows)
        write_rows(folder / COMPLETIONS, samples.completions)
        write_json(folder / SAMPLING, samples.settings)


def read_samples(folder: Path, args: Arguments) -> Samples:
    """What an earlier probe sampled.

    Raises:
        ValueError: no such folder, or it was sampled with other settings than are now asked for.
    """
    from recipes.common.tools.folder import read_rows

    missing = [name for name in (ROWS, COMPLETIONS, SAMPLING) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"--replay {folder} has no {', '.join(missing)}: give the output folder of an earlier probe.")
    settings = json.loads((folder / SAMPLING).read_text(encoding="utf-8"))
    asked = sampling_settings(args)
    other = [
        f"{name} {settings.get(name)!r}, not {value!r}" for name, value in asked.items() if settings[name] != value
    ]
    if other:
        raise ValueError(f"{folder} was sampled with {'; '.join(other)}: sample anew, without --replay.")
    return Samples(read_rows(folder / ROWS), read_rows(folder / COMPLETIONS), settings)


def score_all(args: Arguments, samples: Samples, rewards: list[Callable], at_once: int) -> list[Scored]:
    """Every completion scored by every reward, `at_once` of them in a call; of a step reward the sum is taken."""
    from tqdm import tqdm

    from recipes.common.during.guard import ERROR, UNPARSED, guard
    from recipes.common.forecast.learning import Scored
    from rewards import reward_kind, reward_name
    from rewards.audit.call import score
    from rewards.steps import total

    guarded = [guard(reward, args.recipe.reward_timeout_s) for reward in rewards]
    scored = []
    for start in tqdm(range(0, len(samples.completions), at_once), desc="scoring", unit="call"):
        batch = samples.completions[start : start + at_once]
        rows = [samples.rows[line["row"]] for line in batch]
        texts, ids = [line["text"] for line in batch], [line["token_ids"] for line in batch]
        paid = {reward_name(reward): score(reward, rows, texts, ids) for reward in guarded}
        judged = {reward_name(r): paid[reward_name(r)] for r in guarded if reward_kind(r) == "step"}
        paid |= {name: [total(steps) for steps in of_batch] for name, of_batch in judged.items()}
        for i, (line, row) in enumerate(zip(batch, rows, strict=True)):
            failed = tuple(reward_name(r) for r in guarded if r.outcomes[i] in (ERROR, UNPARSED))
            amounts = {name: values[i] for name, values in paid.items()}
            steps = {name: [amount for _, amount in of_batch[i] or []] for name, of_batch in judged.items()}
            scored.append(Scored(line["row"], row["task"], line["tokens"], line["truncated"], amounts, failed, steps))
    return scored


def conclude(options: argparse.Namespace, samples: Samples, paid: list[Scored], found: dict[str, Any]) -> int:
    """Print and keep what was found; the exit status is 0 where it will learn, else 1."""
    from recipes.common.forecast.learning import verdict
    from recipes.common.tools.folder import write_json, write_rows
    from recipes.common.tools.machine import versions

    learns, sentence = verdict(found)
    print(shown(options.config, samples, found) + "\n" + sentence, flush=True)
    if options.output:
        kept = zip(samples.completions, paid, strict=True)
        lines = [{**line, "rewards": s.paid, "failed": s.failed, "steps": s.steps} for line, s in kept]
        write_rows(options.output / COMPLETIONS, lines)
        record = {"will_learn": learns, "verdict": sentence, **found, "sampling": samples.settings, **versions()}
        write_json(options.output / FIGURES, record)
        print(f"Kept in {options.output}; --replay {options.output} scores it again.")
    return 0 if learns else 1


def shown(config: Path, samples: Samples, found: dict[str, Any]) -> str:
    """Everything but the verdict as text."""
    from recipes.common.forecast.learning import lengths, notes, table

    settings, (low, high) = samples.settings, found["useful_a_step_interval"]
    said, group = notes(found), len(samples.completions) // len(samples.rows)
    said += [f"task {task}: no prompt of it was drawn: raise --prompts" for task in settings["missed_tasks"]]
    if group != found["num_generations"]:
        said.append(f"groups of {group} were sampled, and num_generations is {found['num_generations']}")
    think = (
        "The prompt ends with <think>: no reward sees that tag." if settings["opens_think"] else "No <think> prefill."
    )
    lines = [
        f"Probe of {config}: {settings['model_name_or_path']}, {len(samples.rows)} prompts x {group} completions at "
        f"temperature {settings['decoding']['temperature']:g}",
        f"{table(found)}\n{lengths(found)}\n  {think}",
        f"  Useful: {found['useful']} of {found['groups']} groups; {low:.2g} to {high:.2g} a step (95 % interval)",
    ]
    return "\n".join([*lines, *(f"  Note: {note}" for note in said)])


def read_options() -> tuple[argparse.Namespace, list[str]]:
    """The options of the probe, checked before anything slow is imported, and the overrides of the recipe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--prompts", type=int, help=f"training prompts to sample; default {PROMPTS}")
    parser.add_argument("--completions", type=int, help="completions of each prompt; default num_generations")
    parser.add_argument("--num_processes", type=int, default=1, help="all processes of the run; default 1")
    parser.add_argument("--output", type=Path, help="default runs/probe-NAME_OF_THE_YAML; with --replay none")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="score what an earlier probe kept there")
    options, overrides = parser.parse_known_args()
    for name, least in (("prompts", 1), ("completions", 2), ("num_processes", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name} is {value}; at least {least}")
    if not options.config.is_file() or not options.config.resolve().with_name("train.py").is_file():
        parser.error(f"--config {options.config} is no YAML inside a recipe's folder, beside its train.py")
    if options.replay and (options.prompts or options.completions):
        parser.error("--prompts and --completions are those of the folder that --replay names: leave them out")
    if not options.replay:
        options.prompts = options.prompts or PROMPTS
        options.output = options.output or Path("runs", f"probe-{options.config.stem}")
    output = options.output
    if output and output.exists() and not (output.is_dir() and not any(output.iterdir())):
        parser.error(f"--output {output} exists: name another folder, or remove it")
    return options, overrides


def main() -> None:
    options, overrides = read_options()
    try:
        raise SystemExit(probe(options, overrides))
    except ValueError as problem:  # said for the reader
        print(f"error: {problem}", file=sys.stderr)
    except Exception:
        traceback.print_exc()  # Python's own status would be 1, which says that it will not learn
    raise SystemExit(2)


if __name__ == "__main__":
    main()
