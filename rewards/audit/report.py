"""Report an audit: a table with failures and notes in words, JSON, a failed assertion."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from rewards.audit.audit import Audit, Reference, audit
from rewards.audit.tricks import LESSONS
from rewards.contract import UNDECLARED, declared, reward_kind, reward_name


def check_reward(reward: Callable, rows: list[dict], reference: Reference | str) -> None:
    """Audit a reward in a test of your own; one that declares no kind is held to be a verifier.

    Args:
        reward: a reward under TRL's contract.
        rows, reference: as of `audit`.

    Raises:
        AssertionError: with the table and the failures.
    """
    if reward_kind(reward) == UNDECLARED:
        reward.kind = "verifier"
    result = audit(rows, [reward], reference)
    if result.failures:
        raise AssertionError("the audit failed\n" + report(result, [reward]))


def report(result: Audit, rewards: list[Callable]) -> str:
    """The table trick x reward, notes and failures in words, and what is farmable by design."""
    lines = [*_table(result.scores), ""]
    lines += [f"  Note: {note}" for note in dict.fromkeys(result.notes)]
    how = {reward_name(each): declared(each, "farmable") for each in rewards}
    farmed = [f"{name}: {words}" for name, words in how.items() if words]
    lines += [f"  Farmable by design: {text}" for text in farmed or ["none of these rewards."]]
    count = len(result.failures)
    if not count:
        return "\n".join([*lines, "  No reward gives more than it may."])
    lines += ["", f"{count} failure{'s' * (count > 1)}:"]
    lines += [f"  - {text}" for text in result.failures]
    lessons = dict.fromkeys(LESSONS[trick] for trick in result.tricks)
    lines += ["", "Why it matters:"] * bool(lessons) + [f"  - {lesson}" for lesson in lessons]
    return "\n".join(lines)


def publish(result: Audit, rewards: list[Callable], json_file: Path | None = None) -> int:
    """Print the report, write the file; the exit status: 1 for failures, 2 for nothing scored."""
    print("The highest score for each trick (for the reference answer: the lowest)")
    print(report(result, rewards))
    if json_file:
        json_file.write_text(json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    if not result.scores:
        return 2
    return 1 if result.failures else 0


def _table(scores: dict[str, dict[str, float | None]]) -> list[str]:
    tricks = dict.fromkeys(trick for column in scores.values() for trick in column)
    cells = [["trick", *scores]]
    for trick in tricks:
        found = [column.get(trick) for column in scores.values()]
        cells.append([trick, *("-" if value is None else str(round(value, 4)) for value in found)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
