"""The report of a run as a single HTML file: no script, no network, light and dark.

Text from a model or a data set is escaped, and the page's content security policy blocks scripts
and requests. TRL logs a generation again at each optimizer step that uses it; the page shows it
once. If a run has more than `MAX_COMPLETIONS` completions, the page shows the first generation, the
last, and some between at even distances, each of them whole.

Not covered: images, and generations that the run did not log (`logging_steps` > 1 skips some).
"""

import html
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from recipes.common.evaluation.scores import (
    comparison,
    independent_metrics,
    metric_names,
    pairs,
)
from recipes.common.report.plots import Panel, panels, svg
from recipes.common.report.verdict import ending_of, figures_of
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import messages, read_json

TEMPLATE = Path(__file__).with_name("page.html")
MAX_COMPLETIONS = 5_000
MAX_UNCHANGED = 200  # held-out rows
WAYS = {  # (outcome before, outcome after) of a row by a metric, in the order of the page
    (False, True): "won: ✗, then ✓",
    (True, False): "lost: ✓, then ✗",
    (True, True): "unchanged: ✓",
    (False, False): "unchanged: ✗",
}


def write_report(folder: Path) -> None:
    """Write the page of a run, finished or not, into its folder (atomically).

    `FileNotFoundError` if no run wrote the folder, `ValueError` if a file is damaged.
    """
    config, summary = files.read_config(folder), read_json(folder / files.SUMMARY, {})
    best = summary.get("best_checkpoint") or {}
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    curves = panels([files.read_log(folder)], [files.read_validation(folder)])
    first = next((panel for panel in curves if panel.rewards), None)
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=html.escape(folder.resolve().name),
        results=_results({**summary, **figures_of(folder, best.get("step"))}),
        picture=_figure(first) if first else "",
        rows=_held_out(before, after),
        curves="".join(_figure(panel) for panel in curves if panel is not first)
        or "<p>No step was logged yet.</p>",
        completions=_completions(files.completion_files(folder)),
        time=_time(summary),
        environment=_environment(read_json(folder / files.VERSIONS, []), summary),
        settings=_table(["setting", "value"], [[name, _text(config[name])] for name in config]),
    )
    files.write_whole(folder / files.REPORT, page)


def _results(run: dict[str, Any]) -> str:
    """The verdict, how the run ended, and the before-and-after table."""
    length = "This run is not finished."
    if "steps" in run:
        length = f"{run['steps']} steps in {run['minutes']:.1f} minutes."
    opening = _tag("p", run["verdict"]["sentence"], "verdict")
    opening += _tag("p", " ".join([length, *ending_of(run)]))
    if run["before"] is None:
        nothing = "No held-out rows were evaluated: nothing shows whether the model got better."
        return opening + _tag("p", nothing)
    head, *rows = comparison(run["before"], run["after"], run["mcnemar_p"])
    # A narrow screen should break the line before the bracket.
    rows = [[cell.replace(" (", "\n(") if "%" in cell else cell for cell in row] for row in rows]
    note = _tag("p", "In brackets 95 % (Wilson); p: exact McNemar", "quiet")
    return opening + _table(head, rows) + note


def _held_out(before: list[dict], after: list[dict]) -> str:
    """A table of how many held-out rows each metric won and lost, then the rows with both texts.

    All rows with a changed metric come first, then at most `MAX_UNCHANGED` of the other rows, at
    even distances.
    """
    if not after:
        return _tag("p", "No held-out rows were evaluated before and after.")
    ways = list(WAYS)
    table = [
        [name, *(str(Counter(zip(*pair, strict=True))[way]) for way in ways)]
        for name, pair in pairs(before, after).items()
    ]
    independent = independent_metrics(metric_names(before))

    def way_of(row: tuple[dict, dict]) -> int:
        old, new = row[0]["metrics"], row[1]["metrics"]
        both = [name for name in independent if name in old and name in new]
        return ways.index((old[both[0]], new[both[0]])) if both else len(ways)

    rows = list(zip(before, after, strict=True))
    changed = [(old, new) for old, new in rows if old["metrics"] != new["metrics"]]
    unchanged = [(old, new) for old, new in rows if old["metrics"] == new["metrics"]]
    shown = [*sorted(changed, key=way_of), *_evenly(unchanged, MAX_UNCHANGED)]
    lines = "".join(_row(old, new, is_open=not i) for i, (old, new) in enumerate(shown))
    head = ["rows by metric", *WAYS.values()]
    return f'{_table(head, table)}<div class="list">{lines}</div>'


