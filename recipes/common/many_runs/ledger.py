"""The ledger: results/*.json, one file a published result, and the pages that are made of it.

RESULTS.md is results/RESULTS.md.in with each line `{{name}}` replaced by the table of
results/name.json. In a README the table stands between two comments, of which the first names
results/ (all runs) or one of its files.

An entry is of one of three sorts:

- **runs** of a recipe: `config`, `command`, the `commit` they were made at, `versions`, `hardware`,
  `seeds`, `n` (rows of each seed), `minutes`, `steps`, `settings`, and `metrics`: name -> `before`,
  `after` and `change` (each `value`, `interval` over seeds, or over rows for a single one, and
  `seeds`), `p` of each seed, and the change that one more run is expected to show
  (`expected_change`). With fewer than three seeds `fewer_seeds` gives the reason
- a **table** of anything else that was measured: `columns` and `rows`, with command, commit and
  hardware; where it is of runs of a recipe, `configs`
- **not run**: `config`, `command`, and `not_run`, the reason; it has no value

By hand, in any of them: `order` (its place; from 50 on in RESULTS.md alone), `note` (in the
README's table), `remark` (above its table).
"""

import math
import re
import shlex
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from recipes.common.checks.identity import NOT_COMPARED
from recipes.common.evaluation.scores import independent_metrics
from recipes.common.many_runs.arms import CONFIGURED, compare_arms, read_settings
from recipes.common.settings import options_given
from recipes.common.utils.run_files import (
    SUMMARY,
    read_evaluation,
    read_json,
    write_json,
    write_whole,
)
from recipes.common.utils.stats import Z_95, t_quantile
from recipes.common.utils.tables import percent, points, share_and_span

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
# Where things lie on a machine, and what every run of a set has of its own.
NOT_SETTINGS = NOT_COMPARED | {"dataset_path", "run_name", "seed"}
# With num_train_rows these change nothing of a run.
WATCHING = {"eval_strategy", "eval_steps", "num_validation_rows"}
NEEDED = {
    "runs": "title command commit hardware metrics minutes n seeds settings steps versions",
    "table": "title command columns rows commit hardware",
    "not_run": "title command",
}
BEGIN, END = "<!-- generated from results/ by scripts/ledger.py: begin -->", "<!-- end -->"
GENERATED = re.compile(
    r"(?<=<!-- generated from results/)((?:(\w+)\.json)? by scripts/ledger\.py: begin -->\n)"
    r".*?(?=<!-- end -->)",
    re.DOTALL,
)
PLACE = re.compile(r"^\{\{(\S+)\}\}$", re.MULTILINE)  # of a table in results/RESULTS.md.in
ONLY_RESULTS = 50  # the `order` from which an entry is not in the README
WEIGHTS = {
    "SmolLM2-135M-Instruct": "SmolLM2-135M: weights from 4-bit quantisation, close to the "
    "published ones."
}


# --- Entries


def read_entries(folder: Path) -> dict[str, Entry]:
    """Read every entry by its name, in the order of its `order`; errors as of `read_entry`."""
    entries = {path.stem: read_entry(path) for path in sorted(folder.glob("*.json"))}
    return dict(sorted(entries.items(), key=lambda item: item[1].get("order", 1000)))


def read_entry(path: Path) -> Entry:
    """Read one entry; `ValueError` where it is of no sort, lacks something, or was not run and has
    a value."""
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

    `ValueError`: a run is not finished, they differ in more than their seed, a seed is there twice,
    or they have settings that neither the YAML nor `command` names.
    """
    summaries = [_summary_of(run, config) for run in runs]
    first = summaries[0]
    for name in ("settings", "commit", "hardware", "versions", "steps"):
        pairs = zip(runs, summaries, strict=True)
        if other := [str(run) for run, summary in pairs if summary[name] != first[name]]:
            than = f"other {name} than {runs[0]}; an entry is of one configuration"
            raise ValueError(f"{', '.join(other)}: {than}.")
    seeds = [summary["config"]["seed"] for summary in summaries]
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
    evaluations = [read_evaluation(run) for run in runs]
    metrics = compare_arms({CONFIGURED: evaluations})
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
        "metrics": {name: _metric(arms[CONFIGURED]) for name, arms in metrics.items()},
        "settings": settings,
    }
    write_json(output, {**kept, **entry})


def _summary_of(run: Path, yaml_file: Path) -> dict[str, Any]:
    """A run's summary with the commit in short and, as `settings`, what its YAML or command line
    set.

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
    commit = (summary["commit"] or "unknown")[:7]
    if summary["uncommitted_changes"]:
        commit += " with uncommitted changes"
    return {**summary, "commit": commit, "settings": settings}


