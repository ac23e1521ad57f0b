"""Several runs of one recipe that differ in a seed or a reward: started one after the other, and taken together."""

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
from recipes.common.tools.folder import read_rows
from recipes.common.tools.stats import t_interval, wilson_interval

Rows = list[dict[str, Any]]


def read_settings(config: Path) -> dict[str, Any]:
    """What a run's YAML sets.

    Raises:
        ValueError: it cannot be read, is no mapping, or has no train.py beside it.
    """
    if not config.with_name("train.py").is_file():
        raise ValueError(f"{config} has no train.py beside it: --config names a YAML inside a recipe's folder.")
    try:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read --config {config}: {error}") from error
    if not isinstance(settings, dict) or not settings.get("output_dir"):
        raise ValueError(f"{config} must be a mapping of names to values, with an output_dir among them.")
    return settings


def train(config: Path, launch: list[str], folder: Path, arguments: list[str]) -> Path:
    """`accelerate launch` the recipe of `config` with `arguments` into `folder`; a finished run is not run again.

    `launch` are the words for the launcher. Runs that are logged to W&B are grouped by the YAML's output_dir, unless
    WANDB_RUN_GROUP says otherwise.

    Raises:
        SystemExit: the run ended with another status than 0.
    """
    recipe = [str(config.with_name("train.py")), "--config", str(config), *arguments, "--output_dir", str(folder)]
    words = [sys.executable, "-m", "accelerate.commands.launch", *launch, *recipe]
    print(f"\n== {folder}: {shlex.join(['accelerate', 'launch', *words[3:]])}", flush=True)
    environment = {"WANDB_RUN_GROUP": Path(read_settings(config)["output_dir"]).name, **os.environ}
    with subprocess.Popen(words, env=environment) as process:
        status = _wait(process)
    if status:
        print(f"error: the run in {folder} ended with status {status}; what it said stands above.", file=sys.stderr)
        print("If it was interrupted, the same command (without --fresh) goes on.", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)
    return folder


def launch_words(launch_file: Path, num_processes: int | None) -> list[str]:
    """What `accelerate launch` is told.

    Example: `launch_words(Path("ddp.yaml"), 2) == ["--config_file", "ddp.yaml", "--num_processes", "2"]`
    """
    words = ["--config_file", str(launch_file)]
    return words if num_processes is None else [*words, "--num_processes", str(num_processes)]


def _wait(process: subprocess.Popen) -> int:
    """The exit status; on Ctrl-C too, which the run has got as well: it saves a checkpoint before it ends."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def check_given(words: list[str], taken: set[str], remedy: str) -> None:
    """Refuse options for the recipe that a script sets itself.

    Raises:
        SystemExit: which, and what to do.
    """
    wrong = sorted(options_given(words) & taken)
    if wrong:
        raise SystemExit(f"error: {', '.join(f'--{name}' for name in wrong)} cannot be given: {remedy}")


def read_evaluation(folder: Path) -> tuple[Rows, Rows]:
    """The judged rows of a finished run, before and after.

    Raises:
        ValueError: the run has none.
    """
    files = [folder / "evaluation" / f"{stage}.jsonl" for stage in ("before", "after")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing: is {folder} a finished run with num_eval_rows > 0?")
    return read_rows(files[0]), read_rows(files[1])


def outcomes(rows: Rows, metric: str) -> list[bool]:
    """What a metric says of each row that has it."""
    return [row["metrics"][metric] for row in rows if metric in row["metrics"]]


def over_seeds(evaluations: list[tuple[Rows, Rows]]) -> dict[str, dict[str, Any]]:
    """Each metric over several seeds.

    Returns:
        metric -> `before` and `after`, each with the share of every seed (`seeds`, None where no row has the metric),
        their `mean`, its 95 % Student `interval` over seeds (None for a single one), and of all rows taken together
        the Wilson interval (`pooled`), their number `n`, and how many different `prompts` there are among them; and
        the exact McNemar `p` of each seed: rows recur between seeds, so that a test over all would be too sure.
    """
    names = dict.fromkeys(name for before, _ in evaluations for name in metric_names(before))
    return {name: _of_metric(evaluations, name) for name in names}


def _of_metric(evaluations: list[tuple[Rows, Rows]], name: str) -> dict[str, Any]:
    before, after = ([evaluation[stage] for evaluation in evaluations] for stage in (0, 1))
    p = [compare(*evaluation).get(name) for evaluation in evaluations]
    return {"before": _over_seeds(before, name), "after": _over_seeds(after, name), "p": p}


def _over_seeds(evaluations: list[Rows], metric: str) -> dict[str, Any]:
    judged = [outcomes(rows, metric) for rows in evaluations]
    shares = [sum(of_seed) / len(of_seed) if of_seed else None for of_seed in judged]
    known, everywhere = [share for share in shares if share is not None], [value for of in judged for value in of]
    return {
        "seeds": shares,
        "mean": sum(known) / len(known),
        "interval": t_interval(known, 0.0, 1.0),
        "pooled": wilson_interval(sum(everywhere), len(everywhere)),
        "n": len(everywhere),
        "prompts": len({json.dumps(row["prompt"]) for rows in evaluations for row in rows if metric in row["metrics"]}),
    }


def seeds_table(seeds: list[int], metrics: dict[str, dict[str, Any]]) -> str:
    """One line a seed and metric, then the means with both intervals."""
    lines = []
    for name, value in metrics.items():
        before, after = value["before"], value["after"]
        lines.append(f"{name}:")
        for seed, old, new, p in zip(seeds, before["seeds"], after["seeds"], value["p"], strict=True):
            change = "" if p is None else f"   {100 * (new - old):+.1f} pt   McNemar p {p:.2g}"
            lines.append(f"  seed {seed:<6} {percent(old):>8} -> {percent(new):>7}{change}")
        lines.append(f"  mean        {percent(before['mean']):>8} -> {percent(after['mean']):>7}")
        if after["interval"]:
            lines.append(f"    after, 95 % over seeds (Student)      {span(after['interval'])}")
        recur = f", {after['prompts']} of them different" if after["prompts"] < after["n"] else ""
        lines.append(f"    after, 95 % over {after['n']} rows (Wilson)   {span(after['pooled'])}{recur}")
    return "\n".join(lines)


def percent(value: float | None) -> str:
    """Example: `percent(0.421) == "42.1 %"`; what has no value is a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def span(interval: tuple[float, float]) -> str:
    """Example: `span((0.377, 0.465)) == "38 to 46 %"`"""
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"
