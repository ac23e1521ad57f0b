"""Draw the curves of one or several runs into one picture.

    python scripts/plot_runs.py runs/quickstart
    python scripts/plot_runs.py runs/seed0 runs/seed1 runs/seed2 --output seeds.png

Total reward and each reward function, completion length, share cut off, KL and entropy; the raw values
faint, their moving average bold.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders (finished, or with a checkpoint)")
    parser.add_argument("--output", type=Path, help="default for one run: its curves.png")
    args = parser.parse_args()
    from recipes.common.after.plots import plot_runs

    if len(args.runs) > 1 and args.output is None:
        raise SystemExit("error: several runs need --output FILE.png: each keeps the curves.png of its own.")
    output = args.output or args.runs[0] / "curves.png"
    try:
        plot_runs(args.runs, output)
    except FileNotFoundError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"Saved {output}")


if __name__ == "__main__":
    main()
