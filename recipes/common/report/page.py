"""The report of one or several runs as a single HTML file: no network, no server, light and dark.

Promised: what a model or a data set wrote stays text. It reaches the page as JSON without a `<`, or escaped, is shown
through `textContent`, and the page's own content security policy lets no other script run and nothing be fetched.

Not covered: more than `MAX_RUNS` runs on one page, and browsers without CSS variables.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from recipes.common.evaluation.scores import independent_metric
from recipes.common.report.curves import panel, shares_panel
from recipes.common.report.plots import TOTAL, curve, panels, validation_shares
from recipes.common.report.report import best_sentence, config_rows, read_run
from recipes.common.utils.run_files import write_whole
from recipes.common.utils.tables import percent, points, share_and_span

TEMPLATE = Path(__file__).with_name("page.html")
MAX_RUNS = 6  # colours that differ enough


def write_report(folders: list[Path], output: Path) -> None:
    """Write the report of these run folders, whole or not at all; errors as of `read_run`, and for too many runs."""
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
    legend = [
        f'<li class="run{number}">{html.escape(name)}</li>' for number, name in enumerate(names)
    ]
    logs, several = [run["log"] for run in runs], len(runs) > 1
    curves = [panel(title, names, [curve(log, key) for log in logs]) for title, key in panels(logs)]
    validated = _validated(runs)
    data = json.dumps(
        [_browsable(run) for run in runs],
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    parts = {
        "title": html.escape(" · ".join(names)),
        "legend": f'<ul class="legend">{"".join(legend)}</ul>' if several else "",
        "results": "".join(
            (_name(run, number) if several else "") + _result(run)
            for number, run in enumerate(runs)
        ),
        "picture": next(iter(validated.values()), ""),
        "curves": "".join([*list(validated.values())[1:], *curves])
        or "<p>No step was logged yet.</p>",
        "time": _time(runs),
        "differences": "",
        "environment": _environment(runs),
        "settings": _table(["setting", *names], _cells(config_rows(configs))),
        "data": data.replace("<", "\\u003c"),  # no HTML parser finds markup in it
    }
    if several:
        rows = _cells(config_rows(configs, differing=True))
        table = _table(["setting", *names], rows) if rows else "<p>All settings are the same.</p>"
        parts["differences"] = f"<section><h2>Settings that differ</h2>{table}</section>"
    template = TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    parts["script_hash"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # In one pass: what is filled in is not searched for places to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _browsable(run: dict[str, Any]) -> dict[str, Any]:
    """The run for the page's script; prompts repeat, so each message stands there once."""
    numbers: dict[tuple[str, str], int] = {}

    def shared(rows: list[dict]) -> list[dict]:
        return [
            {**row, "prompt": [numbers.setdefault(m, len(numbers)) for m in row["prompt"]]}
            for row in rows
        ]

    shown, logged = len(run["completions"]), run["logged"]
    note = "No completions: this run logged none (log_completions: true does)."
    if logged:
        some = f"{shown} of {logged} completions: whole generations at even distances."
        note = some if shown < logged else f"All {shown} completions that were logged."
    kept = {name: run[name] for name in ("name", "rewards", "extras", "counts")}
    kept |= {
        "completions": shared(run["completions"]),
        "held_out": shared(run["held_out"]),
        "note": note,
    }
    return {**kept, "messages": list(numbers)}


def _validated(runs: list[dict[str, Any]]) -> dict[str, str]:
    """A picture of each validation metric over the reward, that of the verdict first."""
    names, rewards = [run["name"] for run in runs], [curve(run["log"], TOTAL[1]) for run in runs]
    spans = validation_shares([run["validation"] for run in runs])
    first = independent_metric(spans) if spans else None
    title = (
        "{}: share of the validation rows with its 95 % band; dashed: reward (right scale)".format
    )
    return {
        metric: shares_panel(title(metric), names, spans[metric], rewards)
        for metric in sorted(spans, key=lambda name: name != first)
    }


def _time(runs: list[dict[str, Any]]) -> str:
    """Minutes of each phase in every finished run, and what is left: loading, saving, waiting."""
    timed = [run for run in runs if run["outcome"]["seconds"] is not None]
    if not timed:
        return "<p>Not recorded.</p>"
    phases, rows = dict.fromkeys(phase for run in timed for phase in run["outcome"]["seconds"]), []
    for phase in phases:
        rows.append(
            [phase, *(_minutes(run["outcome"]["seconds"].get(phase, 0.0), run) for run in timed)]
        )
    rest = [
        60 * run["outcome"]["minutes"] - sum(run["outcome"]["seconds"].values()) for run in timed
    ]
    rows.append(
        [
            "everything else",
            *(_minutes(seconds, run) for seconds, run in zip(rest, timed, strict=True)),
        ]
    )
    return _table(["minutes", *(run["name"] for run in timed)], rows)


