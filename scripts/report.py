"""Write the report of a run, or of several side by side, as one HTML file that opens from disk.

    python scripts/report.py runs/quickstart                      # runs/quickstart/report.html
    python scripts/report.py runs/seed0 runs/seed1                # a report.html in each
    python scripts/report.py runs/seed0 runs/seed1 --output seeds.html               # one page
    python scripts/report.py runs/seed0 runs/seed1 --curves seeds.png                # the curves

Before and after with intervals, curves, every completion that was logged (filter, search, sort),
the held-out rows that flipped, settings and versions. It can also show a run that is still going
on.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished or not")
    parser.add_argument("--output", type=Path, help="one page for all; default: one in each")
    parser.add_argument("--curves", type=Path, help="a picture of all runs, in place of a page")
    options = parser.parse_args()
    from recipes.common.report.page import write_report
    from recipes.common.report.plots import plot_runs
    from recipes.common.utils.run_files import REPORT

    one, write = options.curves or options.output, plot_runs if options.curves else write_report
    pages = {one: options.runs} if one else {run / REPORT: [run] for run in options.runs}
    with refusals():
        for output, runs in pages.items():
            write(runs, output)
            print(f"Saved {output}")


if __name__ == "__main__":
    main()
