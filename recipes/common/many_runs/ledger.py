"""The ledger: results/*.json, one file a published result.

An entry is of one of three sorts:

- **runs** of a recipe: `config`, `command`, the `commit` they were made at, `versions`, `hardware`, `seeds`, `n` (rows
  of each seed), `minutes`, `steps`, `settings`, and `metrics`: name -> `before`, `after` and `change` (each `value`,
  `interval` over seeds, or over rows for a single one, and `seeds`), `p` of each seed, and the change that one more run
  is expected to show (`expected_change`). With fewer than three seeds `fewer_seeds` gives the reason
- a **table** of anything else that was measured: `columns` and `rows`, with command, commit and hardware; where it
  is of runs of a recipe, `configs`
- **not run**: `config`, `command`, and `not_run`, the reason; it has no value

By hand, in any of them: `order` (its place; from 50 on in RESULTS.md alone), `note` (in the README's table),
`remark` (above its table).
"""

import math
import shlex
import subprocess
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from recipes.common.checks.run_folder import NOT_COMPARED
from recipes.common.many_runs.runs import over_seeds, read_settings
from recipes.common.settings import options_given
from recipes.common.utils.run_files import SUMMARY, read_evaluation, read_json, write_json
from recipes.common.utils.stats import Z_95, t_quantile
from recipes.common.utils.tables import points

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
# Where things lie on a machine, and what every run of a set has of its own.
NOT_SETTINGS = NOT_COMPARED | {"dataset_path", "run_name", "seed"}
WATCHING = {
    "eval_strategy",
    "eval_steps",
    "num_validation_rows",
}  # with num_train_rows they change nothing of a run
NEEDED = {
    "runs": "title command commit hardware metrics minutes n seeds settings steps versions",
    "table": "title command columns rows commit hardware",
    "not_run": "title command",
}


class Compared(NamedTuple):
    """A metric's change in one run, and the range in which the ledger expects it."""

    metric: str
    change: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        return self.low <= self.change <= self.high

    def line(self) -> str:
        """A line for people, with the width of the band: a wide one excludes little."""
        low, high, wrong = 100 * self.low, 100 * self.high, "" if self.agrees else "NOT "
        band = f"expected {low:+.1f} to {high:+.1f} pt, a band of {high - low:.0f} points   {wrong}as expected"
        without = " (a run without any change would agree too)" * (low <= 0.0 <= high)
        return f"{self.metric:<10}{points(self.change):>9}   {band}{without}"


def read_entries(folder: Path) -> dict[str, Entry]:
    """Read every entry by its name, in the order of its `order`; errors as of `read_entry`."""
    entries = {path.stem: read_entry(path) for path in sorted(folder.glob("*.json"))}
    return dict(sorted(entries.items(), key=lambda item: item[1].get("order", 1000)))


def read_entry(path: Path) -> Entry:
    """Read one entry; `ValueError` where it is of no sort, lacks something, or was not run and has a value."""
    entry = read_json(path, {})
    sort = sort_of(entry)
    if sort is None:
        raise ValueError(
            f"{path} must have one of: metrics (runs), columns (a table), not_run (why)."
        )
    missing = sorted(set(NEEDED[sort].split()) - entry.keys())
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}.")
    if sort == "not_run" and ("metrics" in entry or "rows" in entry):
        raise ValueError(f"{path} says that it was not run, and has a value.")
    return entry


def sort_of(entry: Entry) -> str | None:
    """runs, table, not_run, or None."""
    signs = {"not_run": "not_run", "metrics": "runs", "columns": "table"}
    return next((sort for sign, sort in signs.items() if sign in entry), None)


def record_entry(
    runs: list[Path], config: Path, title: str, command: str | None, output: Path
) -> None:
    """Write the entry of finished runs; its other keys (order, note, remark) are kept.

    `ValueError`: a run is not finished, they differ in more than their seed, a seed is there twice, or they have
    settings that neither the YAML nor `command` names.
    """
    summaries = [_summary(run, config) for run in runs]
    first = summaries[0]
    for name in ("settings", "commit", "hardware", "versions", "steps"):
        other = [
            str(run)
            for run, summary in zip(runs, summaries, strict=True)
            if summary[name] != first[name]
        ]
        if other:
            raise ValueError(
                f"{', '.join(other)}: other {name} than {runs[0]}; an entry is of one configuration."
            )
    seeds = [summary["config"]["seed"] for summary in summaries]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the runs are of the seeds {seeds}: each once, or one run counts twice.")
    shipped = {"world_size": 1, **read_settings(config)}
    shipped["model_name_or_path"] = Path(shipped["model_name_or_path"]).name
    more = [
        f"{name} {value}" for name, value in first["settings"].items() if shipped.get(name) != value
    ]
    if more and not command:
        raise ValueError(
            f"the runs set {', '.join(more)} over the YAML: give --command as a reader would repeat it."
        )
    words = ["python", "scripts/seeds.py", "--config", str(config), "--seeds", *map(str, seeds)]
    evaluations = [read_evaluation(run) for run in runs]
    kept = {name: value for name, value in read_json(output, {}).items() if name != "not_run"}
    entry = {
        "title": title,
        "config": str(config.resolve().relative_to(ROOT)),
        "command": command or shlex.join(words),
        **{name: first[name] for name in ("commit", "versions", "hardware")},
        "seeds": seeds,
        "n": [len(after) for _, after in evaluations],
        "steps": first["steps"],
        "minutes": [summary["minutes"] for summary in summaries],
        "metrics": {name: _metric(value) for name, value in over_seeds(evaluations).items()},
        "settings": first["settings"],
    }
    write_json(output, {**kept, **entry})


