"""Evaluated rows summed up, compared and shown. A row is a mapping that `evaluate.evaluate`
returns.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from recipes.common.utils.stats import mcnemar_p, wilson_interval
from recipes.common.utils.tables import share_and_span

# The first of these that a recipe has is the measure that its rewards do not see, or see the least.
INDEPENDENT = ("lenient", "tests", "prose")
MEANING = {"strict": " (format + answer)", "lenient": " (final answer)", "format": " (as asked)"}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of an evaluation: shares with Wilson intervals, means of lengths and rewards."""
    n = len(rows)
    summary: dict[str, Any] = {"n": n}
    for name in metric_names(rows):
        values = [row["metrics"][name] for row in rows if name in row["metrics"]]
        summary[name] = {
            "share": sum(values) / len(values),
            "interval": wilson_interval(sum(values), len(values)),
        }
    summary["truncated"] = sum(row["truncated"] for row in rows) / n
    summary["mean_length"] = sum(row["tokens"] for row in rows) / n
    summary["rewards"] = {
        name: _mean([row["rewards"][name] for row in rows if row["rewards"][name] is not None])
        for name in rows[0]["rewards"]
    }
    if "turns" in rows[0]:
        kinds = Counter(kind for row in rows for kind in row["turns"])
        summary["turns"] = {kind: count / kinds.total() for kind, count in kinds.most_common()}
    if "samples" in rows[0]:
        draws = [draw for row in rows for draw in row["samples"]]
        names = metric_names(rows)
        summary["sampled"] = {
            name: _mean([draw[name] for draw in draws if name in draw]) for name in names
        }
    return summary


def metric_names(rows: list[dict[str, Any]]) -> list[str]:
    """The metrics in the order of their first row: rows of other tasks may have others."""
    return list(dict.fromkeys(name for row in rows for name in row["metrics"]))


def outcomes(rows: list[dict[str, Any]]) -> dict[str, list[bool | None]]:
    """The outcome of each row by each metric; None where a row does not have the metric."""
    return {name: [row["metrics"].get(name) for row in rows] for name in metric_names(rows)}


def independent_metric(names: Iterable[str]) -> str:
    """The metric that shows whether a run has learnt: lenient, tests, prose, or the first.

    >>> independent_metric(["strict", "lenient", "format"]), independent_metric(["right"])
    ('lenient', 'right')
    """
    return independent_metrics(names)[0]


def independent_metrics(names: Iterable[str]) -> list[str]:
    """The same, one for each task where several tasks have metrics of their own.

    >>> independent_metrics(["math strict", "math lenient", "code tests", "code format"])
    ['math lenient', 'code tests']
    """
    names = list(names)
    overall = [name for name in INDEPENDENT if name in names][:1]
    return (
        overall or [name for name in names if name.rpartition(" ")[2] in INDEPENDENT] or names[:1]
    )


def compare(before: list[dict], after: list[dict]) -> dict[str, float]:
    """The exact McNemar p of each metric over the paired rows; ValueError for other rows."""
    if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
        raise ValueError("before and after were not evaluated on the same rows in the same order")
    pairs_of = _pairs(before, after)
    return {
        name: mcnemar_p([o for o, _ in both], [n for _, n in both])
        for name, both in pairs_of.items()
    }


def rows_changed(before: list[dict], after: list[dict]) -> dict[str, dict[str, Any]]:
    """Of each metric `n`, its paired rows, and the `share` with another outcome afterwards."""
    pairs_of = _pairs(before, after)
    return {
        name: {"n": len(both), "share": _mean([o != n for o, n in both])}
        for name, both in pairs_of.items()
    }


def _pairs(before: list[dict], after: list[dict]) -> dict[str, list[tuple[bool, bool]]]:
    """The outcomes before and after of the rows that have a metric at both times, by metric."""
    pairs = [(old["metrics"], new["metrics"]) for old, new in zip(before, after, strict=True)]
    return {
        name: [(o[name], n[name]) for o, n in pairs if name in o and name in n]
        for name in metric_names(before)
    }


def comparison_table(
    before: dict[str, Any], after: dict[str, Any] | None, p: dict[str, float] | None
) -> str:
    """The table a run ends with, or its first column alone."""
    stages = [before] if after is None else [before, after]
    later = "" if after is None else f"{'after':>24}{'change':>11}   McNemar p"
    lines = [f"  {str(before['n']) + ' held-out rows, greedy':<27}{'before':>14}{later}"]
    for name, value in before.items():
        if not isinstance(value, dict) or "share" not in value:
            continue
        line = _line(name + MEANING.get(name, ""), 23, [share_and_span(**s[name]) for s in stages])
        if after is not None:
            change = 100 * (after[name]["share"] - value["share"])
            line += f"{change:>+8.1f} pt   {p[name]:.2g}"
        lines.append(line)
    lines.append(_line("truncated %", 13, [f"{100 * s['truncated']:.1f}" for s in stages]))
    lines.append(_line("mean length (tokens)", 13, [f"{s['mean_length']:.1f}" for s in stages]))
    for kind in dict.fromkeys(kind for stage in stages for kind in stage.get("turns", ())):
        shares = [f"{100 * stage['turns'].get(kind, 0.0):.1f}" for stage in stages]
        lines.append(_line(f"turns: {kind} %", 13, shares))
    for name in before.get("sampled", ()):  # the mean over draws at the training temperature
        shares = [f"{100 * stage['sampled'][name]:.1f} %" for stage in stages]
        lines.append(_line(f"{name}, sampled", 15, shares))
    return "\n".join(lines)


def _line(label: str, width: int, cells: list[str]) -> str:
    """A line of the table; `width` is that of the first cell."""
    first, *second = cells
    return f"  {label:<27}{first:>{width}}" + "".join(f"{cell:>24}" for cell in second)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
