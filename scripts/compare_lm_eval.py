"""Compare two models row by row in what lm-evaluation-harness logged of them (`--log_samples
--output_path FOLDER`).

    python scripts/compare_lm_eval.py lm_eval/before lm_eval/after

Prints both shares of each metric, the difference with its 95 % interval over the rows, and the
exact McNemar p. Both folders must hold the same tasks with the same rows; values other than 0 and 1
are left out.
"""

import json
from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "before", type=Path, help="folder with samples_TASK_DATE.jsonl, at any depth"
    )
    parser.add_argument("after", type=Path)
    with refusals():
        print(compare(**vars(parser.parse_args())))


def compare(before: Path, after: Path) -> str:
    """The table; `ValueError` where the rows differ."""
    from recipes.common.utils.stats import mcnemar_p, paired_interval
    from recipes.common.utils.tables import format_table, percent, points

    old, new, table = read_samples(before), read_samples(after), []
    for name in sorted(old.keys() | new.keys()):
        rows, others = old.get(name, {}), new.get(name, {})
        if rows.keys() != others.keys():
            sizes = f"{len(rows)} rows in {before}, {len(others)} in {after}"
            remedy = "Evaluate both with the same options."
            raise ValueError(f"{' '.join(name)}: not the same rows: {sizes}. {remedy}")
        pairs = list(rows.values()), [others[row] for row in rows]
        first, second = (sum(values) / len(rows) for values in pairs)
        table.append(
            {
                **dict(zip(("task", "filter", "metric"), name, strict=True)),
                "rows": len(rows),
                "before": percent(first),
                "after": percent(second),
                "difference": points(second - first, paired_interval(*pairs)),
                "McNemar p": f"{mcnemar_p(*pairs):.2g}",
            }
        )
    return format_table(table)


def read_samples(folder: Path) -> dict[tuple[str, str, str], dict[tuple[int, str], bool]]:
    """(task, filter, metric) -> (number, hash) of the row -> right or wrong."""
    found, files = {}, sorted(folder.rglob("samples_*.jsonl"))
    tasks = [file.stem.removeprefix("samples_").rpartition("_")[0] for file in files]
    if not tasks or len(set(tasks)) < len(tasks):
        needed = f"{folder} must hold one samples_TASK_DATE.jsonl for each task"
        raise ValueError(f"{needed}; it holds {len(files)} files.")
    for task, file in zip(tasks, files, strict=True):
        for sample in map(json.loads, file.open(encoding="utf-8")):
            for metric in sample["metrics"]:
                if sample[metric] in (0, 1):
                    rows = found.setdefault((task, sample["filter"], metric), {})
                    rows[sample["doc_id"], sample["doc_hash"]] = sample[metric] == 1
    return found


if __name__ == "__main__":
    main()
