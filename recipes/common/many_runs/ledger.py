"""The ledger: results/*.json, one file a published set of runs, and the tables made of it.

An entry has the `config`, `command`, `commit`, `versions`, `hardware`, `seeds`, `n` (rows of each
seed), `minutes`, `steps` and `settings` of its runs, and `metrics`: name -> `before`, `after` and
`change` (each `value`, `interval` over seeds, or over rows for a single one, and `seeds`), `p` of
each seed, and the change that one more run is expected to show (`expected_change`). With fewer than
three seeds `fewer_seeds` gives the reason. By hand: `order` (its place; from 50 on it is not in the
README's table) and `note` (there).

In a page a table stands between two comments, of which the first names results/ (all runs) or one
of its files. Anything else that was measured is words and tables of RESULTS.md.
"""

import math
import re
import shlex
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from recipes.common.checks.run_folder import NOT_COMPARED
from recipes.common.evaluation.scores import independent_metrics
from recipes.common.many_runs.arms import (
    CONFIGURED,
    compare_arms,
    mean_and_interval,
    read_settings,
)
from recipes.common.settings import options_given
from recipes.common.utils.run_files import SUMMARY, read_json, write_json, write_whole
from recipes.common.utils.stats import Z_95, t_quantile
from recipes.common.utils.tables import percent, points, share_and_span

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
# Where things lie on a machine, and what every run of a set has of its own; with num_train_rows the
# last three change nothing of a run.
NOT_SETTINGS = NOT_COMPARED | {"dataset_path", "run_name", "seed"}
NOT_SETTINGS |= {"eval_strategy", "eval_steps", "num_validation_rows"}
GENERATED = re.compile(
    r"(?<=<!-- generated from results/)((?:(\w+)\.json)? by scripts/results\.py: begin -->\n)"
    r".*?(?=<!-- end -->)",
    re.DOTALL,
)
ONLY_RESULTS = 50  # the `order` from which an entry is not in the README


# --- Entries


def read_entries(folder: Path) -> dict[str, Entry]:
    """Read every entry by its name, in the order of its `order`."""
    entries = {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))}
    return dict(sorted(entries.items(), key=lambda item: item[1].get("order", 1000)))


def record_entry(
    runs: list[Path], config: Path, title: str, command: str | None, output: Path
) -> None:
    """Write the entry of finished runs; its other keys (order, note, fewer_seeds) are kept.

    `ValueError`: a run is not finished, they differ in more than their seed, a seed is there twice,
    or they have settings that neither the YAML nor `command` names.
    """
    summaries = [_summary_of(run, config) for run in runs]
    first, seeds = summaries[0], [summary["config"]["seed"] for summary in summaries]
    for name in ("settings", "commit", "hardware", "versions", "steps"):
        if any(summary[name] != first[name] for summary in summaries):
            raise ValueError(f"the runs differ in {name}; an entry is of one configuration.")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the runs are of the seeds {seeds}: each once, or one run counts twice.")
    shipped = {"world_size": 1, **read_settings(config)}
    shipped["model_name_or_path"] = Path(shipped["model_name_or_path"]).name
    settings = first["settings"]
    more = [f"{name} {settings[name]}" for name in settings if shipped.get(name) != settings[name]]
    if more and not command:
        remedy = "give --command as a reader would repeat it"
        raise ValueError(f"the runs set {', '.join(more)} over the YAML: {remedy}.")
    words = ["python", "scripts/arms.py", "--config", str(config), "--seeds", *map(str, seeds)]
    compared = compare_arms(
        {CONFIGURED: {seed: [run] for seed, run in zip(seeds, runs, strict=True)}}
    )
    metrics = {name: _metric(of) for name, of in compared.groupby("metric", sort=False)}
    entry = {
        "title": title,
        "config": str(config.resolve().relative_to(ROOT)),
        "command": command or shlex.join(words),
        **{name: first[name] for name in ("commit", "versions", "hardware", "steps")},
        "seeds": seeds,
        "n": compared.groupby("seed", sort=False)["n"].max().tolist(),
        "minutes": [summary["minutes"] for summary in summaries],
        "metrics": metrics,
        "settings": settings,
    }
    write_json(output, {**read_json(output, {}), **entry})


def _summary_of(run: Path, yaml_file: Path) -> dict[str, Any]:
    """A run's summary with the commit in short and, as `settings`, what its YAML or command set.

    A model goes by the last part of its name. Where the rows came from is not among the settings.
    """
    summary = read_json(run / SUMMARY)
    if summary is None:
        raise ValueError(f"{run / SUMMARY} does not exist: give the output_dir of a finished run.")
    config = summary["config"]
    named = {"world_size", *read_settings(yaml_file), *options_given(summary["command"])}
    settings = {name: config[name] for name in sorted(named - NOT_SETTINGS) if name in config}
    settings["model_name_or_path"] = Path(config["model_name_or_path"]).name
    commit = (summary["commit"] or "unknown")[:7]
    if summary["uncommitted_changes"]:
        commit += " with uncommitted changes"
    return {**summary, "commit": commit, "settings": settings}


def _metric(runs: pd.DataFrame) -> dict[str, Any]:
    stages, n = {}, int(runs["n"].sum())
    for stage in ("before", "after", "change"):
        value, interval = mean_and_interval(runs, stage)
        seeds, interval = runs[stage].round(4).tolist(), [round(end, 4) for end in interval]
        stages[stage] = {"value": round(value, 4), "interval": interval, "seeds": seeds}
    expected = expected_change(stages["before"]["seeds"], stages["after"]["seeds"], n)
    p = [float(f"{p:.2g}") for p in runs["p"]]
    return {"n": n, **stages, "p": p, "expected_change": expected}


