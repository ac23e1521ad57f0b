"""Train and compare several runs of one YAML: the YAML as configured and its control arms, by seed.

A control arm trains the model in another way, with rewards that do not know the right answer or
with supervised steps, and is evaluated on the same held-out rows. The part of the gain that exceeds
the best control arm comes from the rewards. Rows of different seeds are never pooled, because the
same question can be in several seeds.
"""

import contextlib
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from recipes.common.evaluation.scores import metric_names, outcomes, paired
from recipes.common.report.page import write_comparison
from recipes.common.settings import expand_path, options_given
from recipes.common.utils import run_files as files
from recipes.common.utils.secrets import hide_secrets
from recipes.common.utils.stats import (
    interval_of_mean,
    mcnemar_p,
    paired_interval,
    t_interval,
    wilson_interval,
)
from recipes.common.utils.tables import (
    format_table,
    in_words,
    p_value,
    percent,
    points,
    share_and_span,
)
from recipes.common.utils.yaml_file import read_yaml
from rewards import load_rewards

CONFIGURED, SFT, SFT_GRPO, FORMAT_ONLY = "as configured", "sft", "sft+grpo", "format-only"
WARM_START_ROWS = 256  # of sft+grpo: the default of scripts/warm_start.py
# The script sets these options for each run, so a user cannot give them.
SET_BY_SCRIPT = {"seed", "output_dir"}
SET_BY_ARMS = {
    "preset", "reward_funcs", "reward_weights", "reward_kwargs", "reward_tasks", "reward_gates",
}  # fmt: skip
LEAST = {"before": 0.0, "after": 0.0, "change": -1.0, "beyond": -1.0}  # the most is 1.0
SET_BY_WARM_START = {"learning_rate"}  # scripts/warm_start.py takes it for its own
SAVED_IN_JSON = ["metric", "arm", "seed", "minutes", "n", *LEAST, "p", "beyond_p"]


def run_arms(options: Namespace, words: list[str]) -> None:
    """Train the missing runs and compare all; print and write table, figures and curves.

    `options` are those of scripts/arms.py; `words`, such as `["--max_steps", "9"]`, are passed to
    the recipe. `ValueError` if they hold an option that the script sets itself.
    """
    settings = read_settings(options.config)
    folders = {}  # arm (a way to train) -> seed -> folders of the run, as `compare_arms` takes it
    not_allowed = SET_BY_SCRIPT | (SET_BY_ARMS if options.arms else set())
    not_allowed |= SET_BY_WARM_START if {SFT, SFT_GRPO} & set(options.arms) else set()
    if wrong := sorted(options_given(words) & not_allowed):
        names = ", ".join(f"--{name}" for name in wrong)
        raise ValueError(
            f"{names} cannot be given: control runs follow from the YAML; seeds: --seeds, folder: "
            "--output_dir."
        )
    problems: list[str] = []
    stem = options.output_dir or expand_path("output_dir", settings["output_dir"], problems)
    if problems:
        raise ValueError(problems[0])
    stem = Path(stem)
    for arm in [CONFIGURED, *options.arms]:
        rewards = rewards_of_arm(settings, arm)
        if rewards is None:
            print(f"The control run {arm} is left out: it would show nothing here.")
            continue
        folders[arm] = {
            seed: run_arm(options, stem, arm, seed, [*words, *rewards]) for seed in options.seeds
        }
    runs = compare_arms(folders)
    table = arms_table(runs)
    written = f"{stem}-arms"  # with_suffix would cut a name such as "lr-0.5"
    files.write_json(Path(f"{written}.json"), {"runs": runs[SAVED_IN_JSON].to_dict("records")})
    files.write_whole(Path(f"{written}.txt"), table + "\n")
    print(f"\n{options.config}\n{table}\nSaved {written}.txt and {written}.json")
    if len(options.seeds) > 1:
        configured = [run[0] for run in folders[CONFIGURED].values()]
        write_comparison(configured, Path(f"{written}.html"))
        print(f"Saved {written}.html")


