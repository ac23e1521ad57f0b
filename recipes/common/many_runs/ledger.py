"""The ledger: results/*.json, one file a published result.

An entry is of one of three sorts:

- **runs** of a recipe: `config`, `command`, `commit`, `versions`, `hardware`, `seeds`, `n` (rows of each seed),
  `minutes`, `steps`, `settings` and their `config_sha256`, and `metrics`: name -> `before`, `after` (each `value`,
  `seeds`, `interval` over all rows, and `interval_over_seeds`), `p` of each seed, and what another run is expected to
  come to (`expected`). Of fewer than three seeds `fewer_seeds` says why
- a **table** of anything else that was measured: `columns` and `rows`, beside command, commit and hardware; where it
  is of runs of a recipe, `configs`
- **not run**: `config`, `command`, and `not_run`, the reason; it has no value

By hand, in any of them: `order` (where it stands), `note` (in the README's table), `remark` (above its table).
"""

import hashlib
import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from recipes.common.before.arguments import options_given
from recipes.common.before.resume import NOT_COMPARED
from recipes.common.many_runs.runs import over_seeds, read_evaluation, read_settings
from recipes.common.tools.stats import Z_95, t_quantile

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
# Where things lie on a machine, and what every run of a set has of its own.
NOT_SETTINGS = NOT_COMPARED | {"dataset_path", "run_name", "seed"}
NEEDED = {
    "runs": {
        "commit",
        "config_sha256",
        "hardware",
        "metrics",
        "minutes",
        "n",
        "seeds",
        "settings",
        "steps",
        "versions",
    },
    "table": {"columns", "rows", "commit", "hardware"},
    "not_run": {"not_run"},
}


def read_entries(folder: Path) -> dict[str, Entry]:
    """Every entry by its name, in the order of its `order`.

    Raises:
        ValueError: an entry is of no sort, lacks something, or has a value although it was not run.
    """
    entries = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    for name, entry in entries.items():
        check_entry(name, entry)
    return dict(sorted(entries.items(), key=lambda item: item[1].get("order", 1000)))


def check_entry(name: str, entry: Entry) -> None:
    """Hold an entry to its sort.

    Raises:
        ValueError: see `read_entries`.
    """
    sort = sort_of(entry)
    if sort is None:
        raise ValueError(f"results/{name}.json must have one of: metrics (runs), columns (a table), not_run (why).")
    missing = sorted(({"title", "command"} | NEEDED[sort]) - entry.keys())
    if missing:
        raise ValueError(f"results/{name}.json lacks {', '.join(missing)}.")
    if sort == "not_run" and ("metrics" in entry or "rows" in entry):
        raise ValueError(f"results/{name}.json says that it was not run, and has a value.")


def sort_of(entry: Entry) -> str | None:
    """runs, table, not_run, or None."""
    signs = {"not_run": "not_run", "metrics": "runs", "columns": "table"}
    return next((sort for sign, sort in signs.items() if sign in entry), None)


def entry_of(runs: list[Path], config: Path, title: str, command: str) -> Entry:
    """What the runs of one configuration with several seeds say, ready to be kept.

    Raises:
        ValueError: the runs differ in more than their seed, a seed is there twice, or one is not finished.
    """
    summaries = [_read(run / "summary.json") for run in runs]
    for name in ("settings", "commit", "hardware", "versions", "steps"):
        values = [_of_run(summary, name, config) for summary in summaries]
        other = [str(run) for run, value in zip(runs, values, strict=True) if value != values[0]]
        if other:
            raise ValueError(f"{', '.join(other)}: other {name} than {runs[0]}; an entry is of one configuration.")
    seeds = [summary["config"]["seed"] for summary in summaries]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the runs are of the seeds {seeds}: each once, or one run counts twice.")
    evaluations = [read_evaluation(run) for run in runs]
    settings = _of_run(summaries[0], "settings", config)
    return {
        "title": title,
        "config": _relative(config),
        "command": command,
        "commit": _of_run(summaries[0], "commit", config),
        "config_sha256": digest(settings),
        "versions": summaries[0]["versions"],
        "hardware": summaries[0]["hardware"],
        "seeds": seeds,
        "n": [len(after) for _, after in evaluations],
        "steps": summaries[0]["steps"],
        "minutes": [summary["minutes"] for summary in summaries],
        "metrics": {name: _metric(value) for name, value in over_seeds(evaluations).items()},
        "settings": settings,
    }


def _of_run(summary: dict[str, Any], name: str, config: Path) -> Any:
    if name == "settings":
        return settings_of(summary["config"], config, summary["command"])
    return _commit(summary) if name == "commit" else summary[name]


