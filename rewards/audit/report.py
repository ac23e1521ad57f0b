"""Report an audit: a table for a reader with failures and notes in words, JSON, JUnit's XML, a failed assertion."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rewards.audit.any_reward import audit_by_name
from rewards.audit.audit import Audit, Reference, audit
from rewards.audit.labels import Agreement, agreement
from rewards.audit.why import why
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
    farmed = [
        f"{reward_name(reward)}: {farmable(reward)}" for reward in rewards if farmable(reward)
    ]
    lines = [
        *_table(result.scores),
        "",
        *(f"  Note: {note}" for note in dict.fromkeys(result.notes)),
    ]
    lines += [f"  Farmable by design: {how}" for how in farmed or ["none of these rewards."]]
    count = len(result.failures)
    lines.append(
        f"\n{count} failure{'s' * (count > 1)}:" if count else "  No reward gives more than it may."
    )
    lines += [f"  - {text}" for text in result.failures]
    named = re.findall(r"for the trick (?:'(.+?)'|\"(.+?)\"); ", "\n".join(result.failures))
    reasons = dict.fromkeys(filter(None, (why(single or double) for single, double in named)))
    return "\n".join(
        lines + ["\nWhy it matters:"] * bool(reasons) + [f"  - {reason}" for reason in reasons]
    )


def publish(
    result: Audit,
    rewards: list[Callable],
    json_file: Path | None = None,
    junit_file: Path | None = None,
    labels: Agreement | None = None,
) -> int:
    """Print the report, write the files, and return the exit status: 1 for failures, 2 when nothing was scored."""
    print("The highest score for each trick (for the reference answer: the lowest)")
    print(report(result, rewards))
    if json_file:
        found = dataclasses.asdict(result) | (
            {"labels": dataclasses.asdict(labels)} if labels else {}
        )
        write_json(json_file, found)
    if junit_file:
        junit_file.write_bytes(junit(result))
    return 2 if not result.scores else 1 if result.failures else 0


def publish_by_name(
    reward: str,
    rows: Path | None,
    labels: Path | None,
    completion: str,
    json: Path | None,
    junit: Path | None,
    **settings: Any,
) -> int:
    """Audit the reward of that name on a file of rows, of labelled pairs, or on both, and publish what was found."""
    found = None
    if labels:
        found = agreement(reward, labels, completion, settings["style"], settings["seconds"])
        print(labelled(found))
    if rows:
        return publish(*audit_by_name(reward, rows, **settings), json, junit, found)
    if json:
        write_json(json, {"labels": dataclasses.asdict(found)})
    return 2 if len(found.not_scored) == found.pairs else 0


def labelled(found: Agreement) -> str:
    """Accuracy on labelled pairs in a line, then every mistake."""
    low, high = found.interval
    lines = [
        f"  {found.pairs} labelled pairs: accuracy {found.accuracy:.3f} ({low:.3f}-{high:.3f})"
    ]
    for name in ("false_positives", "false_negatives", "not_scored"):
        pairs = getattr(found, name)
        lines.append(f"  {name.replace('_', ' ')}: {len(pairs)}")
        lines += [
            f"    gold {str(p['gold'])[:100]!r}, prediction {str(p['prediction'])[:100]!r}"
            for p in pairs
        ]
    return "\n".join(lines) + "\n"


def write_json(file: Path, found: dict) -> None:
    file.write_text(json.dumps(found, indent=2) + "\n")


def junit(result: Audit) -> bytes:
    """JUnit's XML: a test case for each reward and task; one called `rows` where nothing was scored."""
    cases = {
        name: [text for text in result.failures if f"reward {name!r} " in text]
        for name in result.scores
    }
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
