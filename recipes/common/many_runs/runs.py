"""Several runs of one recipe that differ in their seed: started one after the other, and taken together."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from recipes.common.evaluation.scores import metric_names
from recipes.common.settings import options_given
from recipes.common.utils.run_files import read_evaluation, write_json
from recipes.common.utils.stats import mcnemar_p, paired_interval, t_interval, wilson_interval
from recipes.common.utils.tables import percent, points, share_and_span

Rows = list[dict[str, Any]]


def run_seeds(
    config: Path, seeds: list[int], launch: list[str], output_dir: Path | None, arguments: list[str]
) -> list[Path]:
    """Train what is not trained yet, print and write the figures of all seeds, and return the run folders."""
    check_given(
        seeds,
        arguments,
        {"seed", "output_dir"},
        "name the seeds in --seeds, and the folder in --output_dir.",
    )
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
        raise ValueError(
            f"{config} has no train.py next to it: --config names a YAML inside a recipe's folder."
        )
    try:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read --config {config}: {error}") from error
    if not isinstance(settings, dict) or not settings.get("output_dir"):
        raise ValueError(
            f"{config} must be a mapping of names to values, with an output_dir among them."
        )
    return settings


def launch_words(launch_file: Path, num_processes: int | None) -> list[str]:
    """Options of `accelerate launch`."""
    processes = [] if num_processes is None else ["--num_processes", str(num_processes)]
    return ["--config_file", str(launch_file), *processes]


def train(config: Path, launch: list[str], folder: Path, arguments: list[str]) -> Path:
    """`accelerate launch` the recipe of `config` into `folder`; not a finished run again; exits where it fails.

    Runs that are logged to W&B are grouped by the YAML's output_dir, unless WANDB_RUN_GROUP names another group.
    """
    recipe = [
        str(config.with_name("train.py")),
        "--config",
        str(config),
        *arguments,
        "--output_dir",
        str(folder),
    ]
    words = [sys.executable, "-m", "accelerate.commands.launch", *launch, *recipe]
    print(f"\n== {folder}: {shlex.join(['accelerate', 'launch', *words[3:]])}", flush=True)
    environment = {"WANDB_RUN_GROUP": Path(read_settings(config)["output_dir"]).name, **os.environ}
    with subprocess.Popen(words, env=environment) as process:
        status = _wait(process)
    if status:
        print(
            f"error: the run in {folder} ended with status {status}; its messages stand above.",
            file=sys.stderr,
        )
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
    """Each metric over several seeds: metric -> `n` of each seed, `before`, `after` and `change`, with their means.

    The stages are as of `share_over_seeds`, the change as of `change_over_seeds`; the rows of different seeds are
    never taken together, because questions recur between seeds.
    """
    names = dict.fromkeys(name for before, _ in evaluations for name in metric_names(before))
    for before, after in evaluations:
        if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
            raise ValueError(
                "before and after were not evaluated on the same rows in the same order"
            )
    found = {}
    for name in names:
        pairs = [
            [(a["metrics"].get(name), b["metrics"].get(name)) for a, b in zip(*of, strict=True)]
            for of in evaluations
        ]
        known = [
            [pair for pair in rows if None not in pair] for rows in pairs
        ]  # a sandbox may fail on one of the two
        old, new = ([[pair[stage] for pair in rows] for rows in known] for stage in (0, 1))
        shares = {
            "n": [len(rows) for rows in new],
            "before": share_over_seeds(old),
            "after": share_over_seeds(new),
        }
        found[name] = {**shares, "change": change_over_seeds(old, new)}
    return found


def share_over_seeds(outcomes: list[list[bool]]) -> dict[str, Any]:
    """`seeds`: the share of right rows of each, None without rows; their `mean`; its 95 % `interval`.

    The interval is Student's over seeds, and Wilson's over rows where only one seed has rows.
    """
    shares, known, there = _of_seeds(outcomes, lambda rows: sum(rows) / len(rows))
    interval = t_interval(known, 0.0, 1.0) or wilson_interval(sum(there[0]), len(there[0]))
    return {"seeds": shares, "mean": sum(known) / len(known), "interval": interval}


def change_over_seeds(before: list[list[bool]], after: list[list[bool]]) -> dict[str, Any]:
    """The same for a change on paired rows; of each seed McNemar's exact `p`, and the share of rows that `changed`.

    The interval is Student's over the changes of the seeds, and the paired one over rows where only one seed has rows.
    """
    pairs = [list(zip(*rows, strict=True)) for rows in zip(before, after, strict=True)]
    changes, known, there = _of_seeds(
        pairs, lambda rows: sum(new - old for old, new in rows) / len(rows)
    )
    interval = t_interval(known, -1.0, 1.0) or paired_interval(*zip(*there[0], strict=True))
    p = [mcnemar_p(*zip(*rows, strict=True)) if rows else None for rows in pairs]
    changed = [sum(old != new for old, new in rows) / len(rows) if rows else None for rows in pairs]
    return {
        "seeds": changes,
        "mean": sum(known) / len(known),
        "interval": interval,
        "p": p,
        "changed": changed,
    }


def _of_seeds(
    outcomes: list[list], value: Callable[[list], float]
) -> tuple[list[float | None], list[float], list]:
    """The value of each seed, None without rows; those that are known; and the rows that are there."""
    there = [rows for rows in outcomes if rows]
    return (
        [value(rows) if rows else None for rows in outcomes],
        [value(rows) for rows in there],
        there,
    )


def seeds_table(seeds: list[int], metrics: dict[str, dict[str, Any]]) -> str:
    """One line a seed and metric, then the means with the intervals of share and change over seeds."""
    lines = []
    for name, value in metrics.items():
        before, after, change = value["before"], value["after"], value["change"]
        lines.append(f"{name}:")
        stages = zip(
            seeds, before["seeds"], after["seeds"], change["seeds"], change["p"], strict=True
        )
        for seed, old, new, gain, p in stages:
            gained = "" if p is None else f"   {points(gain)}   McNemar p {p:.2g}"
            lines.append(f"  seed {seed:<6} {percent(old):>8} -> {percent(new):>7}{gained}")
        mean = f"{percent(before['mean']):>8} -> {share_and_span(after['mean'], after['interval']):>14}"
        over = (
            "seeds (Student)"
            if sum(p is not None for p in change["p"]) > 1
            else "rows, of one seed"
        )
        lines.append(
            f"  mean        {mean}   {points(change['mean'], change['interval'])}   95 % over {over}"
        )
    return "\n".join(lines)
