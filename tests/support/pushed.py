"""The push of each step by the advantages in TRL's own tables of completions."""

from collections.abc import Callable
from pathlib import Path

from recipes.common.training.push import pushes
from recipes.common.utils.run_files import completion_files, read_completions
from rewards.text import completion_text


def pushed(run: Path, metric: Callable, name: str, group: int = 4) -> list[float]:
    """`metric` is called with the text alone; `name` is one of its outcomes."""
    found = []
    for path in completion_files(run):
        table = read_completions(path).to_pylist()
        outcomes = [metric(completion_text(row["completion"])) for row in table]
        found.append(pushes(outcomes, [row["advantage"] for row in table], group)[name])
    return found
