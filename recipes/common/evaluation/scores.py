"""Sum up, compare and show evaluated rows: the mappings that `evaluate.evaluate` returns."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from recipes.common.utils.stats import mcnemar_p, wilson_interval
from recipes.common.utils.tables import (
    format_table,
    in_words,
    p_value,
    percent,
    points,
    share_and_span,
)

# The verdict uses the first of these that a recipe has: the one that its rewards see the least.
INDEPENDENT = ("lenient", "hidden", "tests", "prose")
NO_METRICS = {"n", "truncated", "mean_length", "rewards", "turns", "sampled"}  # in `summarize`


def metric_names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The metrics of all rows, by first appearance; each task may have its own metrics."""
    return list(dict.fromkeys(name for row in rows for name in row["metrics"]))


def independent_metrics(names: Iterable[str]) -> list[str]:
    """For each task the metric that the rewards see the least; one in all if names have no task.

    >>> independent_metrics(["math strict", "math lenient", "code tests", "code hidden"])
    ['math lenient', 'code hidden']
    >>> independent_metrics(["strict", "lenient"]), independent_metrics(["right", "short"])
    (['lenient'], ['right'])
    >>> independent_metrics(["math lenient", "five numbers"])
    ['math lenient', 'five numbers']
    """

    def rank(name: str) -> int:
        """The place of its kind in INDEPENDENT; other names come behind."""
        kind = name.rpartition(" ")[2]
        return INDEPENDENT.index(kind) if kind in INDEPENDENT else len(INDEPENDENT)

    ranked, of_task = sorted(names, key=rank), {}
    if not ranked or rank(ranked[0]) == len(INDEPENDENT):
        return ranked[:1]
    for name in ranked:
        of_task.setdefault(name.rpartition(" ")[0], name)
    return [of_task[""]] if of_task.get("") in INDEPENDENT else list(of_task.values())


def verdict_metrics(counts: dict[str, int]) -> list[str]:
    """The `independent_metrics` without those that are known for few rows of their task.

    `counts` maps a metric to its number of rows with an outcome: of a few tasks with hidden tests
    no verdict is made.

    >>> verdict_metrics({"tests": 100, "hidden": 3}), verdict_metrics({"tests": 9, "hidden": 5})
    (['tests'], ['hidden'])
    """
    most: dict[str, int] = {}  # of a task ("" where names have none)
    for name, count in counts.items():
        task = name.rpartition(" ")[0]
        most[task] = max(count, most.get(task, 0))
    return independent_metrics(
        name
        for name, count in counts.items()
        if count > 0 and 2 * count >= most[name.rpartition(" ")[0]]
    )


def outcomes(rows: Iterable[dict[str, Any]], metric: str) -> list[bool | None]:
    """The outcome of each row by one metric; None for a row without the metric."""
    return [row["metrics"].get(metric) for row in rows]


def known(rows: Iterable[dict[str, Any]], metric: str) -> list[bool]:
    """The outcomes of the rows that have the metric."""
    return [outcome for outcome in outcomes(rows, metric) if outcome is not None]


def paired(*outcomes: list[bool | None]) -> list[list[bool]]:
    """Several lists of outcomes without the rows that have a None in any list.

    >>> paired([True, None, False], [False, True, True])
    [[True, False], [False, True]]
    """
    complete = [row for row in zip(*outcomes, strict=True) if None not in row]
    return [[row[i] for row in complete] for i in range(len(outcomes))]