def _row(old: dict[str, Any], new: dict[str, Any], is_open: bool) -> str:
    """A held-out row: a line with question and outcomes that opens to show prompt and texts."""
    turns = messages(old["prompt"])
    line = [_tag("b", f"row {old['row']}"), _tag("span", turns[-1][1][:200], "question")]
    if old.get("answer") is not None:
        line.append(_tag("span", f"gold answer: {old['answer']}"))
    line += [_marks(old["metrics"]), "→", _marks(new["metrics"])]
    prompt = "".join(_tag("p", role, "quiet") + _tag("pre", text) for role, text in turns)
    sides = ""
    for stage, row in (("before", old), ("after", new)):
        rewards = [f"{name} {_text(amount)}" for name, amount in row["rewards"].items()]
        facts = ", ".join([*rewards, *["cut off"] * row["truncated"]])
        text = _tag("pre", _words(row.get("messages") or row["completion"]))
        facts = f"{_tag('b', stage)} {_marks(row['metrics'])} {_tag('span', facts)}"
        sides += f"<div><p>{facts}</p>{text}</div>"
    return (
        f"<details{' open' * is_open}><summary>{' '.join(line)}</summary>"
        f'{prompt}<div class="sides">{sides}</div></details>'
    )


def _marks(metrics: dict[str, bool]) -> str:
    return " ".join(
        _tag("span", f"{'✓' if holds else '✗'} {name}", "met" if holds else "quiet")
        for name, holds in metrics.items()
    )


def _completions(paths: list[Path]) -> str:
    """The logged completions: a table for each generation, with the prompt's last message."""
    generations, previous, count = [], None, 0
    for path in paths:
        content = files.read_completions(path).drop_columns(["step"])
        if previous is None or not content.equals(previous):
            generations.append(path)
            count += content.num_rows
        previous = content
    if not generations:
        return _tag("p", "No completions: this run logged none (log_completions: true does).")
    share = min(1.0, MAX_COMPLETIONS / count)
    shown = _evenly(generations, max(2, int(share * len(generations))))
    tables = [files.read_completions(path).to_pylist() for path in shown]
    note = f"All {count} completions that were logged."
    if len(shown) < len(generations):
        shown_count = sum(len(table) for table in tables)
        note = f"{shown_count} of {count} completions: whole generations at even distances."
    lines = "".join(
        f"<details{' open' * (table is tables[0])}><summary>step {table[0]['step']}</summary>"
        f"{_generation(table)}</details>"
        for table in tables
    )
    return f'{_tag("p", note, "quiet")}<div class="list">{lines}</div>'


def _generation(table: list[dict[str, Any]]) -> str:
    rest = [name for name in table[0] if name not in files.FIRST_COLUMNS]
    rows = []
    for row in table:
        texts = [messages(row["prompt"])[-1][1], _words(row["completion"])]
        rows.append([*texts, *(_text(row[name]) for name in rest)])
    return _table(["prompt", "completion", *rest], rows)


def _time(summary: dict[str, Any]) -> str:
    """The minutes of each phase of a finished run; loading, saving and waiting have no phase."""
    if summary.get("seconds") is None:
        return _tag("p", "Not recorded.")
    rows = [[phase, f"{seconds / 60:.1f}"] for phase, seconds in summary["seconds"].items()]
    return _table(["phase", "minutes"], [*rows, ["the whole run", f"{summary['minutes']:.1f}"]])


def _environment(starts: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """A table for each start of the run, because a resumed run may use other versions."""
    engine, tables = summary.get("engine") or {}, []
    for start in starts:
        facts = {**start, **start["versions"], **engine, "command": " ".join(start["command"])}
        facts.pop("versions")
        tables.append(_table(["", ""], [[name, _text(facts[name])] for name in facts]))
    return "".join(tables)


def _evenly(items: list, count: int) -> list:
    """At most `count` (two or more) of the items, at even distances, with the first and the last.

    >>> _evenly(list(range(100)), 4), _evenly([1, 2], 5)
    ([0, 33, 66, 99], [1, 2])
    """
    places = [round(i * (len(items) - 1) / (count - 1)) for i in range(count)]
    return [items[place] for place in places] if len(items) > count else items


def _words(completion: str | list[dict]) -> str:
    """A completion as text; the messages of a conversation are joined by line breaks."""
    return "\n".join(text for _, text in messages(completion))


def _text(value: Any) -> str:
    """A value as the text of a cell: floats get four digits, None and NaN a dash."""
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _tag(tag: str, text: str, kind: str = "") -> str:
    """An HTML tag around a text. `_tag` and `_table` escape the text, so that callers do not."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<{tag}{attribute}>{html.escape(text)}</{tag}>"


def _figure(panel: Panel) -> str:
    return f"<figure>{_tag('figcaption', panel.title)}{svg(panel)}</figure>"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    """An HTML table. A row's first cell is its heading; short rows get empty cells at the end."""
    heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = []
    for name, *cells in rows:
        cells += [""] * (len(head) - len(cells) - 1)
        tds = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{tds}</tr>')
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
