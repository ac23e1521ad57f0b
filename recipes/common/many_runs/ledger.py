"""The ledger of published results, results/*.json, and the tables in pages that are made from it.

A file of results/ is an entry: one set of runs that differ in their seeds only. It has `title`,
`config`, `command`, `commit`, `versions`, `hardware`, `seeds`, `n` (held-out rows by seed),
`minutes`, `steps`, `settings`, and `metrics`. A metric has `n`, `p` (by seed), `expected_change`
(the range for one more run), and `before`, `after` and `change`: each with its mean (`value`), the
values by seed (`seeds`) and an `interval` (over seeds; over rows of one if it is alone or all are
equal). Three keys are written by hand: `order` (its place; from 50 on the README's table leaves it
out), `note` (for that table), and `fewer_seeds` (the reason for fewer than three seeds).

A table in a page stands between two comments. The first one names results/ (for a table of all
entries) or one of its files.
"""

import math
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from recipes.common.checks.run_folder import NOT_COMPARED
from recipes.common.evaluation.scores import verdict_metrics
from recipes.common.many_runs import arms
from recipes.common.many_runs.arms import mean_and_interval, read_settings
from recipes.common.settings import options_given
from recipes.common.utils.run_files import SUMMARY, VERSIONS, read_json, write_json, write_whole
from recipes.common.utils.stats import Z_95, t_quantile
from recipes.common.utils.tables import in_words, p_value, percent, points, share_and_span

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
# Not compared: paths, a run's seed, and the settings of validation, which do not change
# the training when num_train_rows is set.
NOT_SETTINGS = NOT_COMPARED | {"dataset_path", "seed"}
NOT_SETTINGS |= {"eval_strategy", "eval_steps", "num_validation_rows"}
STAGES = ("before", "after", "change")
ONE_CONFIGURATION = ("settings", "commit", "hardware", "versions", "steps")
GENERATED = re.compile(
    r"(?<=<!-- generated from results/)"
    r"(?P<comment>(?:(?P<entry>\w+)\.json)? by scripts/results\.py: begin -->\n)"
    r".*?(?=<!-- end -->)",
    re.DOTALL,
)
ONLY_RESULTS = 50  # an entry with this `order` or a higher one is not in the README


# --- Entries


def read_entries(folder: Path) -> dict[str, Entry]:
    """Name -> entry, sorted by `order`; entries without it come last."""
    entries = {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))}
    return dict(sorted(entries.items(), key=lambda item: item[1].get("order", 1000)))


def record_entry(runs: list[Path], config: Path, title: str, command: str, output: Path) -> None:
    """Write the entry (published figures) of finished runs of one YAML that differ in their seed.

    `command` is what a reader types to repeat them. Keys written by hand (order, note,
    fewer_seeds) stay. `ValueError` if a run is not finished, if the runs differ in more than their
    seed, or if two runs have the same seed.
    """
    summaries = [summary_of(run, config) for run in runs]
    first = summaries[0]
    seeds = [summary["config"]["seed"] for summary in summaries]
    for name in ONE_CONFIGURATION:  # settings, commit, hardware, versions, steps
        if any(summary[name] != first[name] for summary in summaries):
            raise ValueError(f"the runs differ in {name}; an entry is of one configuration.")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the runs are of the seeds {seeds}: each once, or one run counts twice.")
    by_seed = {seed: [run] for seed, run in zip(seeds, runs, strict=True)}
    compared = arms.compare_arms({arms.CONFIGURED: by_seed})
    entry = {
        "title": title,
        "config": str(config.resolve().relative_to(ROOT)),
        "command": command,
        "commit": first["commit"],
        "versions": first["versions"],
        "hardware": first["hardware"],
        "steps": first["steps"],
        "seeds": seeds,
        "n": [summary["after"]["n"] for summary in summaries],
        "minutes": [summary["minutes"] for summary in summaries],
        "metrics": {name: metric_of(of) for name, of in compared.groupby("metric", sort=False)},
        "settings": first["settings"],
    }
    write_json(output, {**read_json(output, {}), **entry})


