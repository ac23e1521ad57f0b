"""Several runs of one recipe that differ in their seed: started one after the other, and taken together."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from recipes.common.before.arguments import options_given
from recipes.common.evaluation.scores import compare, metric_names
from recipes.common.tools.folder import read_evaluation, write_json
from recipes.common.tools.stats import t_interval, wilson_interval
from recipes.common.tools.tables import percent, points, share_and_span

Rows = list[dict[str, Any]]


def run_seeds(
    config: Path, seeds: list[int], launch: list[str], output_dir: Path | None, arguments: list[str]
) -> list[Path]:
    """Train what is not trained yet, print and write the figures of all seeds, and return the run folders."""
    check_given(seeds, arguments, {"seed", "output_dir"}, "name the seeds in --seeds, and the folder in --output_dir.")
    stem = output_dir or Path(read_settings(config)["output_dir"])
    folders = [stem.with_name(f"{stem.name}-seed{seed}") for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        train(config, launch, folder, [*arguments, "--seed", str(seed)])
    metrics = over_seeds([read_evaluation(folder) for folder in folders])
    output = stem.with_name(f"{stem.name}-seeds.json")
    write_json(output, {"seeds": seeds, "metrics": metrics})
    print(f"\n{config}, {len(seeds)} seeds\n{seeds_table(seeds, metrics)}\nSaved {output}")
    return folders


def check_given(seeds: list[int], words: list[str], taken: set[str], remedy: str) -> None:
    """Refuse a seed that is named twice, and options for the recipe that a script sets itself, by a ValueError."""
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds {' '.join(map(str, seeds))} names a seed twice.")
    if wrong := sorted(options_given(words) & taken):
        raise ValueError(f"{', '.join(f'--{name}' for name in wrong)} cannot be given: {remedy}")


def read_settings(config: Path) -> dict[str, Any]:
    """Read a run's YAML; `ValueError` where it is not a mapping next to a train.py."""
    if not config.with_name("train.py").is_file():
        raise ValueError(f"{config} has no train.py next to it: --config names a YAML inside a recipe's folder.")
    try:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read --config {config}: {error}") from error
    if not isinstance(settings, dict) or not settings.get("output_dir"):
        raise ValueError(f"{config} must be a mapping of names to values, with an output_dir among them.")
    return settings


def launch_words(launch_file: Path, num_processes: int | None) -> list[str]:
    """Options of `accelerate launch`."""
    processes = [] if num_processes is None else ["--num_processes", str(num_processes)]
    return ["--config_file", str(launch_file), *processes]


def train(config: Path, launch: list[str], folder: Path, arguments: list[str]) -> Path:
    """`accelerate launch` the recipe of `config` into `folder`; not a finished run again; exits where it fails.

    Runs that are logged to W&B are grouped by the YAML's output_dir, unless WANDB_RUN_GROUP names another group.
    """
    recipe = [str(config.with_name("train.py")), "--config", str(config), *arguments, "--output_dir", str(folder)]
    words = [sys.executable, "-m", "accelerate.commands.launch", *launch, *recipe]
    print(f"\n== {folder}: {shlex.join(['accelerate', 'launch', *words[3:]])}", flush=True)
    environment = {"WANDB_RUN_GROUP": Path(read_settings(config)["output_dir"]).name, **os.environ}
    with subprocess.Popen(words, env=environment) as process:
        status = _wait(process)
    if status:
        print(f"error: the run in {folder} ended with status {status}; its messages stand above.", file=sys.stderr)
        print("If it was interrupted, the same command (without --fresh) goes on.", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)
    return folder


def _wait(process: subprocess.Popen) -> int:
    """The exit status; on Ctrl-C too, which the run has got as well: it saves a checkpoint before it ends."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def over_seeds(evaluations: list[tuple[Rows, Rows]]) -> dict[str, dict[str, Any]]:
    """Each metric over several seeds: metric -> `before`, `after` and the exact McNemar `p` of each seed.

    A stage has the share of every seed (`seeds`, None where no row has the metric), their `mean`, its 95 % Student
    `interval` over seeds (None for a single one), and of all rows taken together the Wilson interval (`pooled`), their
    number `n`, and how many different `prompts` there are. Rows recur between seeds: a test over all would be too sure.
    """
    names = dict.fromkeys(name for before, _ in evaluations for name in metric_names(before))
    p = [compare(*evaluation) for evaluation in evaluations]
    stages = list(zip(("before", "after"), zip(*evaluations, strict=True), strict=True))
    return {name: {s: _stage(of, name) for s, of in stages} | {"p": [of.get(name) for of in p]} for name in names}


def _stage(evaluations: tuple[Rows, ...], metric: str) -> dict[str, Any]:
    with_metric = [[row for row in rows if metric in row["metrics"]] for rows in evaluations]
    right = [sum(row["metrics"][metric] for row in rows) for rows in with_metric]
    shares = [count / len(rows) if rows else None for count, rows in zip(right, with_metric, strict=True)]
    known, n = [share for share in shares if share is not None], sum(map(len, with_metric))
    return {
        "seeds": shares,
        "mean": sum(known) / len(known),
        "interval": t_interval(known, 0.0, 1.0),
        "pooled": wilson_interval(sum(right), n),
        "n": n,
        "prompts": len({json.dumps(row["prompt"]) for rows in with_metric for row in rows}),
    }


def seeds_table(seeds: list[int], metrics: dict[str, dict[str, Any]]) -> str:
    """One line a seed and metric, then the means with both intervals."""
    lines = []
    for name, value in metrics.items():
        before, after = value["before"], value["after"]
        lines.append(f"{name}:")
        for seed, old, new, p in zip(seeds, before["seeds"], after["seeds"], value["p"], strict=True):
            change = "" if p is None else f"   {points(new - old)}   McNemar p {p:.2g}"
            lines.append(f"  seed {seed:<6} {percent(old):>8} -> {percent(new):>7}{change}")
        rows = f"{after['n']} rows of {after['prompts']} prompts (Wilson)"
        for over, interval in (("seeds (Student)", after["interval"]), (rows, after["pooled"])):
            if interval:
                mean = f"{percent(before['mean']):>8} -> {share_and_span(after['mean'], interval):>14}"
                lines.append(f"  mean        {mean}   95 % over {over}")
    return "\n".join(lines)
