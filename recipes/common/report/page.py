"""The report of a run as a single HTML file, or of several side by side: no script, no network.

Text from a model or a data set is escaped, and the page's content security policy blocks scripts
and requests. TRL logs a generation again at each optimizer step that uses it; the page shows it
once. If a run has more than `MAX_COMPLETIONS` completions, the page shows the first generation, the
last, and some between at even distances, each of them whole.

Not covered: images, and generations that the run did not log (`logging_steps` > 1 skips some).
"""

import html
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from recipes.common.evaluation.scores import (
    comparison,
    independent_metrics,
    metric_names,
    pairs,
)
from recipes.common.report.plots import COLORS, Panel, panels, svg
from recipes.common.report.verdict import ending_of, figures_of
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import messages, read_json
from recipes.common.utils.tables import in_words

TEMPLATE = Path(__file__).with_name("page.html")
MAX_COMPLETIONS = 5_000
MAX_UNCHANGED = 200  # held-out rows
OUTCOMES = {  # (before, after) of a row by a metric -> words, in the order of the page
    (False, True): "won: ✗, then ✓",
    (True, False): "lost: ✓, then ✗",
    (True, True): "unchanged: ✓",
    (False, False): "unchanged: ✗",
}

Section = tuple[str, str, str]  # (id, heading, HTML)


def write_report(folder: Path) -> None:
    """Write the page of a run, finished or not, into its folder (atomically).

    `FileNotFoundError` if no run wrote the folder, `ValueError` if a file is damaged.
    """
    config, summary = files.read_config(folder), _summary_of(folder)
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    curves = panels([files.read_log(folder)], [files.read_validation(folder)])
    first = next((panel for panel in curves if panel.rewards), None)
    figures = "".join(_figure(panel, [""]) for panel in curves if panel is not first)
    settings = _table(["setting", "value"], [[name, _cell(config[name])] for name in config])
    environment = _environment(read_json(folder / files.VERSIONS, []), summary)
    environment += f"<details><summary>All settings</summary>{settings}</details>"
    sections = [
        ("rows", "The same test questions before and after", _held_out(before, after)),
        ("training", "Curves", _curves(figures)),
        ("completions", "Completions of training", _completions(files.completion_files(folder))),
        ("time", "Time by phase", _time(summary)),
        ("versions", "Environment", environment),
    ]
    picture = _figure(first, [""]) if first else ""
    _write(folder / files.REPORT, folder.resolve().name, _results(summary), picture, sections)


