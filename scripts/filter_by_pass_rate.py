"""Keep the rows that are worth training on: solved sometimes, in a probe of the untrained model.

    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml --prompts 400 --output runs/probe
    python scripts/filter_by_pass_rate.py --probe runs/probe --low 0.1 --high 0.9 --out data/sums-in-the-band
    accelerate launch ... recipes/arithmetic/train.py --config ... --only_rows data/sums-in-the-band/rows.jsonl

A completion counts as solved where every verifier that scored it paid in full. A row is kept where the share of its
completions that are solved lies between --low and --high; rows never or always solved are dropped in any case, rows of
a task without a verifier are kept. Only what was probed can be kept: give the probe --prompts for all rows.

The output folder holds rows.jsonl (what any recipe trains on by --only_rows, in their order), pass_rates.jsonl (every
row that was probed) and filter.json. Exit status 2 where nothing is left or something cannot be read.

*Not covered*: the pass rate changes while the model learns; few completions say little of a row (of 8, one solved is
2 to 47 % with 95 % confidence); the shares of several tasks are not kept. The rows keep the prompts of the probe, its
system prompt and worked example with them: train with the same settings, or the held-out rows are asked otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from recipes.common.forecast.learning import Column, Scored

ROWS, COMPLETIONS, FIGURES = "rows.jsonl", "completions.jsonl", "figures.json"


def filter_rows(probe: Path, low: float, high: float, out: Path) -> str:
    """Write what is kept and return what is to be said of it.

    Raises:
        ValueError: no probe there, none of its rewards is a verifier, or no row is left.
    """
    from recipes.common.forecast.learning import figures
    from recipes.common.forecast.pass_rate import KEPT, place_rows
    from recipes.common.tools.folder import write_json, write_rows

    found, columns, rows, scored = read_probe(probe)
    placed = place_rows(scored, columns, low, high)
    kept = [row for row in sorted(placed) if placed[row]["place"] in KEPT]
    counts = count_places(placed)
    if not kept:
        raise ValueError(
            f"no row is left between {low:g} and {high:g}:\n{counts}\n"
            "Widen the band, probe more rows, or take easier ones."
        )
    sizes = found["groups_a_step"], found["max_completion_length"], found["mask_truncated_completions"]
    in_band = set(kept)
    after = figures([s for s in scored if s.group in in_band], columns, *sizes)
    write_rows(out / ROWS, [rows[row] for row in kept])
    write_rows(out / "pass_rates.jsonl", [{"row": row, **placed[row]} for row in sorted(placed)])
    before = figures(scored, columns, *sizes)
    useful = {"before": before["useful_a_step"], "after": after["useful_a_step"]}
    record = {"probe": str(probe), "low": low, "high": high, "kept": len(kept), "useful_a_step": useful}
    write_json(out / "filter.json", record)
    return said(counts, len(kept), before, after, out)


def read_probe(folder: Path) -> tuple[dict[str, Any], list[Column], list[dict[str, Any]], list[Scored]]:
    """Figures, rewards, rows and scored completions of a probe.

    Raises:
        ValueError: files are missing, or the probe is of a version that did not keep what is needed.
    """
    from recipes.common.forecast.learning import Column
    from recipes.common.tools.folder import read_rows

    missing = [name for name in (ROWS, COMPLETIONS, FIGURES) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"--probe {folder} has no {', '.join(missing)}: give the output folder of scripts/probe.py.")
    found = json.loads((folder / FIGURES).read_text(encoding="utf-8"))
    if "columns" not in found:
        again = f"scripts/probe.py --replay {folder} --output ANOTHER"
        raise ValueError(f"{folder} was written before probes kept what their rewards are: score it again, {again}.")
    columns = [Column(**{**column, "gates": tuple(column["gates"])}) for column in found["columns"]]
    if not any(column.kind == "verifier" for column in columns):
        names = ", ".join(column.name for column in columns)
        raise ValueError(f"none of the rewards {names} is a verifier, so nothing says what is solved.")
    rows = read_rows(folder / ROWS)
    scored = [as_scored(line, rows[line["row"]]["task"]) for line in read_rows(folder / COMPLETIONS)]
    return found, columns, rows, scored


def as_scored(line: dict[str, Any], task: str) -> Scored:
    """A line of completions.jsonl as the probe had it."""
    from recipes.common.forecast.learning import Scored

    paid, failed, steps = line["rewards"], tuple(line["failed"]), line.get("steps", {})
    return Scored(line["row"], task, line["tokens"], line["truncated"], paid, failed, steps)


def count_places(placed: dict[int, dict[str, Any]]) -> str:
    """A line for each task: how many of its rows stand where."""
    from recipes.common.forecast.pass_rate import PLACES
    from recipes.common.tools.tables import format_table

    lines = []
    for task in sorted({row["task"] for row in placed.values()}):
        places = [row["place"] for row in placed.values() if row["task"] == task]
        lines.append({"task": task, "rows": len(places), **{place: places.count(place) for place in PLACES}})
    return format_table(lines)


def said(counts: str, kept: int, before: dict[str, Any], after: dict[str, Any], out: Path) -> str:
    """The table, the useful groups of a step before and after, and what to do next."""
    return (
        f"{counts}\n  Useful groups of the {before['groups_a_step']:g} in a step: {before['useful_a_step']:.2f} with "
        f"all {before['groups']} rows, {after['useful_a_step']:.2f} with the {kept} that are kept (in this probe: "
        f"their next samples will do worse).\n  Train on them: --only_rows {out / ROWS}"
    )


def read_options() -> argparse.Namespace:
    """The options, checked before anything slow is imported."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--probe", required=True, type=Path, help="output folder of scripts/probe.py")
    parser.add_argument("--low", type=float, default=0.1, help="least pass rate that is kept; default 0.1")
    parser.add_argument("--high", type=float, default=0.9, help="greatest pass rate that is kept; default 0.9")
    parser.add_argument("--out", required=True, type=Path, help="folder to write; it must be new or empty")
    options = parser.parse_args()
    if not 0.0 < options.low <= options.high < 1.0:
        parser.error(f"--low {options.low:g} --high {options.high:g}: they must be 0 < low <= high < 1")
    if options.out.exists() and not (options.out.is_dir() and not any(options.out.iterdir())):
        parser.error(f"--out {options.out} exists: name another folder, or remove it")
    return options


def main() -> None:
    options = read_options()
    try:
        print(filter_rows(options.probe, options.low, options.high, options.out))
    except ValueError as problem:  # said for the reader
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2) from problem


if __name__ == "__main__":
    main()