def read_settings(config: Path) -> dict[str, Any]:
    """Read a run's YAML; `ValueError` if it has no output_dir or no train.py next to it."""
    if not config.with_name("train.py").is_file():
        raise ValueError(
            f"{config} has no train.py next to it: --config names a YAML inside a recipe's folder."
        )
    settings = read_yaml(config)
    if not settings.get("output_dir"):
        raise ValueError(f"{config} names no output_dir.")
    return settings


# --- Running


def run_arm(options: Namespace, stem: Path, arm: str, seed: int, words: list[str]) -> list[Path]:
    """Run one arm with one seed; return its folders: one, or its warm start and the run after it.

    `arm` names a way to train, such as "sft" or "random"; `stem` is the folder's path without arm
    and seed; `words` are options of the recipe.
    """

    def folder(label: str) -> Path:
        """The folder of a run of this seed, such as runs/quickstart-random-seed0."""
        return stem.with_name(f"{stem.name}{label}-seed{seed}")

    words = [*words, "--seed", str(seed)]
    if arm == SFT:
        rows = options.sft_rows or 16 * options.sft_steps  # 16 rows a step: each row once
        return [supervise(options, words, rows, options.sft_steps, folder("-sft"))]
    if arm == SFT_GRPO:
        warm = supervise(options, words, WARM_START_ROWS, options.warm_steps, folder("-warm-start"))
        words += ["--model_name_or_path", str(warm)]
        return [warm, train(options, folder("-sft-grpo"), words)]
    return [train(options, folder("" if arm == CONFIGURED else f"-{arm}"), words)]


def train(options: Namespace, folder: Path, words: list[str]) -> Path:
    """`accelerate launch` the recipe into `folder`; the recipe does not repeat a finished run.

    W&B names a run by its folder unless `words` name it, and groups the runs by the YAML's
    output_dir, unless WANDB_RUN_GROUP names another group.
    """
    config = options.config
    command = ["-m", "accelerate.commands.launch", "--config_file", str(options.launch)]
    if options.num_processes is not None:
        command += ["--num_processes", str(options.num_processes)]
    command += [str(config.with_name("train.py")), "--config", str(config), *words]
    if "run_name" not in options_given(words):
        command += ["--run_name", folder.name]
    return run_python(folder, command, group=Path(read_settings(config)["output_dir"]).name)


def supervise(options: Namespace, words: list[str], rows: int, steps: int, folder: Path) -> Path:
    """Train supervised (scripts/warm_start.py), unless it was done; ValueError if not as asked."""
    if done := files.read_json(folder / files.WARM_START, {}):
        if (done["rows"], done["steps"]) != (rows, steps):
            raise ValueError(f"{folder} has {done['steps']} steps, {done['rows']} rows: remove it.")
        return folder
    command = ["scripts/warm_start.py", "--config", str(options.config), "--rows", str(rows)]
    return run_python(folder, [*command, "--steps", str(steps), *words])


def run_python(folder: Path, command: list[str], group: str = "") -> Path:
    """Run Python with `command` and `--output_dir folder` until it ends; return the folder.

    `group` is the default of WANDB_RUN_GROUP. If the command fails, exit with its status. Ctrl-C
    reaches the child, too: wait until it has saved.
    """
    print(f"\n== {folder}: python {shlex.join(hide_secrets(command))}", flush=True)
    words = [sys.executable, *command, "--output_dir", str(folder)]
    with subprocess.Popen(words, env={"WANDB_RUN_GROUP": group, **os.environ}) as process:
        while process.returncode is None:
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
    if status := process.returncode:
        print(
            f"error: what fills {folder} ended with status {status}; its messages stand above.\n"
            "If it was interrupted, the same command (without --fresh) goes on.",
            file=sys.stderr,
        )
        raise SystemExit(status if status > 0 else 1)
    return folder


