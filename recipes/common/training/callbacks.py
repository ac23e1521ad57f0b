"""Callbacks of a run: resume, stop, interrupt, print a line for each step, measure time."""

import ctypes
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState
from trl import GRPOTrainer

from recipes.common.utils.run_files import MINUTES, read_json, write_json
from recipes.common.utils.screen import announce, is_main
from recipes.common.utils.tables import in_words, percent

INTERRUPTED = (
    b"\nInterrupted: a checkpoint is saved at the end of this generation. "
    b"Ctrl-C again to quit at once.\n"
)
PR_SET_PDEATHSIG = 1  # Linux: choose the signal that a process gets when its parent dies


class ResumeCallback(TrainerCallback):
    """Restore the order of the rows, which a checkpoint does not store.

    TRL's `RepeatSampler` shuffles once an epoch from a random generator that a resumed run starts
    anew. Without this callback, epoch 2 of a resumed run would repeat the order of epoch 1.
    """

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Shuffle once for each epoch that is over, to bring the generator to where it was."""
        loader = kwargs["train_dataloader"]
        batches = loader.batch_sampler
        while hasattr(batches, "batch_sampler"):  # accelerate's shards, one for each process
            batches = batches.batch_sampler
        sampler = getattr(batches, "sampler", None)
        generator = getattr(sampler, "generator", None)
        if generator is not None:  # None: the rows are streamed or not shuffled
            steps_per_epoch = max(1, math.ceil(len(loader) / args.gradient_accumulation_steps))
            for _ in range(state.global_step // steps_per_epoch):
                torch.randperm(sampler.num_samples, generator=generator)


class NothingLeftToTrain(Exception):
    """The run was already at its end when training started: the loop would train too far."""


class LastStepCallback(TrainerCallback):
    """Stop a resumed run that has done its last step from training on; add this callback last."""

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step >= state.max_steps:
            raise NothingLeftToTrain


class StopEarlyCallback(EarlyStoppingCallback):
    """transformers' callback, but a resumed run keeps the patience counter and stays stopped."""

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Take the counter of the checkpoint; raise `NothingLeftToTrain` if patience is used up."""
        saved = state.stateful_callbacks[type(self).__name__]["attributes"]
        self.early_stopping_patience_counter = saved["early_stopping_patience_counter"]
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            raise NothingLeftToTrain

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        is_over = control.should_training_stop  # by the last step, or a signal
        super().on_evaluate(args, state, control, **kwargs)
        if control.should_training_stop and not is_over:
            announce(f"Stopping early, after step {state.global_step} of {state.max_steps}.")


def generation_period(
    gradient_accumulation_steps: int, steps_per_generation: int, num_iterations: int
) -> int | None:
    """Return after how many optimizer steps TRL's generation buffer is used up.

    A run can be resumed only from such a step, because a checkpoint does not store the buffer. None
    if the buffer and the optimizer steps do not align. Example: `generation_period(1, 4, 2) == 8`
    """
    generate_every = steps_per_generation * num_iterations
    if gradient_accumulation_steps % generate_every == 0:
        return 1
    if generate_every % gradient_accumulation_steps == 0:
        return generate_every // gradient_accumulation_steps
    return None


class InterruptCallback(TrainerCallback):
    """On SIGINT or SIGTERM, save at the end of the generation and stop all ranks.

    A signal may reach only the launcher and end it. On Linux the kernel then sends SIGTERM to this
    process, which saves. A launcher may also repeat the signal within seconds, so a second SIGINT
    ends the process at once only after `GRACE_S`.
    """

    GRACE_S = 5.0

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer
        self.requested = False
        self.signalled_at: float | None = None
        self.replaced: dict[int, Any] = {}
        is_launched = "ACCELERATE_MIXED_PRECISION" in os.environ  # by `accelerate launch`
        if sys.platform == "linux" and is_launched:  # the launcher's end sends this process SIGTERM
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.replaced[number] = signal.signal(number, self._on_signal)

    def restore_handlers(self) -> None:
        """Let signals end the process as usual: outside the training steps nothing needs saving."""
        for number, handler in self.replaced.items():
            signal.signal(number, handler)
        self.replaced.clear()

    def _on_signal(self, number: int, frame: Any) -> None:
        """Note the first signal; a SIGINT more than `GRACE_S` (5 s) later ends the process."""
        now = time.monotonic()
        if self.signalled_at is None:
            self.signalled_at = now
            if is_main():  # os.write: the signal handled here may have interrupted a print
                os.write(2, INTERRUPTED)
        elif number == signal.SIGINT and now - self.signalled_at > self.GRACE_S:
            raise KeyboardInterrupt

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """If any rank was signalled, save and stop at the next step that can be resumed from."""
        period = generation_period(
            args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations
        )
        if state.global_step % (period or 1):  # in the middle of a generation
            return
        accelerator, is_signalled = self.trainer.accelerator, self.signalled_at is not None
        flag = torch.tensor([is_signalled], dtype=torch.int, device=accelerator.device)
        if accelerator.gather(flag).any() and state.global_step < state.max_steps:
            self.requested = control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        """The step has saved: an evaluation inside an epoch would count for patience and best."""
        if self.requested and state.epoch % 1:
            control.should_save = control.should_evaluate = False


class StepLineCallback(TrainerCallback):
    """Print a line for each logged step and evaluation."""

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        # A resumed run starts from a later step.
        self.first_step, self.started = state.global_step, time.monotonic()
        if state.global_step < state.max_steps:
            announce(f"Training from step {state.global_step + 1} to {state.max_steps} ...")

    def on_log(self, args, state, control, logs: dict | None = None, **kwargs) -> None:
        """Print what was logged: `logs` of an evaluation, of a step, or of both."""
        if not state.is_world_process_zero or not logs:
            return
        step, curve = f"step {state.global_step}/{state.max_steps}", {}
        for name, value in logs.items():
            if name.startswith("validation/"):
                curve[name.removeprefix("validation/")] = value
        if curve:
            length = f"length {_number(curve.pop('mean_length'), 0)}"
            shares = [f"{in_words(name)} {100 * value:.1f} %" for name, value in curve.items()]
            print(f"{step}  validation: {'  '.join([*shares, length])}", flush=True)
        if "reward" in logs:
            print("  ".join([step, *_step_parts(logs)]) + self._time_left(state), flush=True)

    def _time_left(self, state: TrainerState) -> str:
        """The time left at the pace so far, evaluations included: `", 0:07:30 left"`."""
        done, to_go = state.global_step - self.first_step, state.max_steps - state.global_step
        seconds = (time.monotonic() - self.started) / max(1, done) * to_go
        return f", {timedelta(seconds=round(seconds))} left" if to_go > 0 else ""


def _step_parts(logs: dict[str, Any]) -> list[str]:
    """The parts of a step's line: `["reward 0.50 = right 0.50", ..., "length 28", "2.1 s"]`.

    A metric has its pull, the mean covariance with the advantage inside a group: below 0 the update
    lowers it. A group teaches if its rewards differ.
    """
    summands, metrics = [], []
    for key, value in logs.items():
        kind, _, name = key.partition("/")
        if kind == "reward_parts":
            summands.append(f"{name} {_number(value)}")
        elif kind == "metrics" and value is not None:
            pull = logs.get(f"push/{name}")
            with_pull = "" if pull is None else f" (pull {pull:+.2f})"
            metrics.append(f"{in_words(name)} {percent(value, 0)}{with_pull}")
    equation = f" = {' + '.join(summands)}" if summands else ""
    teaching = f"groups that teach {percent(1 - logs.get('groups/without_spread', 0.0), 0)}"
    if (verified := logs.get("groups/verifier_spread")) is not None:
        teaching += f" (by correctness {percent(verified, 0)})"
    parts = [
        f"reward {_number(logs['reward'])}{equation}",
        *metrics,
        f"length {_number(logs.get('completions/mean_length'), 0)}",
        f"truncated {percent(float(logs.get('completions/clipped_ratio') or 0), 0)}",
        teaching,
    ]
    if voided := logs.get("completions/voided"):
        parts.append(f"left out {percent(voided, 0)}")
    if "kl" in logs:
        parts.append(f"kl {_number(logs['kl'], 4)}")
    return [*parts, f"{_number(logs.get('step_time'), 1)} s"]


def _number(value: Any, digits: int = 2) -> str:
    """Format a number; a dash for None or NaN (a reward with no row in the batch has mean NaN)."""
    return "-" if value is None or math.isnan(float(value)) else f"{float(value):.{digits}f}"


class Clock(TrainerCallback):
    """Measure the wall time of a run and of its phases, summed over all starts of the run.

    `with clock("scoring"):` times a phase, without the phases nested inside. On a GPU, queued work
    may still run when the phase ends.
    """

    def __init__(self, folder: Path):
        self.path, self.started = folder / MINUTES, time.monotonic()
        before = read_json(self.path, {})
        self.before, self.seconds = before.get("minutes", 0.0), Counter(before.get("seconds"))
        self._inside: list[float] = []  # for each open phase: seconds in phases nested in it

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block to the seconds of `phase`, but for phases inside it."""
        started = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            taken = time.perf_counter() - started
            self.seconds[phase] += taken - self._inside.pop()
            if self._inside:
                self._inside[-1] += taken

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step == 0:  # an earlier run in this folder does not count
            self.before, self.seconds = 0.0, Counter()

    def minutes(self) -> float:
        """The minutes of this start and of all earlier ones."""
        return self.before + (time.monotonic() - self.started) / 60

    def on_save(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero:
            write_json(self.path, {"minutes": self.minutes(), "seconds": self.seconds})
