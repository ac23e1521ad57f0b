"""The pages of the ledger: RESULTS.md, the table of runs in README.md, and the figures in the READMEs of recipes.

RESULTS.md is results/RESULTS.md.in with each line `{{name}}` replaced by the table of results/name.json. In a README
the table stands between two comments, of which the first names results/ (all runs) or one of its files.
"""

import re
from pathlib import Path
from typing import Any

from recipes.common.many_runs.ledger import ROOT, Entry, read_entries, sort_of
from recipes.common.utils.run_files import write_whole
from recipes.common.utils.tables import percent, points, share_and_span

BEGIN, END = "<!-- generated from results/ by scripts/ledger.py: begin -->", "<!-- end -->"
GENERATED = re.compile(
    r"(?<=<!-- generated from results/)((?:(\w+)\.json)? by scripts/ledger\.py: begin -->\n).*?(?=<!-- end -->)",
    re.DOTALL,
)
ONLY_RESULTS = 50  # the `order` from which an entry is not in the README
WEIGHTS = {
    "SmolLM2-135M-Instruct": "SmolLM2-135M: weights from 4-bit quantisation, close to the published ones."
}


def readmes() -> list[Path]:
    """The pages that hold generated tables, RESULTS.md apart."""
    return [ROOT / "README.md", *sorted(ROOT.glob("recipes/*/README.md"))]


def render_pages() -> None:
    """Write RESULTS.md and the tables in the READMEs; errors as of `read_entries` and `render_results`."""
    entries = read_entries(ROOT / "results")
    template = (ROOT / "results" / "RESULTS.md.in").read_text(encoding="utf-8")
    write_whole(ROOT / "RESULTS.md", render_results(template, entries))
    for page in readmes():
        write_whole(page, render_readme(page.read_text(encoding="utf-8"), entries))


def render_results(template: str, entries: dict[str, Entry]) -> str:
    """Render RESULTS.md, all that was not run at `{{not_run}}`; `ValueError` where names and entries differ."""
    named = re.findall(r"^\{\{(\S+)\}\}$", template, re.MULTILINE)
    blocks = {name: _block(entry) for name, entry in entries.items() if sort_of(entry) != "not_run"}
    not_run = [entry for entry in entries.values() if sort_of(entry) == "not_run"]
    blocks["not_run"] = "\n".join(
        f"- **{e['title']}**: {e['not_run']}. `{e['command']}`" for e in not_run
    )
    stray = ", ".join(sorted(set(named) ^ blocks.keys()))
    if stray:
        raise ValueError(
            f"results/*.json and the lines {{{{name}}}} of results/RESULTS.md.in differ: {stray}."
        )
    return re.sub(r"^\{\{(\S+)\}\}$", lambda match: blocks[match[1]], template, flags=re.MULTILINE)


def render_readme(page: str, entries: dict[str, Entry]) -> str:
    """Render a README with its generated tables made anew; `ValueError` where one names an entry that is not there."""

    def table(found: re.Match) -> str:
        begin, name = found.groups()
        if name is not None and name not in entries:
            raise ValueError(f"a README has a table of results/{name}.json, which does not exist.")
        return (
            begin
            + "\n".join(_all_runs(entries) if name is None else _summary(entries[name]))
            + "\n"
        )

    return GENERATED.sub(table, page)


def _all_runs(entries: dict[str, Entry]) -> list[str]:
    runs = [
        entry
        for entry in entries.values()
        if sort_of(entry) == "runs" and entry.get("order", 0) < ONLY_RESULTS
    ]
    head = [
        "run",
        "minutes a run",
        "held out: before → after, change (95 %)",
        "second metric",
        "details",
    ]
    others = sum(sort_of(entry) == "not_run" for entry in entries.values())
    notes = ["95 %: over seeds (Student), or over the rows of a single one.", *_origin(*runs)]
    notes.append(f"**Not run here**: {others} configurations: [RESULTS.md](RESULTS.md#not-run).")
    return [*_table(head, list(map(_readme_row, runs))), "", *notes]


