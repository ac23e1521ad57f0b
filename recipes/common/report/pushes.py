"""Which way a run's rewards pushed a metric, from the completions that TRL logged of it."""

import itertools
import math
from pathlib import Path
from statistics import fmean
from typing import Any

from recipes.common.evaluation.metrics import Metric
from recipes.common.training.gates import advantages_of
from recipes.common.training.push import pushes
from recipes.common.utils.run_files import messages, read_completions
from recipes.common.utils.stats import t_interval
from recipes.common.utils.tables import format_table
from rewards.text import completion_text

TRAINED = "advantage"  # TRL's name of the column
Pushes = dict[tuple[str, str], float]  # (what pushed, metric) -> push of a step


def read_steps(folder: Path, metric: Metric, rows: list[dict[str, Any]]) -> list[Pushes]:
    """The pushes of each logged step: of its advantages, and of each reward were it alone.

    `rows` are those of the data set, found by their prompt: a metric sees their columns with those
    of the table. ValueError for a folder without tables, and for a table without advantages.
    """
    files = sorted(folder.glob("completions_*.parquet"))
    if not files:
        raise ValueError(f"{folder} holds no completions_*.parquet: train with log_completions.")
    known = {str(messages(row["prompt"])): row for row in rows}
    return [_pushes_of(read_completions(file).to_pylist(), metric, known) for file in files]


def _pushes_of(table: list[dict[str, Any]], metric: Metric, known: dict[str, dict]) -> Pushes:
    if TRAINED not in table[0]:
        raise ValueError(f"the table has no column {TRAINED}: {', '.join(table[0])}")
    prompts = [str(messages(line["prompt"])) for line in table]
    # Two groups of one prompt may stand side by side.
    group = math.gcd(*(len(list(run)) for _, run in itertools.groupby(prompts)))
    outcomes = [
        metric({**line, **known.get(prompt, {})}, completion_text(line["completion"]))
        for prompt, line in zip(prompts, table, strict=True)
    ]
    numbers = [name for name in table[0] if _is_numeric(name, table)]
    found = {}
    for name in [TRAINED, *numbers]:
        amounts = [None if line[name] != line[name] else line[name] for line in table]  # NaN
        advantages = amounts if name == TRAINED else advantages_of(amounts, group)
        for of, value in pushes(outcomes, advantages, group).items():
            found[name, of] = value
    return found


def _is_numeric(name: str, table: list[dict[str, Any]]) -> bool:
    values = {type(line[name]) for line in table} - {type(None)}
    return name not in ("step", TRAINED) and bool(values) and values <= {float, int}


def table_of_pushes(steps: list[Pushes]) -> str:
    """The mean over steps with its 95 % interval, and of each third of the run."""
    lines = []
    for name, metric in dict.fromkeys(pair for step in steps for pair in step):
        values = [step[name, metric] for step in steps if (name, metric) in step]
        third = -(-len(values) // 3)
        low, high = t_interval(values) or (math.nan, math.nan)
        parts = [values[at : at + third] or values[-1:] for at in range(0, 3 * third, third)]
        lines.append(
            {
                "pushed by": "the advantages" if name == TRAINED else f"{name} alone",
                "metric": metric,
                "steps": len(values),
                "push": f"{fmean(values):+.3f} ({low:+.3f} to {high:+.3f})",
                "first third, middle, last": " ".join(f"{fmean(part):+.3f}" for part in parts),
            }
        )
    return format_table(lines)
