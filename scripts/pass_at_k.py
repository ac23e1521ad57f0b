"""pass@k of a model on the held-out rows of a recipe: how likely one of k samples is right, for programs and for maths.

    python scripts/pass_at_k.py --model runs/quickstart --config recipes/arithmetic/quickstart.yaml --samples 16
    python scripts/pass_at_k.py --model BASE --against RUN --config recipes/code/smollm2-135m.yaml \\
        --dataset_path data/humaneval --num_eval_rows 164 --max_completion_length 512 --samples 16 --k 1 4 16 \\
        --output runs/humaneval.jsonl
    python scripts/pass_at_k.py --replay runs/humaneval.jsonl --config recipes/code/smollm2-135m.yaml --k 1 2 8

Draws n samples a problem with the recipe's prompt and decoding at `--temperature`, and judges each by one metric of the
recipe: its first unless `--metric` names another (maths: `strict`, right answer and format; programs: `tests`, all
tests pass in the sandbox). pass@k is the unbiased estimate of Chen et al. 2021, the mean over the problems; its 95 %
interval resamples the problems. A sample that could not be judged (the sandbox failed on it) makes n of its problem
smaller, and is counted. Any argument of the recipe can be overridden: --num_eval_rows, --top_p, --seed, ...

`--output` keeps each problem with its samples and verdicts. `--replay` judges and sums up such a file again: no model
and no data set is loaded.

What is not covered: several processes, vLLM (transformers generates), quantized loading.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from types import ModuleType

    from recipes.common.before.arguments import Arguments
    from recipes.common.evaluation.metrics import Metric

SAMPLES, TEMPERATURE = 16, 0.8


def run(options: argparse.Namespace, overrides: list[str]) -> None:
    """Sample or read, judge, and print the figures; `ValueError` or `SandboxError` says what is wrong."""
    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.recipe import import_recipe
    from recipes.common.tools.folder import write_rows

    recipe = import_recipe(options.config)
    args = parse_arguments(recipe.RecipeArguments, ["--config", str(options.config), *overrides])
    prepare_rewards(args)
    if options.replay:
        problems = read_problems(options.replay)
        rows = [problem["row"] for problem in problems]
    else:
        rows = args.attempt(held_out_rows, recipe, args) or []
    if args.problems:
        raise ValueError("\n".join(args.problems))
    name, judged_by_it = metric_name(rows, recipe.metric, options.metric)
    kept = [row for row, has_it in zip(rows, judged_by_it, strict=True) if has_it]
    if len(kept) < len(rows):
        print(f"{len(rows) - len(kept)} of {len(rows)} problems have no {name!r} to be judged by, and are left out")
    if options.replay:
        problems = [problem for problem, has_it in zip(problems, judged_by_it, strict=True) if has_it]
    else:
        problems = sample_all(options, kept, args)
    judge(problems, recipe.metric)
    if options.output:
        write_rows(options.output, problems)
    print_figures(problems, name, options.k, args.training["seed"])


# --------------------------------------------------------------------------- rows


def prepare_rewards(args: Arguments) -> None:
    """Let the recipe's rewards get ready: programs are judged in the sandbox that they ask for."""
    from rewards import load_rewards
    from rewards.contract import prepare_reward

    named = args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks
    for reward in args.attempt(load_rewards, *named) or []:
        args.attempt(prepare_reward, reward, 1, math.inf)  # nobody waits for a call here: no limit to outlast


def held_out_rows(recipe: ModuleType, args: Arguments) -> list[dict]:
    """The recipe's evaluation rows; of a recipe that reads its splits one by one no other: HumanEval has no train."""
    seed, count = args.training["seed"], args.recipe.num_eval_rows
    if hasattr(recipe, "load_split"):
        return recipe.load_split(args.recipe, "test", count, seed).to_list()
    return recipe.load_rows(args.recipe, seed)[1].to_list()


