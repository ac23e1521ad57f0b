"""Write the report of each run as one HTML file that opens from disk, or the curves of all.

    python scripts/report.py runs/quickstart                      # runs/quickstart/report.html
    python scripts/report.py runs/seed0 runs/seed1                # a report.html in each
    python scripts/report.py runs/seed0 runs/seed1 --curves seeds.png        # one picture

Before and after with intervals, the held-out rows that changed, curves, the completions that were
logged, settings and versions. It can also show a run that is still going on.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished or not")
    parser.add_argument("--curves", type=Path, help="a picture of all runs, in place of pages")
    options = parser.parse_args()
    from recipes.common.report.page import write_report
    from recipes.common.report.plots import plot_runs
    from recipes.common.utils.run_files import REPORT

    with refusals():
        if options.curves:
            plot_runs(options.runs, options.curves)
            print(f"Saved {options.curves}")
            return
        for run in options.runs:
            write_report(run)
            print(f"Saved {run / REPORT}")


if __name__ == "__main__":
    main()