def summary_of(run: Path, yaml_file: Path) -> dict[str, Any]:
    """A run's summary.json with a short `commit`, and with `settings`: what YAML and command set.

    `settings` hold no paths: only the last part of the model's name, and no dataset_path.
    """
    summary = read_json(run / SUMMARY, {})
    if not summary.get("config"):
        raise ValueError(f"{run} has no whole {SUMMARY}: give the output_dir of a finished run.")
    starts = read_json(run / VERSIONS, [])
    if len({(start["commit"], start["hardware"]) for start in starts}) > 1 or any(
        "--accept_changed" in start["command"] for start in starts
    ):
        raise ValueError(
            f"{run} was trained by several commits, machines or rewards: see its {VERSIONS}."
        )
    config = summary["config"]
    named = {"world_size", *read_settings(yaml_file), *options_given(summary["command"])}
    settings = {name: config[name] for name in sorted(named - NOT_SETTINGS) if name in config}
    model = Path(config["model_name_or_path"]).name
    settings["model_name_or_path"] = re.sub(r"-seed\d+$", "", model)  # arms.py's warm starts
    uncommitted = " with uncommitted changes" if summary["uncommitted_changes"] else ""
    commit = f"{(summary['commit'] or 'unknown')[:7]}{uncommitted}"
    return {**summary, "commit": commit, "settings": settings}


def metric_of(runs: pd.DataFrame) -> dict[str, Any]:
    """An entry's figures of one metric, as shares from 0 to 1; `runs` has a line for each seed."""
    stages, n = {}, int(runs["n"].sum())
    for stage in STAGES:  # before, after, change
        value, interval = mean_and_interval(runs, stage)
        stages[stage] = {
            "value": round(value, 4),
            "interval": [round(end, 4) for end in interval],
            "seeds": runs[stage].round(4).tolist(),
        }
    expected = expected_change(stages["before"]["seeds"], stages["after"]["seeds"], n)
    p = [float(p_value(p)) for p in runs["p"]]
    return {"n": n, **stages, "p": p, "expected_change": expected}


def expected_change(before: list[float], after: list[float], n: int) -> list[float]:
    """The range in which the change of one more run should lie, in 19 of 20 cases.

    `before` and `after` are shares by seed. The range is the mean change of the k seeds, plus and
    minus sqrt(1 + 1/k) times the larger spread:

    - between seeds: Student's t times the standard deviation of their changes; none for one seed
    - from drawing rows (`n` over all seeds): 1.96 standard errors of one run's change. Its shares
      are taken as independent, which is cautious. Each gets two successes and two failures more
      (Agresti and Coull 1998), so that a share of 0 or 1 has a spread, too.
    """
    seeds = len(before)
    changes = [new - old for old, new in zip(before, after, strict=True)]
    variance = 0.0  # of the change of one row's outcome: that of before plus that of after
    for of_stage in (before, after):
        share = (fmean(of_stage) * n + 2) / (n + 4)
        variance += share * (1 - share)
    by_rows = Z_95 * math.sqrt(variance * seeds / n)
    by_seeds = t_quantile(seeds) * stdev(changes) if seeds > 1 else 0.0
    half = max(by_rows, by_seeds) * math.sqrt(1 + 1 / seeds)
    low, high = fmean(changes) - half, fmean(changes) + half
    return [round(max(-1.0, low), 4), round(min(1.0, high), 4)]


def compare_run(run: Path, entry: Entry) -> dict[str, tuple[float, float, float]]:
    """Compare a run with an entry: return (change in the run, low, high) for each metric.

    `low` and `high` are the ends of the entry's expected range. ValueError if the run has other
    settings than the entry, or lacks a metric.
    """
    summary = summary_of(run, ROOT / entry["config"])
    asked = entry["settings"]
    of_run = {name: summary["config"].get(name) for name in asked}  # also what it leaves as it is
    used = of_run | summary["settings"]  # NOT_SETTINGS, such as paths, may differ
    before, after = summary["before"] or {}, summary["after"] or {}
    wrong = []
    for name in sorted((asked.keys() | used.keys()) - NOT_SETTINGS):
        wanted, has = (
            None if value in ({}, []) else value for value in (asked.get(name), used.get(name))
        )
        if wanted != has:
            wrong.append(f"{name}: the entry has {wanted!r}, the run {has!r}")
    wrong += [f"{metric} is not in the run" for metric in entry["metrics"] if metric not in after]
    if wrong:
        raise ValueError(
            f"{run} is a run of another configuration ({'; '.join(wrong)}). The entry's command: "
            f"{entry['command']}"
        )
    return {
        name: (after[name]["share"] - before[name]["share"], *metric["expected_change"])
        for name, metric in entry["metrics"].items()
    }


