"""Write the report of each run as an HTML file that opens from disk, and of several side by side.

    python scripts/report.py runs/quickstart                 # runs/quickstart/report.html
    python scripts/report.py runs/seed0 runs/seed1           # one in each, and runs/report.html

Before and after with intervals, the test questions that changed, curves, the completions that were
logged, minutes and settings. It can also show a run that is still going on. The page of several
runs, beside the first folder, has a column for each, their curves in one picture, and the settings
in which they differ.
"""

from os.path import normpath
from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished or not")
    runs = parser.parse_args().runs
    from recipes.common.report.page import write_comparison, write_report
    from recipes.common.utils.run_files import REPORT

    with refusals():
        for run in runs:
            write_report(run)
            print(f"Saved {run / REPORT}")
        if len(runs) > 1:
            output = Path(normpath(runs[0] / ".." / REPORT))  # `.` is its own Path.parent
            write_comparison(runs, output)
            print(f"Saved {output}")


if __name__ == "__main__":
    main()