def rewards_of_arm(settings: dict[str, Any], arm: str) -> list[str] | None:
    """The option that sets the rewards of an arm; [] if the arm keeps the YAML's rewards.

    Example: `["--reward_funcs", "random"]`: what the YAML sets for rewards that this replaces, such
    as their weights, falls away by itself. `settings` are those of the YAML. None if format-only
    would show nothing: none or all of its rewards are for the format.
    """
    if arm in (CONFIGURED, SFT, SFT_GRPO):
        return []
    if settings.get("preset"):
        raise ValueError("a preset may add a reward to a control run: put its keys into the YAML.")
    if arm != FORMAT_ONLY:
        return ["--reward_funcs", arm]  # random, constant and majority name a reward
    names = settings["reward_funcs"]
    rewards = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
    pairs = zip(names, rewards, strict=True)
    formats = [name for name, reward in pairs if reward.kind == "format"]
    return None if len(formats) in (0, len(names)) else ["--reward_funcs", *formats]


# --- Comparing: one line for each metric, arm and seed


def compare_arms(folders: dict[str, dict[int, list[Path]]]) -> pd.DataFrame:
    """The figures of each arm by each metric and seed: one line of the table for each of them.

    `folders` maps arm -> seed -> the folders of that run: one, or its warm start and the run after
    it. The columns are metric, arm, seed, minutes, and those of `figures_of_arm`, taken over the
    rows that have the metric in all three evaluations: this arm before and after, and the run as
    configured after. ValueError if the runs of a seed were evaluated on different rows.
    """
    lines = []
    for arm, runs in folders.items():
        for seed, run in runs.items():
            before, _ = files.read_evaluation(run[0])  # with a warm start, before that
            _, after = files.read_evaluation(run[-1])
            _, configured = files.read_evaluation(folders[CONFIGURED][seed][-1])
            prompts = [[row["prompt"] for row in rows] for rows in (before, after, configured)]
            if any(of_stage != prompts[0] for of_stage in prompts):
                raise ValueError("the runs were not evaluated on the same rows in the same order")
            minutes = sum(minutes_of(folder) for folder in run)
            for metric in metric_names(before):
                stages = paired(*(outcomes(rows, metric) for rows in (before, after, configured)))
                if stages[0]:  # a seed of a mixture may have no row of a task
                    line = {"metric": metric, "arm": arm, "seed": seed, "minutes": minutes}
                    lines.append({**line, **figures_of_arm(*stages)})
    return pd.DataFrame(lines)


def figures_of_arm(before: list[bool], after: list[bool], configured: list[bool]) -> dict[str, Any]:
    """The figures of an arm by one metric and seed, with their intervals over rows.

    The arguments are the outcomes of the same rows: of the arm before and after training, and of
    the run as configured after training. `before` and `after` of the result are shares of rows,
    `change` is their difference with McNemar's `p`, and `beyond` how far the run as configured
    ends above the arm, with `beyond_p`.
    """
    return {
        "n": len(after),
        "before": fmean(before),
        "after": fmean(after),
        "change": fmean(after) - fmean(before),
        "beyond": fmean(configured) - fmean(after),
        "p": mcnemar_p(before, after),
        "beyond_p": mcnemar_p(after, configured),
        "before_interval": wilson_interval(sum(before), len(before)),
        "after_interval": wilson_interval(sum(after), len(after)),
        "change_interval": paired_interval(before, after),
        "beyond_interval": paired_interval(after, configured),
    }


def minutes_of(folder: Path) -> float:
    """The minutes of a run, or of a warm start."""
    record = files.read_json(folder / files.SUMMARY) or files.read_json(folder / files.WARM_START)
    return record["minutes"]


def mean_and_interval(runs: pd.DataFrame, column: str) -> tuple[float, tuple[float, float]]:
    """The mean of a column over seeds, with its interval: over rows for one seed or equal ones.

    `runs` are the lines of one arm and metric; `column` is before, after, change or beyond.
    """
    values = runs[column].round(9).tolist()  # shares, or differences of shares
    over_rows = runs[f"{column}_interval"].iloc[0]
    return fmean(values), interval_of_mean(values, LEAST[column], 1.0, of_equal=over_rows)


# --- Showing


