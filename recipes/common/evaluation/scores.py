"""Sum up, compare and show evaluated rows: the mappings that `evaluate.evaluate` returns."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from recipes.common.utils.stats import mcnemar_p, wilson_interval
from recipes.common.utils.tables import format_table, in_words, percent, points, share_and_span

# The verdict uses the first of these that a recipe has: the one that its rewards see the least.
INDEPENDENT = ("lenient", "hidden", "tests", "prose")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of an evaluation: shares with Wilson intervals, mean lengths and rewards."""
    names = metric_names(rows)
    summary: dict[str, Any] = {"n": len(rows)}
    for name in names:
        values = [row["metrics"][name] for row in rows if name in row["metrics"]]
        interval = wilson_interval(sum(values), len(values))
        summary[name] = {"share": _mean(values), "interval": interval}
    summary["truncated"] = _mean([row["truncated"] for row in rows])
    summary["mean_length"] = _mean([row["tokens"] for row in rows])
    summary["rewards"] = {
        name: _mean([row["rewards"][name] for row in rows if row["rewards"][name] is not None])
        for name in rows[0]["rewards"]
    }
    if "turns" in rows[0]:
        kinds = Counter(kind for row in rows for kind in row["turns"])
        summary["turns"] = {kind: count / kinds.total() for kind, count in kinds.most_common()}
    if "samples" in rows[0]:
        draws = [draw for row in rows for draw in row["samples"]]
        summary["sampled"] = {
            name: _mean([draw[name] for draw in draws if name in draw]) for name in names
        }
    return summary


def metric_names(rows: list[dict[str, Any]]) -> list[str]:
    """The metrics of all rows, by first appearance; each task may have its own metrics."""
    return list(dict.fromkeys(name for row in rows for name in row["metrics"]))


def outcomes(rows: list[dict[str, Any]]) -> dict[str, list[bool | None]]:
    """Metric -> the outcome of each row; None for a row without the metric."""
    return {name: outcomes_of(rows, name) for name in metric_names(rows)}


def outcomes_of(rows: list[dict[str, Any]], metric: str) -> list[bool | None]:
    """The outcome of each row by one metric; None for a row without the metric."""
    return [row["metrics"].get(metric) for row in rows]


def paired(*outcomes: list[bool | None]) -> list[list[bool]]:
    """Several lists of outcomes without the rows that have a None in any list.

    >>> paired([True, None, False], [False, True, True])
    [[True, False], [False, True]]
    """
    known = [row for row in zip(*outcomes, strict=True) if None not in row]
    return [[row[i] for row in known] for i in range(len(outcomes))]


def commonest_gold(rows: list[dict[str, Any]]) -> str | float | None:
    """The gold answer that most rows share; None if no two rows share a gold answer.

    >>> commonest_gold([{"answer": "yes"}, {"answer": "no"}, {"answer": "yes"}, {"tests": []}])
    'yes'
    """
    answers = [row.get("answer") for row in rows]
    golds = Counter(answer for answer in answers if isinstance(answer, str | int | float))
    gold, count = max(golds.items(), key=lambda pair: pair[1], default=(None, 0))
    return gold if count > 1 else None


def independent_metric(names: Iterable[str]) -> str:
    """The metric of the verdict: the first of `INDEPENDENT` that is there, else the first name.

    >>> independent_metric(["strict", "lenient", "format"]), independent_metric(["right"])
    ('lenient', 'right')
    """
    return independent_metrics(names)[0]


def independent_metrics(names: Iterable[str]) -> list[str]:
    """The metric of the verdict for each task, where names start with a task; else a single one.

    >>> independent_metrics(["math strict", "math lenient", "code tests", "code hidden"])
    ['math lenient', 'code hidden']
    """
    names, of_task = list(names), {}
    for kind in INDEPENDENT:
        for name in names:
            task, _, last = name.rpartition(" ")
            if last == kind:
                of_task.setdefault(task, name)
    return [of_task[""]] if "" in of_task else list(of_task.values()) or names[:1]


def compare(before: list[dict], after: list[dict]) -> dict[str, float]:
    """The exact McNemar p of each metric; ValueError if the two evaluations have other rows."""
    if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
        raise ValueError("before and after were not evaluated on the same rows in the same order")
    return {name: mcnemar_p(*pair) for name, pair in pairs(before, after).items()}


def pairs(before: list[dict], after: list[dict]) -> dict[str, list[list[bool]]]:
    """Metric -> [outcomes before, outcomes after], for the rows with the metric both times."""
    names = metric_names(before)
    return {name: paired(outcomes_of(before, name), outcomes_of(after, name)) for name in names}


def comparison(
    before: dict[str, Any], after: dict[str, Any] | None, p: dict[str, float] | None
) -> list[list[str]]:
    """The cells of the before-and-after table, its head first; two columns if `after` is None.

    Metrics have intervals and p. The means below them have neither: `truncated`, length, turns,
    samples at the training temperature, and rewards.
    """
    stages = [before] if after is None else [before, after]
    head = [f"{before['n']} test questions, greedy", "before", "after", "change", "McNemar p"]
    table = [head[: 2 if after is None else 5]]
    for name, value in before.items():
        if isinstance(value, dict) and "share" in value:
            cells = [share_and_span(**stage[name]) for stage in stages if name in stage]
            if len(cells) == 2:
                cells += [points(after[name]["share"] - value["share"]), f"{p[name]:.2g}"]
            table.append([in_words(name), *cells])
    means = [_means(stage) for stage in stages]
    for label in dict.fromkeys(label for of_stage in means for label in of_stage):
        is_share = label.endswith("%")
        values = [of_stage.get(label) for of_stage in means]
        cells = [
            "-" if value is None else percent(value) if is_share else f"{value:.2f}"
            for value in values
        ]
        if len(values) == 2 and None not in values:
            change = values[1] - values[0]
            cells.append(points(change) if is_share else f"{change:+.2f}")
        table.append([label, *cells])
    return table


def _means(summary: dict[str, Any]) -> dict[str, float | None]:
    means = {"truncated, %": summary["truncated"], "mean length (tokens)": summary["mean_length"]}
    means |= {f"turns: {kind}, %": share for kind, share in summary.get("turns", {}).items()}
    means |= {
        f"{in_words(name)}, sampled, %": share for name, share in summary.get("sampled", {}).items()
    }
    return means | {f"{name}, mean": value for name, value in summary["rewards"].items()}


def comparison_table(
    before: dict[str, Any], after: dict[str, Any] | None, p: dict[str, float] | None
) -> str:
    """The table of `comparison` as text."""
    head, *rows = comparison(before, after, p)
    filled = [row + [""] * (len(head) - len(row)) for row in rows]
    return format_table([dict(zip(head, row, strict=True)) for row in filled])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
