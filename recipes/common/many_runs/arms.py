"""Several runs of one YAML taken together: other seeds of it, and control arms beside it.

A control arm reaches the same held-out rows in another way: with rewards that know nothing, or by
supervised steps. What is left of a gain above the best of them comes from the rewards. The rows of
different seeds are never taken together, because questions recur between seeds.
"""

import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from recipes.common.evaluation.scores import metric_names, outcomes_of, paired
from recipes.common.report.plots import plot_runs
from recipes.common.settings import REWARD_MAPPINGS, REWARD_SETTINGS, options_given
from recipes.common.utils import run_files
from recipes.common.utils.run_files import read_evaluation, read_json, write_json, write_whole
from recipes.common.utils.secrets import blank
from recipes.common.utils.stats import mcnemar_p, paired_interval, t_interval, wilson_interval
from recipes.common.utils.tables import format_table, percent, points, share_and_span
from recipes.common.utils.yaml_file import read_yaml
from rewards import load_rewards, reward_kind

Rows = list[dict[str, Any]]

CONFIGURED, SFT, SFT_GRPO, FORMAT_ONLY = "as configured", "sft", "sft+grpo", "format-only"
WARM_START_ROWS = 256  # of sft+grpo, as of scripts/warm_start.py
# The script sets these for each run, so that they cannot be given for all of them.
TAKEN = {"seed", "output_dir"}
TAKEN_BY_ARMS = {"preset", "reward_funcs", *REWARD_SETTINGS}
LEAST, MOST = {"before": 0.0, "after": 0.0}, 1.0  # of a share; a change goes from -1 to 1


def run_arms(options: Namespace, words: list[str]) -> None:
    """Train what is not trained yet, compare, print, and write the table, its figures and curves.

    The options are those of scripts/arms.py, `words` go to the recipe. `ValueError` where an option
    of the recipe is set by the script itself.
    """
    settings, folders = read_settings(options.config), {}
    taken = TAKEN | TAKEN_BY_ARMS if options.arms else TAKEN
    if wrong := sorted(options_given(words) & taken):
        remedy = "the arms follow from the YAML; seeds: --seeds, folder: --output_dir."
        raise ValueError(f"{', '.join(f'--{name}' for name in wrong)} cannot be given: {remedy}")
    stem = options.output_dir or Path(settings["output_dir"])
    for name in [CONFIGURED, *options.arms]:
        rewards = rewards_of_arm(settings, name)
        if rewards is None:
            print(f"The arm {name} is left out: it would show nothing here.")
            continue
        given = [*words, *rewards]
        folders[name] = {seed: _run(options, stem, name, seed, given) for seed in options.seeds}
    runs = compare_arms(folders)
    written = stem.with_name(f"{stem.name}-arms")
    write_json(
        written.with_suffix(".json"), {"runs": runs.drop(columns=OVER_ROWS).to_dict("records")}
    )
    table = arms_table(runs)
    write_whole(written.with_suffix(".txt"), table + "\n")
    print(f"\n{options.config}\n{table}\nSaved {written}.txt and {written}.json")
    if len(options.seeds) > 1:
        plot_runs([of[0] for of in folders[CONFIGURED].values()], written.with_suffix(".png"))
        print(f"Saved {written}.png")


def read_settings(config: Path) -> dict[str, Any]:
    """Read the YAML of a run; `ValueError` without a train.py next to it, or an output_dir."""
    if not config.with_name("train.py").is_file():
        place = "--config names a YAML inside a recipe's folder"
        raise ValueError(f"{config} has no train.py next to it: {place}.")
    settings = read_yaml(config)
    if not settings.get("output_dir"):
        raise ValueError(f"{config} names no output_dir.")
    return settings


# --- Running


def _run(options: Namespace, stem: Path, name: str, seed: int, words: list[str]) -> list[Path]:
    """Run one arm with one seed; return the folders that hold its start and its end."""

    def folder(label: str) -> Path:
        return stem.with_name(f"{stem.name}{label}-seed{seed}")

    words = [*words, "--seed", str(seed)]
    if name == SFT:
        rows = options.sft_rows or 16 * options.sft_steps
        return [supervise(options, words, rows, options.sft_steps, folder("-sft"))]
    if name == SFT_GRPO:
        warm = supervise(options, words, WARM_START_ROWS, options.warm_steps, folder("-warm-start"))
        words += ["--model_name_or_path", str(warm)]
        return [warm, train(options, folder("-sft-grpo"), words)]
    return [train(options, folder("" if name == CONFIGURED else f"-{name}"), words)]


