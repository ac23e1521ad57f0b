"""Write the report of a run, or of several side by side, as one HTML file that opens from disk.

    python scripts/report.py runs/quickstart                                    # runs/quickstart/report.html
    python scripts/report.py runs/seed0 runs/seed1                              # a report.html in each
    python scripts/report.py runs/seed0 runs/seed1 --output seeds.html          # one page

Before and after with intervals, curves, every completion that was logged (filter, search, sort), the
held-out rows that flipped, settings and versions. A run that is still going on can be looked at too.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished or not")
    parser.add_argument("--output", type=Path, help="one page for all runs; without it each gets its report.html")
    args = parser.parse_args()
    from recipes.common.after.report_page import write_report

    pages = {args.output: args.runs} if args.output else {run / "report.html": [run] for run in args.runs}
    for output, runs in pages.items():
        try:
            write_report(runs, output)
        except (FileNotFoundError, ValueError) as error:
            raise SystemExit(f"error: {error}") from error
        print(f"Saved {output}")


if __name__ == "__main__":
    main()