def metric_name(rows: list[dict], metric: Metric, wanted: str | None) -> tuple[str, list[bool]]:
    """The metric to count by, and which rows are judged by it.

    Raises:
        ValueError: no rows; no such metric; or rows of several tasks, whose first metrics differ, and none was named.
    """
    if not rows:
        raise ValueError("num_eval_rows is 0; there is nothing to evaluate.")
    names = [list(metric(row, "")) for row in rows]  # of no answer, which needs no program to be run
    first = list(dict.fromkeys(of_row[0] for of_row in names if of_row))
    known = list(dict.fromkeys(name for of_row in names for name in of_row))
    if wanted is None and len(first) != 1:
        raise ValueError(f"these rows are of several tasks; name one metric by --metric: {', '.join(known)}.")
    if wanted is not None and wanted not in known:
        raise ValueError(f"--metric {wanted} is none of what judges these rows: {', '.join(known)}.")
    name = wanted or first[0]
    return name, [name in of_row for of_row in names]


# --------------------------------------------------------------------------- samples


def sample_all(options: argparse.Namespace, rows: list[dict], args: Arguments) -> list[dict[str, Any]]:
    """The problems of each model; what was drawn is on disk before it is judged."""
    from recipes.common.tools.folder import write_rows

    problems = []
    for name in filter(None, (options.model, options.against)):
        problems += sample_model(name, rows, options.samples, args)
        if options.output:
            write_rows(options.output, problems)
    return problems


def sample_model(name: str, rows: list[dict], samples: int, args: Arguments) -> list[dict[str, Any]]:
    """Load a model and draw from it: one mapping a problem, as `--output` keeps it, still without verdicts."""
    from recipes.common.evaluation.generate import decoding_of, sample
    from recipes.common.evaluation.load_model import load_model, precision_of_a_run

    model, tokenizer = load_model(name, args)
    how = {"decoding": decoding_of(args.training), "seed": args.training["seed"]}
    limit = args.training["max_completion_length"]
    with precision_of_a_run(model.device, args):
        drawn = sample(
            model,
            tokenizer,
            rows,
            samples,
            max_new_tokens=limit,
            batch_size=args.training["per_device_eval_batch_size"],
            chat_template_kwargs=args.training["chat_template_kwargs"],
            title=name,
            **how,
        )
    return [
        {
            "model": name,
            **how,
            "max_completion_length": limit,
            "row": row,
            "samples": [{"completion": c.text, "tokens": len(c.token_ids), "truncated": c.truncated} for c in of_row],
        }
        for row, of_row in zip(rows, drawn, strict=True)
    ]


def read_problems(path: Path) -> list[dict[str, Any]]:
    """What `--output` wrote."""
    from recipes.common.tools.folder import read_rows

    needed = {"model", "decoding", "max_completion_length", "row", "samples"}
    try:
        problems = read_rows(path)
        whole = bool(problems) and all(needed <= problem.keys() and problem["samples"] for problem in problems)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"--replay {path} cannot be read: {error}. Give a file that --output wrote.") from error
    if not whole:
        raise ValueError(f"--replay {path} is not what --output of this script wrote.")
    return problems


def judge(problems: list[dict[str, Any]], metric: Metric) -> None:
    """Give every sample its verdicts, under `metrics`."""
    from recipes.common.evaluation.metrics import judge_all

    samples = [(problem["row"], sample) for problem in problems for sample in problem["samples"]]
    verdicts = judge_all(metric, [row for row, _ in samples], [sample["completion"] for _, sample in samples])
    for (_, sample), verdict in zip(samples, verdicts, strict=True):
        sample["metrics"] = verdict


# --------------------------------------------------------------------------- figures


def print_figures(problems: list[dict[str, Any]], metric: str, ks: list[int] | None, seed: int) -> None:
    """A paragraph for each model, and one for the difference where there are two."""
    from recipes.common.evaluation.pass_at_k import count_right, difference, difference_line

    by_model: dict[str, list[dict]] = {}
    for problem in problems:
        by_model.setdefault(problem["model"], []).append(problem)
    n = min(len(problem["samples"]) for problem in problems)
    ks = ks or default_ks(n)
    refuse_large(ks, n)
    counts = {}
    for name, of_model in by_model.items():
        verdicts = [[sample["metrics"] for sample in problem["samples"]] for problem in of_model]
        counts[name] = [count_right(of_problem, metric) for of_problem in verdicts]
        print("\n".join(model_lines(name, of_model, counts[name], metric, ks, seed)))
    if len(by_model) == 2:
        (old, before), (new, after) = by_model.items()
        if [problem["row"] for problem in before] != [problem["row"] for problem in after]:
            raise ValueError(f"{old} and {new} were not sampled on the same rows: there is no difference to pair.")
        print(f"{new} minus {old}, problem by problem")
        print("\n".join(difference_line(k, difference(counts[old], counts[new], k, seed)) for k in ks))
    print(f"95 % intervals: bootstrap over the problems, seed {seed}")