# --- Pages


def render_pages() -> None:
    """Make the tables of all pages again from results/."""
    entries = read_entries(ROOT / "results")
    for page in pages():
        write_whole(page, render_page(page.read_text(encoding="utf-8"), entries))


def pages() -> list[Path]:
    """The pages that hold generated tables."""
    return [ROOT / "README.md", ROOT / "RESULTS.md", *sorted(ROOT.glob("recipes/*/README.md"))]


def render_page(page: str, entries: dict[str, Entry]) -> str:
    """Replace each generated table of a page by a new one, and return the page."""

    def render_table(match: re.Match) -> str:
        """The comment that opens a table, and the table that it asks for."""
        name = match["entry"]  # None: the comment names results/ itself
        lines = table_of(name, entries[name]) if name else table_of_all(entries)
        return match["comment"] + "\n".join(lines) + "\n"

    return GENERATED.sub(render_table, page)


def table_of_all(entries: dict[str, Entry]) -> list[str]:
    """The README's table: a line for each entry, with the metric that its verdict rests on.

    A run of several tasks has one such metric for each task.
    """
    table = [["run", "minutes", "before → after, change (95 %)"]]
    for entry in entries.values():
        if entry.get("order", 0) >= ONLY_RESULTS:  # shown in RESULTS.md alone
            continue
        cells = []
        for name in verdict_metrics({name: of["n"] for name, of in entry["metrics"].items()}):
            before, after, change = (entry["metrics"][name][stage] for stage in STAGES)
            shares = f"{100 * before['value']:.1f} → {percent(after['value'])}"
            interval = points(change["value"], change["interval"])
            cells.append(f"{in_words(name)} {shares}, {interval}")
        recipe = f"{Path(entry['config']).parent}/README.md"
        title = f"[{entry['title']}]({recipe}), {seeds_of(entry)}{entry.get('note', '')}"
        table.append([title, span(entry["minutes"], 1), "; ".join(cells)])
    return markdown(table)


def table_of(name: str, entry: Entry) -> list[str]:
    """The table of one entry: a line for each metric, then a line on where the figures are from."""
    table = [["", "before", "after (95 %)", "change (95 %)", "by seed"]]
    for label, metric in entry["metrics"].items():
        before, after, change = (metric[stage] for stage in STAGES)
        by_seed = ", ".join(f"{100 * value:+.1f}" for value in change["seeds"])
        table.append(
            [
                in_words(label),
                percent(before["value"]),
                share_and_span(after["value"], after["interval"]),
                points(change["value"], change["interval"]),
                by_seed,
            ]
        )
    over = "" if len(entry["seeds"]) > 1 else "Intervals are over the questions of that seed. "
    about = (
        f"{seeds_of(entry)} of {span(entry['n'], 0)} test questions, {entry['steps']} steps, "
        f"{span(entry['minutes'], 1)} minutes. {over}Commit {entry['commit']}, "
        f"{entry['hardware']}; command: results/{name}.json."
    )
    return [*markdown(table), "", about]


def seeds_of(entry: Entry) -> str:
    """How many seeds an entry has, such as `3 seeds`."""
    return f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) != 1)}"


def span(values: list[float], digits: int) -> str:
    """The lowest and the highest value, or one if equal: `span([3.0, 2.0], 1) == "2.0-3.0"`."""
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low}-{high}"


def markdown(table: list[list[str]]) -> list[str]:
    """The lines of a Markdown table; the first line of `table` is its head."""
    head, *lines = table
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines]]
