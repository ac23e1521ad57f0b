"""How small a change can an evaluation show? The power of the tests by which runs are compared.

Rows: the two-sided exact McNemar test at 5 %, over the binomial number of rows that change. A probe tells how many
change; without one a quarter is assumed, as in the published quickstart (119 of 480). Seeds: Student's t test at 5 %.
"""

import math
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from recipes.common.utils.run_files import read_json
from recipes.common.utils.tables import percent

PROBE_FIGURES = "figures.json"
POWER = 0.8
LEVEL = 0.05
A_QUARTER = 0.25
MOST_ROWS = 1_000_000
MOST_SEEDS = 1_000


def mcnemar_power(n: int, change: float, changed: float = A_QUARTER) -> float:
    """The chance that `n` paired rows show a change of a share, if `changed` of them have another outcome afterwards.

    At least as many rows change as the share does.

    >>> round(mcnemar_power(160, 0.11), 2), mcnemar_power(5, 1.0, 1.0)  # five rows never show anything
    (0.77, 0.0)
    """
    from scipy.special import bdtr, gammaln

    changed = min(1.0, max(changed, abs(change)))
    if not changed:
        return 0.0
    spread = (
        8 * math.sqrt(n * changed * (1 - changed)) + 1
    )  # what lies outside has a chance below 1e-14
    rows = np.arange(
        max(1, math.floor(n * changed - spread)), min(n, math.ceil(n * changed + spread)) + 1
    )
    choices = gammaln(n + 1) - gammaln(rows + 1) - gammaln(n - rows + 1)
    unchanged = (
        (n - rows) * math.log(1 - changed) if changed < 1 else np.where(rows == n, 0.0, -np.inf)
    )
    chance = np.exp(choices + rows * math.log(changed) + unchanged)
    most, share_won = _most_lost(rows), 0.5 + abs(change) / changed / 2
    shown = bdtr(np.maximum(most, 0), rows, 1 - share_won) + bdtr(
        np.maximum(most, 0), rows, share_won
    )
    return float((chance * shown)[most >= 0].sum())


def _most_lost(rows: np.ndarray) -> np.ndarray:
    """How many of so many changed rows may be lost at most where McNemar's p is to stay within 5 %; -1 for none."""
    from scipy.special import bdtr

    most = np.floor((rows - 1) / 2 - 0.98 * np.sqrt(rows)) + 1  # right or one too many
    return most - (bdtr(np.maximum(most, 0), rows, 0.5) > LEVEL / 2)


def smallest_change(n: int, changed: float = A_QUARTER, power: float = POWER) -> float | None:
    """The smallest change of a share that `n` paired rows show with this power; None where they show none.

    >>> round(smallest_change(160), 3), smallest_change(5)
    (0.114, None)
    """
    if mcnemar_power(n, 1.0, 1.0) < power:
        return None
    low, high = 0.0, 1.0
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if mcnemar_power(n, middle, changed) >= power else (middle, high)
    return high


def rows_needed(change: float, changed: float = A_QUARTER, power: float = POWER) -> int:
    """How many paired rows show a change of a share by `change` with this power; ValueError where a million do not.

    >>> rows_needed(0.11), rows_needed(0.05)
    (171, 817)
    """
    few, many = 1, 2
    while mcnemar_power(many, change, changed) < power:
        few, many = many, 2 * many
        if many > MOST_ROWS:
            raise ValueError(
                f"a change of {100 * change:g} points takes more than {MOST_ROWS} held-out rows to show."
            )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (
            (few, middle) if mcnemar_power(middle, change, changed) >= power else (middle, many)
        )
    return many


def expected_to_change(config: str | None, model: str) -> tuple[float, str]:
    """The share of the rows that may change, with words for it: from a probe of this YAML and model, or a quarter."""
    folder = Path(
        "runs", f"probe-{Path(config or '').stem}"
    )  # where scripts/probe.py keeps it by default
    found = read_json(folder / PROBE_FIGURES, {})
    of = (found.get("config"), found.get("sampling", {}).get("model_name_or_path"))
    if found.get("changed") is None or of != (str(Path(config or "")), model):
        return A_QUARTER, "if a quarter of the rows change"
    same = "as often as two samples of a prompt differ"
    return found[
        "changed"
    ], f"if {percent(found['changed'], 0)} of the rows change, {same} in {folder}"


def power_line(n: int, changed: float, condition: str, power: float = POWER) -> str:
    """Say which change `n` held-out rows show.

    >>> power_line(160, 0.25, "if a quarter of the rows change")
    '160 held-out rows show a change of 11.4 points or more (80 % power, if a quarter of the rows change)'
    """
    least, given = smallest_change(n, changed, power), f"({percent(power, 0)} power, {condition})"
    if least is None:
        return f"{n} held-out rows show no change, however large {given}"
    return f"{n} held-out rows show a change of {100 * least:.1f} points or more {given}"


def seeds_needed(differences: list[float], power: float = POWER) -> int | None:
    """How many seeds would show a mean difference as large as that of these few, at their spread; None above 1 000.

    >>> seeds_needed([1.0, 2.0, 3.0]), seeds_needed([-1.0, 1.0])
    (5, None)
    """
    from scipy.stats import nct, t

    effect = abs(mean(differences)) / stdev(differences)
    for n in range(2, MOST_SEEDS + 1):
        limit = t.ppf(1 - LEVEL / 2, n - 1)
        if (
            nct.sf(limit, n - 1, effect * math.sqrt(n))
            + nct.cdf(-limit, n - 1, effect * math.sqrt(n))
            >= power
        ):
            return n
    return None
