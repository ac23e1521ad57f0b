"""Report an audit: a table for a reader, failures and notes in words."""

from collections.abc import Callable

from rewards.audit.audit import Audit
from rewards.contract import farmable, reward_name


def report(result: Audit, rewards: list[Callable]) -> str:
    """The table trick x reward, then failures and notes in words, and which rewards are farmable by design."""
    farmed = [f"{reward_name(reward)}: {farmable(reward)}" for reward in rewards if farmable(reward)]
    lines = [*_table(result.scores), "", *(f"  Note: {note}" for note in dict.fromkeys(result.notes))]
    lines += [f"  Farmable by design: {how}" for how in farmed or ["none of these rewards."]]
    count = len(result.failures)
    lines.append(f"\n{count} failure{'s' * (count > 1)}:" if count else "  No reward gives more than it may.")
    return "\n".join(lines + [f"  - {text}" for text in result.failures])


def _table(scores: dict[str, dict[str, float | None]]) -> list[str]:
    tricks = dict.fromkeys(trick for column in scores.values() for trick in column)
    cells = [["trick", *scores]]
    for trick in tricks:
        found = [column.get(trick) for column in scores.values()]
        cells.append([trick, *("-" if value is None else str(round(value, 4)) for value in found)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
