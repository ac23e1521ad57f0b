"""Report an audit: a table for a reader with failures and notes in words, JSON, JUnit's XML, a failed assertion."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from rewards.audit.audit import Audit, Reference, audit
from rewards.contract import declared, farmable, reward_name


def check_reward(reward: Callable, rows: list[dict], reference: Reference | str) -> None:
    """Audit a reward in a test of your own; one that declares no kind is held to the rules of a verifier.

    Args:
        reward: a reward under TRL's contract.
        rows, reference: as of `audit`.

    Raises:
        AssertionError: with the table and the failures.
    """
    if declared(reward, "kind", None) is None:
        reward.kind = "verifier"
    result = audit(rows, [reward], reference)
    if result.failures:
        raise AssertionError("the audit failed\n" + report(result, [reward]))


def report(result: Audit, rewards: list[Callable]) -> str:
    """The table trick x reward, then failures and notes in words, and which rewards are farmable by design."""
    farmed = [f"{reward_name(reward)}: {farmable(reward)}" for reward in rewards if farmable(reward)]
    lines = [*_table(result.scores), "", *(f"  Note: {note}" for note in dict.fromkeys(result.notes))]
    lines += [f"  Farmable by design: {how}" for how in farmed or ["none of these rewards."]]
    count = len(result.failures)
    lines.append(f"\n{count} failure{'s' * (count > 1)}:" if count else "  No reward gives more than it may.")
    return "\n".join(lines + [f"  - {text}" for text in result.failures])


def publish(
    result: Audit, rewards: list[Callable], json_file: Path | None = None, junit_file: Path | None = None
) -> int:
    """Print the report, write the files, and return the exit status: 1 for failures, 2 when nothing was scored."""
    print(report(result, rewards))
    if json_file:
        json_file.write_text(json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    if junit_file:
        junit_file.write_bytes(junit(result))
    return 2 if not result.scores else 1 if result.failures else 0


def junit(result: Audit) -> bytes:
    """JUnit's XML: a test case for each reward and task; one called `rows` where nothing was scored."""
    cases = {name: [text for text in result.failures if f"reward {name!r} " in text] for name in result.scores}
    cases = cases or {"rows": result.failures}
    suite = ElementTree.Element("testsuite", name="audit of rewards", tests=str(len(cases)))
    suite.set("failures", str(sum(bool(failures) for failures in cases.values())))
    for name, failures in cases.items():
        case = ElementTree.SubElement(suite, "testcase", classname="audit", name=name)
        if failures:
            ElementTree.SubElement(case, "failure", message=failures[0]).text = "\n".join(failures)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)


def _table(scores: dict[str, dict[str, float | None]]) -> list[str]:
    tricks = dict.fromkeys(trick for column in scores.values() for trick in column)
    cells = [["trick", *scores]]
    for trick in tricks:
        found = [column.get(trick) for column in scores.values()]
        cells.append([trick, *("-" if value is None else str(round(value, 4)) for value in found)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