def write_comparison(folders: list[Path], output: Path) -> None:
    """Write one page of several runs, finished or not: a column for each run, curves overlaid.

    It links the page of each run, which `write_report` writes. Raises as `write_report` does.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    configs, summaries = map(files.read_config, folders), list(map(_summary_of, folders))
    curves = panels(
        [files.read_log(folder) for folder in folders],
        [files.read_validation(folder) for folder in folders],
    )
    links = ""
    for number, (name, folder) in enumerate(zip(names, folders, strict=True)):
        page = html.escape(quote(os.path.relpath(folder / files.REPORT, output.parent)))
        color = f"color: var(--run{number % len(COLORS)})"
        links += f'<a class="run" style="{color}" href="{page}">● {html.escape(name)}</a>'
    columns = [_column(summary) for summary in summaries]
    table = [[label, *(column.get(label, "–") for column in columns)] for label in _union(columns)]
    results = f'<p>{links}</p><div class="several">{_table(["", *names], table)}</div>'
    afters = [files.read_evaluated(folder, files.AFTER) for folder in folders]
    shown = [{name: _cell(value) for name, value in config.items()} for config in configs]
    settings = [[name, *(config.get(name, "–") for config in shown)] for name in _union(shown)]
    different = [cells for cells in settings if len(set(cells[1:])) > 1]
    sections = [
        ("training", "Curves", _curves("".join(_figure(panel, names) for panel in curves))),
        ("rows", "The same test questions after training", _same_rows(names, afters)),
        ("settings", "Settings that differ", _table(["setting", *names], different)),
    ]
    _write(output, ", ".join(names), results, "", sections)


def _write(output: Path, title: str, results: str, picture: str, sections: list[Section]) -> None:
    """Write a page: its opening with the results and a picture, then the other sections."""
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        results=results,
        picture=picture,
        links="".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections),
        sections="\n".join(
            f'<section id="{name}"><h2>{heading}</h2>{content}</section>'
            for name, heading, content in sections
        ),
    )
    files.write_whole(output, page)


def _summary_of(folder: Path) -> dict[str, Any]:
    """summary.json of a run (empty before its end) with the figures of `figures_of`."""
    summary = read_json(folder / files.SUMMARY, {})
    best = summary.get("best_checkpoint") or {}
    return {**summary, **figures_of(folder, best.get("step"))}


def _results(run: dict[str, Any]) -> str:
    """The verdict, how the run ended, and the before-and-after table."""
    opening = _tag("p", run["verdict"]["sentence"], "verdict")
    opening += _tag("p", " ".join([_length(run), *ending_of(run)]))
    if run["before"] is None:
        nothing = "No test questions were asked: nothing shows whether the model got better."
        return opening + _tag("p", nothing)
    head, *rows = comparison(run["before"], run["after"], run["mcnemar_p"])
    # A narrow screen should break the line before the bracket.
    rows = [[cell.replace(" (", "\n(") if "%" in cell else cell for cell in row] for row in rows]
    note = _tag("p", "In brackets 95 % (Wilson); p: exact McNemar", "quiet")
    return opening + _table(head, rows) + note


def _column(run: dict[str, Any]) -> dict[str, str]:
    """A run's column of the comparison: label -> text, such as `before → after` and the change."""
    column = {"verdict": run["verdict"]["sentence"], "training": _length(run)}
    if run["before"] is None:
        return column
    head, *rows = comparison(run["before"], run["after"], run["mcnemar_p"])
    column["test questions"] = head[0]
    for label, before, *later in rows:
        after, change, p = [*later, "", "", ""][:3]
        column[label] = before
        if after:
            column[label] += f" → {after}\n{change}" + (f", p {p}" if p else "")
    return column


def _length(run: dict[str, Any]) -> str:
    if "steps" not in run:
        return "This run is not finished."
    return f"{run['steps']} steps in {run['minutes']:.1f} minutes."


