"""Curves of one or several runs, from what the trainer logged. matplotlib loads only to draw a picture."""

import math
from pathlib import Path
from typing import Any

from recipes.common.tools.folder import is_reward_mean, read_log
from recipes.common.tools.stats import moving_average

Log = list[dict[str, float]]
TOTAL = ("reward (weighted sum)", "reward")  # title, key of the log
PANELS = (
    ("groups without spread, which teach nothing (share)", "groups/without_spread"),
    ("groups with spread of a verifier (share)", "groups/verifier_spread"),
    ("completion length (tokens)", "completions/mean_length"),
    ("cut off at max_completion_length (share)", "completions/clipped_ratio"),
    ("KL to the reference model (nats a token)", "kl"),
    ("entropy (nats a token)", "entropy"),
)


def panels(logs: list[Log]) -> list[tuple[str, str]]:
    """Title and key of each curve that any of the runs logged."""
    logged = {key for log in logs for entry in log for key in entry}
    rewards = [(f"reward {key.split('/')[1]} (mean)", key) for key in sorted(filter(is_reward_mean, logged))]
    return [panel for panel in (TOTAL, *rewards, *PANELS) if panel[1] in logged]


def curve(log: Log, key: str) -> dict[int, float]:
    """Step -> value, where one was logged that is a number."""
    values = {entry["step"]: float(entry[key]) for entry in log if entry.get(key) is not None}
    return {step: value for step, value in values.items() if math.isfinite(value)}


def plot_runs(runs: list[Path], output: Path, band: bool = False) -> None:
    """Draw total reward, each reward function, length, truncation, KL and entropy: raw faint, moving average bold.

    With `band` the runs become one line: their mean, in a band from the least to the largest of them.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    logs = [read_log(run) for run in runs]
    drawn = panels(logs)
    rows = max(1, -(-len(drawn) // 2))
    figure = Figure(figsize=(11, 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flat
    for axis, (title, key) in zip(axes, drawn, strict=False):
        curves = [curve(log, key) for log in logs]
        _draw_band(axis, curves) if band else _draw_lines(axis, curves, runs)
        steps = [step for points in curves for step in points] or [1]
        axis.set_xlim(min(steps) - 0.5, max(steps) + 0.5)  # nothing happens at a step 0
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("optimizer step", fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    for axis in axes[len(drawn) :]:
        axis.axis("off")
    words = "faint: each logged step    bold: moving average"
    if band:
        words = f"mean of {len(runs)} runs in a band from the least to the largest, each a moving average"
    figure.suptitle(words, fontsize=9, color="gray")
    if len(runs) > 1 and not band:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(output, dpi=120)


def _draw_lines(axis: Any, curves: list[dict[int, float]], runs: list[Path]) -> None:
    for number, (run, points) in enumerate(zip(runs, curves, strict=True)):
        axis.plot(list(points), list(points.values()), color=f"C{number}", alpha=0.3, linewidth=1)
        axis.plot(list(points), moving_average(list(points.values())), color=f"C{number}", linewidth=2, label=str(run))


def _draw_band(axis: Any, curves: list[dict[int, float]]) -> None:
    """Over the steps that all runs logged."""
    smooth = [dict(zip(points, moving_average(list(points.values())), strict=True)) for points in curves if points]
    steps = sorted(set.intersection(*map(set, smooth))) if smooth else []
    values = [[points[step] for points in smooth] for step in steps]
    axis.fill_between(steps, [min(v) for v in values], [max(v) for v in values], color="C0", alpha=0.25, linewidth=0)
    axis.plot(steps, [sum(v) / len(v) for v in values], color="C0", linewidth=2)
