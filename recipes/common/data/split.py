"""Validation rows, and the settings that need them: drawn from the training side, and never trained on."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datasets import Dataset, IterableDataset

from recipes.common.data.only_rows import use_only_rows
from recipes.common.data.overlap import question_digest, warm_start_questions
from recipes.common.settings import Arguments

Rows = Dataset | IterableDataset
PREFIX = "validation/"  # of what is logged of the validation rows


def validates(training: dict[str, Any]) -> bool:
    """Whether a run evaluates validation rows while it trains."""
    return _name(training["eval_strategy"]) != "no"


def load_split(
    args: Arguments, load_rows: Callable[[Any, int], tuple[Any, Any]]
) -> tuple[Rows, Dataset | None, Dataset | None]:
    """Load training, held-out and validation rows; the last are None where none are evaluated while the run trains.

    With `num_train_rows` the validation rows are those that the recipe loads after them, so that a run trains on the
    same rows with and without a curve; else they are drawn by the seed. Of a stream they are the first. A question of
    theirs is removed from the training rows wherever these come from, and one that the model's warm start trained on
    from both.
    """
    recipe, seed = args.recipe, args.training["seed"]
    count = max(0, recipe.num_validation_rows) if validates(args.training) else 0
    wanted = recipe.num_train_rows
    train, held_out = load_rows(
        replace(recipe, num_train_rows=wanted + count) if wanted and count else recipe, seed
    )
    validation = None
    if used := warm_start_questions(args.model["model_name_or_path"]):
        args.notes.append(
            f"the {len(used)} questions of the model's warm start are left out of training"
        )
    if count:
        train, validation = _split(_without(train, used), count, seed=None if wanted else seed)
        used = used | {question_digest(prompt) for prompt in validation["prompt"]}
    return _without(use_only_rows(train, recipe.only_rows, wanted), used), held_out, validation


def check_validation(args: Arguments) -> list[str]:
    """Settings that need a curve, or a checkpoint at each of its points."""
    training, count, problems = args.training, args.recipe.num_validation_rows, []
    if validates(training) and count < 1:
        problems.append(
            f"num_validation_rows is {count}; eval_strategy needs at least 1, or set it to 'no'."
        )
    saves, metric = _name(training["save_strategy"]), training["metric_for_best_model"]
    chooses, patience = training["load_best_model_at_end"], args.recipe.early_stopping_patience
    if patience and not validates(training):
        problems.append(
            "early_stopping_patience needs evaluations while training: set eval_strategy: steps and eval_steps."
        )
    if (
        saves == "best"
    ):  # Ctrl-C between two bests would save nothing, and a kill after the last lose what follows it
        problems.append(
            "save_strategy is best; give steps, save_steps as eval_steps, load_best_model_at_end: true."
        )
    if metric and training["save_total_limit"] == 1:
        problems.append(
            "save_total_limit is 1, so that transformers deletes all checkpoints but the best when a run ends or is "
            "interrupted, and it could not go on from its last. Set it to 2."
        )
    if (chooses or patience) and not str(metric).startswith(PREFIX):
        problems.append(
            f"metric_for_best_model is {metric!r}; a checkpoint is chosen, and a run stopped early, by a metric of "
            f"the recipe on the validation rows: {PREFIX}strict, say."
        )
    steps, evaluations = training["save_steps"], training["eval_steps"]
    if chooses and saves == "steps" and evaluations and steps != evaluations:
        problems.append(
            f"load_best_model_at_end: with save_steps {steps:g} and eval_steps {evaluations:g} the best step may have "
            f"no checkpoint. Set save_steps to {evaluations:g}."
        )
    return problems


def validation_notes(args: Arguments, rows: list[dict]) -> list[str]:
    """Say in one line which rows are evaluated while the run trains, and how often."""
    if not rows:
        return []
    every = args.training["eval_steps"] or args.training["logging_steps"]
    often = (
        f"every {every:g} steps"
        if _name(args.training["eval_strategy"]) == "steps"
        else "after each epoch"
    )
    return [
        f"validation: {len(rows)} rows of the training side, evaluated {often} and never trained on"
    ]


def _name(strategy: Any) -> str:
    """The name of a strategy of transformers, which may be an enum by now."""
    return str(getattr(strategy, "value", strategy))


def _split(rows: Rows, count: int, seed: int | None) -> tuple[Rows, Dataset]:
    """Take `count` validation rows out of `rows`: the first of a stream, the last without a seed, else drawn by it."""
    if isinstance(rows, IterableDataset):
        return rows.skip(count), Dataset.from_list(list(rows.take(count)))
    if len(rows) <= count:
        raise ValueError(
            f"num_validation_rows is {count}, but there are only {len(rows)} training rows to take from."
        )
    every = range(len(rows))
    taken = set(every[-count:] if seed is None else random.Random(seed).sample(every, count))
    return rows.select([i for i in every if i not in taken]), rows.select(sorted(taken))


def _without(rows: Rows, questions: set[str]) -> Rows:
    """The rows whose question is not one of these, given by their digests."""
    if not questions:
        return rows
    if isinstance(rows, IterableDataset):
        return rows.filter(lambda row: question_digest(row["prompt"]) not in questions)
    return rows.select(
        [i for i, prompt in enumerate(rows["prompt"]) if question_digest(prompt) not in questions]
    )
