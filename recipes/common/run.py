"""The life of a run: judge, train, judge again, save."""

import shutil
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import AutoPeftModelForCausalLM
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOTrainer

from recipes.common.after.record import finish, summary_of
from recipes.common.before.preflight import Run
from recipes.common.during.callbacks import (
    BEFORE,
    BeforeCallback,
    Clock,
    InterruptCallback,
    LastStepCallback,
    NothingLeftToTrain,
    RunRecordCallback,
    SamplerOrderCallback,
    StepLineCallback,
)
from recipes.common.during.engine import EngineCallback
from recipes.common.during.moving_reference import MovingReferenceCallback, reference_is_whole
from recipes.common.during.tracking import TrackingCallback, continue_wandb_run
from recipes.common.evaluation.evaluate import evaluate_in_training
from recipes.common.evaluation.metrics import Metric
from recipes.common.evaluation.scores import read_rows, write_rows
from recipes.common.tools.machine import make_head_input_contiguous

AFTER = "evaluation/after.jsonl"
FULL_BYTES = 16 << 20  # less is not enough for the checkpoint of any model
INTERRUPTED = 130  # the shell's status for a program that SIGINT ended


def train_and_save(
    trainer: GRPOTrainer, run: Run, checkpoint: str | None, eval_rows: Dataset | None, metric: Metric
) -> dict[str, Any] | None:
    """Evaluate, train, evaluate again, and leave a folder that is enough to judge and repeat the run.

    Returns:
        What stands in summary.json; None on every rank but the main one.

    Raises:
        SystemExit: status 130 when the run was interrupted; a checkpoint is saved by then.
    """
    _check_step_rewards(trainer, run)
    folder, rows = Path(run.training.output_dir), eval_rows.to_list() if eval_rows else []
    clock, interrupt = Clock(folder), InterruptCallback(trainer)
    make_head_input_contiguous(trainer.accelerator.unwrap_model(trainer.model))
    disable_progress_bar()  # transformers would draw one for each file of each checkpoint
    for callback in (PrinterCallback, ProgressCallback):  # StepLineCallback says the same in one line
        trainer.remove_callback(callback)
    record, before = RunRecordCallback(run), BeforeCallback(trainer, run, rows, metric)
    up = EngineCallback(trainer)
    for callback in (
        up,
        SamplerOrderCallback(),
        record,
        TrackingCallback(folder, trainer.reward_func_names),
        before,
        StepLineCallback(),
        clock,
        interrupt,
        LastStepCallback(),
    ):
        trainer.add_callback(callback)
    if run.training.sync_ref_model and reference_is_whole(run.training):  # last, when it is known what is saved
        trainer.add_callback(MovingReferenceCallback(trainer, checkpoint))
    continue_wandb_run(folder, trainer.args, checkpoint)
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except NothingLeftToTrain:
        pass
    except (OSError, RuntimeError):  # what fails for lack of room does not always say so
        _explain_full_disk(folder)
        raise
    finally:
        interrupt.restore_handlers()
    if interrupt.requested:
        _stop_here(trainer, folder)
    judged = _after(trainer, run, rows, metric)
    _save_model(trainer, run)
    if not trainer.is_world_process_zero():
        return None
    summary = summary_of(trainer, run.config, read_rows(folder / BEFORE) if judged else None, judged, clock.minutes())
    finish(trainer, folder, summary)
    return summary


def _check_step_rewards(trainer: GRPOTrainer, run: Run) -> None:
    """A recipe that leaves them out of its trainer call would train without them."""
    named, there = run.recipe.step_reward_funcs or [], getattr(trainer, "step_reward_funcs", [])
    if len(named) != len(there):
        said = f"the run asks for the step rewards {named}, and the trainer has {len(there)} of them: hand it"
        raise ValueError(f"{said} step_reward_funcs=step_rewards, as recipes/gsm8k/train.py does.")


def _explain_full_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < FULL_BYTES:
        said = (
            f"error: the disk of {folder} is full ({free / 2**20:.0f} MiB left). What was being written is cut short;"
        )
        print(f"{said} make room and run the same command again to go on from the checkpoint before.", file=sys.stderr)


def _after(trainer: GRPOTrainer, run: Run, rows: list[dict], metric: Metric) -> list[dict] | None:
    if not rows:
        return None
    judged = evaluate_in_training(trainer, rows, metric, run.recipe.num_eval_samples, "after")
    if trainer.is_world_process_zero():
        write_rows(Path(run.training.output_dir, AFTER), judged)
    return judged


def _save_model(trainer: GRPOTrainer, run: Run) -> None:
    """The final model (under LoRA its adapter) in the run folder, the merged one beside it on request."""
    trainer.save_model(_internal_call=True)  # without a push: that comes last, with the table in the model card
    trainer.save_state()
    if run.recipe.merge_adapter and run.model.use_peft and trainer.is_world_process_zero():
        _save_merged(trainer, Path(run.training.output_dir, "merged"))


def _save_merged(trainer: GRPOTrainer, folder: Path) -> None:
    """Merge from what was saved, so that the model in memory keeps its adapter whatever engine holds it."""
    unset_hf_deepspeed_config()  # under ZeRO-3 loading would wait for ranks that do not load
    dtype = trainer.accelerator.unwrap_model(trainer.model).dtype
    merged = AutoPeftModelForCausalLM.from_pretrained(trainer.args.output_dir, dtype=dtype).merge_and_unload()
    merged.save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)


def _stop_here(trainer: GRPOTrainer, folder: Path) -> None:
    if trainer.is_world_process_zero():
        step = trainer.state.global_step
        print(f"\nStopped after step {step} of {trainer.state.max_steps}; saved {folder / f'checkpoint-{step}'}.")
        print("Run the same command again to go on from there (without --fresh).", flush=True)
    sys.exit(INTERRUPTED)
