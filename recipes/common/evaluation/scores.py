"""Judged rows of an evaluation: kept, summed up, compared, shown. A row is what `evaluation.evaluate` returns of it."""

import json
from pathlib import Path
from typing import Any

from recipes.common.tools.folder import write_whole
from recipes.common.tools.stats import mcnemar_p, wilson_interval

MEANING = {"strict": " (format + answer)", "lenient": " (last number)", "format": " (as asked)"}


def summarize(judged: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of an evaluation: each metric's share of its rows with Wilson interval, means of lengths and rewards."""
    n = len(judged)
    summary: dict[str, Any] = {"n": n}
    for name in metric_names(judged):
        values = [row["metrics"][name] for row in judged if name in row["metrics"]]
        summary[name] = {"share": sum(values) / len(values), "interval": wilson_interval(sum(values), len(values))}
    summary["truncated"] = sum(row["truncated"] for row in judged) / n
    summary["mean_length"] = sum(row["tokens"] for row in judged) / n
    summary["rewards"] = {
        name: _mean([row["rewards"][name] for row in judged if row["rewards"][name] is not None])
        for name in judged[0]["rewards"]
    }
    if "samples" in judged[0]:
        draws = [draw for row in judged for draw in row["samples"]]
        names = metric_names(judged)
        summary["sampled"] = {name: _mean([draw[name] for draw in draws if name in draw]) for name in names}
    return summary


def metric_names(judged: list[dict[str, Any]]) -> list[str]:
    """The metrics of an evaluation in the order of their first row: rows of different tasks may have different ones."""
    return list(dict.fromkeys(name for row in judged for name in row["metrics"]))


def compare(before: list[dict], after: list[dict]) -> dict[str, float]:
    """The exact McNemar p of each metric over the paired rows.

    Raises:
        ValueError: the two evaluations are not of the same rows.
    """
    if [row["prompt"] for row in before] != [row["prompt"] for row in after]:
        raise ValueError("before and after were not evaluated on the same rows in the same order")
    pairs = [(old["metrics"], new["metrics"]) for old, new in zip(before, after, strict=True)]
    judged = {name: [(o[name], n[name]) for o, n in pairs if name in o and name in n] for name in metric_names(before)}
    return {name: mcnemar_p([o for o, _ in both], [n for _, n in both]) for name, both in judged.items()}


def comparison_table(before: dict[str, Any], after: dict[str, Any] | None, p: dict[str, float] | None) -> str:
    """The table a run ends with, or its first column alone."""
    later = "" if after is None else f"{'after':>24}{'change':>11}   McNemar p"
    lines = [f"  {str(before['n']) + ' held-out rows, greedy':<27}{'before':>14}{later}"]
    for name in [key for key, value in before.items() if isinstance(value, dict) and "share" in value]:
        cells = f"{_share(before[name]):>23}"
        if after is not None:
            change = 100 * (after[name]["share"] - before[name]["share"])
            cells += f"{_share(after[name]):>24}{change:>+8.1f} pt   {p[name]:.2g}"
        lines.append(f"  {name + MEANING.get(name, ''):<27}{cells}")
    for name, label, unit in (("truncated", "truncated %", 100), ("mean_length", "mean length (tokens)", 1)):
        values = [before] if after is None else [before, after]
        cells = "".join(f"{unit * value[name]:>{width}.1f}" for value, width in zip(values, (13, 24), strict=False))
        lines.append(f"  {label:<27}{cells}")
    if "sampled" in before:
        lines += _sampled_lines(before, after)
    return "\n".join(lines)


def _sampled_lines(before: dict[str, Any], after: dict[str, Any] | None) -> list[str]:
    """Mean over the draws at the training temperature."""
    lines = []
    for name in before["sampled"]:
        cells = [f"{100 * summary['sampled'][name]:.1f} %" for summary in (before, after) if summary is not None]
        lines.append(f"  {name + ', sampled':<27}{cells[0]:>15}" + (f"{cells[1]:>24}" if after is not None else ""))
    return lines


def write_rows(path: Path, judged: list[dict[str, Any]]) -> None:
    """One JSON object a row; the file is whole or absent."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in judged))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote."""
    with path.open(encoding="utf-8", newline="\n") as lines:  # str.splitlines would cut at U+2028 inside a string
        return [json.loads(line) for line in lines]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(value: dict[str, Any]) -> str:
    low, high = value["interval"]
    return f"{100 * value['share']:.1f} % ({100 * low:.0f}-{100 * high:.0f})"