def train(options: Namespace, folder: Path, words: list[str]) -> Path:
    """`accelerate launch` the recipe into `folder`; a finished run is not run again.

    Runs that are logged to W&B are grouped by the YAML's output_dir, unless WANDB_RUN_GROUP names
    another group.
    """
    config, group = options.config, Path(read_settings(options.config)["output_dir"]).name
    command = ["-m", "accelerate.commands.launch", "--config_file", str(options.launch)]
    if options.num_processes is not None:
        command += ["--num_processes", str(options.num_processes)]
    command += [str(config.with_name("train.py")), "--config", str(config)]
    return finish(folder, [*command, *words, "--output_dir", str(folder)], group)


def supervise(options: Namespace, words: list[str], rows: int, steps: int, folder: Path) -> Path:
    """Warm-start into `folder`, once, by scripts/warm_start.py."""
    if (folder / run_files.WARM_START).is_file():
        return folder
    command = ["scripts/warm_start.py", "--config", str(options.config), "--rows", str(rows)]
    return finish(folder, [*command, "--steps", str(steps), "--output_dir", str(folder), *words])


def finish(folder: Path, command: list[str], group: str = "") -> Path:
    """Run Python until it ends; on Ctrl-C, which it gets as well, wait until it has saved."""
    print(f"\n== {folder}: python {shlex.join(blank(command))}", flush=True)
    environment = {**({"WANDB_RUN_GROUP": group} if group else {}), **os.environ}
    with subprocess.Popen([sys.executable, *command], env=environment) as process:
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                continue
    if status:
        ended = f"what fills {folder} ended with status {status}; its messages stand above."
        again = "If it was interrupted, the same command (without --fresh) goes on."
        print(f"error: {ended}\n{again}", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)
    return folder


def rewards_of_arm(settings: dict[str, Any], name: str) -> list[str] | None:
    """The options that replace the run's rewards; None where the arm would show nothing."""
    if name in (CONFIGURED, SFT, SFT_GRPO):
        return []
    if settings.get("preset"):
        raise ValueError("a preset may add a reward to every arm: put its keys into the YAML.")
    names, kept = settings["reward_funcs"], [name]
    if name == FORMAT_ONLY:
        rewards = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
        kept = [n for n, of in zip(names, rewards, strict=True) if reward_kind(of) == "format"]
        if len(kept) in (0, len(names)):
            return None
    words = ["--reward_funcs", *kept]
    if settings.get("reward_weights"):
        weights = dict(zip(names, settings["reward_weights"], strict=True))
        words += ["--reward_weights", *(str(weights.get(name, 1.0)) for name in kept)]
    for setting in REWARD_MAPPINGS:
        if given := settings.get(setting):
            of_kept = {name: value for name, value in given.items() if name in kept}
            words += [f"--{setting}", json.dumps({} if setting == "reward_gates" else of_kept)]
    return words


# --- Comparing: one line for each metric, arm and seed


OVER_ROWS = ["before_interval", "after_interval", "change_interval", "beyond_interval"]


def compare_arms(folders: dict[str, dict[int, list[Path]]]) -> pd.DataFrame:
    """Compare arms, given the folders of each seed, by each metric, each seed on its own rows.

    `before` and `after` are shares of the `n` rows that all of a seed's evaluations have, `change`
    is the difference, with McNemar's exact `p`, and `beyond` how much the run as configured is
    above this arm after training. Each has its interval over rows. `ValueError`: other rows.
    """
    evaluated = {
        arm: {
            seed: (read_evaluation(of[0])[0], read_evaluation(of[-1])[1]) for seed, of in by.items()
        }
        for arm, by in folders.items()
    }
    lines = []
    for arm, by_seed in evaluated.items():
        for seed, (before, after) in by_seed.items():
            end, spent = evaluated[CONFIGURED][seed][1], sum(map(_minutes, folders[arm][seed]))
            if (
                len({json.dumps([row["prompt"] for row in rows]) for rows in (before, after, end)})
                > 1
            ):
                raise ValueError("the runs were not evaluated on the same rows in the same order")
            for metric in metric_names(before):
                known = paired(*(outcomes_of(rows, metric) for rows in (before, after, end)))
                if known[0]:  # of a mixture a seed may have drawn no row of a task
                    line = {"metric": metric, "arm": arm, "seed": seed, "minutes": spent}
                    lines.append({**line, **compare_outcomes(*known)})
    return pd.DataFrame(lines)


