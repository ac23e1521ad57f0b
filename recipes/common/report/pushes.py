"""Which way a run's rewards pushed a metric, from the completions that TRL logged of it."""

import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd

from recipes.common.evaluation.metrics import Metric
from recipes.common.training.advantages import advantages_of
from recipes.common.training.push import pushes
from recipes.common.utils.run_files import FIRST_COLUMNS, messages, read_completions
from recipes.common.utils.stats import t_interval
from recipes.common.utils.tables import format_table
from rewards.text import completion_text

TRAINED = "advantage"  # TRL's name of the column


def read_steps(folder: Path, metric: Metric, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The push of each logged step: a line for `step`, `pushed by`, `metric`, with its `push`.

    Pushed by the advantages, and by each reward were it alone. `rows` are those of the data set,
    known by their prompt: a metric sees their columns with those of the table. ValueError for a
    folder without tables, and for a table without advantages.
    """
    paths = sorted(folder.glob("completions_*.parquet"))
    if not paths:
        raise ValueError(f"{folder} holds no completions_*.parquet: train with log_completions.")
    row_of = {str(messages(row["prompt"])): row for row in rows}
    lines = []
    for step, path in enumerate(paths):
        table = read_completions(path)
        if TRAINED not in table.column_names:
            raise ValueError(f"{path} has no column {TRAINED}: {', '.join(table.column_names)}")
        logged = table.to_pylist()
        prompts = [str(messages(row["prompt"])) for row in logged]
        # Two groups of one prompt may stand side by side.
        group = math.gcd(*(len(list(run)) for _, run in itertools.groupby(prompts)))
        outcomes = [
            metric({**row, **row_of.get(prompt, {})}, completion_text(row["completion"]))
            for prompt, row in zip(prompts, logged, strict=True)
        ]
        amounts = table.drop_columns(FIRST_COLUMNS).to_pandas().select_dtypes("number")
        for name in [TRAINED, *amounts.columns.drop(TRAINED)]:
            advantages = amounts[name].tolist()
            if name != TRAINED:
                known = [None if math.isnan(amount) else amount for amount in advantages]
                advantages = advantages_of(known, group)
            for judged, push in pushes(outcomes, advantages, group).items():
                lines.append({"step": step, "pushed by": name, "metric": judged, "push": push})
    return pd.DataFrame(lines)


def table_of_pushes(steps: pd.DataFrame) -> str:
    """The mean over steps with its 95 % interval, and of each third of the run."""
    lines = []
    for (name, metric), pushed in steps.groupby(["pushed by", "metric"], sort=False)["push"]:
        low, high = t_interval(pushed.tolist()) or (math.nan, math.nan)
        third = -(-len(pushed) // 3)
        thirds = [pushed[at : at + third] for at in range(0, 3 * third, third)]
        lines.append(
            {
                "pushed by": "the advantages" if name == TRAINED else f"{name} alone",
                "metric": metric,
                "steps": len(pushed),
                "push": f"{pushed.mean():+.3f} ({low:+.3f} to {high:+.3f})",
                "first third, middle, last": " ".join(
                    f"{(part if len(part) else pushed[-1:]).mean():+.3f}" for part in thirds
                ),
            }
        )
    return format_table(lines)
