"""Load a recipe from its YAML: its module, arguments, rewards and rows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from datasets import Dataset, IterableDataset

from recipes.common.data.split import Rows, first_rows, load_split
from recipes.common.settings import Arguments, parse_arguments
from recipes.common.utils.problems import collect_errors
from rewards import Reward, load_rewards
from rewards.boundary import describe
from rewards.loading import import_file


@dataclass
class Recipe:
    """A recipe with the arguments of one YAML; rows are None if they were not asked for."""

    module: ModuleType
    args: Arguments
    rewards: list[Reward]
    train_rows: Rows | None
    eval_rows: Dataset | None
    validation_rows: Dataset | None


def import_recipe(config: Path) -> ModuleType:
    """Import the train.py next to a recipe's YAML; ValueError if one of the two is missing.

    The module has `RecipeArguments`, `load_rows(args, seed) -> (train, eval)`,
    `reference_completion(row)` and `metric(row, completion)`.
    """
    if not config.is_file():
        raise ValueError(f"--config: there is no file {config}; give a YAML of a recipe.")
    file = config.resolve().parent / "train.py"
    if not file.is_file():
        raise ValueError(f"{file} does not exist: --config names a YAML inside a recipe's folder.")
    return import_file(file, f"recipe_{file.parent.name}")


def load_recipe(config: Path, overrides: list[str], rows: bool = True) -> Recipe:
    """Load a recipe by its YAML, with its rewards and, unless `rows` is False, its rows.

    `overrides` are words of a command line that win over the YAML. Raises ValueError with every
    problem, one a line.
    """
    module = import_recipe(config)
    args = parse_arguments(module.RecipeArguments, ["--config", str(config), *overrides])
    loaded, problems = load_parts(args, module.load_rows if rows else None), args.problems
    if rows and args.recipe.only_rows and not problems:
        for problem in check_reference(first_rows(loaded[1]), module.reference_completion):
            problems.append(f"only_rows: {args.recipe.only_rows}: {problem} Add it to the file.")
    if problems:
        raise ValueError("\n".join(problems))
    return Recipe(module, args, *loaded)


def load_parts(
    args: Arguments, load_rows: Callable[[Any, int], tuple[Any, Any]] | None
) -> tuple[list[Reward] | None, Rows | None, Dataset | None, Dataset | None]:
    """Load rewards, training, held-out and validation rows; None for a part not loaded.

    An error adds a message to the problems of `args`. A part whose own settings have a problem is
    not loaded: it would only be reported as missing.
    """
    recipe, problems = args.recipe, args.problems
    rewards, rows = None, (None, None, None)
    is_wanted = args.is_read and not args.is_refused("dataset_path", "dataset_name", "only_rows")
    with collect_errors(problems):
        if load_rows and is_wanted:
            try:
                split = load_split(args, load_rows)
            except OSError as error:  # the Hub's client raises OSError
                raise ValueError(
                    f"the rows cannot be loaded ({type(error).__name__}: {error}): correct "
                    "dataset_path or dataset_name; a data set of the Hub needs the network."
                ) from error
            for part in split:
                if not isinstance(part, Dataset | IterableDataset | None):
                    raise ValueError(
                        f"load_rows returns {type(part).__name__}; allowed: two datasets.Dataset "
                        "(Dataset.from_list makes one of a list)."
                    )
            rows = tuple(with_columns(part, recipe.reward_columns or {}) for part in split)
    named = ("reward_funcs", "reward_kwargs", "reward_tasks")
    with collect_errors(problems):
        if args.is_read and not args.is_refused(*named):
            rewards = load_rewards(
                *(getattr(recipe, name) for name in named),
                allow_none=bool(args.training["environment_factory"]),
            )
    return rewards, *rows


def check_reference(rows: list[dict], reference: Callable[[dict], str | None]) -> list[str]:
    """A problem for the first row without a column that the reference completion needs."""
    for number, row in enumerate(rows):
        try:
            reference(row)
        except KeyError as column:
            return [
                f"row {number} lacks the column {column}, of which the recipe makes the reference "
                f"completion (its columns: {sorted(row)})."
            ]
        except Exception as error:
            return [f"reference_completion fails on row {number}: {describe(error)}."]
    return []


def with_columns(rows: Rows | None, columns: dict[str, str]) -> Rows | None:
    """Copy columns to other names: `{"solution": "answer"}` adds `solution`, a copy of `answer`.

    Raises:
        ValueError: the rows lack the column, or have other values under the new name.
    """
    if not (rows and columns):
        return rows

    def add(row: dict) -> dict:
        for name, column in columns.items():
            # Rows that a probe wrote have the new column already.
            if column not in row or row.get(name, row[column]) != row[column]:
                raise ValueError(
                    f"reward_columns gives the column {column!r} as {name!r}: the rows do not have "
                    f"it, or have another {name!r} (their columns: {', '.join(row)})."
                )
        return {name: row[column] for name, column in columns.items()}

    add(next(iter(rows)))  # fail here on the first row: a stream is mapped later
    return rows.map(add)