def expected_change(before: list[float], after: list[float], n: int) -> list[float]:
    """Where the change of the share in one more run should fall, in 19 of 20 cases.

    The mean change of the k seeds, give or take sqrt(1 + 1/k) times the larger of two spreads. That
    of the seeds: Student's t times the standard deviation of their changes. That of drawing the `n`
    rows of all seeds: 1.96 standard errors of one run's change, its two shares taken as
    independent, which is cautious, and each with two successes and two failures added (Agresti and
    Coull 1998), so that 0 and 1 are not certain. A single seed has only the second.
    """
    changes, k = [new - old for old, new in zip(before, after, strict=True)], len(before)
    shares = [(fmean(of_stage) * n + 2) / (n + 4) for of_stage in (before, after)]
    by_rows = Z_95 * math.sqrt(sum(share * (1 - share) for share in shares) * k / n)
    by_seeds = t_quantile(k) * stdev(changes) if k > 1 else 0.0
    half = max(by_rows, by_seeds) * math.sqrt(1 + 1 / k)
    return [round(max(-1.0, fmean(changes) - half), 4), round(min(1.0, fmean(changes) + half), 4)]


def compare_run(run: Path, entry: Entry) -> dict[str, tuple[float, float, float]]:
    """Each metric's change in a run, and the range that the entry expects.

    `ValueError`: the run has other settings than the entry, or lacks a metric.
    """
    summary = _summary_of(run, ROOT / entry["config"])
    ours, theirs = summary["settings"], entry["settings"]
    wrong = [
        f"{name}: the entry has {theirs.get(name)!r}, the run {ours.get(name)!r}"
        for name in sorted((ours.keys() | theirs.keys()) - NOT_SETTINGS)
        if ours.get(name) != theirs.get(name)
    ]
    before, after = summary["before"] or {}, summary["after"] or {}
    wrong += [f"{metric} is not in the run" for metric in entry["metrics"] if metric not in after]
    if wrong:
        text = f"{run} is a run of another configuration ({'; '.join(wrong)})."
        raise ValueError(f"{text} The entry's command: {entry['command']}")
    return {
        name: (after[name]["share"] - before[name]["share"], *metric["expected_change"])
        for name, metric in entry["metrics"].items()
    }


# --- Pages


def pages() -> list[Path]:
    """The pages that hold generated tables."""
    return [ROOT / "README.md", ROOT / "RESULTS.md", *sorted(ROOT.glob("recipes/*/README.md"))]


def render_pages() -> None:
    """Write the tables of all pages anew."""
    entries = read_entries(ROOT / "results")
    for page in pages():
        write_whole(page, render_page(page.read_text(encoding="utf-8"), entries))


def render_page(page: str, entries: dict[str, Entry]) -> str:
    """A page with its tables made anew; `ValueError` where one names no entry."""

    def table(found: re.Match) -> str:
        begin, name = found.groups()
        if name is not None and name not in entries:
            raise ValueError(f"a page has a table of results/{name}.json, which does not exist.")
        lines = _all_runs(entries) if name is None else _table_of(name, entries[name])
        return begin + "\n".join(lines) + "\n"

    return GENERATED.sub(table, page)


def _all_runs(entries: dict[str, Entry]) -> list[str]:
    """A line for each set of runs, with its first two metrics, or one of each task."""
    rows = []
    for entry in entries.values():
        if entry.get("order", 0) >= ONLY_RESULTS:
            continue
        metrics = [name for name in entry["metrics"] if not name.endswith("format")]
        of_tasks = independent_metrics(metrics)
        metrics = of_tasks if len(of_tasks) > 1 else metrics
        cells = [f"{name} {_change(entry['metrics'][name])}" for name in metrics]
        details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
        rows.append(
            [f"{entry['title']}, {_seeds(entry)}", _minutes(entry), *[*cells, ""][:2], details]
        )
    change = "held out: before → after, change (95 %)"
    head = ["run", "minutes a run", change, "second metric", "details"]
    notes = "95 %: over seeds (Student), or over the rows of a single one."
    return [*_table(head, rows), "", notes]


def _table_of(name: str, entry: Entry) -> list[str]:
    """The means of a set of runs, a line a metric; then where the figures come from."""
    lines = []
    for label, metric in entry["metrics"].items():
        after, change = metric["after"], metric["change"]
        seeds = ", ".join(f"{100 * value:+.1f}" for value in change["seeds"])
        shares = [
            percent(metric["before"]["value"]),
            share_and_span(after["value"], after["interval"]),
        ]
        lines.append([label, *shares, points(change["value"], change["interval"]), seeds])
    rows = "-".join(dict.fromkeys(map(str, (min(entry["n"]), max(entry["n"])))))
    what = f"{_seeds(entry)} of {rows} held-out rows, {entry['steps']} steps"
    what += f", {_minutes(entry)} minutes"
    source = f"Commit {entry['commit']}, {entry['hardware']}; command: results/{name}.json"
    table = _table(["", "before", "after (95 %)", "change (95 %)", "by seed"], lines)
    return [*table, "", f"{what}. {source}."]


def _seeds(entry: Entry) -> str:
    return f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) != 1)}"


def _minutes(entry: Entry) -> str:
    ends = (min(entry["minutes"]), max(entry["minutes"]))
    return "-".join(dict.fromkeys(f"{value:.1f}" for value in ends))


def _change(metric: dict[str, Any]) -> str:
    after, change = metric["after"], metric["change"]
    shares = f"{100 * metric['before']['value']:.1f} → {percent(after['value'])}"
    return f"{shares}, {points(change['value'], change['interval'])}"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows]]
