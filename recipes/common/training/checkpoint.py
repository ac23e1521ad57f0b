"""Save checkpoints so that a resume can tell whether one is whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trl
from transformers import trainer as hf_trainer

from recipes.common.training.completion import replaced
from recipes.common.utils.run_files import write_manifest


@contextmanager
def manifest_at_the_end(trainer: trl.GRPOTrainer, trial: Any) -> Iterator[None]:
    """Save a checkpoint inside the block; its manifest is written after it, as the last file.

    Only then are the oldest checkpoints deleted, so that a kill at any time leaves a whole one.
    """
    with replaced(hf_trainer, rotate_checkpoints=lambda **options: None):
        yield
    trainer.accelerator.wait_for_everyone()  # each process writes files of its own
    if trainer.args.should_save:
        folder = Path(trainer._get_output_dir(trial=trial))
        write_manifest(folder / f"checkpoint-{trainer.state.global_step}")
        hf_trainer.rotate_checkpoints(
            output_dir=str(folder),
            save_total_limit=trainer.args.save_total_limit,
            best_model_checkpoint=trainer.state.best_model_checkpoint,
            use_mtime=True,
        )
