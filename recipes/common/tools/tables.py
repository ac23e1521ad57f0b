"""Plain text tables and figures for people."""

from typing import Any


def format_table(table: list[dict[str, Any]]) -> str:
    """Plain text columns, as wide as their widest cell; None is a dash."""
    names = list(table[0]) if table else []
    cells = [names] + [["-" if row[name] is None else str(row[name]) for name in names] for row in table]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def percent(share: float | None, digits: int = 1) -> str:
    """Example: `percent(0.421) == "42.1 %"`; without a value a dash."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def span(interval: tuple[float, float]) -> str:
    """Example: `span((0.377, 0.465)) == "38 to 46 %"`"""
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"


def points(change: float, interval: tuple[float, float]) -> str:
    """Example: `points(0.194, (0.12, 0.27)) == "+19.4 pt (+12 to +27)"`"""
    return f"{100 * change:+.1f} pt ({100 * interval[0]:+.0f} to {100 * interval[1]:+.0f})"
