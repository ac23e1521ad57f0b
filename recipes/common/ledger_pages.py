"""The pages of the ledger: RESULTS.md, and the table of runs in README.md.

RESULTS.md is results/RESULTS.md.in with each line `{{name}}` replaced by what results/name.json says.
"""

import re
from pathlib import Path
from typing import Any

from recipes.common.ledger import Entry, sort_of
from recipes.common.repeats import percent

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
    lines = ["| run | hardware | minutes a run | held out, before → after | | details |", "|---|---|---|---|---|---|"]
    lines += [_readme_row(entry) for entry in entries.values() if sort_of(entry) == "runs"]
    others = [f"[{entry['title']}]({entry['config']})" for entry in entries.values() if sort_of(entry) == "not_run"]
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n\n**Not run here**: {'; '.join(others)}.\n{END}{after}"


def _readme_row(entry: Entry) -> str:
    cells = [f"{name} {_change(value)}" for name, value in entry["metrics"].items() if name != "format"]
    cells = [*cells, ""][:2]
    title = f"{entry['title']}, {_count(entry['seeds'], 'seed')}"
    details = f"[recipe]({Path(entry['config']).parent}/README.md){entry.get('note', '')}"
    return f"| {title} | {entry['hardware']} | {_range(entry['minutes'])} | {cells[0]} | {cells[1]} | {details} |"


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
    rows = []
    for number, seed in enumerate(entry["seeds"]):
        shares = [
            f"{percent(value['before']['seeds'][number])} → {percent(value['after']['seeds'][number])}"
            for value in entry["metrics"].values()
        ]
        rows.append([str(seed), f"{entry['minutes'][number]:.1f}", str(entry["n"][number]), *shares])
    if len(entry["seeds"]) > 1:
        rows.append(["all", "", str(sum(entry["n"])), *(_change(value) for value in entry["metrics"].values())])
    else:
        rows[0][3:] = [_change(value) for value in entry["metrics"].values()]
    rows.append(["McNemar p", "", "", *(f"{value['p']:.2g}" for value in entry["metrics"].values())])
    spans = [" - ".join(percent(end) for end in value["expected"]) for value in entry["metrics"].values()]
    rows.append(["one more run is expected in", "", "", *spans])
    return _table(["seed", "minutes", "rows", *entry["metrics"]], rows)


def _change(metric: dict[str, Any]) -> str:
    low, high = metric["after"]["interval"]
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
