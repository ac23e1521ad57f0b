"""Does a run agree with what is published of its recipe?

    python scripts/compare.py runs/quickstart --expect results/quickstart.json

Each metric after training beside the range in which one more run is expected (19 of 20; how it is computed:
recipes/common/many_runs/ledger.py). That both saw the same data is not checked. Exit status
0: all agree; 1: one does not; 2: they cannot be compared.
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--expect", required=True, type=Path, help="an entry of the ledger")
    args = parser.parse_args()
    from recipes.common.many_runs.ledger import agreement, check_entry
    from recipes.common.many_runs.runs import percent

    try:
        entry = json.loads(args.expect.read_text(encoding="utf-8"))
        check_entry(args.expect.stem, entry)
        compared = agreement(args.run, entry)
    except (OSError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2) from problem
    if len(entry["seeds"]) == 1:
        print("note: the entry is of one seed, so the ranges do not hold the spread between seeds")
    print(f"{args.run} beside {entry['title']} ({entry['commit']}, seeds {entry['seeds']}, {entry['hardware']})")
    for row in compared:
        low, high = row["expected"]
        word = "as expected" if row["agrees"] else "NOT as expected"
        print(f"  {row['metric']:<10}{percent(row['value']):>9}   expected {percent(low)} to {percent(high)}   {word}")
    raise SystemExit(0 if all(row["agrees"] for row in compared) else 1)


if __name__ == "__main__":
    main()
