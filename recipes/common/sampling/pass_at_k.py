"""pass@k: how likely one of k samples solves a problem, from n samples of each, with intervals over
problems.
"""

import math
from argparse import Namespace
from pathlib import Path
from statistics import fmean
from typing import Any

from recipes.common.data.recipe import Recipe
from recipes.common.evaluation.metrics import Metric, evaluate_all
from recipes.common.sampling.idle import idle_trainer, sample
from recipes.common.training.completion import decoding_of
from recipes.common.utils.run_files import read_rows, write_rows
from recipes.common.utils.stats import bootstrap_interval
from recipes.common.utils.tables import percent, points, share_and_span

Count = tuple[int, int]  # of one problem: evaluated samples, and those of them that are right
# A line of the output: model, decoding, seed, max_completion_length, row, samples.
Problem = dict[str, Any]
NO_SPREAD = "(the same in every problem, so a bootstrap gives no interval)"


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of pass@k from `n` samples of which `c` are right: 1 - C(n - c, k) /
    C(n, k).

    Follows Chen et al. 2021 (arXiv 2107.03374), section 2.1. `1 - (1 - c / n) ** k` would be too
    low. Example: `pass_at_k(4, 1, 2) == 0.5`
    """
    if not 1 <= k <= n:
        raise ValueError(
            f"pass@{k} of {n} samples: k must lie between 1 and {n}. Draw more samples, or lower k."
        )
    if not 0 <= c <= n:
        raise ValueError(f"{c} right samples of {n}: there can be 0 to {n}.")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)  # of integers, exact before the division


def count_right(outcomes: list[dict[str, bool]], metric: str) -> Count:
    """Samples that have this metric (else our machinery failed), and those that are right."""
    known = [outcome[metric] for outcome in outcomes if metric in outcome]
    return len(known), sum(known)


def values_of(counts: list[Count], k: int, minus: list[Count] | None = None) -> list[float]:
    """pass@k of each problem with `k` evaluated samples; less that of `minus`, if given.

    Example: `values_of([(4, 1), (3, 0)], 4) == [1.0]`; `values_of([(4, 1)], 2, minus=[(4, 0)]) ==
    [0.5]`
    """
    if minus is None:
        return [pass_at_k(*count, k) for count in counts if count[0] >= k]
    pairs = zip(counts, minus, strict=True)
    return [pass_at_k(*a, k) - pass_at_k(*b, k) for a, b in pairs if min(a[0], b[0]) >= k]


def line_of(k: int, values: list[float], seed: int = 0, signed: bool = False) -> str:
    """The mean of one value a problem with its 95 % interval, or of differences (`signed`).

    Examples: `  pass@4     50.0 % (25-75)`, `  pass@4     +25.0 pt (+0 to +75)`
    """
    if not values:
        return f"  pass@{k:<5} not known: no problem has {k} evaluated samples"
    mean, (low, high) = fmean(values), bootstrap_interval(values, seed)
    show, show_with = (points, points) if signed else (percent, share_and_span)
    shown = show_with(mean, (low, high)) if low < high else f"{show(mean)} {NO_SPREAD}"
    return f"  pass@{k:<5} {shown}"


def choose_metric(rows: list[dict], metric: Metric, wanted: str | None) -> tuple[str, list[bool]]:
    """The metric to count by, and which rows have it; ValueError where none does."""
    if not rows:
        raise ValueError("num_eval_rows is 0; there is nothing to evaluate.")
    # Of no answer, which needs no program to be run.
    names = [list(metric(row, "")) for row in rows]
    first = {of_row[0] for of_row in names if of_row}
    known = ", ".join(dict.fromkeys(name for of_row in names for name in of_row))
    if wanted is None and len(first) != 1:
        raise ValueError(f"these rows are of several tasks; name one metric by --metric: {known}.")
    name = wanted or first.pop()
    has_it = [name in of_row for of_row in names]
    if not any(has_it):
        raise ValueError(f"--metric {name} is none of the metrics of these rows: {known}.")
    return name, has_it


def sample_problems(recipe: Recipe, name: str, rows: list[dict], samples: int) -> list[Problem]:
    """Draw `samples` completions of each row by the recipe's arguments; not yet evaluated."""
    training = recipe.args.training
    trainer = idle_trainer(recipe, name)
    drawn = sample(trainer, rows, samples, training["per_device_eval_batch_size"])
    how = {key: training[key] for key in ("seed", "max_completion_length")}
    how |= {"model": name, "decoding": decoding_of(training)}
    problems = []
    for row, of_row in zip(rows, drawn, strict=True):
        lines = [
            {"completion": one.text, "tokens": one.tokens, "truncated": one.truncated}
            for one in of_row
        ]
        problems.append({**how, "row": row, "samples": lines})
    return problems