def _summary(entry: Entry) -> list[str]:
    """The means of runs, a line a metric, or a table as it is; then where the figures come from."""
    if sort_of(entry) == "not_run":
        return [f"**Not run here**: {entry['not_run']}. `{entry['command']}`"]
    source = [entry["hardware"], f"commit {entry['commit']}", "[RESULTS.md](../../RESULTS.md)"]
    if sort_of(entry) == "table":
        return [*_table(entry["columns"], entry["rows"]), "", "; ".join(source) + "."]
    rows = "-".join(dict.fromkeys(map(str, (min(entry["n"]), max(entry["n"])))))
    runs = f"{_seeds(entry)} of {rows} held-out rows, {entry['steps']} steps and {_minutes(entry)} minutes"
    lines = []
    for name, metric in entry["metrics"].items():
        after, change = metric["after"], metric["change"]
        shares = [
            percent(metric["before"]["value"]),
            share_and_span(after["value"], after["interval"]),
        ]
        lines.append([name, *shares, points(change["value"], change["interval"])])
    table = _table(["", "before", "after (95 %)", "change (95 %)"], lines)
    over = "seeds (Student)" if len(entry["seeds"]) > 1 else "rows"
    return [*table, "", f"{runs}; intervals over {over}. {'; '.join(source)}.", *_origin(entry)]


def _origin(*entries: Entry) -> list[str]:
    """Where the weights come from, for models whose weights are not the published ones."""
    models = dict.fromkeys(entry["settings"]["model_name_or_path"] for entry in entries)
    return [WEIGHTS[model] for model in models if model in WEIGHTS]


def _seeds(entry: Entry) -> str:
    return f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) != 1)}"


def _minutes(entry: Entry) -> str:
    return "-".join(
        dict.fromkeys(f"{value:.1f}" for value in (min(entry["minutes"]), max(entry["minutes"])))
    )


def _readme_row(entry: Entry) -> list[str]:
    cells = [
        f"{name} {_change(value)}"
        for name, value in entry["metrics"].items()
        if not name.endswith("format")
    ]
    details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
    return [f"{entry['title']}, {_seeds(entry)}", _minutes(entry), *[*cells, ""][:2], details]


def _block(entry: Entry) -> str:
    """Command, commit, hardware and seeds of an entry, and its table."""
    parts = [f"`{entry['command']}`", f"commit {entry['commit']}", entry["hardware"]]
    if "seeds" in entry:
        parts.append(f"seed{'s' * (len(entry['seeds']) > 1)} {', '.join(map(str, entry['seeds']))}")
    lines = (
        _table(entry["columns"], entry["rows"]) if sort_of(entry) == "table" else _runs_table(entry)
    )
    lines += ["", *_origin(entry)] if "settings" in entry else []
    return "\n".join([f"{'; '.join(parts)}. {entry.get('remark', '')}".rstrip(), "", *lines])


def _runs_table(entry: Entry) -> list[str]:
    metrics = entry["metrics"].values()
    rows = []
    for number, seed in enumerate(entry["seeds"]):
        cells = []
        for metric in metrics:
            before, after = (
                percent(metric[stage]["seeds"][number]) for stage in ("before", "after")
            )
            p = metric["p"][number]
            cells.append(f"{before} → {after}" + ("" if p is None else f", p {p:.2g}"))
        rows.append([str(seed), f"{entry['minutes'][number]:.1f}", str(entry["n"][number]), *cells])
    rows.append(
        ["mean, change (95 %)", "", str(sum(entry["n"])), *(_change(metric) for metric in metrics)]
    )
    spans = [
        "{:+.1f} to {:+.1f} pt".format(*(100 * end for end in metric["expected_change"]))
        for metric in metrics
    ]
    rows.append(["expected change of one more run", "", "", *spans])
    return _table(["seed", "minutes", "rows", *entry["metrics"]], rows)


def _change(metric: dict[str, Any]) -> str:
    """Means over the seeds; 95 % of the change, over seeds where there are several, else over rows.

    Of a single run whose rows were not kept only the share after training has an interval, over rows.
    """
    after, change = metric["after"], metric["change"]
    before = f"{100 * metric['before']['value']:.1f}"
    if change["interval"] is None:
        return f"{before} → {share_and_span(after['value'], after['interval'])}"
    return f"{before} → {percent(after['value'])}, {points(change['value'], change['interval'])}"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows]]
