"""The report of a run as a single HTML file, or of several side by side: no script, no network.

page.html is the template; it escapes the text of models and data sets, and the content security
policy of the page blocks scripts and requests. TRL logs a generation again at each optimizer step
that uses it; the page shows it once. If a run has more than `MAX_COMPLETIONS` completions, the page
shows the first generation, the last, and some between at even distances, each of them whole.

Not covered: images, and generations that the run did not log (`logging_steps` > 1 skips some).
"""

import json
import math
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from recipes.common.evaluation.scores import comparison
from recipes.common.report.plots import COLORS, panels, svg
from recipes.common.report.verdict import ending_of, figures_of
from recipes.common.utils import run_files as files
from recipes.common.utils.run_files import messages, read_json
from recipes.common.utils.tables import in_words

MAX_COMPLETIONS = 5_000
MAX_BYTES = 30e6
MAX_UNCHANGED = 200  # test questions
Table = list[list[Any]]  # the lines of a table, its head first


def write_report(folder: Path) -> None:
    """Write the page of a run, finished or not, into its folder (atomically).

    `FileNotFoundError` if no run wrote the folder, `ValueError` if a file is damaged.
    """
    config, run = files.read_config(folder), summary_of(folder)
    before, after = (files.read_evaluated(folder, stage) for stage in (files.BEFORE, files.AFTER))
    curves = panels([files.read_log(folder)], [files.read_validation(folder)])
    # At the top of the page stands the first validation metric, with the reward behind it.
    picture = next((panel for panel in curves if panel.rewards), None)
    generations, logged = generations_of(folder)  # logged: the number of completions
    minutes = [[phase, seconds / 60] for phase, seconds in run.get("seconds", {}).items()]
    write(
        folder / files.REPORT,
        title=folder.resolve().name,
        run=run,
        facts=facts_of(run),
        results=run["before"] and comparison(run["before"], run["after"], run["mcnemar_p"]),
        picture=picture and (picture.title, svg(picture)),
        questions=changed_first(before, after) if run["after"] else [],
        figures=[(panel.title, svg(panel)) for panel in curves if panel is not picture],
        generations=generations,
        logged=logged,
        all_shown=logged <= MAX_COMPLETIONS,
        minutes=[["phase", "minutes"], *minutes, ["the whole run", run.get("minutes")]],
        settings=[["setting", "value"], *map(list, config.items())],
    )


def write_comparison(folders: list[Path], output: Path) -> None:
    """Write one page of several runs, finished or not: a column for each run, curves overlaid.

    It links the page of each run, and shows only the settings in which the runs differ.
    FileNotFoundError if no run wrote a folder, ValueError if a file is damaged.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    pages = [quote(os.path.relpath(folder / files.REPORT, output.parent)) for folder in folders]
    colors = [number % len(COLORS) for number in range(len(folders))]  # by index, as in the curves
    curves = panels(
        [files.read_log(folder) for folder in folders],
        [files.read_validation(folder) for folder in folders],
    )
    head, *settings = side_by_side("setting", names, [files.read_config(run) for run in folders])
    write(
        output,
        title=", ".join(names),
        runs=list(zip(names, pages, colors, strict=True)),
        results=side_by_side("", names, [column_of(summary_of(run)) for run in folders]),
        figures=[(panel.title, svg(panel)) for panel in curves],
        settings=[head, *(line for line in settings if len(set(line[1:])) > 1)],
    )


def write(output: Path, **content: Any) -> None:
    """Fill the template page.html (`content`: variable -> value) and write it to `output`."""
    environment = Environment(autoescape=True)
    environment.filters |= {"cell": cell, "words": in_words, "text": text_of, "turns": messages}
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    files.write_whole(output, environment.from_string(template).render(content))


def summary_of(folder: Path) -> dict[str, Any]:
    """summary.json of a run (empty before its end) with its verdict and evaluations so far."""
    summary = read_json(folder / files.SUMMARY, {})
    best = summary.get("best_checkpoint") or {}
    return {**summary, **figures_of(folder, best.get("step"))}


def facts_of(run: dict[str, Any]) -> list[str]:
    """Sentences on how long a run took and how it ended; `run` is the content of summary.json."""
    length = "This run is not finished."
    if "steps" in run:
        length = f"{run['steps']} steps in {run['minutes']:.1f} minutes."
    return [length, *ending_of(run)]


def column_of(run: dict[str, Any]) -> dict[str, str]:
    """A run's column of the comparison, from the content of its summary.json: label -> text.

    For example `{"correct answer": "20.0 % (15-26) → 40.0 % (33-47)\\n+20.0 pt, p 0.0012", ...}`.
    """
    column = {"verdict": run["verdict"]["sentence"], "training": " ".join(facts_of(run))}
    if run["before"]:
        head, *lines = comparison(run["before"], run["after"], run["mcnemar_p"])
        column["test questions"] = head[0]
        for label, before, *later in lines:
            column[label] = before
            if later:  # the run is finished
                after, *change_and_p = later  # a mean, such as that of a reward, has no p
                column[label] += f" → {after}\n{', p '.join(change_and_p)}"
    return column


def side_by_side(corner: str, names: list[str], columns: list[dict[str, Any]]) -> Table:
    """A table with a column for each run and a line for each key of any, by first appearance."""
    keys = dict.fromkeys(key for column in columns for key in column)
    lines = [[key, *(cell(column.get(key)) for column in columns)] for key in keys]
    return [[corner, *names], *lines]


def changed_first(before: list[dict], after: list[dict]) -> list[tuple[dict, dict]]:
    """The test questions that the page shows: pairs of the same row before and after training.

    Rows whose metrics changed come first, then at most `MAX_UNCHANGED` (200) of the others.
    """
    questions = list(zip(before, after, strict=True))
    changed = [pair for pair in questions if pair[0]["metrics"] != pair[1]["metrics"]]
    unchanged = [pair for pair in questions if pair[0]["metrics"] == pair[1]["metrics"]]
    return [*changed, *unchanged[:MAX_UNCHANGED]]


def generations_of(folder: Path) -> tuple[list[tuple[int, Table]], int]:
    """Step and table of each generation that the page shows, and the number of all completions.

    A table has a line for each completion. If there are more than `MAX_COMPLETIONS` (5 000) or
    `MAX_BYTES`, only every n-th generation is shown, and the last.
    """
    paths, logged, size, previous = [], 0, 0, None  # one table at a time is in memory
    for path in files.completion_files(folder):
        table = files.read_completions(path).drop_columns(["step"])
        # A step that uses the generation of the step before logs the same completions again.
        if previous is None or not table.equals(previous):
            paths.append(path)
            logged, size = logged + table.num_rows, size + table.nbytes
        previous = table
    n = max(1, math.ceil(logged / MAX_COMPLETIONS), math.ceil(size / MAX_BYTES))
    generations = []
    for path in [*paths[:-1:n], *paths[-1:]]:
        table = files.read_completions(path)
        names = [name for name in table.column_names if name not in files.FIRST_COLUMNS]
        lines = [["prompt", "completion", *names]]
        for row in table.to_pylist():
            _, question = messages(row["prompt"])[-1]  # role and text of the last message
            lines.append([question, text_of(row["completion"]), *(row[name] for name in names)])
        generations.append((table["step"][0].as_py(), lines))
    return generations, logged


def text_of(completion: str | list[dict]) -> str:
    """A completion as text; the messages of a conversation are joined by line breaks."""
    return "\n".join(text for _, text in messages(completion))


def cell(value: Any) -> str:
    """A value as the text of a cell: floats get four significant digits, None and NaN a dash."""
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
