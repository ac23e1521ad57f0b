"""The report of a run as a single HTML file, or of several side by side: no script, no network.

page.html is the template; it escapes the text of models and data sets, and the content security
policy of the page blocks scripts and requests. TRL logs a generation again at each optimizer step
that uses it; the page shows it once. If a run has more than `MAX_COMPLETIONS` completions, the page
shows the first generation, the last, and some between at even distances, each of them whole.

Not covered: images, and generations that the run did not log (`logging_steps` > 1 skips some).
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from recipes.common.evaluation.scores import (
    comparison,
    independent_metrics,
    metric_names,
    outcomes,
)
from recipes.common.report.plots import COLORS, panels, svg
from recipes.common.report.verdict import ending_of, figures_of
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import messages, read_json
from recipes.common.utils.tables import in_words

MAX_COMPLETIONS = 5_000
MAX_UNCHANGED = 200  # test questions
OUTCOMES = {  # (before, after) of a row by a metric -> words, in the order of the page
    (False, True): "won: ✗, then ✓",
    (True, False): "lost: ✓, then ✗",
    (True, True): "unchanged: ✓",
    (False, False): "unchanged: ✗",
}
Table = list[list[Any]]  # the lines of a table, its head first


def write_report(folder: Path) -> None:
    """Write the page of a run, finished or not, into its folder (atomically).

    `FileNotFoundError` if no run wrote the folder, `ValueError` if a file is damaged.
    """
    config, run = files.read_config(folder), _summary_of(folder)
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    curves = panels([files.read_log(folder)], [files.read_validation(folder)])
    picture = next((panel for panel in curves if panel.rewards), None)
    generations, logged = _generations(folder)
    minutes = [[phase, seconds / 60] for phase, seconds in run.get("seconds", {}).items()]
    of_engine, environment = run.get("engine") or {}, []
    for start in read_json(folder / files.VERSIONS, []):  # a resumed run may use other versions
        facts = {**start, **start["versions"], **of_engine, "command": " ".join(start["command"])}
        facts.pop("versions")
        environment.append([["at this start", ""], *map(list, facts.items())])
    results = []
    if run["before"]:
        results = comparison(run["before"], run["after"], run["mcnemar_p"])
    _write(
        folder / files.REPORT,
        title=folder.resolve().name,
        run=run,
        facts=[_length(run), *ending_of(run)],
        results=results,
        picture=picture and (picture.title, svg(picture, [""])),
        counts=_counts(before, after) if after else [],
        labels=["before", "after"],
        rows=_in_order(list(zip(before, after, strict=True))) if after else [],
        figures=[(panel.title, svg(panel, [""])) for panel in curves if panel is not picture],
        generations=generations,
        logged=logged,
        all_shown=logged <= MAX_COMPLETIONS,
        minutes=[["phase", "minutes"], *minutes, ["the whole run", run.get("minutes")]],
        environment=environment,
        settings=[["setting", "value"], *map(list, config.items())],
    )


def write_comparison(folders: list[Path], output: Path) -> None:
    """Write one page of several runs, finished or not: a column for each run, curves overlaid.

    It links the page of each run, which `write_report` writes. Raises as `write_report` does.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    configs, columns = map(files.read_config, folders), map(_column, map(_summary_of, folders))
    curves = panels(
        [files.read_log(folder) for folder in folders],
        [files.read_validation(folder) for folder in folders],
    )
    pages = [quote(os.path.relpath(folder / files.REPORT, output.parent)) for folder in folders]
    of_runs = []  # the rows of each run after training, by their prompt
    for folder in folders:
        rows = files.read_evaluated(folder, files.AFTER)
        of_runs.append({json.dumps(row["prompt"]): row for row in rows})
    shared = [prompt for prompt in of_runs[0] if all(prompt in rows for rows in of_runs)]
    settings = _side_by_side(["setting", *names], list(configs))
    _write(
        output,
        title=", ".join(names),
        runs=[
            (name, page, i % len(COLORS))
            for i, (name, page) in enumerate(zip(names, pages, strict=True))
        ],
        results=_side_by_side(["", *names], list(columns)),
        labels=names,
        rows=_in_order([tuple(rows[prompt] for rows in of_runs) for prompt in shared]),
        figures=[(panel.title, svg(panel, names)) for panel in curves],
        settings=[line for line in settings if any(cell != line[1] for cell in line[2:])],
    )


