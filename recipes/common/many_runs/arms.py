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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from operator import sub
from pathlib import Path
from statistics import fmean
from typing import Any

from recipes.common.evaluation.scores import metric_names, outcomes_of, paired
from recipes.common.report.plots import plot_runs
from recipes.common.settings import (
    ADDED,
    REWARD_MAPPINGS,
    REWARD_SETTINGS,
    options_given,
    read_presets,
)
from recipes.common.utils.run_files import (
    SUMMARY,
    WARM_START,
    read_evaluation,
    read_json,
    write_json,
    write_whole,
)
from recipes.common.utils.secrets import blank
from recipes.common.utils.stats import mcnemar_p, paired_interval, t_interval, wilson_interval
from recipes.common.utils.tables import format_table, percent, points, share_and_span
from recipes.common.utils.yaml_file import read_yaml
from rewards import load_rewards, reward_kind, reward_tasks

Rows = list[dict[str, Any]]
Figures = dict[str, Any]  # of an arm in one metric, as `compare_arms` returns them

CONFIGURED, SFT, SFT_GRPO = "as configured", "sft", "sft+grpo"
WARM_START_ROWS = 256  # of sft+grpo, as of scripts/warm_start.py
# The script sets these for each run, so that they cannot be given for all of them.
TAKEN = {"seed", "output_dir"}
TAKEN_BY_ARMS = {"preset", "reward_funcs", *REWARD_SETTINGS}


@dataclass(frozen=True)
class Series:
    """What to run: a YAML with these seeds, and beside it these arms."""

    config: Path
    seeds: list[int]
    arms: list[str]
    words: list[str]  # arguments of the recipe
    launch: Path  # a launch file
    num_processes: int | None = None  # None: the launch file's
    output_dir: Path | None = None  # None: the YAML's
    sft_steps: int = 64
    sft_rows: int | None = None  # None: 16 a step
    warm_steps: int = 32


def run_series(series: Series) -> None:
    """Train what is not trained yet, compare, print, and write the table, its figures and curves.

    `ValueError` where it cannot be.
    """
    check_given(series)
    settings, arms, minutes = read_settings(series.config), {}, {}
    stem = series.output_dir or Path(settings["output_dir"])
    rewards = rewards_of_arms(settings) if series.arms else {CONFIGURED: []}
    for name in [CONFIGURED, *series.arms]:
        if name not in (*rewards, SFT, SFT_GRPO):
            print(f"The arm {name} is left out: it would show nothing here.")
            continue
        folders = [_run_arm(series, stem, name, rewards.get(name), seed) for seed in series.seeds]
        arms[name] = [(read_evaluation(of[0])[0], read_evaluation(of[-1])[1]) for of in folders]
        minutes[name] = [sum(map(_minutes, of)) for of in folders]
        if name == CONFIGURED:
            configured = [folder for (folder,) in folders]
    compared = compare_arms(arms)
    table = arms_table(series.seeds, compared, minutes)
    written = stem.with_name(f"{stem.name}-arms")
    figures = {"seeds": series.seeds, "minutes": minutes, "metrics": compared}
    write_json(written.with_suffix(".json"), figures)
    write_whole(written.with_suffix(".txt"), table + "\n")
    print(f"\n{series.config}\n{table}\nSaved {written}.txt and {written}.json")
    if len(series.seeds) > 1:
        plot_runs(configured, written.with_suffix(".png"))
        print(f"Saved {written}.png")


def check_given(series: Series) -> None:
    """Refuse a seed that is named twice, and options that the series sets itself."""
    if len(set(series.seeds)) < len(series.seeds):
        raise ValueError(f"--seeds {' '.join(map(str, series.seeds))} names a seed twice.")
    taken = TAKEN | TAKEN_BY_ARMS if series.arms else TAKEN
    if wrong := sorted(options_given(series.words) & taken):
        remedy = "the arms follow from the YAML; seeds: --seeds, folder: --output_dir."
        raise ValueError(f"{', '.join(f'--{name}' for name in wrong)} cannot be given: {remedy}")


