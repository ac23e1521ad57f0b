"""Plain text tables and figures for people."""

from typing import Any

# What people read for a metric; files, logs and YAML keep its short name.
WORDS = {
    "strict": "correct in format",
    "lenient": "correct answer",
    "format": "asked format",
    "hidden": "hidden tests",
}


def in_words(metric: str) -> str:
    """The name of a metric in a reader's words; a task in front of it stays.

    >>> in_words("strict"), in_words("math lenient"), in_words("prose")
    ('correct in format', 'math: correct answer', 'prose')
    """
    task, _, name = metric.rpartition(" ")
    words = WORDS.get(name)
    if words is None:
        return metric
    return f"{task}: {words}" if task else words


def format_table(table: list[dict[str, Any]]) -> str:
    """The table as text with aligned columns; None is shown as a dash.

    >>> print(format_table([{"task": "math", "full": 1.0}, {"task": "code", "full": None}]))
      task  full
      math  1.0
      code  -
    """
    names = list(table[0]) if table else []
    lines = [names]
    for row in table:
        lines.append(["-" if row[name] is None else str(row[name]) for name in names])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [map(str.ljust, line, widths) for line in lines]
    return "\n".join(f"  {'  '.join(cells).rstrip()}" for cells in padded)


def percent(share: float | None, digits: int = 1) -> str:
    """The share in percent; a dash for None.

    >>> percent(0.421), percent(None)
    ('42.1 %', '-')
    """
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def share_and_span(share: float, interval: tuple[float, float]) -> str:
    """A share with its interval in brackets.

    >>> share_and_span(0.421, (0.377, 0.465))
    '42.1 % (38-46)'
    """
    return f"{percent(share)} ({100 * interval[0]:.0f}-{100 * interval[1]:.0f})"


def p_value(p: float) -> str:
    """Two digits of a p-value, three from 0.01 on: 0.0501 is not 0.05.

    >>> p_value(0.0501), p_value(3.42e-24), p_value(1.0)
    ('0.0501', '3.4e-24', '1')
    """
    return f"{p:.2g}" if p < 0.01 else f"{p:.3g}"


def points(change: float, interval: tuple[float, float] | None = None) -> str:
    """A change of a share in percentage points, with its interval if there is one.

    >>> points(0.194, (0.12, 0.27)), points(-0.05)
    ('+19.4 pt (+12 to +27)', '-5.0 pt')
    >>> points(46 / 160), points(0.65 - 0.3625)  # 0.2875, and a little more
    ('+28.8 pt', '+28.8 pt')
    """
    within = f" ({100 * interval[0]:+.0f} to {100 * interval[1]:+.0f})" if interval else ""
    exact = round(100 * change, 9)  # else 28.75 rounds up or down by its floating-point error
    return f"{exact:+.1f} pt{within}"
