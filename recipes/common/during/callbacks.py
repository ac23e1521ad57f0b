"""What happens around the steps of a run: its record, the untrained model's evaluation, a line a step, Ctrl-C."""

import ctypes
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from recipes.common.after.plots import is_reward_mean
from recipes.common.after.record import versions
from recipes.common.before.batch import generation_period
from recipes.common.before.preflight import Run
from recipes.common.before.rows import format_table
from recipes.common.during.tracking import wandb_run
from recipes.common.evaluation.evaluate import evaluate_in_training
from recipes.common.evaluation.metrics import Metric
from recipes.common.evaluation.scores import comparison_table, summarize, write_rows
from recipes.common.tools.folder import write_json

BEFORE = "evaluation/before.jsonl"
INTERRUPTED = b"\nInterrupted: a checkpoint is saved at the end of this generation. Ctrl-C again to quit at once.\n"
WAITS_30_S = (
    b"The launcher waits 30 s for it: export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600 before the next launch if that is "
    b"too short for a generation.\n"
)


class NothingLeftToTrain(Exception):
    """The checkpoint is of the last step; raised once the engine holds it, since the loop would train one step more."""


class LastStepCallback(TrainerCallback):
    """Keep a run that was cut short after its last step from training beyond it."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        if state.global_step >= state.max_steps:
            raise NothingLeftToTrain


class SamplerOrderCallback(TrainerCallback):
    """Restore the order of the rows when a run resumes in a later epoch.

    TRL's `RepeatSampler` shuffles from a generator that moves on with each epoch and is not part of a
    checkpoint: without this, epoch 2 of a resumed run would repeat the order of epoch 1.
    """

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        loader = kwargs["train_dataloader"]
        sampler = _innermost_sampler(loader)
        generator = getattr(sampler, "generator", None)
        if generator is None:  # not shuffled, or a stream
            return
        steps_per_epoch = max(1, math.ceil(len(loader) / args.gradient_accumulation_steps))
        for _ in range(state.global_step // steps_per_epoch):
            torch.randperm(sampler.num_samples, generator=generator)


def _innermost_sampler(loader: DataLoader) -> Sampler | None:
    """The sampler of rows below the shards that accelerate lays over it, one for each process."""
    batches = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return getattr(batches, "sampler", None)


class RunRecordCallback(TrainerCallback):
    """Write down what is run before its first step, in the folder and in W&B."""

    def __init__(self, run: Run):
        self.run = run

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        _add_start(folder / "versions.json", state.global_step)
        report = "\n".join([format_table(self.run.table), *(f"  {note}" for note in self.run.notes)])
        (folder / "preflight.txt").write_text(report + "\n", encoding="utf-8")
        tracked = wandb_run(args)
        if tracked is not None:
            tracked.config.update({"recipe": self.run.config}, allow_val_change=True)


def _add_start(path: Path, step: int) -> None:
    """Each start of a run adds its versions: halves of a run may come from different commits."""
    starts = json.loads(path.read_text()) if path.is_file() else []
    write_json(path, [*starts, {"from_step": step, **versions()}])


class BeforeCallback(TrainerCallback):
    """Evaluate the untrained model once the engine is up; a resumed run has done it already."""

    def __init__(self, trainer: GRPOTrainer, run: Run, rows: list[dict], metric: Metric):
        self.trainer, self.run, self.rows, self.metric = trainer, run, rows, metric

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        path = Path(args.output_dir, BEFORE)
        if not self.rows or _on_main(self.trainer, path.is_file):
            return
        samples = self.run.recipe.num_eval_samples
        judged = evaluate_in_training(self.trainer, self.rows, self.metric, samples, "before")
        if state.is_world_process_zero:
            write_rows(path, judged)
            print(comparison_table(summarize(judged), None, None), flush=True)


class StepLineCallback(TrainerCallback):
    """One readable line a logged step."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict | None = None, **kwargs
    ) -> None:
        if not state.is_world_process_zero or not logs or "reward" not in logs:
            return
        rewards = [f"{name.split('/')[1]} {_number(value)}" for name, value in logs.items() if is_reward_mean(name)]
        parts = [f"step {state.global_step}/{state.max_steps}", f"reward {_number(logs['reward'])}", *rewards]
        parts += [f"length {_number(logs.get('completions/mean_length'), 0)}"]
        parts += [f"cut off {100 * float(logs.get('completions/clipped_ratio') or 0):.0f} %"]
        parts += [f"kl {_number(logs['kl'], 4)}"] if "kl" in logs else []
        parts += [f"{_number(logs.get('step_time'), 1)} s"]
        print("  ".join(parts), flush=True)


class Clock(TrainerCallback):
    """Wall time of a run, evaluations included, added up over its interruptions."""

    def __init__(self, folder: Path):
        self.path = folder / "minutes.json"
        self.started = time.monotonic()
        self.before = json.loads(self.path.read_text())["minutes"] if self.path.is_file() else 0.0

    def minutes(self) -> float:
        return self.before + (time.monotonic() - self.started) / 60

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        if state.is_world_process_zero:
            write_json(self.path, {"minutes": self.minutes()})


class InterruptCallback(TrainerCallback):
    """On SIGINT or SIGTERM, save at the end of the current generation and stop, on all ranks together.

    The launcher may die of the same Ctrl-C before its child has saved, or be the only one signalled;
    then the kernel passes its death on (Linux). A launcher may also repeat the signal within seconds,
    so only a second SIGINT after `GRACE_S` ends the process at once.
    """

    GRACE_S = 5.0

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer
        self.requested = False
        self.signalled_at: float | None = None
        self.replaced: dict[int, Any] = {}
        if sys.platform == "linux" and "ACCELERATE_MIXED_PRECISION" in os.environ:  # set by `accelerate launch`
            PR_SET_PDEATHSIG = 1
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.replaced[number] = signal.signal(number, self._on_signal)

    def restore_handlers(self) -> None:
        """Signals end the process as usual again: outside the steps there is nothing to save."""
        for number, handler in self.replaced.items():
            signal.signal(number, handler)
        self.replaced.clear()

    def _on_signal(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self.signalled_at is not None and number == signal.SIGINT and now - self.signalled_at > self.GRACE_S:
            raise KeyboardInterrupt
        if self.signalled_at is None:
            self.signalled_at = now
            # os.write: a print may be interrupted by the very signal that is handled here.
            os.write(2, INTERRUPTED + (WAITS_30_S if _launcher_kills_soon() else b""))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        period = generation_period(args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations)
        if state.global_step % (period or 1):
            return
        flag = torch.tensor([self.signalled_at is not None], dtype=torch.int, device=self.trainer.accelerator.device)
        if self.trainer.accelerator.gather(flag).any() and state.global_step < state.max_steps:
            self.requested = True
            control.should_save = True
            control.should_training_stop = True


def _launcher_kills_soon() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ


def _on_main(trainer: GRPOTrainer, question: Any) -> bool:
    """The main process's answer, on all ranks: their file systems may not agree."""
    answer = [question() if trainer.is_world_process_zero() else None]
    if trainer.accelerator.num_processes > 1:
        answer = broadcast_object_list(answer)
    return bool(answer[0])


def _number(value: Any, digits: int = 2) -> str:
    """What has no value is a dash: a reward whose tasks are not in the batch has a mean of NaN."""
    return "-" if value is None or math.isnan(float(value)) else f"{float(value):.{digits}f}"
