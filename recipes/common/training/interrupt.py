"""Ctrl-C and SIGTERM: a checkpoint at the end of the generation, on all ranks together."""

import ctypes
import os
import signal
import sys
import time
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

INTERRUPTED = (
    b"\nInterrupted: a checkpoint is saved at the end of this generation. "
    b"Ctrl-C again to quit at once.\n"
)
WAITS_30_S = (
    b"The launcher waits 30 s for it: export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600 before the next "
    b"launch if that is too short for a generation.\n"
)


def generation_period(
    gradient_accumulation_steps: int, steps_per_generation: int, num_iterations: int
) -> int | None:
    """Optimizer steps between two moments at which TRL's generation buffer is used up.

    Only there can a run be resumed, as no checkpoint has the buffer. Example: `generation_period(1,
    4, 2) == 8`
    """
    generate_every = steps_per_generation * num_iterations
    if gradient_accumulation_steps % generate_every == 0:
        return 1
    if generate_every % gradient_accumulation_steps == 0:
        return generate_every // gradient_accumulation_steps
    return None


class InterruptCallback(TrainerCallback):
    """On SIGINT or SIGTERM, save at the end of the generation and stop, on all ranks.

    The launcher may die of the same Ctrl-C before its child has saved, or be the only one
    signalled; then the kernel passes its death on (Linux). A launcher may also repeat the signal
    within seconds, so only a second SIGINT after `GRACE_S` ends the process at once.
    """

    GRACE_S = 5.0

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer
        self.requested = False
        self.signalled_at: float | None = None
        self.replaced: dict[int, Any] = {}
        if (
            sys.platform == "linux" and "ACCELERATE_MIXED_PRECISION" in os.environ
        ):  # set by `accelerate launch`
            PR_SET_PDEATHSIG = 1
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.replaced[number] = signal.signal(number, self._on_signal)

    def restore_handlers(self) -> None:
        """Signals end the process as usual again: outside the steps there is nothing to save."""
        for number, handler in self.replaced.items():
            signal.signal(number, handler)
        self.replaced.clear()

    def _on_signal(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if (
            self.signalled_at is not None
            and number == signal.SIGINT
            and now - self.signalled_at > self.GRACE_S
        ):
            raise KeyboardInterrupt
        if self.signalled_at is None:
            self.signalled_at = now
            # os.write: a print may be interrupted by the very signal that is handled here.
            kills_soon = (
                "TORCHELASTIC_RUN_ID" in os.environ
                and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ
            )
            os.write(2, INTERRUPTED + (WAITS_30_S if kills_soon else b""))

    def on_step_end(self, args, state, control, **kwargs) -> None:
        period = generation_period(
            args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations
        )
        if state.global_step % (period or 1):
            return
        flag = torch.tensor(
            [self.signalled_at is not None], dtype=torch.int, device=self.trainer.accelerator.device
        )
        if self.trainer.accelerator.gather(flag).any() and state.global_step < state.max_steps:
            self.requested = True
            control.should_save = True
            control.should_training_stop = True
