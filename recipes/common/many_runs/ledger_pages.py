"""The pages of the ledger: RESULTS.md, and the table of runs in README.md.

RESULTS.md is results/RESULTS.md.in with each line `{{name}}` replaced by the table of results/name.json.
"""

import re
from pathlib import Path
from typing import Any

from recipes.common.many_runs.ledger import ROOT, Entry, read_entries, sort_of
from recipes.common.tools.folder import write_whole
from recipes.common.tools.tables import percent, points, share_and_span

BEGIN, END = "<!-- generated from results/ by scripts/ledger.py: begin -->", "<!-- end -->"


def render_pages() -> None:
    """Write RESULTS.md and the table in README.md; errors as of `read_entries` and `render_results`."""
    entries, readme = read_entries(ROOT / "results"), ROOT / "README.md"
    template = (ROOT / "results" / "RESULTS.md.in").read_text(encoding="utf-8")
    write_whole(ROOT / "RESULTS.md", render_results(template, entries))
    write_whole(readme, render_readme(readme.read_text(encoding="utf-8"), entries))


def render_results(template: str, entries: dict[str, Entry]) -> str:
    """Render RESULTS.md, all that was not run at `{{not_run}}`; `ValueError` where names and entries differ."""
    named = re.findall(r"^\{\{(\S+)\}\}$", template, re.MULTILINE)
    blocks = {name: _block(entry) for name, entry in entries.items() if sort_of(entry) != "not_run"}
    not_run = [entry for entry in entries.values() if sort_of(entry) == "not_run"]
    blocks["not_run"] = "\n".join(f"- **{e['title']}**: {e['not_run']}. `{e['command']}`" for e in not_run)
    stray = ", ".join(sorted(set(named) ^ blocks.keys()))
    if stray:
        raise ValueError(f"results/*.json and the lines {{{{name}}}} of results/RESULTS.md.in differ: {stray}.")
    return re.sub(r"^\{\{(\S+)\}\}$", lambda match: blocks[match[1]], template, flags=re.MULTILINE)


def render_readme(readme: str, entries: dict[str, Entry]) -> str:
    """Render README.md with its table of runs made anew."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END, 1)[1]
    rows = [_readme_row(entry) for entry in entries.values() if sort_of(entry) == "runs"]
    head = [
        "run",
        "hardware",
        "minutes a run",
        "held out: before → after, change (95 %)",
        "second metric",
        "details",
    ]
    others = sum(sort_of(entry) == "not_run" for entry in entries.values())
    text = [
        *_table(head, rows),
        "",
        "95 %: over seeds (Student) where there are several, over rows where there is one.",
        f"**Not run here**: {others} configurations, most for want of a GPU: [RESULTS.md](RESULTS.md#not-run).",
    ]
    return f"{before}{BEGIN}\n" + "\n".join(text) + f"\n{END}{after}"


def _readme_row(entry: Entry) -> list[str]:
    cells = [f"{name} {_change(value)}" for name, value in entry["metrics"].items() if name != "format"]
    seeds = len(entry["seeds"])
    title = f"{entry['title']}, {seeds} seed{'s' * (seeds != 1)}"
    minutes = dict.fromkeys(f"{value:.1f}" for value in (min(entry["minutes"]), max(entry["minutes"])))
    details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
    return [title, entry["hardware"], "-".join(minutes), *[*cells, ""][:2], details]


def _block(entry: Entry) -> str:
    """Command, commit, hardware and seeds of an entry, and its table."""
    parts = [f"`{entry['command']}`", f"commit {entry['commit']}", entry["hardware"]]
    if "seeds" in entry:
        parts.append(f"seed{'s' * (len(entry['seeds']) > 1)} {', '.join(map(str, entry['seeds']))}")
    lines = _table(entry["columns"], entry["rows"]) if sort_of(entry) == "table" else _runs_table(entry)
    return "\n".join([f"{'; '.join(parts)}. {entry.get('remark', '')}".rstrip(), "", *lines])


def _runs_table(entry: Entry) -> list[str]:
    metrics = entry["metrics"].values()
    rows = []
    for number, seed in enumerate(entry["seeds"]):
        cells = []
        for metric in metrics:
            before, after = (percent(metric[stage]["seeds"][number]) for stage in ("before", "after"))
            p = metric["p"][number]
            cells.append(f"{before} → {after}" + ("" if p is None else f", p {p:.2g}"))
        rows.append([str(seed), f"{entry['minutes'][number]:.1f}", str(entry["n"][number]), *cells])
    rows.append(["mean, change (95 %)", "", str(sum(entry["n"])), *(_change(metric) for metric in metrics)])
    spans = ["{:+.1f} to {:+.1f} pt".format(*(100 * end for end in metric["expected_change"])) for metric in metrics]
    rows.append(["expected change of one more run", "", "", *spans])
    return _table(["seed", "minutes", "rows", *entry["metrics"]], rows)


def _change(metric: dict[str, Any]) -> str:
    """Means over the seeds; 95 % of the change, over seeds where there are several, else over rows.

    Of a single run whose rows were not kept only the share after training has an interval, over rows.
    """
    after, change = metric["after"], metric["change"]
    if change["interval"] is None:
        return f"{percent(metric['before']['value'])} → {share_and_span(after['value'], after['interval'])}"
    shares = " → ".join(percent(metric[stage]["value"]) for stage in ("before", "after"))
    return f"{shares}, {points(change['value'], change['interval'])}"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows]]
