"""Does a run agree with what is published of its recipe?

    python scripts/compare.py runs/quickstart --expect results/quickstart.json

Each metric's change by training, next to the range in which the change of one more run is expected
(19 of 20; how it is computed: recipes/common/many_runs/ledger.py). That both saw the same data is
not checked. Exit status 0: all agree; 1: one does not; 2: they cannot be compared.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--expect", required=True, type=Path, help="an entry of the ledger")
    args = parser.parse_args()
    from recipes.common.many_runs.ledger import compare_run, read_entry

    with refusals():
        entry = read_entry(args.expect)
        compared = compare_run(args.run, entry)
    source = f"{entry['commit']}, seeds {entry['seeds']}, {entry['hardware']}"
    print(f"{args.run} and {entry['title']} ({source})")
    if len(entry["seeds"]) == 1:
        print("note: the entry is of one seed, so the ranges do not hold the spread between seeds")
    print("\n".join(f"  {row.line()}" for row in compared))
    raise SystemExit(0 if all(row.agrees for row in compared) else 1)


if __name__ == "__main__":
    main()
