"""The report of one or several runs as a single HTML file: no network, no server, light and dark.

Promised: what a model or a data set wrote stays text. It reaches the page as JSON without a `<`, or
escaped, is shown through `textContent`, and the page's own content security policy lets no other
script run and nothing be fetched.

Not covered: more than `MAX_RUNS` runs on one page, and browsers without CSS variables.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from recipes.common.evaluation.scores import comparison
from recipes.common.report.plots import COLORS, Panel, panels, svg
from recipes.common.report.report import config_rows, ending_of, read_run
from recipes.common.utils.run_files import write_whole
from recipes.common.utils.tables import percent

TEMPLATE = Path(__file__).with_name("page.html")
MAX_RUNS = len(COLORS)  # colours that differ enough


def write_report(folders: list[Path], output: Path) -> None:
    """Write the report of these run folders, whole or not at all.

    Errors as of `read_run`; `ValueError` for too many runs.
    """
    if len(folders) > MAX_RUNS:
        raise ValueError(f"{len(folders)} runs do not fit on one page: give at most {MAX_RUNS}.")
    runs = [read_run(folder) for folder in folders]
    names = [run["name"] for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        run["name"] = run["name"] if names.count(run["name"]) == 1 else str(folder)
    write_whole(output, page(runs))


def page(runs: list[dict[str, Any]]) -> str:
    """The page of runs as `read_run` returns them."""
    names, configs = [run["name"] for run in runs], [run["config"] for run in runs]
    headings, legend, differences = [""] * len(runs), "", ""
    if len(runs) > 1:
        items = [f'class="run{i}">{html.escape(name)}' for i, name in enumerate(names)]
        headings = [f"<h3 {item}</h3>" for item in items]
        legend = "".join(f"<li {item}</li>" for item in items)
        legend = f'<ul class="legend">{legend}</ul>'
        rows = _cells(config_rows(configs, differing=True))
        table = _table(["setting", *names], rows) if rows else "<p>All settings are the same.</p>"
        differences = f"<section><h2>Settings that differ</h2>{table}</section>"
    drawn = panels([run["log"] for run in runs], [run["validation"] for run in runs])
    first = next((panel for panel in drawn if panel.rewards), None)
    curves = [_figure(panel, names) for panel in drawn if panel is not first]
    results = [heading + _result(run) for heading, run in zip(headings, runs, strict=True)]
    data = json.dumps(
        [_browsable(run) for run in runs],
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    parts = {
        "title": html.escape(" · ".join(names)),
        "legend": legend,
        "results": "".join(results),
        "picture": _figure(first, names) if first else "",
        "curves": "".join(curves) or "<p>No step was logged yet.</p>",
        "time": _time(runs),
        "differences": differences,
        "environment": _environment(runs),
        "settings": _table(["setting", *names], _cells(config_rows(configs))),
        "data": data.replace("<", "\\u003c"),  # no HTML parser finds markup in it
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    parts["script_hash"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # In one pass: what is filled in is not searched for places to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _figure(panel: Panel, names: list[str]) -> str:
    caption = html.escape(panel.title)
    return f"<figure><figcaption>{caption}</figcaption>{svg(panel, names)}</figure>"


def _browsable(run: dict[str, Any]) -> dict[str, Any]:
    """The run for the page's script; prompts repeat, so each message stands there once."""
    numbers: dict[tuple[str, str], int] = {}

    def shared(rows: list[dict]) -> list[dict]:
        return [
            {**row, "prompt": [numbers.setdefault(m, len(numbers)) for m in row["prompt"]]}
            for row in rows
        ]

    shown, logged = len(run["completions"]), run["logged"]
    note = f"All {shown} completions that were logged."
    if shown < logged:
        note = f"{shown} of {logged} completions: whole generations at even distances."
    if not logged:
        note = "No completions: this run logged none (log_completions: true does)."
    kept = {name: run[name] for name in ("name", "rewards", "extras", "counts")}
    kept |= {name: shared(run[name]) for name in ("completions", "held_out")}
    return {**kept, "note": note, "messages": list(numbers)}


def _time(runs: list[dict[str, Any]]) -> str:
    """Minutes of each phase in every finished run, and what is left: loading, saving, waiting."""
    timed = [run for run in runs if run["seconds"] is not None]
    columns = []
    for run in timed:
        whole = run["minutes"]
        of = {phase: seconds / 60 for phase, seconds in run["seconds"].items()}
        of["everything else"] = max(0.0, whole - sum(of.values()))
        shares = {name: percent(n / max(whole, 1e-9), 0) for name, n in of.items()}
        columns.append({name: f"{n:.1f} ({shares[name]})" for name, n in of.items()})
    table = _table(["minutes", *(run["name"] for run in timed)], _cells(config_rows(columns)))
    return table if timed else "<p>Not recorded.</p>"


def _result(run: dict[str, Any]) -> str:
    """Verdict, ending and held-out results of one run."""
    before, after, how_long = run["before"], run["after"], "This run is not finished."
    if run["steps"] is not None:
        how_long = f"{run['steps']} steps in {run['minutes']:.1f} minutes."
    opening = f"<p>{html.escape(' '.join([how_long, *ending_of(run)]))}</p>"
    if run["verdict"]:
        opening = f'<p class="verdict">{html.escape(run["verdict"]["sentence"])}</p>{opening}'
    if before is None:
        nothing = "No held-out rows were evaluated: nothing shows whether the model got better."
        return f"{opening}<p>{nothing}</p>"
    head, *rows = comparison(before, after, run["mcnemar_p"])
    # A phone breaks the line before the bracket.
    rows = [[cell.replace(" (", "\n(") if "%" in cell else cell for cell in row] for row in rows]
    note = '<p class="quiet">In brackets 95 % (Wilson); p: exact McNemar</p>'
    return opening + _table(head, rows) + note


def _environment(runs: list[dict[str, Any]]) -> str:
    """One column for each start: halves of a run may come from different versions."""
    head, facts = [""], []
    for run in runs:
        for start in run["starts"]:
            head.append(f"{run['name']}, from step {start['from_step']}")
            names = ("hardware", "commit", "uncommitted_changes")
            machine = {name: start.get(name) for name in names}
            engine = run["engine"] or {}
            command = {"command": " ".join(start["command"])}
            facts.append({**machine, **start["versions"], **engine, **command})
    return _table(head, _cells(config_rows(facts))) if facts else "<p>Not recorded.</p>"


def _cells(rows: list[tuple[str, list[Any]]]) -> list[list[str]]:
    return [
        [name, *(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values)]
        for name, values in rows
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Every cell is escaped here, once; the first of each row is its heading."""
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = []
    for name, *cells in rows:
        cells += [""] * (len(head) - len(cells) - 1)
        tds = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{tds}</tr>')
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
