"""The pages of the ledger: RESULTS.md, and the table of runs in README.md.

RESULTS.md is results/RESULTS.md.in with each line `{{name}}` replaced by what results/name.json says.
"""

import re
from pathlib import Path
from typing import Any

from recipes.common.many_runs.ledger import Entry, sort_of
from recipes.common.many_runs.runs import percent

BEGIN, END = "<!-- generated from results/ by scripts/ledger.py: begin -->", "<!-- end -->"


def render_results(template: str, entries: dict[str, Entry]) -> str:
    """RESULTS.md. What was not run has no place of its own: it is listed at `{{not_run}}`.

    Raises:
        ValueError: the template names an entry that is not there, or one with a value is named nowhere.
    """
    named = re.findall(r"^\{\{(\S+)\}\}$", template, re.MULTILINE)
    blocks = {name: _block(entry) for name, entry in entries.items() if sort_of(entry) != "not_run"}
    blocks["not_run"] = "\n".join(_not_run(entry) for entry in entries.values() if sort_of(entry) == "not_run")
    stray = sorted(set(named) ^ blocks.keys())
    if stray:
        said = "results/*.json and the lines {{name}} of results/RESULTS.md.in differ"
        raise ValueError(f"{said}: {', '.join(stray)}.")
    return re.sub(r"^\{\{(\S+)\}\}$", lambda match: blocks[match[1]], template, flags=re.MULTILINE)


def render_readme(readme: str, entries: dict[str, Entry]) -> str:
    """README.md with its table of runs made anew."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END, 1)[1]
    rows = [_readme_row(entry) for entry in entries.values() if sort_of(entry) == "runs"]
    head = ["run", "hardware", "minutes a run", "held out, before → after (95 %)", "second metric", "details"]
    others = sum(sort_of(entry) == "not_run" for entry in entries.values())
    text = [
        *_table(head, rows),
        "",
        "In brackets 95 %: over seeds (Student) where there are several, over rows (Wilson) where there is one.",
        f"**Not run here**: {others} configurations, most for want of a GPU: [RESULTS.md](RESULTS.md#not-run).",
    ]
    return f"{before}{BEGIN}\n" + "\n".join(text) + f"\n{END}{after}"


def _readme_row(entry: Entry) -> list[str]:
    cells = [f"{name} {_change(value)}" for name, value in entry["metrics"].items() if name != "format"]
    cells = [*cells, ""][:2]
    title = f"{entry['title']}, {_count(entry['seeds'], 'seed')}"
    details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
    return [title, entry["hardware"], _range(entry["minutes"]), *cells, details]


def _not_run(entry: Entry) -> str:
    return f"- **{entry['title']}**: {entry['not_run']}. `{entry['command']}`"


def _block(entry: Entry) -> str:
    lines = _table(entry["columns"], entry["rows"]) if sort_of(entry) == "table" else _runs_table(entry)
    return "\n".join([_provenance(entry), "", *lines])


def _provenance(entry: Entry) -> str:
    parts = [f"`{entry['command']}`", f"commit {entry['commit']}", entry["hardware"]]
    if "seeds" in entry:
        parts.append(f"seed{'s' * (len(entry['seeds']) > 1)} {', '.join(map(str, entry['seeds']))}")
    return f"{'; '.join(parts)}. {entry.get('remark', '')}".rstrip()


def _runs_table(entry: Entry) -> list[str]:
    metrics = entry["metrics"].values()
    rows = []
    for number, seed in enumerate(entry["seeds"]):
        cells = [_of_seed(metric, number) for metric in metrics]
        rows.append([str(seed), f"{entry['minutes'][number]:.1f}", str(entry["n"][number]), *cells])
    rows.append(["all, 95 %", "", str(sum(entry["n"])), *(_change(metric) for metric in metrics)])
    spans = [" - ".join(percent(end) for end in metric["expected"]) for metric in metrics]
    rows.append(["one more run is expected in", "", "", *spans])
    return _table(["seed", "minutes", "rows", *entry["metrics"]], rows)


def _of_seed(metric: dict[str, Any], number: int) -> str:
    before, after = (percent(metric[stage]["seeds"][number]) for stage in ("before", "after"))
    p = metric["p"][number]
    return f"{before} → {after}" + ("" if p is None else f", p {p:.2g}")


def _change(metric: dict[str, Any]) -> str:
    """Means over the seeds; in brackets 95 % over seeds where there are several, else over rows."""
    low, high = metric["after"]["interval_over_seeds"] or metric["after"]["interval"]
    after = percent(metric["after"]["value"])
    return f"{percent(metric['before']['value'])} → {after} ({100 * low:.0f}-{100 * high:.0f})"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low}-{high}"


def _count(values: list, noun: str) -> str:
    return f"{len(values)} {noun}{'s' * (len(values) != 1)}"
