"""Keep the ledger: put runs into results/, and generate RESULTS.md and the tables of the READMEs from it.

    python scripts/ledger.py record --config recipes/arithmetic/quickstart.yaml --runs runs/quickstart-seed[0-9] \\
        --title "arithmetic quickstart" --output results/quickstart.json
    python scripts/ledger.py render            # after any change to results/

Nothing in RESULTS.md is edited by hand: its words stand in results/RESULTS.md.in, its figures in results/*.json.
In a README a table stands where a comment `generated from results/NAME.json by scripts/ledger.py` opens it.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    record = commands.add_parser(
        "record", help="an entry from finished runs that differ in their seed alone"
    )
    record.add_argument("--runs", nargs="+", required=True, type=Path)
    record.add_argument("--config", required=True, type=Path, help="the YAML they ran")
    record.add_argument("--title", required=True)
    record.add_argument(
        "--command",
        help="as a reader would repeat it; without it, scripts/arms.py with these seeds",
    )
    record.add_argument(
        "--output",
        required=True,
        type=Path,
        help="results/NAME.json; words added to it by hand stay",
    )
    commands.add_parser("render", help="RESULTS.md and the tables in the READMEs")
    args = parser.parse_args()
    from recipes.common.many_runs.ledger import record_entry, render_pages

    try:
        if args.what == "render":
            render_pages()
            print("Generated RESULTS.md and the tables in the READMEs.")
        else:
            record_entry(args.runs, args.config, args.title, args.command, args.output)
            print(
                f"Saved {args.output}; name it in results/RESULTS.md.in and run `python scripts/ledger.py render`."
            )
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
