"""Preflight: problems that show before any weight is loaded, all of them at once.

A run that passes has rows with the columns that its rewards need, rewards that give the reference
answer their full amount and an empty completion nothing, and a batch that divides. Whether the
model will learn is not checked.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from trl import ModelConfig

from recipes.common.checks.batch import check_batch, completions_of_a_call, completions_of_run
from recipes.common.checks.callables import check_tool_use
from recipes.common.checks.combinations import (
    check_launch_file,
    check_optimizer,
    check_settings,
    notes_on,
)
from recipes.common.checks.model_files import check_model, check_reward_model
from recipes.common.checks.rewards_on_rows import (
    RewardLine,
    check_columns,
    check_every_reward_scores,
    check_every_task_is_scored,
    check_gates,
    check_tasks,
    reward_lines,
)
from recipes.common.data.overlap import check_duplicates, check_held_out, overlap_notes
from recipes.common.data.recipe import check_reference
from recipes.common.data.split import first_rows
from recipes.common.settings import Arguments, RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine, check_engine, world_size
from recipes.common.utils.power import expected_to_change, power_line
from recipes.common.utils.screen import announce
from recipes.common.utils.tables import format_table
from rewards import reward_kind, reward_name
from rewards.audit.audit import check_tricks
from rewards.audit.call import score
from rewards.contract import UNDECLARED, declared, prepare_reward, scores_task
from rewards.steps import Steps, sum_steps
from rewards.text import completion_text


@dataclass
class Preflight:
    """Problems, the table of rewards, notes for the reader, and TRL's dataclasses where nothing is
    wrong.
    """

    problems: list[str]
    lines: list[RewardLine]
    notes: list[str]
    rows: list[dict] = field(repr=False)
    streamed: bool = False
    training: GRPOConfig | None = None
    model: ModelConfig | None = None

    def record(self) -> dict[str, Any]:
        """The content of preflight.json."""
        return {"rewards": [line.cells() for line in self.lines], "notes": self.notes}


def preflight(
    args: Arguments,
    train_rows: Dataset | IterableDataset | None,
    eval_rows: Dataset | None,
    rewards: list[Callable] | None,
    reference_completion: Callable[[dict], str | None],
    problems: list[str] | None = None,
    validation_rows: Dataset | None = None,
) -> Preflight:
    """Check arguments, rows and rewards together; build TRL's dataclasses when nothing is wrong.

    Rows and rewards that could not be loaded are None, and `problems` says why.
    `reference_completion` gives a row's own reference answer in the asked format, or None.
    """
    rows, rewards = first_rows(train_rows), rewards or []
    held_out = eval_rows.to_list() if eval_rows else []
    validation = validation_rows.to_list() if validation_rows else []
    streamed = isinstance(train_rows, IterableDataset)
    # A step reward is checked by the sum of its steps, on whole completions, like any other.
    summed = [sum_steps(reward) for reward in rewards]
    found = [*args.problems, *(problems or [])]
    found += check_batch(args.training, world_size(), train_rows) + check_settings(args, rewards)
    ready, notes = _prepare_rewards(args, summed)
    found += ready
    seen = rows + validation
    lines, row_problems = check_rows(args, seen, held_out, summed, reference_completion, streamed)
    found += row_problems + check_model(args.model, args.training, seen)
    found += [
        p for r in rewards if isinstance(r, str) for p in check_reward_model(r, args.training, seen)
    ]
    found += [
        problem for problem in check_tool_use(args.training, seen, rewards) if problem not in found
    ]
    found += check_launch_file()
    notes += kind_notes(args, rewards) + cost_notes(
        args, rows, len(held_out), len(validation), rewards
    )
    result = Preflight(found, lines, [*args.notes, *notes], rows, streamed)
    if not check_columns([*seen, *held_out]):
        result.notes += overlap_notes(seen, held_out)
    result.notes += validation_notes(args, validation)
    result.notes += only_rows_notes(rows, held_out) if args.recipe.only_rows else []
    if held_out:
        expected = expected_to_change(args.config_path, args.model["model_name_or_path"])
        result.notes.append(power_line(len(held_out), *expected))
    if (
        not found
    ):  # else TRL's dataclasses would report what is known already, one problem at a time
        _build(args, result)
    if result.training is not None:
        result.notes += step_notes(rows, rewards, reference_completion) + notes_on(result.training)
    return result


def _build(args: Arguments, result: Preflight) -> None:
    """Build TRL's dataclasses; their refusals, and an engine that the launcher was not asked for,
    are problems.
    """
    asked = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("1", "true")
    # Without an accelerator `GRPOConfig` wants use_cpu; the report says which device it is.
    args.training["use_cpu"] = bool(
        args.training["use_cpu"] or asked or not torch.accelerator.is_available()
    )
    if (
        args.validates
    ):  # TRL would ask for whole groups in an evaluation batch; ours has one completion a row
        args.training["num_generations_eval"] = args.training["num_generations_eval"] or 1
    if asked_engine().startswith("ZeRO"):
        announce(
            "Starting DeepSpeed, which compiles parts of itself at its first use: that may take "
            "minutes ..."
        )
    try:
        model = ModelConfig(**args.model)
        training = GRPOConfig(**args.training)
        check_engine({"world_size": training.world_size})
    except ValueError as problem:
        result.problems.append(str(problem))
    else:
        result.training, result.model = training, model
        result.problems += check_optimizer(training)


def _prepare_rewards(args: Arguments, rewards: list[Callable]) -> tuple[list[str], list[str]]:
    """Let rewards that need it get ready, such as code rewards their sandbox; returns problems and
    notes.
    """
    problems, notes = [], []
    completions = completions_of_a_call(args.training, world_size())
    for reward in rewards:
        try:
            note = prepare_reward(reward, completions, args.training["reward_timeout_s"])
            notes += [f"{reward_name(reward)}: {note}"] if note else []
        except ValueError as problem:
            problems.append(f"reward {reward_name(reward)!r}: {problem}")
    return problems, notes


def check_rows(
    args: Arguments,
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Callable],
    reference: Callable[[dict], str | None],
    streamed: bool = False,
) -> tuple[list[RewardLine], list[str]]:
    """Check training rows (whose lines are returned) and evaluation rows, these by rewards without
    a problem so far.
    """
    weights = args.training["reward_weights"]
    if problems := check_columns(rows) or check_reference(rows, reference):
        return [], problems
    lines = reward_lines(
        rows, rewards, weights if len(weights or []) == len(rewards) else None, reference
    )
    problems += [problem for line in lines for problem in line.problems]
    problems += check_every_task_is_scored(lines, rows)
    if not streamed:  # the tasks of a stream's later rows are not known
        problems += check_tasks(rows, rewards) + check_every_reward_scores(lines, rewards)
    problems += check_gates(args.training["reward_gates"] or {}, rows, rewards)
    broken = {line.reward for line in lines if line.problems}
    sound = [reward for reward in rewards if reward_name(reward) not in broken]
    problems += check_tricks(rows, sound, reference)
    problems += _check_eval_rows(rows, eval_rows, sound, reference, problems) if eval_rows else []
    if not check_columns(eval_rows):
        problems += check_held_out(rows, eval_rows, args.model["model_name_or_path"])
        problems += check_duplicates(rows, eval_rows)
    return lines, problems


def _check_eval_rows(
    rows: list[dict],
    eval_rows: list[dict],
    rewards: list[Callable],
    reference: Callable,
    known: list[str],
) -> list[str]:
    lines = reward_lines(eval_rows, rewards, None, reference)
    found = [problem for line in lines for problem in line.problems]
    if rows:  # a task that no reward scores is reported of the training rows
        tasks = {row.get("task") for row in rows}
        found += check_every_task_is_scored(
            lines, [row for row in eval_rows if row.get("task") not in tasks]
        )
    return [
        f"evaluation rows: {problem}"
        for problem in [*check_columns(eval_rows), *found]
        if problem not in known
    ]


def validation_notes(args: Arguments, rows: list[dict]) -> list[str]:
    """Say in one line which rows are evaluated while the run trains, and how often."""
    if not rows:
        return []
    every = args.training["eval_steps"] or args.training["logging_steps"]
    often = (
        f"every {every:g} steps"
        if args.training["eval_strategy"] == "steps"
        else "after each epoch"
    )
    return [
        f"validation: {len(rows)} rows of the training side, evaluated {often} and never trained on"
    ]


def only_rows_notes(rows: list[dict[str, Any]], eval_rows: Iterable[dict[str, Any]]) -> list[str]:
    """Say where the first training row and the first held-out row of its task differ before the
    last message.
    """
    first = rows[0] if rows else {}
    held_out = next((row for row in eval_rows if row.get("task") == first.get("task")), first)
    if _before_question(first) == _before_question(held_out):
        return []
    return [
        "only_rows: the messages before the question are not those of the held-out rows: the file "
        "keeps the system prompt and the worked example of its probe. Probe again with those of "
        "this run"
    ]


def _before_question(row: dict[str, Any]) -> list[Any]:
    """The messages before the last, without the empty keys that a Dataset adds to messages that
    differ in theirs.
    """
    prompt = row.get("prompt")
    messages = prompt[:-1] if isinstance(prompt, list) else []
    return [
        {name: value for name, value in message.items() if value is not None}
        for message in messages
    ]


def kind_notes(args: Arguments, rewards: list[Callable]) -> list[str]:
    """Name the rewards of which little is checked: those that declare no kind, and models."""
    notes = []
    undeclared = [reward_name(reward) for reward in rewards if reward_kind(reward) == UNDECLARED]
    for name in undeclared:
        line = f'{name}.kind, {name}.full = "verifier", 1.0'
        notes.append(
            f"{name} is undeclared, so no score of it is checked; below its definition add, say: "
            f"{line}"
        )
    if undeclared:
        command = f"python scripts/audit_rewards.py --config {args.config_path or 'FILE'}"
        notes.append(
            f"which tricks do they reward? {command} --reward_funcs "
            f"{' '.join(args.recipe.reward_funcs)}"
        )
    models = [reward_name(reward) for reward in rewards if reward_kind(reward) == "model"]
    return [
        *notes,
        *(
            f"{name} is of the kind model: neither preflight nor the audit call it"
            for name in models
        ),
    ]


def cost_notes(
    args: Arguments, rows: list[dict], held_out: int, validation: int, rewards: list[Callable]
) -> list[str]:
    """Say of each reward that asks a server what a run costs: its completions, and each evaluated
    row.
    """
    completions = completions_of_run(args.training, world_size(), len(rows))
    asking = [reward for reward in rewards if declared(reward, "cost", None)]
    if not (rows and completions) or check_columns(rows):
        return []
    calls, tokens = completions + 2 * held_out, args.training["max_completion_length"] or 0
    more = f"; {validation} more at each validation" if validation else ""
    return [
        f"{reward_name(r)}: a run makes {declared(r, 'cost', None)(rows, calls, tokens)}{more}"
        for r in asking
    ]


def step_notes(
    rows: list[dict], rewards: list[Callable], reference_completion: Callable[[dict], str | None]
) -> list[str]:
    """Say for each step reward which steps it sees in the reference completion of the first row it
    scores.
    """
    notes = []
    for reward in (reward for reward in rewards if reward_kind(reward) == "step"):
        mine = [
            i
            for i, row in enumerate(rows)
            if scores_task(reward, row["task"]) and reference_completion(row)
        ]
        for number in mine[:1]:
            text = completion_text(reference_completion(rows[number]))
            (steps,) = score(reward, [rows[number]], [text])
            count = f"{len(steps or []) or 'no'} step{'s' * (len(steps or []) != 1)}"
            shown = f": {shown_steps(text, steps)}" if steps else ""
            notes.append(
                f"{reward_name(reward)} sees {count} in the reference completion of row "
                f"{number}{shown}"
            )
    return notes


def shown_steps(text: str, steps: Steps) -> str:
    """Show each step with its reward: the text since the step before it, of that the last 40
    characters.

    Example: `shown_steps("3 + 4 = 7, 7 - 2 = 6", [(9, 1.0), (20, -1.0)]) == "'3 + 4 = 7' +1, ', 7 -
    2 = 6' -1"`
    """
    ends = sorted(steps)
    pieces = zip([0, *(end for end, _ in ends)], ends, strict=False)
    return ", ".join(
        f"{text[max(start, end - 40) : end]!r} {reward:+g}" for start, (end, reward) in pieces
    )


def resolved(
    recipe: RecipeArguments, training: dict[str, Any], model: dict[str, Any], name: str
) -> dict[str, Any]:
    """Every value of the run as plain data, secrets left out: a later start is compared with it."""
    values = {"recipe": name, **asdict(recipe), **training, **model, "world_size": world_size()}
    public = {name: value for name, value in values.items() if not name.endswith("_token")}
    return json.loads(json.dumps(public, default=lambda value: getattr(value, "value", str(value))))


def report(result: Preflight, args: Arguments) -> str:
    """The text of preflight: the table of rewards, notes, and either the problems or the batch in
    one sentence.
    """
    lines = [f"Preflight of {args.config_path or 'the command line'}"]
    if result.streamed:
        seen = f"only its first {len(result.rows)} rows were checked"
        lines.append(f"  streamed data: {seen}, and a second pass is not resumed exactly")
    table = [line.cells() for line in result.lines]
    lines += [format_table(table) if table else "  (no rows or rewards to check)"]
    lines += [f"  {note}" for note in result.notes]
    if not result.problems:
        return "\n".join([*lines, _batch_sentence(args.training, len(result.rows))])
    problems = [line for problem in result.problems for line in problem.split("\n")]
    count = len(problems)
    lines.append(
        f"\n{count} problem{'s' * (count > 1)}; nothing was loaded and nothing was written:"
    )
    return "\n".join([*lines, *(f"  - {problem}" for problem in problems)])


def _batch_sentence(training: dict[str, Any], rows: int) -> str:
    group, world = training["num_generations"], world_size()
    batch = (
        training["per_device_train_batch_size"] * world * training["gradient_accumulation_steps"]
    )
    device = "CPU" if training["use_cpu"] else "accelerator"
    return (
        f"  {rows} rows; an optimizer step learns from {batch} completions "
        f"({batch / group:g} prompt{'s' * (batch != group)} x {group}) on "
        f"{world} {device} process{'es' * (world > 1)}.\n  Everything checked is as it should be.\n"
    )