def compare(before: list[dict], after: list[dict] | None = None) -> dict[str, Any]:
    """The figures of one or two evaluations: `before`, `after` and `mcnemar_p` by metric.

    With two evaluations a metric counts on the rows that have it both times. If there is no second,
    `after` and `mcnemar_p` are None. ValueError if the two evaluated different prompts.
    """
    if not after:
        return {"before": summarize(before), "after": None, "mcnemar_p": None}
    if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
        raise ValueError("before and after were not evaluated on the same rows in the same order")
    old, new = [], []  # the rows with the metrics that they have both times
    for pair in zip(before, after, strict=True):
        names = [name for name in metric_names(pair) if None not in outcomes(pair, name)]
        for row, rows in zip(pair, (old, new), strict=True):
            rows.append({**row, "metrics": {name: row["metrics"][name] for name in names}})
    p = {name: mcnemar_p(known(old, name), known(new, name)) for name in metric_names(old)}
    return {"before": summarize(old), "after": summarize(new), "mcnemar_p": p}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of an evaluation: shares with Wilson intervals, mean lengths and rewards.

    A metric has `share` (0 to 1) of its `n` rows and `interval`; ValueError if its name is taken.
    """
    if taken := NO_METRICS.intersection(metric_names(rows)):
        raise ValueError(f"the metric gives {sorted(taken)}, names of other figures: rename them.")

    def mean(values: list[float | None]) -> float | None:
        """The mean of the values that are not None; None if there are none."""
        values = [value for value in values if value is not None]
        return sum(values) / len(values) if values else None

    summary: dict[str, Any] = {"n": len(rows)}
    for name in metric_names(rows):
        values = known(rows, name)
        interval = wilson_interval(sum(values), len(values))
        summary[name] = {"share": mean(values), "interval": interval, "n": len(values)}
    summary["truncated"] = mean([row["truncated"] for row in rows])
    summary["mean_length"] = mean([row["tokens"] for row in rows])
    summary["rewards"] = {
        name: mean([row["rewards"][name] for row in rows]) for name in rows[0]["rewards"]
    }
    if "turns" in rows[0]:
        kinds = Counter(kind for row in rows for kind in row["turns"])
        summary["turns"] = {kind: count / kinds.total() for kind, count in kinds.most_common()}
    if "samples" in rows[0]:
        draws = [draw for row in rows for draw in row["samples"]]
        names = dict.fromkeys(name for draw in draws for name in draw)
        summary["sampled"] = {name: mean([draw.get(name) for draw in draws]) for name in names}
    return summary


def comparison(before: dict[str, Any], after: dict[str, Any] | None, p: Any) -> list[list[str]]:
    """The cells of the before-and-after table, its head first; two columns if `after` is None.

    The arguments are what `compare` returns; `p` is by metric. First come the metrics with interval
    and p, and the number of their rows if some have no outcome; then the means, without these.
    """
    stages = [before] if after is None else [before, after]
    head = [f"{before['n']} test questions, greedy", "before", "after", "change", "McNemar p"]
    table = [head[: 2 if after is None else 5]]
    for name, value in before.items():
        if name in NO_METRICS:
            continue
        of_rows = f" of {value['n']}" if value["n"] < before["n"] else ""
        line = [in_words(name)]
        for stage in stages:
            line.append(share_and_span(stage[name]["share"], stage[name]["interval"]) + of_rows)
        if after is not None:
            line += [points(after[name]["share"] - value["share"]), p_value(p[name])]
        table.append(line)
    means = [means_of(stage) for stage in stages]
    for label in dict.fromkeys(label for of_stage in means for label in of_stage):
        values = [of_stage.get(label) for of_stage in means]
        is_share = label.endswith("%")
        line = [label]
        for value in values:
            line.append(percent(value) if is_share or value is None else f"{value:.2f}")
        if len(values) == 2 and None not in values:
            change = values[1] - values[0]
            line.append(points(change) if is_share else f"{change:+.2f}")
        table.append(line)
    return table


def means_of(summary: dict[str, Any]) -> dict[str, float | None]:
    """The means of `summarize` by label: `{"cut off, %": 0.25, ...}`; % marks a fraction."""
    means = {"cut off, %": summary["truncated"], "mean length (tokens)": summary["mean_length"]}
    for kind, share in summary.get("turns", {}).items():
        means[f"turns: {kind}, %"] = share
    for name, share in summary.get("sampled", {}).items():
        means[f"{in_words(name)}, sampled, %"] = share
    for name, value in summary["rewards"].items():
        means[f"{name}, mean"] = value
    return means


def comparison_table(
    before: dict[str, Any], after: dict[str, Any] | None, mcnemar_p: Any, first: str = "before"
) -> str:
    """The table of `comparison` as text; `first` heads the column of `before`."""
    head, *lines = comparison(before, after, mcnemar_p)
    head[1] = first
    filled = [line + [""] * (len(head) - len(line)) for line in lines]
    return format_table([dict(zip(head, line, strict=True)) for line in filled])
