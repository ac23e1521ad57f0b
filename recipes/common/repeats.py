"""Several runs of one recipe that differ in a seed or a reward: started one after the other, and taken together."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from recipes.common.intervals import mcnemar_p, t_interval, wilson_interval
from recipes.common.judged import metric_names, read_rows

Rows = list[dict[str, Any]]


def read_settings(config: Path) -> dict[str, Any]:
    """What a run's YAML sets.

    Raises:
        SystemExit: it cannot be read, is no mapping, or has no train.py beside it.
    """
    if not config.with_name("train.py").is_file():
        raise SystemExit(f"error: {config} has no train.py beside it: --config names a YAML inside a recipe's folder.")
    try:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SystemExit(f"error: cannot read --config {config}: {error}") from error
    if not isinstance(settings, dict) or not settings.get("output_dir"):
        raise SystemExit(f"error: {config} must be a mapping of names to values, with an output_dir among them.")
    return settings


def train(config: Path, launch: Path, folder: Path, arguments: list[str]) -> Path:
    """`accelerate launch` the recipe of `config` with `arguments` into `folder`; a finished run is not run again.

    Runs that are logged to W&B are grouped by the YAML's output_dir, unless WANDB_RUN_GROUP says otherwise.

    Raises:
        SystemExit: the run ended with another status than 0.
    """
    recipe = [str(config.with_name("train.py")), "--config", str(config), *arguments, "--output_dir", str(folder)]
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(launch), *recipe]
    print(f"\n== {folder}: {shlex.join(['accelerate', 'launch', *words[3:]])}", flush=True)
    environment = {"WANDB_RUN_GROUP": Path(read_settings(config)["output_dir"]).name, **os.environ}
    status = subprocess.run(words, env=environment, check=False).returncode
    if status:
        print(f"error: the run in {folder} ended with status {status}. The same command goes on from there.")
        raise SystemExit(status if status > 0 else 1)
    return folder


def read_evaluation(folder: Path) -> tuple[Rows, Rows]:
    """The judged rows of a finished run, before and after.

    Raises:
        SystemExit: the run has none.
    """
    files = [folder / "evaluation" / f"{stage}.jsonl" for stage in ("before", "after")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise SystemExit(f"error: {' and '.join(missing)} missing: is {folder} a finished run with num_eval_rows > 0?")
    return read_rows(files[0]), read_rows(files[1])


def outcomes(rows: Rows, metric: str) -> list[bool]:
    """What a metric says of each row that has it."""
    return [row["metrics"][metric] for row in rows if metric in row["metrics"]]


def share(rows: Rows, metric: str) -> float:
    """0.0 to 1.0."""
    judged = outcomes(rows, metric)
    return sum(judged) / len(judged)


def over_seeds(evaluations: list[tuple[Rows, Rows]]) -> dict[str, dict[str, Any]]:
    """Each metric over several seeds.

    Returns:
        metric -> `before` and `after`, each with the share of every seed (`seeds`), their `mean`, its 95 % Student
        `interval` over seeds (None for a single one), and the Wilson interval of all rows taken `pooled`; and the
        exact McNemar `p` over all rows.
    """
    found = {}
    for name in metric_names(evaluations[0][0]):
        stages = [_over_seeds([evaluation[stage] for evaluation in evaluations], name) for stage in (0, 1)]
        pooled = [[row["metrics"] for evaluation in evaluations for row in evaluation[stage]] for stage in (0, 1)]
        both = [(old[name], new[name]) for old, new in zip(*pooled, strict=True) if name in old and name in new]
        p = mcnemar_p([old for old, _ in both], [new for _, new in both])
        found[name] = {"before": stages[0], "after": stages[1], "p": p}
    return found


def _over_seeds(evaluations: list[Rows], metric: str) -> dict[str, Any]:
    shares = [share(rows, metric) for rows in evaluations]
    judged = [outcome for rows in evaluations for outcome in outcomes(rows, metric)]
    return {
        "seeds": shares,
        "mean": sum(shares) / len(shares),
        "interval": t_interval(shares, 0.0, 1.0),
        "pooled": wilson_interval(sum(judged), len(judged)),
        "n": len(judged),
    }


def seeds_table(seeds: list[int], metrics: dict[str, dict[str, Any]]) -> str:
    """One line a seed and metric, then the means with both intervals."""
    lines = []
    for name, value in metrics.items():
        before, after = value["before"], value["after"]
        lines.append(f"{name}:")
        for seed, old, new in zip(seeds, before["seeds"], after["seeds"], strict=True):
            lines.append(f"  seed {seed:<6} {percent(old):>8} -> {percent(new):>7}   {100 * (new - old):+.1f} pt")
        lines.append(f"  mean        {percent(before['mean']):>8} -> {percent(after['mean']):>7}")
        if after["interval"]:
            lines.append(f"    after, 95 % over seeds (Student)      {span(after['interval'])}")
        lines.append(f"    after, 95 % over {after['n']} rows (Wilson)   {span(after['pooled'])}")
        lines.append(f"    McNemar p over all rows               {value['p']:.2g}")
    return "\n".join(lines)


def percent(value: float) -> str:
    """Example: `percent(0.421) == "42.1 %"`"""
    return f"{100 * value:.1f} %"


def span(interval: tuple[float, float]) -> str:
    """Example: `span((0.377, 0.465)) == "38 to 46 %"`"""
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"
