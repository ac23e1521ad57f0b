"""Draw the README's picture: what rewards promised in training, and what validation rows found.

    python scripts/benchmarks/reward_panels.py --panel "a farmed reward" runs/number-count-hack \\
        --panel "naive rewards" runs/hack-seed0 runs/hack-seed1 \\
        --panel "sound rewards" runs/quickstart-seed0 runs/quickstart-seed1 --output docs/rewards.png

Each panel: the reward of each step, and what the validation rows say of it; the mean of its runs in a band from the
least to the largest. All panels share their axes.
"""

import argparse
from pathlib import Path

REWARD = "#c0392b"
METRICS = {
    "strict": ("right, asked form", "#1b4f8a"),
    "lenient": ("right, any form", "#5fa8d3"),
    "prose": ("still English", "#2e7d4f"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--panel", nargs="+", action="append", required=True, metavar=("TITLE", "RUN")
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(options.panel), 3.6), layout="constrained")
    axes = figure.subplots(1, len(options.panel), sharey=True, squeeze=False)[0]
    twins = [axis.twinx() for axis in axes]
    for axis, twin, (title, *runs) in zip(axes, twins, options.panel, strict=True):
        twin.sharey(twins[-1])
        draw(axis, twin, title, [Path(run) for run in runs])
        twin.tick_params(labelright=twin is twins[-1])
    axes[0].set_ylim(-3, 103)
    axes[0].set_ylabel("validation rows (%)")
    twins[-1].set_ylabel("reward in training", color=REWARD)
    lines = {line.get_label(): line for axis in (*twins, *axes) for line in axis.lines}
    figure.legend(handles=list(lines.values()), loc="outside lower center", ncols=len(lines))
    figure.savefig(options.output, dpi=110)


def draw(axis, twin, title: str, runs: list[Path]) -> None:
    """One panel: the reward of `runs` on `twin`, dashed, and the metrics that they have on `axis`."""
    from recipes.common.report.plots import curve, draw_band, shares, smooth
    from recipes.common.utils.run_files import read_log, read_validation

    rewards = [smooth(curve(read_log(run), "reward")) for run in runs]
    draw_band(twin, rewards, color=REWARD, linestyle="--", label="reward")
    for metric, (label, color) in METRICS.items():
        found = [shares(read_validation(run), metric) for run in runs]
        percent = [{step: 100 * share for step, (share, *_) in each.items()} for each in found]
        if any(percent):
            draw_band(axis, percent, color=color, marker="o", label=label)
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("training step")
    axis.grid(alpha=0.25)
    axis.spines["top"].set_visible(False)


if __name__ == "__main__":
    main()
