"""Cuts a training into steps and a step into parts: stopwatch, timers, and the stretches a measurement consists of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.gpu_time import gpu_busy, kernels_traced

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from recipes.common.trainer import GRPOTrainer

PARTS = (
    "data",
    "generation",
    "rewards",
    "log-probabilities",
    "forward",
    "backward",
    "optimizer",
    "callbacks and logging",
    "rest",
)


class Stopwatch:
    """Seconds by part, each second in one part only: the innermost one that is running, or rest."""

    def __init__(self, synchronize: Callable[[], None]):
        self.synchronize = synchronize
        self.running: list[str] = []
        self.start()

    def start(self) -> None:
        """From now on, from zero."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.mark = perf_counter()

    def charge(self) -> None:
        """Add the time since the last call to the part that is running."""
        self.synchronize()
        now = perf_counter()
        self.seconds[self.running[-1] if self.running else "rest"] += now - self.mark
        self.mark = now

    def take(self) -> dict[str, float]:
        """The seconds until now; what is charged later is not among them."""
        self.charge()
        taken = self.seconds
        self.start()
        return taken

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what runs inside; as a decorator, every call. The loss's own log-probabilities are its forward pass."""
        self.charge()
        self.running.append("forward" if name == "log-probabilities" and "forward" in self.running else name)
        try:
            yield
        finally:
            self.charge()
            self.running.pop()


def places(trainer: GRPOTrainer) -> list[tuple[Any, str, str]]:
    """What is timed: owner, method, part. The loading of batches is timed where a step is cut off."""
    return [
        (trainer, "_prepare_inputs", "data"),
        (trainer, "_generate", "generation"),
        (trainer, "_calculate_rewards", "rewards"),
        (trainer, "_get_per_token_logps_and_entropies", "log-probabilities"),
        (trainer, "compute_loss", "forward"),
        (trainer.accelerator, "backward", "backward"),
        (trainer, "_clip_grad_norm", "optimizer"),
        (trainer, "_get_grad_norm", "optimizer"),
        (trainer.optimizer, "step", "optimizer"),
        (trainer.lr_scheduler, "step", "optimizer"),
        (trainer.model_wrapped, "zero_grad", "optimizer"),
        (trainer.callback_handler, "call_event", "callbacks and logging"),
        (trainer, "log", "callbacks and logging"),
        (trainer, "_maybe_log_save_evaluate", "callbacks and logging"),
    ]


@contextlib.contextmanager
def timers(trainer: GRPOTrainer, watch: Stopwatch) -> Iterator[None]:
    """The trainer's methods charge `watch`; afterwards they are as before."""
    with contextlib.ExitStack() as stack:
        for owner, name, part in places(trainer):
            stack.enter_context(patch.object(owner, name, watch.part(part)(getattr(owner, name))))
        yield


@dataclass
class Step:
    """One optimizer step: what it took in seconds, what was generated in it, and its parts where it was timed."""

    stretch: str
    seconds: float
    completions: int
    tokens: int
    parts: dict[str, float] | None


class Recorder:
    """Cuts a training into steps, and takes it through its stretches.

    Args:
        trainer: not training yet; two of its methods are replaced for good.
        lengths: stretch -> number of steps, in their order.
        trace: where the profiler leaves its trace.
    """

    def __init__(self, trainer: GRPOTrainer, lengths: dict[str, int], trace: Path):
        import torch

        self.trainer, self.lengths, self.trace = trainer, lengths, trace
        self.on_gpu = trainer.accelerator.device.type == "cuda"
        self.synchronize = torch.cuda.synchronize if self.on_gpu else lambda: None
        self.steps: list[Step] = []
        self.watch: Stopwatch | None = None
        self.busy: dict[str, Any] = {}
        self.peak: dict[str, int | None] = {"peak_allocated_bytes": None, "peak_reserved_bytes": None}
        self.completions = self.tokens = self.longest_prompt = 0
        self.stretch: str | None = None
        self.stretches = self._stretches()
        trainer.get_batch_samples = self._cut_before(trainer.get_batch_samples)
        trainer._generate = self._counted(trainer._generate)
        trainer.add_callback(_end_of(self))

    def _stretches(self) -> Iterator[str]:
        """Asked for the stretch of each step before it starts; what a stretch needs is set up and removed between."""
        yield from ["dropped"] * self.lengths["dropped"]
        with gpu_busy(self._uuid()) as self.busy:
            yield from ["untimed"] * self.lengths["untimed"]
        self.watch = Stopwatch(self.synchronize)
        with timers(self.trainer, self.watch):
            yield from ["timed"] * self.lengths["timed"]
        self.watch, self.peak = None, self._peak()
        if self.lengths["profiled"]:
            with kernels_traced(self.trace):
                yield from ["profiled"] * self.lengths["profiled"]

    def cut(self) -> None:
        """The end of the step that is running, if one is, and the start of the next, if there is one."""
        self.synchronize()
        ended = perf_counter()
        if self.stretch:
            parts = self.watch and self.watch.take()
            self.steps.append(Step(self.stretch, ended - self.started, self.completions, self.tokens, parts))
        self.completions = self.tokens = 0
        self.stretch = next(self.stretches, None)
        self.synchronize()
        if self.watch:
            self.watch.start()
        self.started = perf_counter()

    def _cut_before(self, get_batch_samples: Callable) -> Callable:
        def cut_and_load(*args, **kwargs):
            self.cut()
            with self.watch.part("data") if self.watch else contextlib.nullcontext():
                return get_batch_samples(*args, **kwargs)

        return cut_and_load

    def _counted(self, generate: Callable) -> Callable:
        def counted(prompts):
            generated = generate(prompts)
            prompt_ids, completion_ids = generated[:2]
            self.completions += len(completion_ids)
            self.tokens += sum(map(len, completion_ids))
            self.longest_prompt = max(self.longest_prompt, *map(len, prompt_ids))
            return generated

        return counted

    def _uuid(self) -> str | None:
        import torch

        if not self.on_gpu:
            return None
        return "GPU-" + str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")

    def _peak(self) -> dict[str, int | None]:
        import torch

        if not self.on_gpu:
            return self.peak
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return {"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved}


class Recorded(Exception):
    """The last step is over; what a run does after it, saving and reporting, need not be waited for."""


def _end_of(recorder: Recorder) -> Any:
    """A callback that ends the last step, which no other follows, and the training."""
    from transformers import TrainerCallback

    class End(TrainerCallback):
        def on_epoch_end(self, args, state, control, **kwargs) -> None:
            if state.global_step >= state.max_steps:
                recorder.cut()
                raise Recorded

    return End()
