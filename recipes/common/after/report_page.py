"""The report of one or several runs as a single HTML file: no network, no server, light and dark.

Promised: what a model or a data set wrote stays text. It reaches the page as JSON without a `<`, or escaped, is shown
through `textContent`, and the page's own content security policy lets no other script run and nothing be fetched.

Not covered: more than `MAX_RUNS` runs on one page, and browsers without CSS variables. Curves are drawn by matplotlib
as SVG that takes its colours from the page.
"""

import base64
import hashlib
import html
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from recipes.common.after.plots import PANELS, smooth
from recipes.common.after.report import config_rows, read_run
from recipes.common.tools.folder import is_reward_mean, write_whole

TEMPLATE = Path(__file__).with_name("report_page.html")
MAX_RUNS = 6  # colours that can be told apart

# matplotlib knows no CSS: these stand for the page's colours and are replaced in the SVG.
INK, GRID = "#010203", "#040506"
SERIES = [f"#0a0b0{i}" for i in range(MAX_RUNS)]
STYLE = {
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
}


def write_report(folders: list[Path], output: Path) -> None:
    """Write the report of these run folders, whole or not at all.

    Raises:
        FileNotFoundError: one of them is no run folder.
        ValueError: there are more than `MAX_RUNS`.
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
    names = [run["name"] for run in runs]
    parts = {
        "title": html.escape(" · ".join(names)),
        "legend": _legend(names) if len(runs) > 1 else "",
        "results": "".join(_result(run) for run in runs),
        "curves": _curves(runs),
        "differences": _differences(runs),
        "environment": _environment(runs),
        "settings": _table(["setting", *names], _cells(config_rows([run["config"] for run in runs]))),
        "data": _json_in_html(_browsable(runs)),
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    parts["script_hash"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # In one pass: what is filled in is not searched for places to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _json_in_html(value: Any) -> str:
    """JSON that no HTML parser finds markup in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _browsable(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the script of the page reads; prompts repeat, so each message stands there once."""
    return [_with_shared_messages(run) for run in runs]


def _with_shared_messages(run: dict[str, Any]) -> dict[str, Any]:
    numbers: dict[tuple[str, str], int] = {}

    def shared(rows: list[dict]) -> list[dict]:
        return [{**row, "prompt": [numbers.setdefault(m, len(numbers)) for m in row["prompt"]]} for row in rows]

    kept = {name: run[name] for name in ("name", "rewards", "extras")}
    kept |= {"completions": shared(run["completions"]), "flipped": shared(run["flipped"]), "note": _note(run)}
    return {**kept, "messages": list(numbers)}


def _note(run: dict[str, Any]) -> str:
    shown, logged = len(run["completions"]), run["logged"]
    if not logged:
        return "No completions: this run logged none (log_completions: true does)."
    if shown < logged:
        return f"{shown} of {logged} completions: whole generations at even distances."
    return f"All {shown} completions that were logged."


def _result(run: dict[str, Any]) -> str:
    heading = f"<h3>{html.escape(run['name'])}</h3>" + _outcome(run["outcome"])
    if run["before"] is None:
        return heading + "<p>No held-out rows were evaluated: nothing says whether the model got better.</p>"
    before, after = run["before"], run["after"]
    labels = [f"{before['n']} held-out rows, greedy", "before"]
    labels += ["after", "change", "p"] if after else []
    rows = [_share_row(name, before, after, run["mcnemar_p"]) for name in _shares(before)]
    rows += [_mean_row(*row, after is not None) for row in _means(before, after or {})]
    return heading + _interval_figure(before, after) + _table(labels, rows)


def _outcome(outcome: dict[str, Any]) -> str:
    if outcome["steps"] is None:
        return "<p>This run is not finished.</p>"
    return f"<p>{outcome['steps']} steps in {outcome['minutes']:.1f} minutes</p>"


def _shares(summary: dict[str, Any]) -> list[str]:
    return [name for name, value in summary.items() if isinstance(value, dict) and "share" in value]


def _share_row(name: str, before: dict, after: dict | None, p: dict[str, float] | None) -> list[str]:
    cells = [name, _share(before[name])]
    if after is None or name not in after:
        return cells
    change = 100 * (after[name]["share"] - before[name]["share"])
    return [*cells, _share(after[name]), f"{change:+.1f}\u00a0pt", f"{p[name]:.2g}"]


def _share(value: dict[str, Any]) -> str:
    low, high = value["interval"]
    return f"{_percent(value['share'])}\n({100 * low:.0f}–{100 * high:.0f})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _means(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, float | None, float | None]]:
    """Label, format, and the value before and after of what has no interval."""
    rows = [("truncated", "%", before["truncated"], after.get("truncated"))]
    rows += [("mean length (tokens)", ".1f", before["mean_length"], after.get("mean_length"))]
    for group, label, form in (("rewards", "{}, mean", ".3f"), ("sampled", "{}, sampled", "%")):
        values, later = before.get(group, {}), after.get(group, {})
        rows += [(label.format(name), form, value, later.get(name)) for name, value in values.items()]
    return rows


def _mean_row(label: str, form: str, before: float | None, after: float | None, finished: bool) -> list[str]:
    cells = [_value(value, form) for value in (before, after)[: 1 + finished]]
    if before is None or after is None:
        return [label, *cells]
    change = after - before
    return [label, *cells, f"{100 * change:+.1f}\u00a0pt" if form == "%" else f"{change:+{form}}"]


def _value(value: float | None, form: str) -> str:
    return "–" if value is None else _percent(value) if form == "%" else format(value, form)


def _interval_figure(before: dict[str, Any], after: dict[str, Any] | None) -> str:
    """Each share with its 95 % interval: before as a ring, after as a disc."""
    names = _shares(before)
    if not names:
        return ""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.4, 0.5 + 0.42 * len(names)), layout="constrained")
        axis = figure.subplots()
        for offset, summary, face in ((-0.14, before, "none"), (0.14, after, SERIES[0])):
            for place, name in enumerate(names if summary else []):
                value = summary.get(name)
                if value:
                    axis.plot(value["interval"], [place + offset] * 2, color=SERIES[0], linewidth=2)
                    axis.plot(value["share"], place + offset, "o", color=SERIES[0], markerfacecolor=face, markersize=7)
        axis.set_yticks(range(len(names)), names)
        axis.set(xlim=(-0.02, 1.02), ylim=(len(names) - 0.5, -0.5))
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        axis.grid(axis="x", alpha=0.6)
        caption = (
            "95 % Wilson intervals: ring before, disc after; p: exact McNemar" if after else "95 % Wilson intervals"
        )
        return _figure(caption, _svg(figure))


def _curves(runs: list[dict[str, Any]]) -> str:
    """Total reward, each reward, length, cut off, KL, entropy: what any of the runs logged."""
    logs = [run["log"] for run in runs]
    logged = {key for log in logs for entry in log for key in entry}
    panels = [("reward (weighted sum)", "reward")]
    panels += [(f"reward {key.split('/')[1]} (mean)", key) for key in sorted(filter(is_reward_mean, logged))]
    found = [_panel(title, key, logs) for title, key in [*panels, *PANELS] if key in logged]
    return "".join(found) or "<p>No step was logged yet.</p>"


def _panel(title: str, key: str, logs: list[list[dict[str, Any]]]) -> str:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2, 2.3), layout="constrained")
        axis = figure.subplots()
        for log, color in zip(logs, SERIES, strict=False):
            points = [(entry["step"], float(entry[key])) for entry in log if entry.get(key) is not None]
            points = [point for point in points if math.isfinite(point[1])]
            steps, values = [step for step, _ in points], [value for _, value in points]
            axis.plot(steps, values, color=color, alpha=0.35, linewidth=1)
            axis.plot(steps, smooth(values), color=color, linewidth=2, marker="o" if len(points) == 1 else None)
        axis.set_xlabel("optimizer step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.6)
        return _figure(title, _svg(figure))


def _svg(figure: Figure) -> str:
    """The figure as SVG for the inside of a page: its colours are the page's, its ids nobody else's."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r'<g id="[^"]*"', "<g", buffer.getvalue()[buffer.getvalue().index("<svg") :])
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"| height="[\d.]+pt"', r"\1", svg)
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--line)")
    for number, color in enumerate(SERIES):
        svg = svg.replace(color, f"var(--run{number})")
    return svg


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{svg}</figure>"


def _legend(names: list[str]) -> str:
    items = [f'<li class="run{number}">{html.escape(name)}</li>' for number, name in enumerate(names)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _differences(runs: list[dict[str, Any]]) -> str:
    if len(runs) == 1:
        return ""
    rows = _cells(config_rows([run["config"] for run in runs], differing=True))
    names = [run["name"] for run in runs]
    table = _table(["setting", *names], rows) if rows else "<p>All settings are the same.</p>"
    return f"<section><h2>Settings that differ</h2>{table}</section>"


def _environment(runs: list[dict[str, Any]]) -> str:
    """One column for each start: halves of a run may come from different versions."""
    starts = [(run, start) for run in runs for start in run["starts"]]
    heads = [f"{run['name']}, from step {start['from_step']}" for run, start in starts]
    facts = [_facts(run, start) for run, start in starts]
    return _table(["", *heads], _cells(config_rows(facts))) if facts else "<p>Not recorded.</p>"


def _facts(run: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
    kept = {name: start.get(name) for name in ("hardware", "commit", "uncommitted_changes")}
    engine = run["outcome"]["engine"] or {}
    return {**kept, **start["versions"], **engine, "command": " ".join(start["command"])}


def _cells(rows: list[tuple[str, list[Any]]]) -> list[list[str]]:
    return [[name, *(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in vs)] for name, vs in rows]


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Every cell is escaped here, once; the first of each row is its heading."""
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = [
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in [*row[1:], *[""] * (len(head) - len(row))])
        + "</tr>"
        for row in rows
    ]
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