def read_settings(config: Path) -> dict[str, Any]:
    """Read the YAML of a run; `ValueError` where no train.py is next to it, or without output_dir.

    Errors as of `read_yaml`, too.
    """
    if not config.with_name("train.py").is_file():
        place = "--config names a YAML inside a recipe's folder"
        raise ValueError(f"{config} has no train.py next to it: {place}.")
    settings = read_yaml(config)
    if not settings.get("output_dir"):
        raise ValueError(f"{config} names no output_dir.")
    return settings


# --- Running


def _run_arm(
    series: Series, stem: Path, name: str, rewards: list[str] | None, seed: int
) -> list[Path]:
    """Run one arm with one seed; return the folders that hold its start and its end."""

    def folder(label: str) -> Path:
        return stem.with_name(f"{stem.name}{label}-seed{seed}")

    words = [*series.words, "--seed", str(seed)]
    if name == SFT:
        rows = series.sft_rows or 16 * series.sft_steps
        return [supervise(series.config, words, rows, series.sft_steps, folder("-sft"))]
    if name == SFT_GRPO:
        label = folder("-warm-start")
        warm = supervise(series.config, words, WARM_START_ROWS, series.warm_steps, label)
        words += ["--model_name_or_path", str(warm)]
        return [warm, train(series, folder("-sft-grpo"), words)]
    label = "" if name == CONFIGURED else f"-{name}"
    return [train(series, folder(label), [*words, *rewards])]


def train(series: Series, folder: Path, words: list[str]) -> Path:
    """`accelerate launch` the recipe with `words` into `folder`; exits where it fails.

    A finished run is not run again. Runs that are logged to W&B are grouped by the YAML's
    output_dir, unless WANDB_RUN_GROUP names another group.
    """
    config, command = series.config, ["--config_file", str(series.launch)]
    if series.num_processes is not None:
        command += ["--num_processes", str(series.num_processes)]
    command += [str(config.with_name("train.py")), "--config", str(config)]
    command += [*words, "--output_dir", str(folder)]
    shown = shlex.join(["accelerate", "launch", *blank(command)])
    print(f"\n== {folder}: {shown}", flush=True)
    command = [sys.executable, "-m", "accelerate.commands.launch", *command]
    environment = {"WANDB_RUN_GROUP": Path(read_settings(config)["output_dir"]).name, **os.environ}
    with subprocess.Popen(command, env=environment) as process:
        status = wait_for(process)
    if status:
        ended = f"the run in {folder} ended with status {status}; its messages stand above."
        again = "If it was interrupted, the same command (without --fresh) goes on."
        print(f"error: {ended}\n{again}", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)
    return folder