def settings_of(config: dict[str, Any], yaml_file: Path, command: list[str]) -> dict[str, Any]:
    """Of a run's resolved configuration, what its YAML or command line set, and the number of processes.

    A model goes by the last part of its name. Where the rows came from is not among them.
    """
    named = {"world_size", *read_settings(yaml_file), *options_given(command)}
    settings = {name: config[name] for name in sorted(named - NOT_SETTINGS) if name in config}
    settings["model_name_or_path"] = Path(config["model_name_or_path"]).name
    return settings


def beside_the_yaml(entry: Entry, yaml_file: Path) -> dict[str, Any]:
    """The settings of an entry that its YAML does not have: what a command to repeat it must say."""
    shipped = {"world_size": 1, **read_settings(yaml_file)}
    shipped["model_name_or_path"] = Path(shipped["model_name_or_path"]).name
    return {name: value for name, value in entry["settings"].items() if shipped.get(name) != value}


def digest(settings: dict[str, Any]) -> str:
    """The SHA-256 of settings, whatever their order.

    Example: `digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})`
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _metric(value: dict[str, Any]) -> dict[str, Any]:
    stages = {
        stage: {
            "value": _rounded(value[stage]["mean"]),
            "interval": [_rounded(end) for end in value[stage]["pooled"]],
            "interval_over_seeds": value[stage]["interval"] and [_rounded(end) for end in value[stage]["interval"]],
            "seeds": [_rounded(share) for share in value[stage]["seeds"]],
        }
        for stage in ("before", "after")
    }
    p = [None if of_seed is None else float(f"{of_seed:.2g}") for of_seed in value["p"]]
    known = [share for share in value["after"]["seeds"] if share is not None]
    return {**stages, "p": p, "expected": expected(known, value["after"]["n"])}


def expected(shares: list[float], n: int) -> list[float]:
    """Where the share of one more run should fall, in 19 of 20 cases.

    The mean of the k seeds, give or take sqrt(1 + 1/k) times the larger of what the seeds give (Student's t times their
    standard deviation) and what the drawing of the `n` rows of all seeds gives (1.96 standard errors of one run, with
    two successes and two failures added, Agresti and Coull 1998, so that 0 and 1 are not held to be certain). Of a
    single seed the spread between seeds is not known, and the range is too narrow by it.

    Example: `expected([0.5, 0.5], 200) == [0.38, 0.62]`
    """
    middle, k = mean(shares), len(shares)
    inner = (middle * n + 2) / (n + 4)
    by_rows = Z_95 * math.sqrt(inner * (1 - inner) * k / n)
    by_seeds = t_quantile(k) * stdev(shares) if k > 1 else 0.0
    half = max(by_rows, by_seeds) * math.sqrt(1 + 1 / k)
    return [_rounded(max(0.0, middle - half)), _rounded(min(1.0, middle + half))]


def agreement(run: Path, entry: Entry) -> list[dict[str, Any]]:
    """Each metric of a finished run beside what the entry expects: `metric`, `value`, `expected`, `agrees`.

    Raises:
        ValueError: the entry has no value, or the run was not of its configuration: each setting that differs is named.
    """
    if sort_of(entry) != "runs":
        raise ValueError(f"{entry['title']!r} holds nothing to compare with: {entry.get('not_run', 'it is a table')}.")
    summary = _read(run / "summary.json")
    settings = settings_of(summary["config"], ROOT / entry["config"], summary["command"])
    wrong = {
        name: (entry["settings"].get(name), settings.get(name))
        for name in sorted(settings.keys() | entry["settings"].keys())
        if settings.get(name) != entry["settings"].get(name)
    }
    if wrong:
        said = "; ".join(f"{name}: the entry has {old!r}, the run {new!r}" for name, (old, new) in wrong.items())
        raise ValueError(f"{run} is a run of another configuration ({said}). The entry's command: {entry['command']}")
    compared = []
    for metric, value in entry["metrics"].items():
        if metric not in (summary["after"] or {}):
            raise ValueError(f"{run} has no {metric!r} after training: was it evaluated on rows of the same tasks?")
        share, (low, high) = summary["after"][metric]["share"], value["expected"]
        compared.append({"metric": metric, "value": share, "expected": (low, high), "agrees": low <= share <= high})
    return compared


def _commit(summary: dict[str, Any]) -> str:
    return (summary["commit"] or "unknown")[:7] + (
        " with uncommitted changes" if summary["uncommitted_changes"] else ""
    )


def _relative(path: Path) -> str:
    return str(path.resolve().relative_to(ROOT))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist: give the output_dir of a finished run.")
    return json.loads(path.read_text(encoding="utf-8"))