def read_problems(path: Path) -> list[Problem]:
    """Read what `--output` wrote; ValueError where that is not what the file holds."""
    needed = {"model", "decoding", "max_completion_length", "row", "samples"}
    try:
        problems = read_rows(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"--replay {path} cannot be read: {error}.") from error
    whole = [
        isinstance(each, dict) and needed <= each.keys() and each["samples"] for each in problems
    ]
    if not (problems and all(whole)):
        raise ValueError(f"--replay {path} is not what --output of this script wrote.")
    return problems


def report_pass_at_k(options: Namespace, recipe: Recipe, rows: list[dict]) -> None:
    """Sample models, or read what was sampled, evaluate it and print pass@k."""
    metric, problems = recipe.module.metric, []
    if options.replay:
        problems = read_problems(options.replay)
        rows = [problem["row"] for problem in problems]
    name, has_it = choose_metric(rows, metric, options.metric)
    if not all(has_it):
        without = f"{has_it.count(False)} of {len(rows)} problems"
        print(f"{without} do not have the metric {name!r}, and are left out")
    problems = [problem for problem, kept in zip(problems, has_it, strict=False) if kept]
    rows = [row for row, kept in zip(rows, has_it, strict=True) if kept]
    for model in filter(None, (options.model, options.against)):
        problems += sample_problems(recipe, model, rows, options.samples)
        if options.output:
            write_rows(options.output, problems)
    drawn = [(problem["row"], one) for problem in problems for one in problem["samples"]]
    texts = [one["completion"] for _, one in drawn]
    outcomes = evaluate_all(metric, [row for row, _ in drawn], texts)
    for (_, one), outcome in zip(drawn, outcomes, strict=True):
        one["metrics"] = outcome
    if options.output:
        write_rows(options.output, problems)
    print_figures(problems, name, options.k, recipe.args.training["seed"])


def print_figures(problems: list[Problem], metric: str, ks: list[int] | None, seed: int) -> None:
    """A paragraph for each model, and one for the difference where there are two."""
    n = min(len(problem["samples"]) for problem in problems)
    ks = ks or default_ks(n)
    if max(ks) > n:
        remedy = "raise --samples, or lower --k"
        raise ValueError(f"--k {max(ks)} is more than the {n} samples of a problem: {remedy}.")
    by_model: dict[str, list[Problem]] = {}
    for problem in problems:
        by_model.setdefault(problem["model"], []).append(problem)
    counts = {}
    for name, of_model in by_model.items():
        outcomes = [[drawn["metrics"] for drawn in problem["samples"]] for problem in of_model]
        counts[name] = [count_right(of_problem, metric) for of_problem in outcomes]
        print("\n".join(_model_lines(name, of_model, counts[name], metric, ks, seed)))
    if len(by_model) == 2:
        (old, before), (new, after) = by_model.items()
        if [problem["row"] for problem in before] != [problem["row"] for problem in after]:
            nothing = "there is no difference to pair"
            raise ValueError(f"{old} and {new} were not sampled on the same rows: {nothing}.")
        print(f"{new} minus {old}, problem by problem")
        for k in ks:
            print(line_of(k, values_of(counts[new], k, counts[old]), seed, signed=True))
    print(f"95 % intervals: bootstrap over the problems, seed {seed}")


def _model_lines(
    name: str, problems: list[Problem], counts: list[Count], metric: str, ks: list[int], seed: int
) -> list[str]:
    samples = [drawn for problem in problems for drawn in problem["samples"]]
    numbers = "-".join(str(n) for n in sorted({len(problem["samples"]) for problem in problems}))
    decoding = problems[0]["decoding"].items()
    cut, limit = sum(drawn["truncated"] for drawn in samples), problems[0]["max_completion_length"]
    lines = [
        f"{name}: {len(problems)} problems x {numbers} samples, evaluated by {metric!r}",
        "  " + ", ".join(f"{key} {value}" for key, value in decoding if value is not None),
        *(line_of(k, values_of(counts, k), seed) for k in ks),
        f"  cut off at {limit} tokens: {cut} of {len(samples)} samples",
    ]
    if lost := len(samples) - sum(n for n, _ in counts):
        left_out = "not evaluated, through no fault of theirs, and left out"
        lines.append(f"  {left_out}: {lost} of {len(samples)} samples")
        fewer = {k: sum(n < k for n, _ in counts) for k in ks}
        lines += [
            f"  pass@{k} is without {n} problems that have fewer" for k, n in fewer.items() if n
        ]
    return lines


def default_ks(samples: int) -> list[int]:
    """1, 4, 16, ... below the number of samples, and that: `default_ks(8) == [1, 4, 8]`"""
    return [*(4**i for i in range(samples.bit_length()) if 4**i < samples), samples]
