"""Keep the ledger: put runs into results/, generate the tables of the pages, compare a run with it.

    python scripts/results.py record --config recipes/arithmetic/quickstart.yaml \\
        --runs runs/quickstart-seed[0-9] --title "arithmetic quickstart" \\
        --command "python scripts/arms.py ..." --output results/quickstart.json
    python scripts/results.py render            # after any change to results/
    python scripts/results.py compare runs/quickstart --expect results/quickstart.json

A table of a page stands where a comment `generated from results/NAME.json by scripts/results.py`
opens it. `compare` shows each metric's change next to the range in which that of one more run is
expected (19 of 20; fewer where some seeds learn and others do not). Exit status 0: all agree; 1:
one does not; 2: they cannot be compared.
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
    record.add_argument("--command", required=True, help="what repeats the runs")
    record.add_argument("--output", required=True, type=Path, help="words added by hand stay")
    commands.add_parser("render", help="the tables in the pages")
    compare = commands.add_parser("compare", help="does a run agree with an entry?")
    compare.add_argument("run", type=Path, help="the folder of a finished run")
    compare.add_argument("--expect", required=True, type=Path, help="an entry of the ledger")
    options = vars(parser.parse_args())
    what = options.pop("what")
    from recipes.common.many_runs import ledger
    from recipes.common.utils.run_files import read_json
    from recipes.common.utils.tables import in_words, points

    with refusals():
        if what == "record":
            ledger.record_entry(**options)
        elif what == "render":
            ledger.render_pages()
        else:
            entry = read_json(options["expect"], {})
            if "metrics" not in entry:
                raise ValueError(f"{options['expect']} is not there, or no entry of results/.")
            changes = ledger.compare_run(options["run"], entry)
            status = 0
            for metric, (change, low, high) in changes.items():
                agrees = low <= change <= high
                status = status if agrees else 1
                print(
                    f"  {in_words(metric):<18}{points(change):>9}   expected {100 * low:+.1f} to "
                    f"{100 * high:+.1f} pt   {'' if agrees else 'NOT '}as expected"
                )
            if len(entry["seeds"]) == 1:
                print("The entry is of one seed: the range does not cover another seed's luck.")
            raise SystemExit(status)


if __name__ == "__main__":
    main()
