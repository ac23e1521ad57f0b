"""How often each row was solved in a probe, and which rows to keep for it.

A row's pass rate is the share of its completions that are right: every verifier that scored one
scored it in full. Rows never or always solved teach nothing through a verifier: their groups have
no spread. Rows of a task without a verifier have no pass rate, and are kept.
"""

from pathlib import Path
from typing import Any

from recipes.common.sampling.learning import Column, Scored, figures, right_by_group
from recipes.common.sampling.probe import COMPLETIONS, FIGURES, ROWS, check_files
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


def place_rows(
    scored: list[Scored], columns: list[Column], low: float, high: float
) -> dict[int, dict[str, Any]]:
    """Row -> its task, pass rate and place.

    The pass rate is the share of a row's completions that are right, None where none could be
    scored.
    """
    names = {column.name for column in columns if column.kind == "verifier"}
    verified = set()
    for one in scored:
        given = {name for name, amount in one.scores.items() if amount is not None}
        if names & {*one.failed, *given}:
            verified.add(one.task)
    tasks, places = {one.group: one.task for one in scored}, {}
    for row, right in right_by_group(scored, columns).items():
        rate = sum(right) / len(right) if right else None
        place = place_of(rate, tasks[row] in verified, low, high)
        places[row] = {"task": tasks[row], "pass_rate": rate, "place": place}
    return places


def read_probe(folder: Path) -> tuple[dict[str, Any], list[Column], list[dict], list[Scored]]:
    """Read figures, rewards, rows and scored completions; ValueError for what is missing."""
    check_files("--probe", folder, ROWS, COMPLETIONS, FIGURES)
    found = read_json(folder / FIGURES)
    if "columns" not in found:
        again = f"scripts/probe.py --replay {folder} --output ANOTHER"
        raise ValueError(
            f"{folder} was written before probes kept what their rewards are: score it again, "
            f"{again}."
        )
    columns = [Column(**{**column, "gates": tuple(column["gates"])}) for column in found["columns"]]
    if not any(column.kind == "verifier" for column in columns):
        names = ", ".join(column.name for column in columns)
        raise ValueError(
            f"none of the rewards {names} is a verifier, so it is not known which rows are solved."
        )
    rows, scored = read_rows(folder / ROWS), []
    for line in read_rows(folder / COMPLETIONS):
        sizes = line["row"], rows[line["row"]]["task"], line["tokens"], line["truncated"]
        scored.append(Scored(*sizes, line["rewards"], tuple(line["failed"]), line.get("steps", {})))
    return found, columns, rows, scored


def filter_rows(probe: Path, low: float, high: float, out: Path) -> str:
    """Write the rows with a pass rate in the band; ValueError where none is left."""
    found, columns, rows, scored = read_probe(probe)
    places = place_rows(scored, columns, low, high)
    kept = [row for row in sorted(places) if places[row]["place"] in KEPT]
    lines = []
    for task in sorted({place["task"] for place in places.values()}):
        of_task = [place["place"] for place in places.values() if place["task"] == task]
        counts = {name: of_task.count(name) for name in PLACES}
        lines.append({"task": task, "rows": len(of_task), **counts})
    counted = format_table(lines)
    if not kept:
        remedy = "Widen the band, probe more rows, or take easier ones."
        raise ValueError(f"no row is left between {low:g} and {high:g}:\n{counted}\n{remedy}")
    names = ("groups_a_step", "max_completion_length", "mask_truncated_completions")
    sizes = [found[name] for name in names]
    before = figures(scored, columns, *sizes)
    after = figures([one for one in scored if one.group in kept], columns, *sizes)
    write_rows(out / ROWS, [rows[row] for row in kept])
    write_rows(out / "pass_rates.jsonl", [{"row": row, **places[row]} for row in sorted(places)])
    useful = {"before": before.useful_a_step, "after": after.useful_a_step}
    record = {"probe": str(probe), "low": low, "high": high, "kept": len(kept)}
    write_json(out / "filter.json", {**record, "useful_a_step": useful})
    return (
        f"{counted}\n  Useful groups of the {before.groups_a_step:g} in a step: "
        f"{useful['before']:.2f} with all {before.groups} rows, {useful['after']:.2f} with the "
        f"{len(kept)} that are kept (in this probe: their next samples will do worse).\n"
        f"  Train on them: --only_rows {out / ROWS}"
    )
