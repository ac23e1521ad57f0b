"""The life of a run on one page: check, evaluate, train, evaluate again, save."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils.logging import disable_progress_bar
from trl import ModelConfig

from recipes.common.evaluation.metrics import Metric, answer_metric, try_metric
from recipes.common.settings import RecipeArguments, parse_arguments
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.config import add_model_arguments
from rewards import Reward


@dataclass
class Run:
    """A run that passed preflight: what the trainer call needs, and the record of the run."""

    recipe: RecipeArguments
    training: GRPOConfig
    model: ModelConfig
    rewards: list[Reward]
    train_rows: Dataset | IterableDataset
    eval_rows: Dataset | None  # held-out rows: evaluated before and after training
    validation_rows: Dataset | None  # from the training split; eval_strategy says when
    checkpoint: str | None  # to resume from
    config: dict[str, Any]  # every setting, resolved
    preflight: dict[str, Any]  # the table of rewards and notes


def start(
    recipe_type: type[RecipeArguments],
    load_rows: Callable[[Any, int], tuple[Any, Any]],
    reference_completion: Callable[[dict], str | None],
) -> Run:
    """Read the arguments, load rows and rewards, check them together, and open the run folder.

    Raises:
        SystemExit: status 2 with a list of all problems; status 0 after `--dry_run`, or if the run
        is already finished.
    """
    # Imported here, so that a script can import a recipe without loading these modules.
    from recipes.common.checks.model import model_folder
    from recipes.common.checks.preflight import preflight, report, resolved
    from recipes.common.checks.run_folder import dtype_of_run, identity_of, open_run_folder
    from recipes.common.data.recipe import load_parts
    from recipes.common.training.tools import load_environment, load_tools
    from recipes.common.utils.machine import use_all_cores
    from recipes.common.utils.screen import announce, end, explain_endings, refuse
    from recipes.common.utils.secrets import hide_secrets

    # A launcher may start this process with SIGINT ignored: make Ctrl-C work again.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    args = parse_arguments(recipe_type)
    # W&B and the run's record store the command.
    sys.argv[:] = hide_secrets(sys.argv)
    explain_endings()
    announce("Checking settings, rows and rewards ...")
    result = preflight(args, load_parts(args, load_rows), reference_completion)
    if args.problems:
        refuse(report(result))
    announce(report(result))
    recipe, training, model = args.recipe, result.training, result.model
    if recipe.dry_run:
        end(0)
    use_all_cores(training)
    if model.dtype == "fastest":
        model.dtype = args.model["dtype"] = dtype_of_run(recipe, training)
    add_model_arguments(training, model)
    if training.project != "huggingface":
        # transformers reads W&B's project only from the environment.
        os.environ.setdefault("WANDB_PROJECT", training.project)
    config = resolved(recipe, args.training, args.model, Path(sys.argv[0]).resolve().parent.name)
    code = [*result.rewards, *load_tools(training.tools)]
    if training.environment_factory:
        code.append(load_environment(training.environment_factory))
    code += [load_rows, answer_metric]  # train.py and metrics.py: before and after measure alike
    held_out = result.eval_rows.to_list() if result.eval_rows else []
    start_model = model_folder(model.model_name_or_path, model.model_revision)
    template = training.chat_template_path
    identity = identity_of(code, result.rows, held_out, start_model, template)
    checkpoint = open_run_folder(recipe, training, {**config, **identity}, held_out)
    announce("Loading the model ...")
    rows = (result.train_rows, result.eval_rows, result.validation_rows)
    return Run(recipe, training, model, result.rewards, *rows, checkpoint, config, result.record())


def train_and_save(trainer: GRPOTrainer, run: Run, metric: Metric) -> dict[str, Any] | None:
    """Evaluate, train, evaluate again, and save the model and the record of the run.

    Returns the content of summary.json on the main rank, and None on the other ranks. An
    interrupted run saves a checkpoint and exits with status 130.
    """
    from recipes.common.report.record import final_table, push, summary_of, write_card, write_record
    from recipes.common.training import callbacks
    from recipes.common.training.engine import EngineCallback
    from recipes.common.training.tracking import (
        TrackingCallback,
        continue_wandb_run,
        outlive_trackers,
    )
    from recipes.common.utils.machine import make_head_input_contiguous
    from recipes.common.utils.run_files import PREFLIGHT, write_json
    from recipes.common.watch import Watch

    check_metric(run, metric)
    args, recipe, folder = run.training, run.recipe, Path(run.training.output_dir)
    clock, interrupt = callbacks.Clock(folder), callbacks.InterruptCallback(trainer)
    watch = Watch(
        trainer,
        run.eval_rows,
        metric,
        run.validation_rows,
        clock,
        samples=recipe.num_eval_samples,
        metric_steps=recipe.metric_steps,
    )
    trainer.phase, trainer.observe = clock, watch.observe
    trainer.is_watched = bool(run.validation_rows)
    make_head_input_contiguous(trainer.accelerator.unwrap_model(trainer.model))
    disable_progress_bar()  # transformers draws one for each file of a checkpoint
    for printer in (PrinterCallback, ProgressCallback):  # StepLineCallback replaces both
        trainer.remove_callback(printer)
    patience = recipe.early_stopping_patience
    for callback in (
        EngineCallback(trainer),
        callbacks.ResumeCallback(),
        TrackingCallback(folder, run.config),
        clock,
        # Evaluates before training as `train` begins, since engines wrap the model inside it.
        watch,
        callbacks.StepLineCallback(),
        interrupt,
        *([callbacks.StopEarlyCallback(patience)] if patience else []),
        callbacks.LastStepCallback(),
    ):
        trainer.add_callback(callback)
    continue_wandb_run(folder, trainer.args, run.checkpoint)
    outlive_trackers(trainer)
    is_main = trainer.is_world_process_zero()
    if is_main:
        write_json(folder / PREFLIGHT, run.preflight)
    try:
        trainer.train(resume_from_checkpoint=run.checkpoint)
    except callbacks.NothingLeftToTrain:
        # transformers loads the best checkpoint only after its loop, and forgets the path if moved.
        if args.load_best_model_at_end and (best := trainer.state.best_global_step):
            trainer.state.best_model_checkpoint = str(folder / f"checkpoint-{best}")
            trainer._load_best_model()
    finally:
        interrupt.restore_handlers()
    if interrupt.requested:
        step = trainer.state.global_step
        if is_main:
            saved = folder / f"checkpoint-{step}"
            print(f"\nStopped after step {step} of {trainer.state.max_steps}; saved {saved}.")
            print("Run the same command again to resume (without --fresh).", flush=True)
        sys.exit(130)  # the shell's status for a program that SIGINT ended
    watch.after()
    # Do not push yet: the push comes last, when the model card has the table.
    trainer.save_model(_internal_call=True)
    trainer.save_state()
    if not is_main:
        return None
    summary = summary_of(trainer, run.config, clock)
    write_card(trainer, folder, final_table(folder, summary))
    write_record(trainer, folder, summary)
    if args.push_to_hub:
        push(trainer.hub_model_id, folder, args.hub_token, args.hub_revision)
    return summary


def check_metric(run: Run, metric: Metric) -> None:
    """Exit with an error if the metric fails or lacks the name that chooses the checkpoint."""
    from recipes.common.utils.screen import refuse

    try:
        names = try_metric(metric, run.validation_rows or run.eval_rows or [])
    except ValueError as error:
        refuse(f"error: {error}")
    chosen = run.training.metric_for_best_model or ""
    known = sorted(f"validation/{name}" for name in names)
    if run.validation_rows and chosen.startswith("validation/") and chosen not in known:
        refuse(
            f"error: metric_for_best_model is {chosen!r}; the validation rows have "
            f"{', '.join(known)}."
        )