def _union(mappings: list[dict[str, Any]]) -> list[str]:
    """The keys of all mappings, by first appearance."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _curves(figures: str) -> str:
    note = _tag("p", "faint: each logged step, bold: moving average", "quiet")
    return f'{note}<div id="curves">{figures or "<p>No step was logged yet.</p>"}</div>'


def _held_out(before: list[dict], after: list[dict]) -> str:
    """A table of how many held-out rows each metric won and lost, then the rows with both texts."""
    if not after:
        return _tag("p", "No test questions were asked before and after.")
    table = []
    for name, (was, now) in pairs(before, after).items():
        counts = Counter(zip(was, now, strict=True))
        table.append([in_words(name), *(str(counts[outcome]) for outcome in OUTCOMES)])
    note = "A line opens to the prompt and to what the model wrote. First what changed."
    rows = list(zip(before, after, strict=True))
    counted = _table(["questions by metric", *OUTCOMES.values()], table)
    return _tag("p", note, "quiet") + counted + _rows(["before", "after"], rows)


def _same_rows(names: list[str], runs: list[list[dict]]) -> str:
    """The rows that all runs evaluated after training, with the text of each run."""
    by_prompt = [{json.dumps(row["prompt"]): row for row in rows} for rows in runs]
    prompts = [prompt for prompt in by_prompt[0] if all(prompt in rows for rows in by_prompt)]
    if not prompts:
        return _tag("p", "No row was evaluated by all of these runs after training.")
    note = f"{len(prompts)} rows. First those on which the runs differ."
    rows = [tuple(of_run[prompt] for of_run in by_prompt) for prompt in prompts]
    return _tag("p", note, "quiet") + _rows(names, rows)


def _rows(labels: list[str], rows: list[tuple[dict, ...]]) -> str:
    """The lines of rows; a row has one evaluation for each label.

    All rows with different metrics come first, in the order of `OUTCOMES` by their first and last
    evaluation, then at most `MAX_UNCHANGED` of the other rows, at even distances.
    """
    independent = independent_metrics(metric_names([row[0] for row in rows]))

    def place(row: tuple[dict, ...]) -> int:
        old, new = row[0]["metrics"], row[-1]["metrics"]
        both = [name for name in independent if name in old and name in new]
        return list(OUTCOMES).index((old[both[0]], new[both[0]])) if both else len(OUTCOMES)

    changed, unchanged = [], []
    for row in rows:
        is_same = all(one["metrics"] == row[0]["metrics"] for one in row)
        (unchanged if is_same else changed).append(row)
    shown = [*sorted(changed, key=place), *_evenly(unchanged, MAX_UNCHANGED)]
    lines = "".join(_row(labels, row, is_open=not i) for i, row in enumerate(shown))
    return f'<div class="list">{lines}</div>'


def _row(labels: list[str], evaluations: tuple[dict, ...], is_open: bool) -> str:
    """A held-out row: a line with question and outcomes that opens to show prompt and texts."""
    first = evaluations[0]
    turns = messages(first["prompt"])
    question = next((text for role, text in reversed(turns) if role != "assistant"), "")
    line = [_tag("b", f"row {first['row']}"), _tag("span", question[:200], "question")]
    if first.get("answer") is not None:
        line.append(_tag("span", f"correct answer: {first['answer']}"))
    line.append(" → ".join(_marks(one["metrics"]) for one in evaluations))
    prompt = "".join(_tag("p", role, "quiet") + _tag("pre", text) for role, text in turns)
    sides = ""
    for label, one in zip(labels, evaluations, strict=True):
        facts = [f"{name} {_cell(amount)}" for name, amount in one["rewards"].items()]
        if one["truncated"]:
            facts.append("cut off")
        written = _tag("pre", _text(one.get("messages") or one["completion"]))
        about = f"{_tag('b', label)} {_marks(one['metrics'])} {_tag('span', ', '.join(facts))}"
        sides += f"<div><p>{about}</p>{written}</div>"
    return (
        f"<details{' open' * is_open}><summary>{' '.join(line)}</summary>"
        f'{prompt}<div class="sides">{sides}</div></details>'
    )


def _marks(metrics: dict[str, bool]) -> str:
    """The outcome of each metric as a mark and its name."""
    return " ".join(
        _tag("span", f"{'✓' if holds else '✗'} {in_words(name)}", "met" if holds else "quiet")
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
        texts = [messages(row["prompt"])[-1][1], _text(row["completion"])]
        rows.append([*texts, *(_cell(row[name]) for name in rest)])
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
        tables.append(_table(["", ""], [[name, _cell(facts[name])] for name in facts]))
    return "".join(tables)


def _evenly(items: list, count: int) -> list:
    """At most `count` (two or more) of the items, at even distances, with the first and the last.

    >>> _evenly(list(range(100)), 4), _evenly([1, 2], 5)
    ([0, 33, 66, 99], [1, 2])
    """
    places = [round(i * (len(items) - 1) / (count - 1)) for i in range(count)]
    return [items[place] for place in places] if len(items) > count else items


def _text(completion: str | list[dict]) -> str:
    """A completion as text; the messages of a conversation are joined by line breaks."""
    return "\n".join(text for _, text in messages(completion))


def _cell(value: Any) -> str:
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


def _figure(panel: Panel, names: list[str]) -> str:
    """A panel with its title; `names` are those of the runs."""
    return f"<figure>{_tag('figcaption', panel.title)}{svg(panel, names)}</figure>"


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
