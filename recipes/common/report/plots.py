"""Curves of one or several runs, as SVG for the page.

A logged key has a faint curve of its values and a bold curve of their moving average. A validation
metric has its 95 % band and, dashed on a second axis, the moving average of the reward.
matplotlib is imported only when something is drawn.
"""

import html
import io
import math
import re
from typing import Any, NamedTuple

import pandas as pd

from recipes.common.evaluation.scores import independent_metrics, metric_names
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import in_words

Log = list[dict[str, float]]
Points = dict[int, float]  # optimizer step -> value
Spans = dict[int, tuple[float, float]]  # optimizer step -> 95 % interval

COLORS = ("#2a66c8", "#c4541a", "#2b8a57", "#9a3fa5", "#8a6d00", "#c2304f")  # one a run
LINE = "#d9dbe0"  # the grid; the page colours the text
STYLE = {
    "svg.fonttype": "none",  # keep text as <text>, not as paths
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "lines.linewidth": 2,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.edgecolor": LINE,
    "grid.color": LINE,
}
TITLES = {
    "groups/without_spread": "groups without spread, which teach nothing (share)",
    "groups/verifier_spread": "groups whose correctness rewards differ (share)",
    "completions/mean_length": "completion length (tokens)",
    "completions/clipped_ratio": "cut off at max_completion_length (share)",
    "kl": "KL to the reference model (nats a token)",
    "entropy": "entropy (nats a token)",
}


class Panel(NamedTuple):
    """One picture with a curve for each run; a run without values has an empty curve."""

    title: str
    curves: list[Points]
    spans: list[Spans] | None = None  # the bands of a validation metric
    rewards: list[Points] | None = None  # drawn behind a validation metric


def panels(logs: list[Log], validations: list[list[dict[str, Any]]]) -> list[Panel]:
    """The pictures of some runs, of each its log and its evaluations of the validation rows.

    First the total reward, then each validation metric (the verdict's first), then logged keys.
    `push/NAME`, shown as pull, says whether updates raise (above 0) or lower the metric NAME.
    """
    keys = sorted({key for log in logs for entry in log for key in entry})
    titles, pulls = {}, {}  # logged key -> title of its picture
    for key in keys:
        kind, _, name = key.partition("/")
        if kind in ("rewards", "step_rewards") and name.endswith("/mean"):
            titles[key] = f"reward {name.removesuffix('/mean')} (unweighted, where it counts)"
        elif kind == "metrics":
            titles[key] = f"{in_words(name)}, completions of training"
            pulls[f"push/{name}"] = f"pull on {in_words(name)}"
    titles |= {key: title for key, title in TITLES.items() if key in keys} | pulls
    logged = [Panel(title, [curve(log, key) for log in logs]) for key, title in titles.items()]
    rewards = [curve(log, "reward") for log in logs]
    metrics = metric_names(line for validation in validations for line in validation)
    verdict_first = dict.fromkeys([*independent_metrics(metrics), *metrics])
    validated = []
    for metric in verdict_first:
        curves, spans = zip(*(shares(lines, metric) for lines in validations), strict=True)
        title = f"validation: {in_words(metric)} (share, 95 % band; dashed: training reward)"
        validated.append(Panel(title, list(curves), list(spans), rewards))
    total = [Panel("reward (weighted sum)", rewards)] if "reward" in keys else []
    return [*total, *validated, *logged]


def curve(log: Log, key: str) -> Points:
    """Step -> value of a logged key; steps without a finite value are left out."""
    values = {entry["step"]: float(entry[key]) for entry in log if entry.get(key) is not None}
    return {step: value for step, value in values.items() if math.isfinite(value)}


def shares(validation: list[dict[str, Any]], metric: str) -> tuple[Points, Spans]:
    """The share of rows where a metric is True, by step of the evaluation; its Wilson intervals.

    `validation` has a line for each evaluation: its `step`, and in `metrics` the outcome of each
    row by metric. Rows without the metric (None) do not count.
    """
    points, spans = {}, {}
    for line in validation:
        known = [outcome for outcome in line["metrics"].get(metric, ()) if outcome is not None]
        if known:
            points[line["step"]] = sum(known) / len(known)
            spans[line["step"]] = wilson_interval(sum(known), len(known))
    return points, spans


def smooth(values: pd.Series) -> pd.Series:
    """The moving average; on each side it takes a twelfth of all values, from 1 to 25.

    The window is centred, so that a rise is drawn where it happens, and is cut at both ends.

    >>> smooth(pd.Series({1: 1.0, 2: 2.0, 4: 6.0})).to_dict()
    {1: 1.5, 2: 3.0, 4: 4.0}
    """
    window = 2 * min(25, max(1, len(values) // 12)) + 1
    return values.rolling(window, center=True, min_periods=1).mean()


def svg(panel: Panel) -> str:
    """A panel as <svg> without its title, in colours that the page sets, such as var(--run0)."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": panel.title}):  # no two panels share ids
        figure, text = Figure(figsize=(4.4, 2.4), layout="constrained"), io.StringIO()
        draw(panel, figure.subplots())
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=no_metadata)
    drawn = text.getvalue()[text.getvalue().index("<svg") :]
    # Inside HTML no namespaces are needed; without a size it fills its place on the page.
    drawn = re.sub(r' xmlns(:xlink)?="[^"]*"| (width|height)="[\d.]+pt"', "", drawn)
    drawn = re.sub(r" font-family: [^;]*;", "", drawn)  # use the page's font
    drawn = drawn.replace(LINE, "var(--line)")
    for number, color in enumerate(COLORS):
        drawn = drawn.replace(color, f"var(--run{number})")
    return drawn.replace("<svg", f'<svg role="img" aria-label="{html.escape(panel.title)}"', 1)


def draw(panel: Panel, axis: Any) -> None:
    """Draw the curve of each run on a matplotlib axis, in the run's colour."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    reward_axis = axis.twinx() if panel.rewards else None
    for number, points in enumerate(panel.curves):
        color = COLORS[number % len(COLORS)]
        values = pd.Series(points, dtype=float)  # drawn over its index, the steps
        if reward_axis is None:
            axis.plot(values, color=color, alpha=0.35, linewidth=1)
            # A line needs two points.
            axis.plot(smooth(values), color=color, marker="o" if len(points) == 1 else None)
        elif points:
            low, high = zip(*panel.spans[number].values(), strict=True)
            axis.fill_between(list(points), low, high, color=color, alpha=0.2, linewidth=0)
            axis.plot(values, color=color, marker="o", markersize=4)
            reward = smooth(pd.Series(panel.rewards[number], dtype=float))
            reward_axis.plot(reward, color=color, linestyle="--", alpha=0.6, linewidth=1.4)
    if reward_axis is not None:
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        reward_axis.set_ylabel("reward")
        reward_axis.grid(visible=False)
    steps = [step for points in panel.curves for step in points] or [1]
    axis.set_xlim(min(steps) - 0.5, max(steps) + 0.5)  # no empty space for a step 0
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_xlabel("optimizer step")