def _minutes(seconds: float, run: dict[str, Any]) -> str:
    minutes = max(0.0, seconds / 60)
    return f"{minutes:.1f} ({percent(minutes / max(run['outcome']['minutes'], 1e-9), 0)})"


def _name(run: dict[str, Any], number: int) -> str:
    return f'<h3 class="run{number}">{html.escape(run["name"])}</h3>'


def _result(run: dict[str, Any]) -> str:
    """Held-out results of one run."""
    outcome, before, after = run["outcome"], run["before"], run["after"]
    ended = "This run is not finished."
    if outcome["steps"] is not None:
        ended = f"{outcome['steps']} steps in {outcome['minutes']:.1f} minutes"
    if outcome["stopped"]:
        ended += f"; stopped early: {outcome['stopped']}"
    if best := outcome["best_checkpoint"]:
        ended += f". {best_sentence(best)}"
    if run["voided"]:
        ended += f". {run['voided']}"
    heading = f"<p>{html.escape(ended)}</p>"
    if run["verdict"]:
        heading = f'<p class="verdict">{html.escape(run["verdict"])}</p>{heading}'
    if before is None:
        return (
            heading
            + "<p>No held-out rows were evaluated: nothing shows whether the model got better.</p>"
        )
    labels = [
        f"{before['n']} held-out rows, greedy",
        "before",
        *(["after", "change", "p"] if after else []),
    ]
    rows = []
    for name in [
        name for name, value in before.items() if isinstance(value, dict) and "share" in value
    ]:
        stages = [summary[name] for summary in (before, after) if summary and name in summary]
        # A phone breaks the line before the bracket.
        cells = [
            share_and_span(stage["share"], stage["interval"]).replace(" (", "\n(")
            for stage in stages
        ]
        if len(stages) == 2:
            cells += [
                points(stages[1]["share"] - stages[0]["share"]),
                f"{run['mcnemar_p'][name]:.2g}",
            ]
        rows.append([name, *cells])
    later = _means(after) if after else {}
    for label, (show, old) in _means(before).items():
        values = [old, *([later.get(label, (show, None))[1]] if after else [])]
        cells = ["-" if value is None else show(value) for value in values]
        if len(values) == 2 and None not in values:
            change = values[1] - values[0]
            cells.append(
                points(change) if show is percent else ("+" if change >= 0 else "") + show(change)
            )
        rows.append([label, *cells])
    return (
        heading
        + _table(labels, rows)
        + '<p class="quiet">In brackets 95 % (Wilson); p: exact McNemar</p>'
    )


def _means(summary: dict[str, Any]) -> dict[str, tuple[Any, float | None]]:
    """Figures without an interval: label -> how to show it, and its value."""
    means = {"truncated": (percent, summary["truncated"])}
    means["mean length (tokens)"] = ("{:.1f}".format, summary["mean_length"])
    means |= {
        f"{name}, mean": ("{:.3f}".format, value) for name, value in summary["rewards"].items()
    }
    return means | {
        f"{name}, sampled": (percent, value) for name, value in summary.get("sampled", {}).items()
    }


def _environment(runs: list[dict[str, Any]]) -> str:
    """One column for each start: halves of a run may come from different versions."""
    heads, facts = [], []
    for run in runs:
        for start in run["starts"]:
            heads.append(f"{run['name']}, from step {start['from_step']}")
            machine = {
                name: start.get(name) for name in ("hardware", "commit", "uncommitted_changes")
            }
            engine = run["outcome"]["engine"] or {}
            facts.append(
                {**machine, **start["versions"], **engine, "command": " ".join(start["command"])}
            )
    return _table(["", *heads], _cells(config_rows(facts))) if facts else "<p>Not recorded.</p>"


def _cells(rows: list[tuple[str, list[Any]]]) -> list[list[str]]:
    return [
        [name, *(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in vs)]
        for name, vs in rows
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Every cell is escaped here, once; the first of each row is its heading."""
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = []
    for name, *cells in rows:
        tds = "".join(
            f"<td>{html.escape(cell)}</td>"
            for cell in [*cells, *[""] * (len(head) - len(cells) - 1)]
        )
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{tds}</tr>')
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