def wait_for(process: subprocess.Popen) -> int:
    """The exit status; on Ctrl-C too, which the run gets as well: it saves before it ends."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def supervise(config: Path, words: list[str], rows: int, steps: int, folder: Path) -> Path:
    """Warm-start into `folder`, once; `ValueError` where a finished one had other settings."""
    asked = {"overrides": blank(words), "rows": rows, "steps": steps}
    if there := read_json(folder / WARM_START):
        differ = [name for name, value in asked.items() if there[name] != value]
        if other := [f"{name} {there[name]}, not {asked[name]}" for name in differ]:
            remedy = "remove it, or ask for the same"
            raise ValueError(f"{folder} is a warm start with {'; '.join(other)}: {remedy}.")
        return folder
    from recipes.common.warm_start import warm_start

    print(f"\n== {folder}: {steps} supervised steps on {rows} reference completions", flush=True)
    # In a process of its own, as scripts/warm_start.py: a trainer leaves settings in the
    # environment.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(warm_start, config, words, rows, steps, None, folder).result()
    return folder


def _minutes(folder: Path) -> float:
    return (read_json(folder / SUMMARY) or read_json(folder / WARM_START))["minutes"]


def rewards_of_arms(settings: dict[str, Any]) -> dict[str, list[str]]:
    """The arms that are trained by GRPO: name -> the options that replace the run's rewards.

    `format-only` is left out where the run has no format reward, nothing else, or a task that no
    format reward scores. `ValueError`: a preset of the run adds a reward to every arm.
    """
    preset = settings.get("preset") or []
    if added := read_presets([preset] if isinstance(preset, str) else preset).get(ADDED):
        remedy = "Put its other keys into the YAML, without the preset."
        adds = f"the preset {preset} adds {', '.join(added)} to every arm"
        raise ValueError(f"{adds}, so none would know nothing. {remedy}")
    names = settings["reward_funcs"]
    loaded = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
    formats = {
        name: reward
        for name, reward in zip(names, loaded, strict=True)
        if reward_kind(reward) == "format"
    }
    arms = {name: _only(settings, [name]) for name in ("random", "constant", "majority")}
    covered = [reward_tasks(reward) for reward in formats.values()]
    scored = [reward_tasks(reward) for reward in loaded]
    all_tasks = None in covered or (
        None not in scored and set().union(*covered) == set().union(*scored)
    )
    if 0 < len(formats) < len(names) and all_tasks:
        arms["format-only"] = _only(settings, list(formats))
    return {CONFIGURED: [], **arms}


def _only(settings: dict[str, Any], kept: list[str]) -> list[str]:
    """Name the rewards on the command line, each with its settings from the YAML."""
    words = ["--reward_funcs", *kept]
    if settings.get("reward_weights"):
        weights = dict(zip(settings["reward_funcs"], settings["reward_weights"], strict=True))
        words += ["--reward_weights", *(str(weights.get(name, 1.0)) for name in kept)]
    for setting in REWARD_MAPPINGS:
        if settings.get(setting):
            of_kept = {name: value for name, value in settings[setting].items() if name in kept}
            words += [f"--{setting}", json.dumps({} if setting == "reward_gates" else of_kept)]
    return words


# --- Comparing


def compare_arms(arms: dict[str, list[tuple[Rows, Rows]]]) -> dict[str, dict[str, Figures]]:
    """Compare the arms by each metric, each seed on its own rows; `ValueError` where rows differ.

    `arms`: name -> (before, after) of each seed. Returns metric -> arm -> `n` of each seed,
    `before` and `after` as of `share_over_seeds`, `change`, and `beyond`: how much the run as
    configured is above this arm after training, both as of `change_over_seeds`.
    """
    names = dict.fromkeys(name for before, _ in arms[CONFIGURED] for name in metric_names(before))
    compared: dict[str, dict[str, Figures]] = {name: {} for name in names}
    for arm, evaluations in arms.items():
        pairs = list(zip(evaluations, arms[CONFIGURED], strict=True))
        for (before, after), (start, end) in pairs:
            stages = (before, after, start, end)
            if len({json.dumps([row["prompt"] for row in rows]) for rows in stages}) > 1:
                raise ValueError("the runs were not evaluated on the same rows in the same order")
        for metric, of_arms in compared.items():
            seeds = [
                paired(*(outcomes_of(rows, metric) for rows in (before, after, end)))
                for (before, after), (_, end) in pairs
            ]
            old, new, best = zip(*seeds, strict=True)
            of_arms[arm] = {
                "n": [len(rows) for rows in old],
                "before": share_over_seeds(old),
                "after": share_over_seeds(new),
                "change": change_over_seeds(old, new),
                "beyond": change_over_seeds(new, best),
            }
    return compared


def share_over_seeds(outcomes: list[list[bool]]) -> dict[str, Any]:
    """`seeds`: the share of right rows of each, None without rows; their `mean`; its `interval`.

    The interval (95 %) is Student's over seeds, and Wilson's over rows where only one seed has
    rows.
    """
    shares = [fmean(rows) if rows else None for rows in outcomes]
    one = next(rows for rows in outcomes if rows)
    return _over_seeds(shares, (0.0, 1.0), wilson_interval(sum(one), len(one)))


def change_over_seeds(before: list[list[bool]], after: list[list[bool]]) -> dict[str, Any]:
    """The same for a change on paired rows, with McNemar's exact `p` of each seed.

    Where only one seed has rows, the interval is the paired one over rows.
    """
    pairs = list(zip(before, after, strict=True))
    changes = [fmean(map(sub, new, old)) if new else None for old, new in pairs]
    one = next(pair for pair in pairs if pair[0])
    found = _over_seeds(changes, (-1.0, 1.0), paired_interval(*one))
    return {**found, "p": [mcnemar_p(*pair) if pair[0] else None for pair in pairs]}


def _over_seeds(
    values: list[float | None], bounds: tuple[float, float], over_rows: tuple[float, float]
) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    interval = t_interval(known, *bounds) or over_rows
    return {"seeds": values, "mean": fmean(known), "interval": interval}


# --- Showing


COLUMNS = ("arm", "minutes", "before", "after (95 %)", "change (95 %)", "McNemar p")
COLUMNS += ("as configured is above it by",)


def arms_table(
    seeds: list[int], compared: dict[str, dict[str, Figures]], minutes: dict[str, list[float]]
) -> str:
    """One block a metric: a line for each seed of an arm, one for the arm, and the verdict."""
    several, blocks = len(seeds) > 1, []
    for metric, arms in compared.items():
        rows = []
        for name, arm in arms.items():
            for number, seed in enumerate(seeds if several else []):
                spent = minutes[name][number]
                rows.append([f"  seed {seed}", f"{spent:.1f}", *_of_seed(arm, number, name)])
            after, p = arm["after"], None if several else arm["change"]["p"][0]
            share = share_and_span(after["mean"], after["interval"])
            beyond = None if name == CONFIGURED else _points(arm["beyond"])
            stages = [percent(arm["before"]["mean"]), share, _points(arm["change"]), _shown_p(p)]
            rows.append([name, f"{fmean(minutes[name]):.1f}", *stages, beyond])
        named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        n = sum(arms[CONFIGURED]["n"])
        title = f"{metric}, {n} held-out rows, seeds {' '.join(map(str, seeds))}"
        blocks.append("\n".join([title, format_table(named), f"  {verdict(arms)}"]))
    over = "rows, of 1 training run an arm: other seeds may move each arm by some points."
    if several:
        over = (
            f"{len(seeds)} seeds (Student); a difference between arms is taken at each seed. Where "
            "a seed takes off or does not, they hold the mean less often: of three seeds in 63 % "
            "of the cases where three in ten take off. Look at the change of each seed."
        )
    return "\n\n".join([*blocks, f"Intervals are over {over}"])


def _of_seed(arm: Figures, number: int, name: str) -> list[str | None]:
    """The cells of one seed of an arm; no change where the seed has no rows of the metric."""
    before, after, change = (arm[stage]["seeds"][number] for stage in ("before", "after", "change"))
    p = arm["change"]["p"][number]
    beyond = None if name == CONFIGURED else arm["beyond"]["seeds"][number]
    moved, above = (None if None in (p, each) else points(each) for each in (change, beyond))
    return [percent(before), percent(after), moved, _shown_p(p), above]


def _shown_p(p: float | None) -> str | None:
    return None if p is None else f"{p:.2g}"


def verdict(arms: dict[str, Figures]) -> str:
    """How much of the gain of the run as configured is left above the best other arm.

    Shown is what has an interval over seeds above 0; of a single seed, what has McNemar's p < 0.05.
    A format-only arm was trained for the metrics of the format: its gain there is expected.
    """
    gain = arms[CONFIGURED]["change"]
    others = {name: arm for name, arm in arms.items() if name != CONFIGURED}
    if not others:
        return f"gain {_points(gain)}."
    best = max(others, key=lambda name: others[name]["after"]["mean"])
    left = others[best]["beyond"]
    figures = f"gain {_points(gain)}; above the best other arm ({best}) {_points(left)}."
    if not _is_shown(gain):
        return f"{figures} The run as configured shows no gain of its own here."
    if _is_shown(left):
        return f"{figures} What is above it came from what that arm lacks, in the runs at hand."
    return f"{figures} Nothing beyond what {best} brings is shown."


def _is_shown(difference: dict[str, Any]) -> bool:
    known = [p for p in difference["p"] if p is not None]
    if len(known) > 1:
        return difference["interval"][0] > 0.0
    return difference["mean"] > 0.0 and known[0] < 0.05


def _points(difference: dict[str, Any]) -> str:
    return points(difference["mean"], difference["interval"])
