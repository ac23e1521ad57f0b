"""A reference model that moves (TRL's `sync_ref_model`) is kept in each checkpoint and restored on resume.

TRL puts only the policy into checkpoints, so a resumed run would compare with the model that training started from.
The reference is written before the trainer's own files, of which trainer_state.json is the last: a checkpoint that is
whole has its reference, and `save_total_limit` never deletes an older one for one that has none yet.

*Not covered*: ZeRO-3 and FSDP, where no process holds the reference whole: nothing is written, and such a
run is not resumed.
"""

import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

REFERENCE = "reference.safetensors"


def reference_is_whole(training: GRPOConfig) -> bool:
    """Whether each process holds all of the reference: not under ZeRO-3 and FSDP."""
    fsdp = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true") or bool(
        training.fsdp
    )
    return not fsdp and (
        training.deepspeed_plugin is None or training.deepspeed_plugin.zero_stage != 3
    )


class MovingReferenceCallback(TrainerCallback):
    """Save the reference with each checkpoint, after TRL has moved it; restore it from `checkpoint`, None at step 0.

    Add it after every callback that may ask for a checkpoint.
    """

    def __init__(self, trainer: GRPOTrainer, checkpoint: str | None):
        self.trainer, self.checkpoint = trainer, checkpoint

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if self.checkpoint is not None:
            restore_reference(self._reference(), Path(self.checkpoint))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if (
            control.should_save and args.should_save
        ):  # a checkpoint is due, and this process is the one that writes
            save_reference(
                self._reference(), Path(args.output_dir, f"checkpoint-{state.global_step}")
            )

    on_epoch_end = on_step_end  # save_strategy: epoch asks for its checkpoint here

    def _reference(self) -> torch.nn.Module:
        return self.trainer.accelerator.unwrap_model(self.trainer.ref_model)


def save_reference(model: torch.nn.Module, folder: Path) -> None:
    """Write the parameters of the reference, which are all that TRL moves, aside and rename them."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = (folder / REFERENCE).with_suffix(".partial")
    save_file(
        {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()},
        partial,
    )
    partial.rename(folder / REFERENCE)


def restore_reference(model: torch.nn.Module, folder: Path) -> None:
    """Restore the reference of a checkpoint bit for bit; ValueError where it is that of another model."""
    saved, parameters = load_file(folder / REFERENCE), dict(model.named_parameters())
    if {name: p.shape for name, p in saved.items()} != {
        name: p.shape for name, p in parameters.items()
    }:
        raise ValueError(f"{folder / REFERENCE} holds the parameters of another model.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])