def model_lines(name: str, problems: list[dict], counts: list, metric: str, ks: list[int], seed: int) -> list[str]:
    """What was drawn and how, pass@k of each k, and what a reader must know to judge it."""
    from recipes.common.evaluation.pass_at_k import estimate, estimate_line

    samples = [sample for problem in problems for sample in problem["samples"]]
    drawn = "-".join(str(n) for n in sorted({len(problem["samples"]) for problem in problems}))
    how = ", ".join(f"{key} {value}" for key, value in problems[0]["decoding"].items() if value is not None)
    lines = [f"{name}: {len(problems)} problems x {drawn} samples, judged by {metric!r}", f"  {how}"]
    lines += [estimate_line(k, estimate(counts, k, seed)) for k in ks]
    cut = sum(sample["truncated"] for sample in samples)
    lines.append(f"  cut off at {problems[0]['max_completion_length']} tokens: {cut} of {len(samples)} samples")
    if lost := len(samples) - sum(n for n, _ in counts):
        lines.append(f"  not judged, through no fault of theirs, and left out: {lost} of {len(samples)} samples")
        fewer = {k: sum(n < k for n, _ in counts) for k in ks}
        lines += [f"  pass@{k} is without {count} problems that have fewer" for k, count in fewer.items() if count]
    return lines


def default_ks(samples: int) -> list[int]:
    """1, 4, 16, 64, ... below the number of samples, and that. Example: `default_ks(8) == [1, 4, 8]`"""
    return [*(4**i for i in range(samples.bit_length()) if 4**i < samples), samples]


def refuse_large(ks: list[int], samples: int) -> None:
    """`ValueError` where a k is more than the samples of a problem."""
    if max(ks) > samples:
        raise ValueError(
            f"--k {max(ks)} is more than the {samples} samples of a problem, from which pass@k cannot be estimated: "
            f"raise --samples, or lower --k."
        )


# --------------------------------------------------------------------------- command line


def parse(words: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The options, checked, and the words that are the recipe's own arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="Hub id, checkpoint or run folder")
    source.add_argument("--replay", type=Path, metavar="FILE", help="a file of --output: no model is loaded")
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--against", help="a second model, and what it gains over the first, problem by problem")
    parser.add_argument("--samples", type=int, help=f"samples a problem; default {SAMPLES}")
    parser.add_argument("--k", type=int, nargs="+", help="default 1, 4, 16, ... and --samples")
    parser.add_argument("--temperature", type=float, help=f"default {TEMPERATURE}")
    parser.add_argument("--metric", help="what counts as right; default the recipe's first metric")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep problems, samples and verdicts as JSON Lines")
    options, rest = parser.parse_known_args(words)
    if options.replay and (options.against or options.samples is not None or options.temperature is not None):
        parser.error("--against, --samples and --temperature say what to draw; --replay draws nothing")
    options.samples = SAMPLES if options.samples is None else options.samples
    options.temperature = TEMPERATURE if options.temperature is None else options.temperature
    if options.samples < 1 or (options.k and min(options.k) < 1):
        parser.error(f"--samples {options.samples} and --k {options.k or ''} must be at least 1")
    if not 0.0 < options.temperature < math.inf:
        parser.error(
            f"--temperature {options.temperature} must be more than 0: for greedy answers there is evaluate_model.py"
        )
    if options.model and options.model == options.against:
        parser.error(f"--against names the same model as --model: {options.model}")
    try:
        refuse_large(options.k or [1], math.inf if options.replay else options.samples)
    except ValueError as problem:
        parser.error(str(problem))
    return options, [*rest, "--temperature", str(options.temperature)]


def main() -> None:
    options, overrides = parse()
    from rewards.sandbox import SandboxError

    try:
        run(options, overrides)
    except (ValueError, SandboxError) as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
