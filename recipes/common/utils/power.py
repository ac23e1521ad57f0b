"""How small a change can an evaluation show? The power of the test that compares before and after.

The two-sided exact McNemar test at 5 %, over the binomial number of rows that change. Before a run
a quarter is assumed, as in a published quickstart (119 of 480).
"""

import numpy as np

from recipes.common.utils.tables import percent

POWER = 0.8
LEVEL = 0.05
A_QUARTER = 0.25


def mcnemar_power(n: int, change: float, changed: float = A_QUARTER) -> float:
    """The chance that `n` paired rows show a change of a share, if `changed` of them change.

    At least as many rows change as the share does.

    >>> round(mcnemar_power(160, 0.11), 2), mcnemar_power(5, 1.0, 1.0)  # five rows show nothing
    (0.77, 0.0)
    """
    from scipy.stats import binom

    changed = min(1.0, max(changed, abs(change)))
    if not changed:
        return 0.0
    rows = np.arange(1, n + 1)  # that change
    most_lost = binom.ppf(LEVEL / 2, rows, 0.5) - 1  # for McNemar's p within 5 %
    won = 0.5 + abs(change) / changed / 2
    shown = binom.cdf(most_lost, rows, 1 - won) + binom.cdf(most_lost, rows, won)
    return float(binom.pmf(rows, n, changed) @ shown)


def smallest_change(n: int, changed: float = A_QUARTER) -> float | None:
    """The smallest change of a share that `n` paired rows show in 4 of 5 cases; None for no change.

    >>> round(smallest_change(160), 3), smallest_change(5)
    (0.114, None)
    """
    if mcnemar_power(n, 1.0, 1.0) < POWER:
        return None
    low, high = 0.0, 1.0
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if mcnemar_power(n, middle, changed) >= POWER else (middle, high)
    return high


def power_line(n: int, changed: float, condition: str) -> str:
    """Say which change `n` held-out rows show.

    >>> power_line(160, 0.25, "if a quarter changes")
    '160 held-out rows show a change of 11.4 points or more (80 % power, if a quarter changes)'
    """
    least, given = smallest_change(n, changed), f"({percent(POWER, 0)} power, {condition})"
    if least is None:
        return f"{n} held-out rows show no change, however large {given}"
    return f"{n} held-out rows show a change of {100 * least:.1f} points or more {given}"
