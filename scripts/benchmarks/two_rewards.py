"""Draw the README's picture: what two rewards promised in training, and what validation rows found.

    python scripts/benchmarks/two_rewards.py --left "naive reward" runs/hack-seed0 runs/hack-seed1 \\
        --right "sound reward" runs/quickstart-seed0 runs/quickstart-seed1 --output docs/two_rewards.png

Each side: the reward of each step, and the strict and lenient accuracy of the validation rows; the mean of its runs in
a band from the least to the largest. Both sides share their axes.
"""

import argparse
from pathlib import Path

REWARD, ACCURACY, LENIENT = "#c0392b", "#1b4f8a", "#5fa8d3"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--left", nargs="+", required=True, metavar=("TITLE", "RUN"))
    parser.add_argument("--right", nargs="+", required=True, metavar=("TITLE", "RUN"))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    twins = [axis.twinx() for axis in (left, right)]
    twins[0].sharey(twins[1])
    for axis, twin, (title, *runs) in zip((left, right), twins, (options.left, options.right), strict=True):
        draw(axis, twin, title, [Path(run) for run in runs])
    left.set_ylim(0), twins[0].set_ylim(0)
    left.set_ylabel("right answers, rows not trained on (%)", color=ACCURACY)
    figure.legend(
        handles=[*twins[0].lines, *left.lines],
        labels=["reward", "strict (asked form)", "lenient"],
        loc="outside lower center",
        ncols=3,
    )
    twins[1].set_ylabel("reward in training", color=REWARD)
    twins[0].tick_params(labelright=False)
    figure.savefig(options.output, dpi=110)


def draw(axis, twin, title: str, runs: list[Path]) -> None:
    """One side: the reward of `runs` on `twin`, dashed, and their accuracies on `axis`."""
    from recipes.common.after.plots import curve, draw_band, shares, smooth
    from recipes.common.tools.folder import read_log, read_validation

    draw_band(twin, [smooth(curve(read_log(run), "reward")) for run in runs], color=REWARD, linestyle="--")
    for metric, color in (("strict", ACCURACY), ("lenient", LENIENT)):
        found = [shares(read_validation(run), metric) for run in runs]
        percent = [{step: 100 * share for step, (share, *_) in each.items()} for each in found]
        draw_band(axis, percent, color=color, marker="o")
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("training step")
    axis.grid(alpha=0.25)
    axis.spines["top"].set_visible(False)


if __name__ == "__main__":
    main()
