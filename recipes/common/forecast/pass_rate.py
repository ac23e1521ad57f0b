"""How often each row was solved in a probe, and which rows to keep for it.

A completion is solved where every verifier that scored it paid in full, as on a run's report page; one that none could
score counts for nothing. A row's pass rate is the share of its completions that are solved. Rows never or always solved
teach nothing through a verifier: their groups have no spread. Rows of a task without a verifier have no pass rate, and
are kept.
"""

from typing import Any

from recipes.common.forecast.learning import Column, Scored, is_hit

PLACES = ("never", "below", "in the band", "above", "always", "not judged", "no verifier")
KEPT = ("in the band", "no verifier")


def is_solved(scored: Scored, columns: list[Column]) -> bool | None:
    """Whether every verifier that scored the completion paid in full; None where none could."""
    if scored.failed:  # void in training as well
        return None
    verdicts = [
        is_hit(scored.paid[c.name], c.full) for c in columns if c.kind == "verifier" and scored.paid[c.name] is not None
    ]
    return all(verdicts) if verdicts else None


def pass_rates(scored: list[Scored], columns: list[Column]) -> dict[int, float | None]:
    """Row -> share of its completions that are solved; None where none of them was judged.

    Example: four completions of row 0 of which one is solved, and one could not be graded: `{0: 1 / 3}`
    """
    verdicts: dict[int, list[bool]] = {}
    for completion in scored:
        known = verdicts.setdefault(completion.group, [])
        solved = is_solved(completion, columns)
        known += [] if solved is None else [solved]
    return {row: sum(known) / len(known) if known else None for row, known in verdicts.items()}


def place_of(rate: float | None, has_verifier: bool, low: float, high: float) -> str:
    """Where a row stands: one of `PLACES`; the band is from `low` to `high`, both included."""
    if not has_verifier:
        return "no verifier"
    if rate is None:
        return "not judged"
    if rate in (0.0, 1.0):
        return "always" if rate else "never"
    return "below" if rate < low else "above" if rate > high else "in the band"


def tasks_with_a_verifier(scored: list[Scored], columns: list[Column]) -> set[str]:
    """The tasks of which some completion was paid, or failed, by a verifier."""
    names = {column.name for column in columns if column.kind == "verifier"}
    return {s.task for s in scored if names & set(s.failed) or any(s.paid[name] is not None for name in names)}


def place_rows(scored: list[Scored], columns: list[Column], low: float, high: float) -> dict[int, dict[str, Any]]:
    """Row -> its task, pass rate and place."""
    judged, tasks = tasks_with_a_verifier(scored, columns), {s.group: s.task for s in scored}
    rates = pass_rates(scored, columns)
    return {
        row: {"task": task, "pass_rate": rates[row], "place": place_of(rates[row], task in judged, low, high)}
        for row, task in tasks.items()
    }