def arms_table(runs: pd.DataFrame) -> str:
    """The text of the comparison: for each metric the arms (and their seeds), then the verdict."""
    blocks, several = [], runs["seed"].nunique() > 1
    for metric, of_metric in runs.groupby("metric", sort=False):
        table = []
        for arm, of_arm in of_metric.groupby("arm", sort=False):
            if several:
                for seed, of_seed in of_arm.groupby("seed", sort=False):
                    table.append(line_of(f"  seed {seed}", of_seed))
            table.append(line_of(arm, of_arm))
        rows = of_metric[of_metric["arm"] == CONFIGURED]["n"].iloc[0]
        title = f"{in_words(metric)}, {rows} test questions{' a seed' * several}"
        blocks.append(f"{title}\n{format_table(table)}\n  {verdict_of(of_metric)}")
    footnote = "The last column: how far the run as configured ends above that one. "
    if several:
        footnote += (
            "Intervals are Student's over seeds (of one seed, or of equal ones: over its "
            "questions); where some seeds learn and others do not, they hold less often."
        )
    else:
        footnote += "Intervals are over the questions of one seed: another may move each run."
    return "\n\n".join([*blocks, footnote])


def line_of(name: str, runs: pd.DataFrame) -> dict[str, str | None]:
    """The line of the table for the runs of one arm and metric: of one seed, or means without p."""
    is_configured = runs["arm"].iloc[0] == CONFIGURED
    return {
        "run": name,
        "minutes": f"{runs['minutes'].mean():.1f}",
        "before": percent(runs["before"].mean()),
        "after (95 %)": share_and_span(*mean_and_interval(runs, "after")),
        "change (95 %)": points(*mean_and_interval(runs, "change")),
        "McNemar p": p_value(runs["p"].iloc[0]) if len(runs) == 1 else None,
        "configured above": None if is_configured else points(*mean_and_interval(runs, "beyond")),
    }


def verdict_of(runs: pd.DataFrame) -> str:
    """Sentences on the gain of the run as configured, and how far it is above the best other arm.

    `runs` are the lines of one metric, `beyond` is how far the run as configured ends above an arm.
    A gain is shown if its interval over seeds is above 0; for a single seed, if McNemar's p < 0.05.
    """

    def direction(of_arm: pd.DataFrame, column: str, among: int = 1) -> int:
        """1 if `column` is above 0 by more than chance, -1 if it is below, else 0.

        The arm is the best `among` so many (Bonferroni).
        """
        mean, (low, high) = mean_and_interval(of_arm, column)
        values = of_arm[column].round(9).tolist()  # as `mean_and_interval`: equal seeds are equal
        if len(values) == 1:
            p = of_arm["p" if column == "change" else "beyond_p"].iloc[0]
            return int(mean > 0.0) - int(mean < 0.0) if p < 0.05 / among else 0
        if among > 1 and len(set(values)) > 1:
            low, high = t_interval(values, 0.05 / among)
        return int(low > 0.0) - int(high < 0.0)

    configured, others = runs[runs["arm"] == CONFIGURED], runs[runs["arm"] != CONFIGURED]
    gain = f"The run as configured gained {points(*mean_and_interval(configured, 'change'))}"
    change = direction(configured, "change")
    if others.empty:
        return f"{gain}.{' It got worse.' * (change < 0)}{' That may be chance.' * (change == 0)}"
    best = others.groupby("arm")["after"].mean().idxmax()
    of_best = others[others["arm"] == best]
    above_best = points(*mean_and_interval(of_best, "beyond"))
    words = f"{gain}; it ends {above_best} above the best control run, {best}."
    is_worse = direction(of_best, "beyond", among=others["arm"].nunique()) < 0
    if is_worse:
        words += f" {best} does better, in these runs."
    if change < 0:
        return f"{words} It got worse."
    if change == 0:
        return f"{words} Its own gain may be chance."
    if direction(of_best, "beyond") > 0:
        return f"{words} That part of the gain came from what {best} lacks, in these runs."
    if is_worse:
        return words
    return f"{words} That may be chance: {best} may bring all of the gain."
