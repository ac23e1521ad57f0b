"""Keep the ledger: put runs into results/, and generate RESULTS.md and the tables of the READMEs.

    python scripts/ledger.py record --config recipes/arithmetic/quickstart.yaml \\
        --runs runs/quickstart-seed[0-9] --title "arithmetic quickstart" \\
        --output results/quickstart.json
    python scripts/ledger.py render            # after any change to results/

Nothing in RESULTS.md is edited by hand: its words stand in results/RESULTS.md.in, its figures in
results/*.json. In a README a table stands where a comment `generated from results/NAME.json by
scripts/ledger.py` opens it.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    record = commands.add_parser("record", help="an entry from runs that differ in their seed")
    record.add_argument("--runs", nargs="+", required=True, type=Path)
    record.add_argument("--config", required=True, type=Path, help="the YAML they ran")
    record.add_argument("--title", required=True)
    record.add_argument("--command", help="default: scripts/arms.py with these seeds")
    record.add_argument("--output", required=True, type=Path, help="words added by hand stay")
    commands.add_parser("render", help="RESULTS.md and the tables in the READMEs")
    options = vars(parser.parse_args())
    from recipes.common.many_runs.ledger import record_entry, render_pages

    with refusals():
        if options.pop("what") == "record":
            record_entry(**options)
            print(f"Saved {options['output']}; name it in results/RESULTS.md.in, and render.")
        else:
            render_pages()
            print("Generated RESULTS.md and the tables in the READMEs.")


if __name__ == "__main__":
    main()
