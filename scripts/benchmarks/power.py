"""How small a change an evaluation shows, and how many seeds a published difference wants: two tables of results/.

    python scripts/benchmarks/power.py      # writes results/power.json and results/power_seeds.json; seconds

The first is exact, and checked against simulated evaluations (seed 0). The second takes the differences of the seeds
from results/process_comparison.json.
"""

import argparse
import re
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).parents[2]
ROWS, EFFECTS = (64, 160, 256, 500, 1319), (0.1, 0.08, 0.05, 0.03)
CHANGED = (0.1, 0.2, 0.25, 0.3)
DRAWS = 20_000


def rows_table() -> tuple[list[str], list[list[str]]]:
    """The change that so many rows show if so many of them change, and the power there by simulation."""
    import numpy as np
    from scipy.stats import binomtest

    from recipes.common.utils.power import LEVEL, rows_needed, smallest_change

    random, lines = np.random.default_rng(0), []
    for n in sorted({*ROWS, *(rows_needed(effect) for effect in EFFECTS)}):
        shown = {changed: smallest_change(n, changed) for changed in CHANGED}
        share_won = 0.5 + shown[0.25] / 0.25 / 2
        changed = random.binomial(n, 0.25, DRAWS)
        won, times = np.unique(
            [changed, random.binomial(changed, share_won)], axis=1, return_counts=True
        )
        found = [
            gained <= rows and rows > 0 and binomtest(gained, rows).pvalue < LEVEL
            for rows, gained in won.T
        ]
        power = sum(times[found]) / DRAWS
        lines.append(
            [str(n), *(f"{100 * change:.1f}" for change in shown.values()), f"{100 * power:.1f} %"]
        )
    columns = [f"{100 * changed:g} % change" for changed in CHANGED]
    return ["held-out rows", *columns, "power at the 25 % column, simulated"], lines


def seeds_table() -> tuple[list[str], list[list[str]]]:
    """Step rewards against the reward of the answer alone: how many seeds would show such a difference."""
    from recipes.common.utils.power import seeds_needed
    from recipes.common.utils.run_files import read_json

    def share(cell: str) -> float:
        right, scored = map(int, re.match(r"(\d+) of (\d+)", cell).groups())
        return 100 * right / scored

    of_seeds = read_json(ROOT / "results/process_comparison.json")["rows"][:-1]
    differences = {
        "right answers": [float(row[4]) for row in of_seeds],
        "right equations": [share(row[6]) - share(row[7]) for row in of_seeds],
    }
    lines = []
    for name, values in differences.items():
        needed = seeds_needed(values)
        more = max(0, needed - len(values)) if needed else "more than 1 000"
        shown = [f"{mean(values):+.1f}", f"{stdev(values):.1f}", str(needed), str(more)]
        lines.append([name, str(len(values)), *shown])
    return [
        "difference",
        "seeds",
        "mean, points",
        "spread over seeds",
        "seeds for 80 % power",
        "more",
    ], lines


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    from curves import write_tables

    tables = {"power": ("the change that held-out rows show", 116, rows_table)}
    write_tables(
        Path(__file__),
        tables | {"power_seeds": ("how many seeds a difference wants", 53, seeds_table)},
    )


if __name__ == "__main__":
    main()
