"""The rules that read a validation curve, on simulated curves with a known truth: two tables of results/.

    python scripts/benchmarks/curves.py     # writes results/stopping.json and results/verdict_cases.json; minutes

A curve: each of `n` rows is right at step 0 by chance. At each evaluation a share of the rows draws its luck anew
(none: rows change once and stay so; all: rows are coins), and a quarter of the rows or more has another outcome than at
step 0, so split over right and wrong rows that the true gain is exactly as given. Seed 0.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
LOOKS = 50
CURVES = 1_000
OTHERS = {
    "each": "a test at each",
    "product": "a product of evidence",
    "end": "one test at the end",
}
A_CASE = 200  # curves of a case of the verdict
REDRAWN = {"change once": 0.0, "stick": 0.1, "are coins": 1.0}


def simulate(
    random: np.random.Generator, n: int, gains: list[float], redrawn: float, start: float = 0.5
) -> np.ndarray:
    """The outcomes of `n` rows at step 0 and at the evaluations that have these true gains: (evaluations + 1, n)."""
    first, luck = random.random(n) < start, random.random(n)
    curve = [first]
    for gain in gains:
        luck = np.where(random.random(n) < redrawn, random.random(n), luck)
        changed = max(0.25, abs(gain))
        chance = np.where(first, (changed - gain) / 2 / start, (changed + gain) / 2 / (1 - start))
        curve.append(first ^ (luck < chance))
    return np.array(curve)


def stopping_table() -> tuple[list[str], list[list[str]]]:
    """How often `min_gain` stops a run within fifty evaluations, next to rules that do not hold, and to a last test."""
    from scipy.stats import binom

    from recipes.common.training.stopping import EARLY, ENOUGH, evidence_against_gain

    k = np.arange(1, LOOKS + 1)
    weights = EARLY / ((k + EARLY - 1) * (k + EARLY))

    def line(rows: str, n: int, gain: float, min_gain: float) -> list[str]:
        random, others, at = np.random.default_rng(0), Counter(), []
        for _ in range(CURVES):
            curve = simulate(random, n, [gain] * LOOKS, REDRAWN[rows])
            won, lost = (curve[1:] & ~curve[0]).sum(1), (~curve[1:] & curve[0]).sum(1)
            counts = list(zip(won.tolist(), lost.tolist(), [n] * LOOKS, strict=True))
            evidence = evidence_against_gain(counts, min_gain)
            if evidence[-1] >= ENOUGH:
                at.append(int((evidence < ENOUGH).sum()) + 1)
            if min_gain == 0:
                p = binom.cdf(won, won + lost, 0.5)  # of a fall; 1.0 where no row changed
                others["each"] += (p < 0.05).any()
                others["end"] += p[-1] < 0.05
                product = np.cumsum(np.log(np.diff(evidence, prepend=0.0) / weights))
                others["product"] += (product >= np.log(ENOUGH)).any()
        truth = "false" if gain >= min_gain else "right"
        shares = [
            f"{100 * count / CURVES:.1f} %"
            for count in (len(at), *(others[name] for name in OTHERS))
        ]
        when = f"{np.median(at):g}" if at else ""
        cells = [
            f"{n}, that {rows}",
            f"{100 * gain:+g}",
            f"{100 * min_gain:g}",
            truth,
            shares[0],
            when,
        ]
        return cells + (shares[1:] if min_gain == 0 else [""] * len(OTHERS))

    cases = [(rows, n, 0.0, 0.0) for rows in REDRAWN for n in (160, 1000)]
    cases += [
        ("stick", n, gain, 0.0)
        for n, gain in ((160, -0.05), (160, -0.115), (160, -0.2), (817, -0.05))
    ]
    cases += [("stick", 160, 0.1, 0.1), ("stick", 1000, 0.05, 0.05)]
    cases += [
        ("stick", 160, 0.0, 0.1),
        ("stick", 160, 0.0, 0.2),
        ("stick", 1000, 0.0, 0.05),
        ("stick", 1000, 0.0, 0.1),
    ]
    columns = [
        "rows",
        "true gain, points",
        "min_gain, points",
        "a stop is",
        "stopped by the rule",
        "at, median",
    ]
    return [*columns, *OTHERS.values()], [line(*case) for case in cases]


class Case(NamedTuple):
    """A kind of run: its true verdict, the rise of its reward, its true gains by evaluation, and its noise."""

    truth: str
    rise: float
    gains: list[float]
    noise: str = "normal"
    n: int = 160
    start: float = 0.4


def _line(end: float, points: int = 10) -> list[float]:
    return [end * k / points for k in range(1, points + 1)]


CASES = {
    "learns: 20 points": Case("rose together", 1.0, _line(0.2)),
    "learns: 8 points, too few to show": Case("rose together", 1.0, _line(0.08)),
    "the same with 800 rows": Case("rose together", 1.0, _line(0.08), n=800),
    "the reward is farmed: 30 points lost": Case("diverged", 1.0, _line(-0.3)),
    "the reward is farmed, 15 rows, all lost": Case(
        "diverged", 1.0, _line(-0.97), n=15, start=0.98
    ),
    "the reward is learnt, no skill": Case("reward alone", 1.0, [0.0] * 10),
    "learns 30 points, and loses 25": Case(
        "accuracy fell", 1.0, _line(0.3, 5) + [0.3 - 0.05 * k for k in range(1, 6)]
    ),
    "random reward, nothing changes": Case("nothing moved", 0.0, [0.0] * 10),
    "random reward, heavy tails": Case("nothing moved", 0.0, [0.0] * 10, noise="heavy tails"),
    "random reward, noise that lasts": Case("nothing moved", 0.0, [0.0] * 10, noise="lasts"),
    "random reward, 20 points lost": Case("accuracy fell", 0.0, _line(-0.2)),
    "random reward, 20 points gained": Case("accuracy alone", 0.0, _line(0.2)),
}


def simulate_rewards(
    random: np.random.Generator, case: Case, steps: int = 60
) -> list[dict[str, Any]]:
    """A log of steps whose reward rises in a line, with noise of a standard deviation of about 0.5."""
    noise = (
        random.standard_t(3, steps) / 3
        if case.noise == "heavy tails"
        else random.normal(0.0, 0.5, steps)
    )
    for step in range(1, steps if case.noise == "lasts" else 1):
        noise[step] = 0.5 * noise[step - 1] + 0.75**0.5 * noise[step]
    rewards = case.rise * np.arange(steps) / steps + noise
    return [{"step": step, "reward": float(reward)} for step, reward in enumerate(rewards, start=1)]


def verdict_table() -> tuple[list[str], list[list[str]]]:
    """The rule's answers next to the truth; "learning" is the answer *rose together*."""
    from recipes.common.report.verdict import TOGETHER, verdict

    lines = []
    for name, case in CASES.items():
        random, answers = np.random.default_rng(0), Counter()
        for _ in range(A_CASE):
            curve = simulate(random, case.n, case.gains, 0.1, case.start)
            points = [
                {"step": 6 * k, "metrics": {"right": row.tolist()}} for k, row in enumerate(curve)
            ]
            answers[verdict(simulate_rewards(random, case), points).name] += 1
        others = ", ".join(
            f"{other} {count}" for other, count in answers.most_common() if other != case.truth
        )
        lines.append([name, case.truth, str(answers[case.truth]), str(answers[TOGETHER]), others])
    return ["run", "truth", f"right, of {A_CASE}", "called learning", "other answers"], lines


