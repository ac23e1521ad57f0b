"""Keep the ledger: put runs into results/, and generate RESULTS.md and the README's table from it.

    python scripts/ledger.py record --config recipes/arithmetic/quickstart.yaml --runs runs/quickstart-seed[0-9] \\
        --title "arithmetic quickstart" --output results/quickstart.json
    python scripts/ledger.py render            # after any change to results/

Nothing in RESULTS.md is edited by hand: its words stand in results/RESULTS.md.in, its figures in results/*.json.
"""

import argparse
import shlex
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    record = commands.add_parser("record", help="an entry from finished runs that differ in their seed alone")
    record.add_argument("--runs", nargs="+", required=True, type=Path)
    record.add_argument("--config", required=True, type=Path, help="the YAML they ran")
    record.add_argument("--title", required=True)
    record.add_argument("--command", help="as a reader would repeat it; without it, scripts/seeds.py with these seeds")
    record.add_argument("--output", required=True, type=Path, help="results/NAME.json; words added to it by hand stay")
    commands.add_parser("render", help="RESULTS.md and the table in README.md")
    args = parser.parse_args()
    try:
        record_entry(args) if args.what == "record" else render()
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


def record_entry(args: argparse.Namespace) -> None:
    """Write the entry; what the file has besides (order, note, remark) is kept."""
    import json

    from recipes.common.many_runs.ledger import beside_the_yaml, entry_of
    from recipes.common.tools.folder import write_json

    entry = entry_of(args.runs, args.config, args.title, args.command or "")
    more = beside_the_yaml(entry, args.config)
    if more and not args.command:
        said = ", ".join(f"{name} {value}" for name, value in more.items())
        raise ValueError(f"the runs set {said} beside the YAML: give --command as a reader would repeat it.")
    seeds = ["--seeds", *map(str, entry["seeds"])]
    entry["command"] = args.command or shlex.join(["python", "scripts/seeds.py", "--config", str(args.config), *seeds])
    kept = json.loads(args.output.read_text(encoding="utf-8")) if args.output.is_file() else {}
    kept.pop("not_run", None)
    write_json(args.output, {**kept, **entry})
    print(f"Saved {args.output}; name it in results/RESULTS.md.in and run `python scripts/ledger.py render`.")


def render() -> None:
    from recipes.common.many_runs.ledger import ROOT, read_entries
    from recipes.common.many_runs.ledger_pages import render_readme, render_results
    from recipes.common.tools.folder import write_whole

    entries = read_entries(ROOT / "results")
    template = (ROOT / "results" / "RESULTS.md.in").read_text(encoding="utf-8")
    readme = ROOT / "README.md"
    write_whole(ROOT / "RESULTS.md", render_results(template, entries))
    write_whole(readme, render_readme(readme.read_text(encoding="utf-8"), entries))
    print("Generated RESULTS.md and the table in README.md.")


if __name__ == "__main__":
    main()
