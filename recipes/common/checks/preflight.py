"""Preflight: may this run start? Before any weight is loaded, it checks the settings, the rows, the
rewards, the model and its tokenizer, and the run's folder.

Every problem joins one list, `args.problems`, also an error raised by a library or a user's code.
So all problems are reported at once, and no input ends in a traceback. Preflight does not check
whether the model will learn.
"""

import json
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from trl import ModelConfig

from recipes.common.checks.launch import (
    build,
    check_batch,
    check_launch_file,
    check_processes,
    check_public_names,
)
from recipes.common.checks.model import open_model
from recipes.common.checks.rewards_on_rows import check_rewards
from recipes.common.data.split import first_rows
from recipes.common.limits import check_combinations
from recipes.common.settings import Arguments, RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import world_size
from recipes.common.utils.problems import collect_errors
from recipes.common.utils.secrets import hide_secrets, is_secret
from recipes.common.utils.stats import power_line
from recipes.common.utils.tables import format_table
from rewards.boundary import starting
from rewards.contract import UNDECLARED, Reward
from rewards.text import question_of

SHOWN_ROWS = 5


@dataclass
class Preflight:
    """The parts of a run; a part that could not be loaded or built is None or empty."""

    args: Arguments
    rewards: list[Reward] = field(default_factory=list)
    train_rows: Dataset | IterableDataset | None = None
    eval_rows: Dataset | None = None  # held out
    validation_rows: Dataset | None = None
    rows: list[dict] = field(default_factory=list)  # the training rows; the first rows of a stream
    lines: list[dict[str, Any]] = field(default_factory=list)  # the table of rewards
    training: GRPOConfig | None = None
    model: ModelConfig | None = None

    def record(self) -> dict[str, Any]:
        """The content of preflight.json."""
        return {"rewards": self.lines, "notes": self.args.notes}


def preflight(
    args: Arguments, parts: Sequence[Any], reference_completion: Callable[[dict], Any]
) -> Preflight:
    """Check a run by its settings and its loaded parts; add problems and notes to those of `args`.

    `parts` is the result of `load_parts`. `reference_completion` turns a row's own answer into a
    completion in the asked format, or returns None.
    """
    rewards, train_rows, eval_rows, validation_rows = parts
    result = Preflight(args, rewards or [], train_rows, eval_rows, validation_rows)
    problems = args.problems
    if not args.is_read:
        return result
    with collect_errors(problems, "the launch"):
        wrong = check_processes()
        problems += wrong or check_launch_file()
        if not wrong:
            result.model, result.training = build(args)
    problems += check_public_names(args.training)
    with collect_errors(problems):
        problems += check_combinations({**vars(args.recipe), **args.training, **args.model})
    with collect_errors(problems):
        result.rows = first_rows(train_rows)
    held_out = eval_rows.to_list() if eval_rows else []
    validation = validation_rows.to_list() if validation_rows else []
    rows = result.rows + validation
    with collect_errors(problems):
        if result.training:
            problems += check_batch(result.training, train_rows)
            prepare_rewards(result)
        is_stream = isinstance(train_rows, IterableDataset)
        result.lines = check_rewards(
            args, rows, held_out, result.rewards, reference_completion, is_stream
        )
    open_model(args, rows)
    add_notes(result, held_out, validation)
    return result


def prepare_rewards(result: Preflight) -> None:
    """Call `prepare` of the rewards that have it, such as code rewards, for their sandbox."""
    training, args = result.training, result.args
    completions = -(-training.generation_batch_size // training.world_size)  # per process
    for reward in result.rewards:
        if reward.prepare is not None:
            title = f"reward {reward.name!r}"
            with collect_errors(args.problems, title), starting(f"{title} to prepare"):
                if note := reward.prepare(completions, training.reward_timeout_s):
                    args.notes.append(f"{reward.name}: {note}")


def add_notes(result: Preflight, held_out: list[dict], validation: list[dict]) -> None:
    """Add notes: what is not checked, which rows are evaluated, and which change they can show."""
    args, notes = result.args, result.args.notes
    for reward in result.rewards:
        if reward.kind == UNDECLARED:
            notes.append(
                f"{reward.name}: undeclared, so no promise is checked; write below it "
                f'{reward.name}.kind = "verifier" and {reward.name}.full = what a right answer '
                "earns"
            )
        if reward.kind == "model":
            notes.append(f"{reward.name}: a model, which neither preflight nor the cheat test call")
    if args.config_path and Path(args.config_path).with_name("train.py").is_file():
        words = shlex.join(["python", "scripts/audit_rewards.py", *hide_secrets(args.words)])
        notes.append(f"what each reward pays for each trick: {words}")
    if validation:
        training = args.training
        when = "after each epoch"
        if training["eval_strategy"] == "steps":
            when = f"every {training['eval_steps'] or training['logging_steps']:g} steps"
        notes.append(
            f"validation: {len(validation)} rows of the training side, evaluated {when} and never "
            "trained on"
        )
    if held_out:
        notes.append(power_line(len(held_out)))


def resolved(
    recipe: RecipeArguments, training: dict[str, Any], model: dict[str, Any], name: str
) -> dict[str, Any]:
    """All settings of a run as plain data, without secrets, to compare a later start with them."""
    values = {"recipe": name, **asdict(recipe), **training, **model, "world_size": world_size()}
    public = {name: value for name, value in values.items() if not is_secret(name)}
    return hide_secrets(json.loads(json.dumps(public, default=str)))


def report(result: Preflight) -> str:
    """The text that preflight prints: rewards, notes, and either the problems or the batch."""
    args, training = result.args, result.training
    lines = [f"Preflight of {args.config_path or 'the command line'}"]
    if isinstance(result.train_rows, IterableDataset):
        lines.append(
            f"  streamed data: only its first {len(result.rows)} rows were checked, and a second "
            "pass is not resumed exactly"
        )
    if result.lines and hasattr(args.recipe, "answer_column"):  # rows that a recipe reads itself
        lines.append("  The first questions, and their answers as they are read:")
        for row in result.rows[:SHOWN_ROWS]:
            asked = textwrap.shorten(question_of(row["prompt"]), 60, placeholder=" ...")
            lines.append(f"    {asked} -> {row['answer']!r:.60}")
    lines.append(format_table(result.lines) if result.lines else "  (no rows or rewards to check)")
    lines += [f"  {note}" for note in args.notes]
    problems = [line for problem in args.problems for line in problem.split("\n")]
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        lines.append(f"\n{count}; nothing was loaded and nothing was written:")
        return "\n".join([*lines, *(f"  - {problem}" for problem in problems)])
    world, group = training.world_size, training.num_generations
    batch = training.per_device_train_batch_size * world * training.gradient_accumulation_steps
    device = "CPU" if training.use_cpu else "accelerator"
    lines += [
        f"  {len(result.rows)} rows; an optimizer step learns from {batch} completions "
        f"({batch / group:g} prompt{'s' * (batch != group)} x {group}) on {world} {device} "
        f"process{'es' * (world > 1)}.",
        "  Everything checked is as it should be.\n",
    ]
    return "\n".join(lines)
