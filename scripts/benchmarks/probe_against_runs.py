"""Does the probe foresee what a training brings? Compare folders of scripts/probe.py with published runs.

    python scripts/benchmarks/probe_against_runs.py --probes runs/probes --output results/probe_against_runs.json

A folder runs/probes/NAME is compared with results/NAME.json: the verdict of the probe and the share of groups with
verifier spread, against the gain of the metric that ignores format, and whether its interval lies above 0. The
trainings are of different lengths, from 10 to 36 steps.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("will learn the task", "will learn the format only", "will not learn")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--probes", type=Path, required=True, help="a folder with a probe for each NAME"
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        help="an entry of the ledger; words in it by hand stay",
    )
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from recipes.common.utils.run_files import read_json, write_json
    from recipes.common.utils.tables import format_table

    names = sorted(folder.parent.name for folder in options.probes.glob("*/figures.json"))
    found = [compare(options.probes / name, name) for name in names]
    rows = sorted(
        (row for row, _, _ in found), key=lambda row: VERDICTS.index(row["verdict of the probe"])
    )
    command = "python scripts/benchmarks/probe_against_runs.py"
    entry = {
        "title": "the probe against published trainings",
        "command": f"{command} --probes {options.probes} --output {options.output}",
        "remark": remark(
            [forecast for _, forecast, _ in found], [outcome for *_, outcome in found]
        ),
        "columns": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
    }
    write_json(options.output, read_json(options.output, {}) | entry)
    print(f"{format_table(rows)}\n{entry['remark']}")


def compare(folder: Path, name: str) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """A line of the table, the forecast, and the outcome, of one configuration."""
    from recipes.common.evaluation.scores import independent_metric
    from recipes.common.utils.run_files import read_json
    from recipes.common.utils.tables import percent, points

    probe, result = read_json(folder / "figures.json"), read_json(ROOT / "results" / f"{name}.json")
    (task,) = probe["tasks"].values()
    verifier = next(reward for reward in task["rewards"].values() if reward["kind"] == "verifier")
    forecast = {
        "verdict": probe["verdict"].partition(":")[0],
        "spread": 1.0 - verifier["zero_spread"],
    }
    metric = independent_metric(result["metrics"])
    change = result["metrics"][metric]["change"]
    interval = change["interval"]  # a single run of too few rows may have none
    outcome = {"gain": change["value"], "shown": bool(interval) and interval[0] > 0}
    row = {
        "training": result["title"],
        "verdict of the probe": forecast["verdict"],
        "right completions": percent(verifier["hit_rate"]),
        "groups with verifier spread": percent(forecast["spread"], 0),
        "steps": str(result["steps"]),
        "change (95 %)": f"{metric} {points(change['value'], interval)}",
        "gain shown": "yes" if outcome["shown"] else "no",
    }
    return row, forecast, outcome


def remark(forecasts: list[dict[str, Any]], outcomes: list[dict[str, Any]]) -> str:
    """The rank correlation and the two-by-two table in words."""
    from scipy.stats import spearmanr

    rho, p = spearmanr([of["spread"] for of in forecasts], [of["gain"] for of in outcomes])
    pairs = [
        (of["verdict"] == VERDICTS[0], out["shown"])
        for of, out in zip(forecasts, outcomes, strict=True)
    ]
    count = {
        pair: pairs.count(pair)
        for pair in ((True, True), (True, False), (False, True), (False, False))
    }
    return (
        f"Spearman of the groups with verifier spread and the gain: {rho:+.2f} (p {p:.2g}, {len(pairs)} trainings). "
        f"*Will learn the task*: {count[True, True]} with a gain shown, {count[True, False]} without; other verdicts: "
        f"{count[False, True]} with, {count[False, False]} without."
    )


if __name__ == "__main__":
    main()
