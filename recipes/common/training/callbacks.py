"""Around the steps of a run: its record, the untrained model's evaluation, one line for each step."""

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from datasets import IterableDataset
from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOTrainer

from recipes.common.training.phases import Phases
from recipes.common.utils.machine import versions
from recipes.common.utils.run_files import (
    BEFORE,
    MINUTES,
    PREFLIGHT,
    VERSIONS,
    is_reward_mean,
    read_json,
    read_validation,
    write_json,
)
from recipes.common.utils.screen import announce
from recipes.common.utils.tables import percent

IDLE_STEPS = 10  # logged steps over which the share of groups without spread is averaged


class NothingLeftToTrain(Exception):
    """The checkpoint, which the engine holds by now, is of the last step: the loop would train one step more."""


class LastStepCallback(TrainerCallback):
    """Keep a run that was cut short after its last step from training beyond it."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if state.global_step >= state.max_steps:
            raise NothingLeftToTrain


class SamplerOrderCallback(TrainerCallback):
    """Restore the order of the rows when a run resumes in a later epoch.

    TRL's `RepeatSampler` shuffles from a generator that moves on with each epoch and is not part of a
    checkpoint: without this, epoch 2 of a resumed run would repeat the order of epoch 1.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        loader = kwargs["train_dataloader"]
        batches = loader.batch_sampler
        while hasattr(batches, "batch_sampler"):  # accelerate's shards, one for each process
            batches = batches.batch_sampler
        sampler = getattr(batches, "sampler", None)
        generator = getattr(sampler, "generator", None)
        if generator is None:  # not shuffled, or a stream
            return
        steps_per_epoch = max(1, math.ceil(len(loader) / args.gradient_accumulation_steps))
        for _ in range(state.global_step // steps_per_epoch):
            torch.randperm(sampler.num_samples, generator=generator)


def rows_trained_on(trainer: GRPOTrainer) -> int | None:
    """Count the distinct rows of the steps so far by drawing them once more, as they were drawn; None of a stream."""
    if isinstance(trainer.train_dataset, IterableDataset):
        return None
    sampler, args = trainer._get_train_sampler(), trainer.args
    of_a_step = (
        args.generation_batch_size * args.gradient_accumulation_steps
    )  # TRL repeats what it uses again
    epochs, steps = divmod(trainer.state.global_step, math.ceil(len(sampler) / of_a_step))
    drawn = [*itertools.repeat(len(sampler), epochs), steps * of_a_step]
    return len({row for count in drawn for row in itertools.islice(sampler, count)})


class ScheduleCallback(TrainerCallback):
    """Take the learning rate of the next step from the schedule: a checkpoint has that of the one before `--extend`."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        schedule = getattr(
            kwargs["lr_scheduler"], "scheduler", kwargs["lr_scheduler"]
        )  # accelerate's wrapper
        if state.global_step and hasattr(schedule, "lr_lambdas"):
            schedule.last_epoch -= 1
            schedule.step()


class RunRecordCallback(TrainerCallback):
    """Write preflight.json, and the versions of each start: halves of a run may come from different commits."""

    def __init__(self, preflight: dict[str, Any]):
        self.preflight = preflight

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        starts = read_json(folder / VERSIONS, default=[])
        write_json(folder / VERSIONS, [*starts, {"from_step": state.global_step, **versions()}])
        write_json(folder / PREFLIGHT, self.preflight)


def decided_by_main(trainer: GRPOTrainer, value: Any) -> Any:
    """The value that the main process has: file systems may not agree."""
    return broadcast_object_list([value])[0] if trainer.accelerator.num_processes > 1 else value


class BeforeCallback(TrainerCallback):
    """Evaluate the untrained model by `evaluate` once the engine is up; a resumed run has done it already."""

    def __init__(self, trainer: GRPOTrainer, evaluate: Callable[[], None]):
        self.trainer, self.evaluate = trainer, evaluate

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if not decided_by_main(self.trainer, Path(args.output_dir, BEFORE).is_file()):
            self.evaluate()


class ValidationCallback(TrainerCallback):
    """Evaluate the validation rows before the first step; a resumed run has done it already."""

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        done = any(
            line["step"] <= state.global_step for line in read_validation(Path(args.output_dir))
        )
        if decided_by_main(self.trainer, done):
            return
        metrics, wanted = self.trainer.evaluate(), args.metric_for_best_model
        if (
            wanted and f"eval_{wanted}" not in metrics
        ):  # transformers would find out at the first checkpoint
            names = ", ".join(name.removeprefix("eval_") for name in metrics)
            raise ValueError(
                f"metric_for_best_model is {wanted!r}; the validation rows have {names}."
            )


class StopEarlyCallback(EarlyStoppingCallback):
    """transformers' callback, whose count a resumed run takes up; a run that has stopped does not go on later."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        saved = state.stateful_callbacks[type(self).__name__]["attributes"]
        self.early_stopping_patience_counter = saved["early_stopping_patience_counter"]
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            raise NothingLeftToTrain

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        super().on_evaluate(args, state, control, **kwargs)
        if control.should_training_stop and state.is_world_process_zero:
            print(
                f"Stopping early, after step {state.global_step} of {state.max_steps}.", flush=True
            )


class StepLineCallback(TrainerCallback):
    """One readable line a logged step and an evaluation, and a warning, once, where most groups teach nothing."""

    def __init__(self):
        self.idle: deque[float] = deque(maxlen=IDLE_STEPS)
        self.warned = False
        self.start = (0, 0.0)  # step and time

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        self.start = (state.global_step, time.monotonic())
        if state.global_step < state.max_steps:
            announce(f"Training from step {state.global_step + 1} to {state.max_steps} ...")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict | None = None,
        **kwargs,
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        shares = {name: value for name, value in logs.items() if name.startswith("validation/")}
        if shares:
            print(
                _validation_line(f"step {state.global_step}/{state.max_steps}", shares), flush=True
            )
        if "reward" not in logs:
            return
        rewards = [
            f"{name.split('/')[1]} {_number(value)}"
            for name, value in logs.items()
            if is_reward_mean(name)
        ]
        parts = [
            f"step {state.global_step}/{state.max_steps}",
            f"reward {_number(logs['reward'])}",
            *rewards,
        ]
        parts += [f"length {_number(logs.get('completions/mean_length'), 0)}"]
        parts += [f"truncated {percent(float(logs.get('completions/clipped_ratio') or 0), 0)}"]
        without, verified = (
            logs.get("groups/without_spread", 0.0),
            logs.get("groups/verifier_spread"),
        )
        by_verifier = "" if verified is None else f" (by the verifier {percent(verified, 0)})"
        parts += [f"groups that teach {percent(1 - without, 0)}{by_verifier}"]
        voided, without_steps = (
            logs.get("completions/voided"),
            logs.get("frac_groups_without_step_spread", 1.0),
        )
        parts += [f"voided {percent(voided, 0)}"] if voided else []
        parts += ["the rewards taught nothing"] if without == without_steps == 1.0 else []
        parts += [f"kl {_number(logs['kl'], 4)}"] if "kl" in logs else []
        parts += [
            f"{name} {_number(value, 0)}"
            for name, value in logs.items()
            if name.startswith("llm_judge/")
        ]
        parts += [f"{_number(logs.get('step_time'), 1)} s{self._left(state)}"]
        print("  ".join(parts), flush=True)
        self.idle.append(without)
        if not self.warned and len(self.idle) == IDLE_STEPS and sum(self.idle) > IDLE_STEPS / 2:
            self.warned = True
            print(
                f"warning: over the last {IDLE_STEPS} logged steps {percent(sum(self.idle) / IDLE_STEPS, 0)} of the "
                "groups taught nothing: all completions of a group earned the same. Raise num_generations or "
                "temperature, take rows of another difficulty (scripts/filter_by_pass_rate.py), or warm-start the "
                "model (scripts/warm_start.py).",
                flush=True,
            )

    def _left(self, state: TrainerState) -> str:
        """The time to the last step at the pace so far, evaluations included: `", 7 min left"`."""
        step, started = self.start
        done, to_go = state.global_step - step, state.max_steps - state.global_step
        seconds = (time.monotonic() - started) / max(1, done) * to_go
        left = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
        left = f"{seconds:.0f} s" if seconds < 90 else left
        return f", {left} left" if to_go > 0 else ""


class Clock(TrainerCallback):
    """Wall time of a run, evaluations included, and the seconds of its phases, added up over its interruptions."""

    def __init__(self, folder: Path, phases: Phases):
        self.path, self.phases = folder / MINUTES, phases
        self.started = time.monotonic()
        before = read_json(self.path, default={"minutes": 0.0})
        self.before, self.seconds_before = before["minutes"], Counter(before.get("seconds"))

    def minutes(self) -> float:
        return self.before + (time.monotonic() - self.started) / 60

    def seconds(self) -> dict[str, float]:
        return dict(self.seconds_before + self.phases.seconds)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if state.is_world_process_zero:
            write_json(self.path, {"minutes": self.minutes(), "seconds": self.seconds()})


def _validation_line(step: str, logs: dict[str, float]) -> str:
    values = {name.partition("/")[2]: value for name, value in logs.items()}
    length = values.pop("mean_length")
    shares = [f"{name} {100 * value:.1f} %" for name, value in values.items()]
    return f"{step}  validation: " + "  ".join([*shares, f"length {_number(length, 0)}"])


def _number(value: Any, digits: int = 2) -> str:
    """A dash without a value: a reward whose tasks are not in the batch has a mean of NaN."""
    return "-" if value is None or math.isnan(float(value)) else f"{float(value):.{digits}f}"