def _metric(value: dict[str, Any]) -> dict[str, Any]:
    stages = {}
    for stage in ("before", "after", "change"):
        of = value[stage]
        rounded = {name: _rounded(of[name]) for name in ("interval", "seeds")}
        stages[stage] = {"value": round(of["mean"], 4), **rounded}
    p = [None if of_seed is None else float(f"{of_seed:.2g}") for of_seed in value["change"]["p"]]
    n = sum(value["n"])
    expected = expected_change(stages["before"]["seeds"], stages["after"]["seeds"], n)
    return {"n": n, **stages, "p": p, "expected_change": expected}


def expected_change(before: list[float | None], after: list[float | None], n: int) -> list[float]:
    """Where the change of the share in one more run should fall, in 19 of 20 cases.

    The mean change of the k seeds, give or take sqrt(1 + 1/k) times the larger of two spreads. That
    of the seeds: Student's t times the standard deviation of their changes. That of drawing the `n`
    rows of all seeds: 1.96 standard errors of one run's change, its two shares taken as
    independent, which is cautious, and each with two successes and two failures added (Agresti and
    Coull 1998), so that 0 and 1 are not certain. A single seed has only the second.
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


# --- A run next to an entry


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
        width = f"a band of {high - low:.0f} points"
        line = f"{self.metric:<10}{points(self.change):>9}   expected {low:+.1f} to {high:+.1f} pt"
        without = " (a run without any change would agree too)" * (low <= 0.0 <= high)
        return f"{line}, {width}   {wrong}as expected{without}"


def compare_run(run: Path, entry: Entry) -> list[Compared]:
    """Compare each metric's change with the entry's; `ValueError` names settings that differ."""
    if sort_of(entry) != "runs":
        reason = entry.get("not_run", "it is a table")
        raise ValueError(f"{entry['title']!r} holds nothing to compare with: {reason}.")
    summary = _summary_of(run, ROOT / entry["config"])
    ours, theirs = summary["settings"], entry["settings"]
    wrong = [
        f"{name}: the entry has {theirs.get(name)!r}, the run {ours.get(name)!r}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    if wrong:
        text = f"{run} is a run of another configuration ({'; '.join(wrong)})."
        raise ValueError(f"{text} The entry's command: {entry['command']}")
    before, after = summary["before"] or {}, summary["after"] or {}
    missing = [metric for metric in entry["metrics"] if metric not in after]
    if missing:
        question = "was it evaluated on rows of the same tasks?"
        raise ValueError(f"{run} has no {missing[0]!r} after training: {question}")
    return [
        Compared(name, after[name]["share"] - before[name]["share"], *value["expected_change"])
        for name, value in entry["metrics"].items()
    ]


# --- Pages


def readmes() -> list[Path]:
    """The pages that hold generated tables, RESULTS.md apart."""
    return [ROOT / "README.md", *sorted(ROOT.glob("recipes/*/README.md"))]


def render_pages() -> None:
    """Write RESULTS.md and the tables in the READMEs.

    Errors as of `read_entries`, `render_results` and `render_readme`.
    """
    entries = read_entries(ROOT / "results")
    template = (ROOT / "results" / "RESULTS.md.in").read_text(encoding="utf-8")
    write_whole(ROOT / "RESULTS.md", render_results(template, entries))
    for page in readmes():
        write_whole(page, render_readme(page.read_text(encoding="utf-8"), entries))


def render_results(template: str, entries: dict[str, Entry]) -> str:
    """Render RESULTS.md, all that was not run at `{{not_run}}`.

    `ValueError` where the places of the template and the entries differ.
    """
    blocks, not_run = {}, []
    for name, entry in entries.items():
        if sort_of(entry) == "not_run":
            not_run.append(f"- **{entry['title']}**: {entry['not_run']}. `{entry['command']}`")
        else:
            blocks[name] = _block(entry)
    blocks["not_run"] = "\n".join(not_run)
    if stray := ", ".join(sorted(set(PLACE.findall(template)) ^ blocks.keys())):
        places = "the lines {{name}} of results/RESULTS.md.in"
        raise ValueError(f"results/*.json and {places} differ: {stray}.")
    return PLACE.sub(lambda place: blocks[place[1]], template)


def render_readme(page: str, entries: dict[str, Entry]) -> str:
    """Render a README with its tables made anew; `ValueError` where one names no entry."""

    def table(found: re.Match) -> str:
        begin, name = found.groups()
        if name is not None and name not in entries:
            raise ValueError(f"a README has a table of results/{name}.json, which does not exist.")
        lines = _all_runs(entries) if name is None else _summary(entries[name])
        return begin + "\n".join(lines) + "\n"

    return GENERATED.sub(table, page)


def _all_runs(entries: dict[str, Entry]) -> list[str]:
    runs = [entry for entry in entries.values() if sort_of(entry) == "runs"]
    runs = [entry for entry in runs if entry.get("order", 0) < ONLY_RESULTS]
    rows = []
    for entry in runs:
        metrics = [name for name in entry["metrics"] if not name.endswith("format")]
        of_tasks = independent_metrics(metrics)
        metrics = of_tasks if len(of_tasks) > 1 else metrics
        cells = [f"{name} {_change(entry['metrics'][name])}" for name in metrics]
        details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
        title = f"{entry['title']}, {_seeds(entry)}"
        rows.append([title, _minutes(entry), *[*cells, ""][:2], details])
    change = "held out: before → after, change (95 %)"
    head = ["run", "minutes a run", change, "second metric", "details"]
    others = sum(sort_of(entry) == "not_run" for entry in entries.values())
    notes = ["95 %: over seeds (Student), or over the rows of a single one.", *_origin(*runs)]
    notes.append(f"**Not run here**: {others} configurations: [RESULTS.md](RESULTS.md#not-run).")
    return [*_table(head, rows), "", *notes]


def _summary(entry: Entry) -> list[str]:
    """The means of runs, a line a metric, or a table as it is; then where the figures come from."""
    if sort_of(entry) == "not_run":
        return [f"**Not run here**: {entry['not_run']}. `{entry['command']}`"]
    source = f"{entry['hardware']}; commit {entry['commit']}; [RESULTS.md](../../RESULTS.md)."
    if sort_of(entry) == "table":
        return [*_table(entry["columns"], entry["rows"]), "", source]
    lines = []
    for name, metric in entry["metrics"].items():
        after, change = metric["after"], metric["change"]
        cells = [percent(metric["before"]["value"])]
        cells.append(share_and_span(after["value"], after["interval"]))
        lines.append([name, *cells, points(change["value"], change["interval"])])
    rows = "-".join(dict.fromkeys(map(str, (min(entry["n"]), max(entry["n"])))))
    runs = f"{_seeds(entry)} of {rows} held-out rows, {entry['steps']} steps"
    over = "seeds (Student)" if len(entry["seeds"]) > 1 else "rows"
    notes = f"{runs} and {_minutes(entry)} minutes; intervals over {over}. {source}"
    table = _table(["", "before", "after (95 %)", "change (95 %)"], lines)
    return [*table, "", notes, *_origin(entry)]


def _origin(*entries: Entry) -> list[str]:
    """Where the weights come from, for models whose weights are not the published ones."""
    models = dict.fromkeys(entry["settings"]["model_name_or_path"] for entry in entries)
    return [WEIGHTS[model] for model in models if model in WEIGHTS]


def _seeds(entry: Entry) -> str:
    return f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) != 1)}"


def _minutes(entry: Entry) -> str:
    ends = (min(entry["minutes"]), max(entry["minutes"]))
    return "-".join(dict.fromkeys(f"{value:.1f}" for value in ends))


def _block(entry: Entry) -> str:
    """Command, commit, hardware and seeds of an entry, and its table."""
    parts = [f"`{entry['command']}`", f"commit {entry['commit']}", entry["hardware"]]
    if "seeds" in entry:
        parts.append(f"seed{'s' * (len(entry['seeds']) > 1)} {', '.join(map(str, entry['seeds']))}")
    is_table = sort_of(entry) == "table"
    lines = _table(entry["columns"], entry["rows"]) if is_table else _runs_table(entry)
    if "settings" in entry:
        lines += ["", *_origin(entry)]
    return "\n".join([f"{'; '.join(parts)}. {entry.get('remark', '')}".rstrip(), "", *lines])


def _runs_table(entry: Entry) -> list[str]:
    rows, metrics = [], entry["metrics"].values()
    for number, seed in enumerate(entry["seeds"]):
        row = [str(seed), f"{entry['minutes'][number]:.1f}", str(entry["n"][number])]
        for metric in metrics:
            before, after = (metric[stage]["seeds"][number] for stage in ("before", "after"))
            p = metric["p"][number]
            cell = f"{percent(before)} → {percent(after)}"
            row.append(cell if p is None else f"{cell}, p {p:.2g}")
        rows.append(row)
    mean_row = ["mean, change (95 %)", "", str(sum(entry["n"]))]
    expected_row = ["expected change of one more run", "", ""]
    for metric in metrics:
        low, high = (100 * end for end in metric["expected_change"])
        mean_row.append(_change(metric))
        expected_row.append(f"{low:+.1f} to {high:+.1f} pt")
    head = ["seed", "minutes", "rows", *entry["metrics"]]
    return _table(head, [*rows, mean_row, expected_row])


def _change(metric: dict[str, Any]) -> str:
    """Means over the seeds; 95 % of the change, over seeds where there are several, else over rows.

    Of a single run whose rows were not kept only the share after training has an interval, over
    rows.
    """
    after, change = metric["after"], metric["change"]
    before = f"{100 * metric['before']['value']:.1f}"
    if change["interval"] is None:
        return f"{before} → {share_and_span(after['value'], after['interval'])}"
    return f"{before} → {percent(after['value'])}, {points(change['value'], change['interval'])}"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows]]