def _summary(run: Path, yaml_file: Path) -> dict[str, Any]:
    """A run's summary with the commit in short and, as `settings`, what its YAML or command line set.

    A model goes by the last part of its name. Where the rows came from is not among the settings.
    """
    summary = read_json(run / SUMMARY)
    if summary is None:
        raise ValueError(f"{run / SUMMARY} does not exist: give the output_dir of a finished run.")
    config = summary["config"]
    named = {"world_size", *read_settings(yaml_file), *options_given(summary["command"])}
    left_out = NOT_SETTINGS | (WATCHING if config.get("num_train_rows") else set())
    settings = {name: config[name] for name in sorted(named - left_out) if name in config}
    settings["model_name_or_path"] = Path(config["model_name_or_path"]).name
    changed = " with uncommitted changes" if summary["uncommitted_changes"] else ""
    return {
        **summary,
        "commit": (summary["commit"] or "unknown")[:7] + changed,
        "settings": settings,
    }


def _metric(value: dict[str, Any]) -> dict[str, Any]:
    stages = {}
    for stage in ("before", "after", "change"):
        of = value[stage]
        rounded = {name: _rounded(of[name]) for name in ("interval", "seeds")}
        stages[stage] = {"value": round(of["mean"], 4), **rounded}
    p = [None if of_seed is None else float(f"{of_seed:.2g}") for of_seed in value["change"]["p"]]
    expected = expected_change(stages["before"]["seeds"], stages["after"]["seeds"], sum(value["n"]))
    return {"n": sum(value["n"]), **stages, "p": p, "expected_change": expected}


def expected_change(before: list[float | None], after: list[float | None], n: int) -> list[float]:
    """Where the change of the share in one more run should fall, in 19 of 20 cases.

    The mean change of the k seeds, give or take sqrt(1 + 1/k) times the larger of two spreads. That of the seeds:
    Student's t times the standard deviation of their changes. That of drawing the `n` rows of all seeds: 1.96 standard
    errors of one run's change, its two shares taken as independent, which is cautious, and each with two successes and
    two failures added (Agresti and Coull 1998), so that 0 and 1 are not certain. A single seed has only the second.
    """
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if None not in (old, new)]
    changes, k = [new - old for old, new in pairs], len(pairs)
    shares = [(mean(column) * n + 2) / (n + 4) for column in zip(*pairs, strict=True)]
    by_rows = Z_95 * math.sqrt(sum(share * (1 - share) for share in shares) * k / n)
    by_seeds = t_quantile(k) * stdev(changes) if k > 1 else 0.0
    half = max(by_rows, by_seeds) * math.sqrt(1 + 1 / k)
    return _rounded([max(-1.0, mean(changes) - half), min(1.0, mean(changes) + half)])


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


def compare_run(run: Path, entry: Entry) -> list[Compared]:
    """Compare each metric's change with what the entry expects; `ValueError` names each setting that differs."""
    if sort_of(entry) != "runs":
        raise ValueError(
            f"{entry['title']!r} holds nothing to compare with: {entry.get('not_run', 'it is a table')}."
        )
    summary = _summary(run, ROOT / entry["config"])
    ours, theirs = summary["settings"], entry["settings"]
    names = sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )
    if names:
        wrong = [
            f"{name}: the entry has {theirs.get(name)!r}, the run {ours.get(name)!r}"
            for name in names
        ]
        text = f"{run} is a run of another configuration ({'; '.join(wrong)})."
        raise ValueError(f"{text} The entry's command: {entry['command']}")
    missing = [metric for metric in entry["metrics"] if metric not in (summary["after"] or {})]
    if missing:
        raise ValueError(
            f"{run} has no {missing[0]!r} after training: was it evaluated on rows of the same tasks?"
        )
    changes = {
        name: summary["after"][name]["share"] - summary["before"][name]["share"]
        for name in entry["metrics"]
    }
    return [
        Compared(name, changes[name], *value["expected_change"])
        for name, value in entry["metrics"].items()
    ]


def code_between(run: Path, entry: Entry, root: Path = ROOT) -> str:
    """A sentence on how many commits changed recipes/ or rewards/ between the entry and the run."""
    between = f"{entry['commit'].split()[0]}...{read_json(run / SUMMARY)['commit'] or 'unknown'}"
    words = ["git", "-C", str(root), "rev-list", "--count", between, "--", "recipes", "rewards"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if done.returncode:
        return f"How many commits lie between is not known: git has not both of {between}."
    return (
        f"{done.stdout.strip()} commits that changed recipes/ or rewards/ lie between ({between})."
    )
