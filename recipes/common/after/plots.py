"""Curves of one or several runs, from what the trainer logged."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

PANELS = (  # title, key of the log
    ("completion length (tokens)", "completions/mean_length"),
    ("cut off at max_completion_length (share)", "completions/clipped_ratio"),
    ("KL to the reference model (nats a token)", "kl"),
    ("entropy (nats a token)", "entropy"),
)
SMOOTHING = 0.8


def read_log(run: Path) -> list[dict[str, float]]:
    """The logged training steps of a run folder, from its final state or its newest checkpoint.

    Raises:
        FileNotFoundError: the folder holds neither.
    """
    checkpoints = sorted(run.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
    candidates = [run / "trainer_state.json", *reversed(checkpoints)]
    state = next((path for path in candidates if path.is_file()), None)
    if state is None:
        raise FileNotFoundError(f"{run} holds no trainer_state.json and no checkpoint: is it a run folder?")
    return [entry for entry in json.loads(state.read_text())["log_history"] if "reward" in entry]


def is_reward_mean(key: str) -> bool:
    """Whether a key of the log is the mean of one reward function, TRL's or of one that judges steps.

    Example: `is_reward_mean("rewards/xml_format/mean")`
    """
    return key.startswith(("rewards/", "step_rewards/")) and key.endswith("/mean")


def smooth(values: list[float], weight: float = SMOOTHING) -> list[float]:
    """Exponential moving average, started without bias (each value is a weighted mean of those so far).

    Example: `smooth([1.0, 3.0], weight=0.5) == [1.0, 2.3333333333333335]`
    """
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        smoothed.append(total / norm)
    return smoothed


def plot_runs(runs: list[Path], output: Path, band: bool = False) -> None:
    """Draw total reward, each reward function, length, truncation, KL and entropy: raw faint, smoothed bold.

    With `band` the runs become one line: their mean, smoothed, in a band from the least to the largest of them.
    """
    logs = {str(run): read_log(run) for run in runs}
    rewards = sorted({key for log in logs.values() for entry in log for key in entry if is_reward_mean(key)})
    panels = [("reward (weighted sum)", "reward")]
    panels += [(f"reward {key.split('/')[1]} (mean)", key) for key in rewards]
    panels += [panel for panel in PANELS if any(panel[1] in entry for log in logs.values() for entry in log)]
    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.9 * rows), squeeze=False, layout="constrained")
    for axis, (title, key) in zip(axes.flat, panels, strict=False):
        (_draw_band if band else _draw_lines)(axis, logs, key)
        _label(axis, title)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    lines = f"mean of {len(runs)} runs in a band from the least to the largest, each a moving average"
    words = lines if band else "faint: each logged step    bold: moving average"
    figure.suptitle(words, fontsize=9, color="gray")
    if len(runs) > 1 and not band:
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(output, dpi=120)
    plt.close(figure)


def _draw_lines(axis: plt.Axes, logs: dict[str, list[dict[str, float]]], key: str) -> None:
    for number, (name, log) in enumerate(logs.items()):
        points = _points(log, key)
        if points:
            steps, values = zip(*points.items(), strict=True)
            axis.plot(steps, values, color=f"C{number}", alpha=0.3, linewidth=1)
            axis.plot(steps, smooth(list(values)), color=f"C{number}", linewidth=2, label=name)


def _draw_band(axis: plt.Axes, logs: dict[str, list[dict[str, float]]], key: str) -> None:
    """Over the steps that all runs logged."""
    runs = [_points(log, key) for log in logs.values()]
    runs = [dict(zip(points, smooth(list(points.values())), strict=True)) for points in runs if points]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    values = [[points[step] for points in runs] for step in steps]
    axis.fill_between(steps, [min(v) for v in values], [max(v) for v in values], color="C0", alpha=0.25, linewidth=0)
    axis.plot(steps, [sum(v) / len(v) for v in values], color="C0", linewidth=2)


def _points(log: list[dict[str, float]], key: str) -> dict[int, float]:
    return {entry["step"]: float(entry[key]) for entry in log if entry.get(key) is not None}


def _label(axis: plt.Axes, title: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("optimizer step", fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25)
