"""Scoring the rows of a batch one by one, so that a row that cannot be graded costs that row alone."""

import math
from collections.abc import Callable

LogExtra = Callable[[str, list], None]
LogMetric = Callable[[str, float], None]


def score_rows(
    name: str, scorer: Callable[..., float | None], *columns: list, log_extra: LogExtra | None = None
) -> list[float | None]:
    """`scorer(*row)` of every row; a row on which it raises, or pays what is not finite, gets None.

    Logs the column `outcome/<name>`: `graded`; `unparsed` where the scorer says None (its gold is unusable);
    `error: ...` where it failed. The trainer counts `unparsed/<name>` and `errors/<name>` from it.

    Example: `score_rows("inverse", lambda n: 1 / n, [2, 0]) == [0.5, None]`
    """
    judged = [_score(scorer, row) for row in zip(*columns, strict=True)]
    if log_extra is not None:
        log_extra(f"outcome/{name}", [outcome for _, outcome in judged])
    return [amount for amount, _ in judged]


def log_answers(name: str, golds: list, parsed: list, log_extra: LogExtra | None) -> None:
    """Log the columns `gold/<name>` and `parsed/<name>`: what was wanted, and what was read in the completion, as text.

    One column for each reward, since TRL would join what two rewards log under one name.

    Example: `log_answers("mine", ["18"], [None], columns.__setitem__)` sets `gold/mine` to `["18"]` and `parsed/mine`
    to `[None]`.
    """
    if log_extra is not None:
        log_extra(f"gold/{name}", [_text(value) for value in golds])
        log_extra(f"parsed/{name}", [_text(value) for value in parsed])


def _text(value: object) -> str | None:
    """Text, so that a column has one type: TRL writes it to a parquet file."""
    return value if value is None else str(value)


def _score(scorer: Callable[..., float | None], row: tuple) -> tuple[float | None, str]:
    try:
        amount = scorer(*row)
        if amount is not None and not math.isfinite(amount):
            raise ValueError(f"it paid {amount}")
    except Exception as error:  # our bug or a broken row, never the model's fault: it is counted, and not paid
        return None, f"error: {type(error).__name__}: {error}"
    return amount, "unparsed" if amount is None else "graded"