def write_tables(script: Path, tables: dict[str, tuple[str, int, Callable]]) -> None:
    """Print tables, each given as name -> title, order and what returns it, and write their entries of the ledger."""
    from recipes.common.utils.machine import versions
    from recipes.common.utils.run_files import read_json, write_json
    from recipes.common.utils.tables import format_table

    machine = versions()  # before anything is written, which would be an uncommitted change
    changed = " with uncommitted changes" if machine["uncommitted_changes"] else ""
    entry = {
        "command": f"python {script.resolve().relative_to(ROOT)}",
        "hardware": machine["hardware"],
    }
    entry["commit"] = (machine["commit"] or "unknown")[:7] + changed
    for name, (title, order, make) in tables.items():
        columns, rows = make()
        file = ROOT / "results" / f"{name}.json"
        new = {"title": title, "order": order, **entry, "columns": columns, "rows": rows}
        write_json(file, {**read_json(file, {}), **new})
        print(f"{title}\n{format_table([dict(zip(columns, row, strict=True)) for row in rows])}")


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    tables = {"verdict_cases": ("the verdict on simulated curves", 118, verdict_table)}
    write_tables(
        Path(__file__),
        tables | {"stopping": ("stopping rules on simulated curves", 117, stopping_table)},
    )


if __name__ == "__main__":
    main()
