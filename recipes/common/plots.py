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
    """Whether a key of the log is TRL's mean of one reward function.

    Example: `is_reward_mean("rewards/xml_format/mean")`
    """
    return key.startswith("rewards/") and key.endswith("/mean")


def smooth(values: list[float], weight: float = SMOOTHING) -> list[float]:
    """Exponential moving average, started without bias (each value is a weighted mean of those so far).

    Example: `smooth([1.0, 3.0], weight=0.5) == [1.0, 2.3333333333333335]`
    """
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        smoothed.append(total / norm)
    return smoothed


def plot_runs(runs: list[Path], output: Path) -> None:
    """Draw total reward, each reward function, length, truncation, KL and entropy: raw faint, smoothed bold."""
    logs = {str(run): read_log(run) for run in runs}
    rewards = sorted({key for log in logs.values() for entry in log for key in entry if is_reward_mean(key)})
    panels = [("reward (weighted sum)", "reward")]
    panels += [(f"reward {key.split('/')[1]} (mean)", key) for key in rewards]
    panels += [panel for panel in PANELS if any(panel[1] in entry for log in logs.values() for entry in log)]
    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.9 * rows), squeeze=False, layout="constrained")
    for axis, (title, key) in zip(axes.flat, panels, strict=False):
        _draw(axis, logs, key, title)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    figure.suptitle("faint: each logged step    bold: moving average", fontsize=9, color="gray")
    if len(runs) > 1:
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(output, dpi=120)
    plt.close(figure)


def _draw(axis: plt.Axes, logs: dict[str, list[dict[str, float]]], key: str, title: str) -> None:
    for number, (name, log) in enumerate(logs.items()):
        points = [(entry["step"], float(entry[key])) for entry in log if entry.get(key) is not None]
        if not points:
            continue
        steps, values = zip(*points, strict=True)
        axis.plot(steps, values, color=f"C{number}", alpha=0.3, linewidth=1)
        axis.plot(steps, smooth(list(values)), color=f"C{number}", linewidth=2, label=name)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("optimizer step", fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25)