def _write(output: Path, **content: Any) -> None:
    environment = Environment(autoescape=True)
    environment.filters |= {"cell": _cell, "words": in_words, "text": _text, "turns": messages}
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    files.write_whole(output, environment.from_string(template).render(content))


def _summary_of(folder: Path) -> dict[str, Any]:
    """summary.json of a run (empty before its end) with the figures of `figures_of`."""
    summary = read_json(folder / files.SUMMARY, {})
    best = summary.get("best_checkpoint") or {}
    return {**summary, **figures_of(folder, best.get("step"))}


def _length(run: dict[str, Any]) -> str:
    if "steps" not in run:
        return "This run is not finished."
    return f"{run['steps']} steps in {run['minutes']:.1f} minutes."


def _column(run: dict[str, Any]) -> dict[str, str]:
    """A run's column of the comparison: label -> text, such as `before → after` and the change."""
    facts = " ".join([_length(run), *ending_of(run)])
    column = {"verdict": run["verdict"]["sentence"], "training": facts}
    if run["before"]:
        head, *lines = comparison(run["before"], run["after"], run["mcnemar_p"])
        column["test questions"] = head[0]
        for label, *cells in lines:
            before, after, change, p = [*cells, "", "", ""][:4]
            column[label] = before
            if after:
                column[label] += f" → {after}\n{change}" + (f", p {p}" if p else "")
    return column


def _side_by_side(head: list[str], columns: list[dict[str, Any]]) -> Table:
    """A table with a line for each key of any column, by first appearance."""
    keys = dict.fromkeys(key for column in columns for key in column)
    return [head, *([key, *(_cell(column.get(key)) for column in columns)] for key in keys)]


def _counts(before: list[dict], after: list[dict]) -> Table:
    """How many questions each metric won and lost, of those that have it both times."""
    table: Table = [["questions by metric", *OUTCOMES.values()]]
    for name in metric_names(before):
        counts = Counter(zip(outcomes(before, name), outcomes(after, name), strict=True))
        table.append([in_words(name), *(counts[outcome] for outcome in OUTCOMES)])
    return table


def _in_order(rows: list[tuple[dict, ...]]) -> list[tuple[dict, ...]]:
    """The rows that a page shows; a row has an evaluation for each label.

    All rows with different metrics come first, in the order of `OUTCOMES` by their first and last
    evaluation, then at most `MAX_UNCHANGED` of the other rows.
    """
    metrics = independent_metrics(metric_names(row[0] for row in rows))

    def place(row: tuple[dict, ...]) -> int:
        pairs = ((row[0]["metrics"].get(name), row[-1]["metrics"].get(name)) for name in metrics)
        return min((list(OUTCOMES).index(pair) for pair in pairs if pair in OUTCOMES), default=4)

    is_same = [all(one["metrics"] == row[0]["metrics"] for one in row) for row in rows]
    changed = [row for row, same in zip(rows, is_same, strict=True) if not same]
    unchanged = [row for row, same in zip(rows, is_same, strict=True) if same]
    return [*sorted(changed, key=place), *unchanged[:MAX_UNCHANGED]]


def _generations(folder: Path) -> tuple[list[tuple[int, Table]], int]:
    """Step and table of each generation that the page shows, and the number of all completions."""
    shown: list[Any] = []
    for path in files.completion_files(folder):
        table = files.read_completions(path)
        if not shown or not table.drop_columns(["step"]).equals(shown[-1].drop_columns(["step"])):
            shown.append(table)
    logged = sum(table.num_rows for table in shown)
    every = max(1, -(-logged // MAX_COMPLETIONS))
    shown = [*shown[:-1:every], *shown[-1:]]
    generations = []
    for table in shown:
        names = [name for name in table.column_names if name not in files.FIRST_COLUMNS]
        lines = [["prompt", "completion", *names]]
        for row in table.to_pylist():
            texts = [messages(row["prompt"])[-1][1], _text(row["completion"])]
            lines.append([*texts, *(row[name] for name in names)])
        generations.append((table["step"][0].as_py(), lines))
    return generations, logged


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
