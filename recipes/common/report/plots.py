"""Curves of one or several runs, from what the trainer logged. matplotlib loads only to draw a picture."""

import math
from pathlib import Path
from typing import Any

from recipes.common.utils.run_files import is_reward_mean, read_log, read_validation
from recipes.common.utils.stats import moving_average, wilson_interval

Log = list[dict[str, float]]
Shares = dict[
    int, tuple[float, float, float]
]  # step -> share of the validation rows, and its 95 % interval
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
    rewards = [
        (f"reward {key.split('/')[1]} (mean)", key)
        for key in sorted(filter(is_reward_mean, logged))
    ]
    return [panel for panel in (TOTAL, *rewards, *PANELS) if panel[1] in logged]


def curve(log: Log, key: str) -> dict[int, float]:
    """Step -> value, where one was logged that is a number."""
    values = {entry["step"]: float(entry[key]) for entry in log if entry.get(key) is not None}
    return {step: value for step, value in values.items() if math.isfinite(value)}


def shares(validation: list[dict[str, Any]], metric: str) -> Shares:
    """One metric of the validation rows at each evaluation, with its 95 % interval (Wilson), over rows that have it."""
    found = {}
    for line in validation:
        known = [outcome for outcome in line["metrics"].get(metric, ()) if outcome is not None]
        if known:
            found[line["step"]] = (
                sum(known) / len(known),
                *wilson_interval(sum(known), len(known)),
            )
    return found


def validation_shares(validations: list[list[dict[str, Any]]]) -> dict[str, list[Shares]]:
    """The shares of each run by each metric that any of them evaluated its validation rows by."""
    names = dict.fromkeys(
        name for validation in validations for line in validation for name in line["metrics"]
    )
    return {name: [shares(validation, name) for validation in validations] for name in names}


def plot_runs(runs: list[Path], output: Path, band: bool = False) -> None:
    """Draw total reward, validation metrics over it, each reward function, length, truncation, KL and entropy.

    What was logged is faint, its moving average bold; a validation metric has its 95 % band, and the reward dashed
    behind it. With `band` the runs become one line: their mean, in a band from the least to the largest of them.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    logs, validations = [read_log(run) for run in runs], [read_validation(run) for run in runs]
    drawn = [(title, [curve(log, key) for log in logs], None) for title, key in panels(logs)]
    validated = validation_shares(validations)
    for name, spans in reversed(validated.items()):  # after the total reward
        points = [{step: share for step, (share, *_) in each.items()} for each in spans]
        drawn.insert(1, (f"validation: {name} (share)", points, spans))
    rows = max(1, -(-len(drawn) // 2))
    figure = Figure(figsize=(11, 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flat
    for axis, (title, curves, spans) in zip(axes, drawn, strict=False):
        if band:
            draw_band(axis, [smooth(points) for points in curves if points])
        elif spans:
            _draw_shares(axis, spans, rewards=drawn[0][1])
        else:
            for number, (run, points) in enumerate(zip(runs, curves, strict=True)):
                axis.plot(
                    list(points), list(points.values()), color=f"C{number}", alpha=0.3, linewidth=1
                )
                axis.plot(
                    list(points),
                    smooth(points).values(),
                    color=f"C{number}",
                    linewidth=2,
                    label=str(run),
                )
        steps = [step for points in curves for step in points] or [1]
        axis.set_xlim(min(steps) - 0.5, max(steps) + 0.5)  # nothing happens at a step 0
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("optimizer step", fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    for axis in axes[len(drawn) :]:
        axis.axis("off")
    words = "faint: each logged step    bold: moving average" + "    dashed: the reward" * bool(
        validated
    )
    if band:
        words = f"mean of {len(runs)} runs in a band from the least to the largest, each a moving average"
    figure.suptitle(words, fontsize=9, color="gray")
    if len(runs) > 1 and not band:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(output, dpi=120)


def _draw_shares(axis: Any, curves: list[Shares], rewards: list[dict[int, float]]) -> None:
    """Shares in their bands, over the reward of the same steps on a scale of its own."""
    behind = axis.twinx()
    behind.set_ylabel("reward", fontsize=8, color="gray")
    for number, (points, reward) in enumerate(zip(curves, rewards, strict=True)):
        share, low, high = zip(*points.values(), strict=True) if points else ((), (), ())
        axis.fill_between(list(points), low, high, color=f"C{number}", alpha=0.2, linewidth=0)
        axis.plot(list(points), share, color=f"C{number}", linewidth=2, marker="o", markersize=4)
        behind.plot(
            list(reward), smooth(reward).values(), color=f"C{number}", linestyle="--", alpha=0.5
        )


def smooth(points: dict[int, float]) -> dict[int, float]:
    """The moving average of a curve, at its own steps."""
    return dict(zip(points, moving_average(list(points.values())), strict=True))


def draw_band(axis: Any, curves: list[dict[int, float]], color: str = "C0", **style: Any) -> None:
    """Draw the mean of curves in a band from the least to the largest, over the steps that all of them have."""
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    values = [[points[step] for points in curves] for step in steps]
    axis.fill_between(
        steps,
        [min(v) for v in values],
        [max(v) for v in values],
        color=color,
        alpha=0.25,
        linewidth=0,
    )
    axis.plot(steps, [sum(v) / len(v) for v in values], color=color, linewidth=2, **style)