def compare_outcomes(before: list[bool], after: list[bool], best: list[bool]) -> dict[str, Any]:
    return {
        "n": len(after),
        "before": fmean(before),
        "after": fmean(after),
        "change": fmean(after) - fmean(before),
        "beyond": fmean(best) - fmean(after),
        "p": mcnemar_p(before, after),
        "beyond_p": mcnemar_p(after, best),
        "before_interval": wilson_interval(sum(before), len(before)),
        "after_interval": wilson_interval(sum(after), len(after)),
        "change_interval": paired_interval(before, after),
        "beyond_interval": paired_interval(after, best),
    }


def _minutes(folder: Path) -> float:
    return (read_json(folder / run_files.SUMMARY) or read_json(folder / run_files.WARM_START))[
        "minutes"
    ]


def mean_and_interval(runs: pd.DataFrame, stage: str) -> tuple[float, tuple[float, float]]:
    """The mean over seeds and Student's interval; of a single seed its own, over rows."""
    values = runs[stage].tolist()
    over_seeds = t_interval(values, LEAST.get(stage, -1.0), MOST)
    return fmean(values), over_seeds or runs[f"{stage}_interval"].iloc[0]


# --- Showing


def arms_table(runs: pd.DataFrame) -> str:
    """One block a metric: a line for each seed of an arm, one for the arm, and the verdict."""
    blocks, several = [], runs["seed"].nunique() > 1
    for metric, of_metric in runs.groupby("metric", sort=False):
        lines = []
        for arm, of_arm in of_metric.groupby("arm", sort=False):
            for _, run in of_arm.iterrows() if several else ():
                moved, above = points(run["change"]), points(run["beyond"])
                shares = [percent(run["before"]), percent(run["after"])]
                lines.append(
                    [f"  seed {run['seed']}", run["minutes"], *shares, moved, run["p"], above]
                )
            p = None if several else of_arm["p"].iloc[0]
            after, change, beyond = (
                mean_and_interval(of_arm, stage) for stage in ("after", "change", "beyond")
            )
            shares = [percent(of_arm["before"].mean()), share_and_span(*after)]
            above = None if arm == CONFIGURED else points(*beyond)
            lines.append([arm, of_arm["minutes"].mean(), *shares, points(*change), p, above])
        head = [
            "arm",
            "minutes",
            "before",
            "after (95 %)",
            "change (95 %)",
            "McNemar p",
            "beyond it",
        ]
        for line in lines:
            line[1], line[5] = f"{line[1]:.1f}", None if line[5] is None else f"{line[5]:.2g}"
        n = of_metric[of_metric["arm"] == CONFIGURED]["n"].sum()
        shown = format_table([dict(zip(head, line, strict=True)) for line in lines])
        blocks.append(f"{metric}, {n} held-out rows\n{shown}\n  {verdict(of_metric)}")
    over = "over the rows of one seed: others may move each arm by some points."
    if several:
        over = "Student's over seeds; where a seed takes off or does not, they hold less often."
    return "\n\n".join(
        [*blocks, f"Beyond it: the run as configured above that arm. Intervals: {over}"]
    )


def verdict(runs: pd.DataFrame) -> str:
    """How much of the gain of the run as configured is left above the best other arm.

    Shown is what has an interval over seeds above 0; of a single seed, what has McNemar's p < 0.05.
    """
    configured, others = (
        runs[same] for same in (runs["arm"] == CONFIGURED, runs["arm"] != CONFIGURED)
    )
    gain = f"gain {points(*mean_and_interval(configured, 'change'))}"
    if others.empty:
        return f"{gain}."
    best = others.groupby("arm")["after"].mean().idxmax()
    rest = others[others["arm"] == best]
    left = (
        f"{gain}; above the best other arm ({best}) {points(*mean_and_interval(rest, 'beyond'))}."
    )
    if not _is_shown(configured, "change", "p"):
        return f"{left} The run as configured shows no gain of its own here."
    if _is_shown(rest, "beyond", "beyond_p"):
        return f"{left} What is above it came from what that arm lacks, in the runs at hand."
    return f"{left} Nothing beyond what {best} brings is shown."


def _is_shown(runs: pd.DataFrame, stage: str, p: str) -> bool:
    mean, (low, _) = mean_and_interval(runs, stage)
    return low > 0.0 if len(runs) > 1 else mean > 0.0 and runs[p].iloc[0] < 0.05
