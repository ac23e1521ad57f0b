"""Which rows of a probe to keep, by how often each was solved.

A row's pass rate is the share of its completions that are right: every verifier that scored one
scored it in full. Rows never or always solved teach nothing through a verifier: their groups have
no spread. Rows of a task without a verifier have no pass rate, and are kept.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from recipes.common.sampling.probe import FIGURES, ROWS, check_files
from recipes.common.utils.run_files import read_json, read_rows, write_json, write_rows
from recipes.common.utils.tables import format_table

PLACES = ("never", "below", "in the band", "above", "always", "not scored", "no verifier")
KEPT = ("in the band", "no verifier")


def place_of(rate: float | None, has_verifier: bool, low: float, high: float) -> str:
    """Tell where a pass rate stands, one of `PLACES`; the band includes `low` and `high`."""
    if not has_verifier:
        return "no verifier"
    if rate is None:
        return "not scored"
    if rate in (0.0, 1.0):
        return "always" if rate else "never"
    if low <= rate <= high:
        return "in the band"
    return "below" if rate < low else "above"


def verified_tasks(folder: Path, found: dict[str, Any]) -> set[str]:
    """The tasks that a verifier scores; ValueError where there is none, or none is told."""
    if "rows" not in found:
        again = f"scripts/probe.py --replay {folder} --output ANOTHER"
        raise ValueError(
            f"{folder} was written before probes kept what became of each row: score it again, "
            f"{again}."
        )
    kinds = {
        task: {name: line["kind"] for name, line in of_task["rewards"].items()}
        for task, of_task in found["tasks"].items()
    }
    verified = {task for task, of_task in kinds.items() if "verifier" in of_task.values()}
    if not verified:
        names = ", ".join(dict.fromkeys(name for of_task in kinds.values() for name in of_task))
        raise ValueError(
            f"none of the rewards {names} is a verifier, so it is not known which rows are solved."
        )
    return verified


def filter_rows(probe: Path, low: float, high: float, out: Path) -> str:
    """Write the rows with a pass rate in the band; ValueError where none is left."""
    check_files("--probe", probe, ROWS, FIGURES)
    found, rows = read_json(probe / FIGURES), read_rows(probe / ROWS)
    verified = verified_tasks(probe, found)
    rates = []
    for number, row in enumerate(found["rows"]):
        task, rate = row["task"], row["pass_rate"]
        place = place_of(rate, task in verified, low, high)
        rates.append({"row": number, "task": task, "pass_rate": rate, "place": place})
    kept = [row["row"] for row in rates if row["place"] in KEPT]
    lines = []
    for task in sorted({row["task"] for row in rates}):
        of_task = [row["place"] for row in rates if row["task"] == task]
        counts = {name: of_task.count(name) for name in PLACES}
        lines.append({"task": task, "rows": len(of_task), **counts})
    counted = format_table(lines)
    if not kept:
        remedy = "Widen the band, probe more rows, or take easier ones."
        raise ValueError(f"no row is left between {low:g} and {high:g}:\n{counted}\n{remedy}")
    groups = found["groups_a_step"]
    after = groups * fmean(found["rows"][row]["useful"] for row in kept)
    useful = {"before": found["useful_a_step"], "after": after}
    write_rows(out / ROWS, [rows[row] for row in kept])
    write_rows(out / "pass_rates.jsonl", rates)
    record = {"probe": str(probe), "low": low, "high": high, "kept": len(kept)}
    write_json(out / "filter.json", {**record, "useful_a_step": useful})
    return (
        f"{counted}\n  Useful groups of the {groups:g} in a step: "
        f"{useful['before']:.2f} with all {len(rates)} rows, {after:.2f} with the "
        f"{len(kept)} that are kept (in this probe: their next samples will do worse).\n"
        f"  Train on them: --only_rows {out / ROWS}"
    )
