"""How often each row was solved in a probe, and which rows to keep for it.

A completion is solved where every verifier that scored it scored in full, as on a run's report page; one that none
could score counts for nothing. A row's pass rate is the share of its completions that are solved. Rows never or always
solved teach nothing through a verifier: their groups have no spread. Rows of a task without a verifier have no pass
rate, and are kept.
"""

from pathlib import Path
from typing import Any, NamedTuple

from recipes.common.sampling.learning import Column, Scored, figures, is_hit
from recipes.common.sampling.sample import COMPLETIONS, FIGURES, ROWS
from recipes.common.utils.run_files import read_json, read_rows, write_json, write_rows
from recipes.common.utils.tables import format_table

PLACES = ("never", "below", "in the band", "above", "always", "not scored", "no verifier")
KEPT = ("in the band", "no verifier")


class Place(NamedTuple):
    """A row: `place` is one of `PLACES`."""

    task: str
    pass_rate: float | None
    place: str


def pass_rates(scored: list[Scored], columns: list[Column]) -> dict[int, float | None]:
    """Row -> share of its completions that are solved; None where none of them could be scored."""
    solved: dict[int, list[bool]] = {}
    for one in scored:
        known = solved.setdefault(one.group, [])
        verifiers = [c for c in columns if c.kind == "verifier" and one.scores[c.name] is not None]
        if verifiers and not one.failed:  # what one reward failed on is void in training as well
            known.append(all(is_hit(one.scores[c.name], c.full) for c in verifiers))
    return {row: sum(known) / len(known) if known else None for row, known in solved.items()}


def place_of(rate: float | None, has_verifier: bool, low: float, high: float) -> str:
    """One of `PLACES`; the band is from `low` to `high`, both included."""
    if rate is None or not has_verifier:
        return "not scored" if has_verifier else "no verifier"
    if rate in (0.0, 1.0):
        return "always" if rate else "never"
    return "below" if rate < low else "above" if rate > high else "in the band"


def place_rows(
    scored: list[Scored], columns: list[Column], low: float, high: float
) -> dict[int, Place]:
    """Row -> its place; a task has a verifier where one scored, or failed on, some completion of it."""
    names = {column.name for column in columns if column.kind == "verifier"}
    verified = {
        s.task
        for s in scored
        if names & {*s.failed, *(n for n, a in s.scores.items() if a is not None)}
    }
    tasks, rates = {s.group: s.task for s in scored}, pass_rates(scored, columns)
    places = {row: place_of(rates[row], task in verified, low, high) for row, task in tasks.items()}
    return {row: Place(task, rates[row], places[row]) for row, task in tasks.items()}


def read_probe(
    folder: Path,
) -> tuple[dict[str, Any], list[Column], list[dict[str, Any]], list[Scored]]:
    """Read figures, rewards, rows and scored completions of a probe; `ValueError` where one of them is missing."""
    missing = [name for name in (ROWS, COMPLETIONS, FIGURES) if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"--probe {folder} has no {', '.join(missing)}: give the output folder of scripts/probe.py."
        )
    found = read_json(folder / FIGURES)
    if "columns" not in found:
        again = f"scripts/probe.py --replay {folder} --output ANOTHER"
        raise ValueError(
            f"{folder} was written before probes kept what their rewards are: score it again, {again}."
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
    """Write the rows with a pass rate in the band, and return the report; `ValueError` where none is left."""
    found, columns, rows, scored = read_probe(probe)
    places = place_rows(scored, columns, low, high)
    kept = [row for row in sorted(places) if places[row].place in KEPT]
    tasks = sorted({place.task for place in places.values()})
    of_task = {
        task: [place.place for place in places.values() if place.task == task] for task in tasks
    }
    lines = [
        {"task": t, "rows": len(of), **{name: of.count(name) for name in PLACES}}
        for t, of in of_task.items()
    ]
    counts = format_table(lines)
    if not kept:
        remedy = "Widen the band, probe more rows, or take easier ones."
        raise ValueError(f"no row is left between {low:g} and {high:g}:\n{counts}\n{remedy}")
    sizes = [
        found[name]
        for name in ("groups_a_step", "max_completion_length", "mask_truncated_completions")
    ]
    left = [one for one in scored if places[one.group].place in KEPT]
    before, after = (figures(some, columns, *sizes) for some in (scored, left))
    write_rows(out / ROWS, [rows[row] for row in kept])
    write_rows(
        out / "pass_rates.jsonl", [{"row": row, **places[row]._asdict()} for row in sorted(places)]
    )
    useful = {"before": before.useful_a_step, "after": after.useful_a_step}
    record = {
        "probe": str(probe),
        "low": low,
        "high": high,
        "kept": len(kept),
        "useful_a_step": useful,
    }
    write_json(out / "filter.json", record)
    return (
        f"{counts}\n  Useful groups of the {before.groups_a_step:g} in a step: {useful['before']:.2f} with "
        f"all {before.groups} rows, {useful['after']:.2f} with the {len(kept)} that are kept (in this probe: "
        f"their next samples will do worse).\n  Train on them: --only_rows {out / ROWS}"
    )
