"""The life of a run: its folder, resuming, interrupting, and what it leaves behind."""

import contextlib
import ctypes
import json
import math
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import get_sampler
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOTrainer

from recipes.common.evaluation import (
    Metric,
    compare,
    comparison_table,
    evaluate_in_training,
    read_rows,
    summarize,
    write_rows,
)
from recipes.common.plots import plot_runs
from recipes.common.preflight import Run, format_table, generation_period

BEFORE = "evaluation/before.jsonl"
AFTER = "evaluation/after.jsonl"
# Said anew at each start, without making it another run.
NOT_COMPARED = {"fresh", "dry_run", "resume_from_checkpoint", "output_dir", "logging_dir", "push_to_hub", "report_to"}
NOT_COMPARED |= {"merge_adapter", "save_total_limit", "disable_tqdm", "logging_steps", "num_completions_to_print"}
PACKAGES = ("torch", "trl", "transformers", "accelerate", "peft", "deepspeed", "datasets", "reasoning-gym", "wandb")


def open_run_folder(run: Run) -> str | None:
    """Decide what the output folder asks for: a new run, a resumed one, or nothing because it is finished.

    Every rank calls this; the main one decides for all.

    Returns:
        The checkpoint to resume from, or None for a start from step 0.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the folder
            belongs to another run.
    """
    decision: list[Any] = [None, None]
    if run.training.process_index == 0:
        decision = list(_decide(run))
    if run.training.world_size > 1:
        decision = broadcast_object_list(decision)
    status, value = decision
    if status == "stop":
        sys.exit(value)
    return value


def train_and_save(
    trainer: GRPOTrainer, run: Run, checkpoint: str | None, eval_rows: Any, metric: Metric
) -> dict[str, Any] | None:
    """Evaluate, train, evaluate again, and leave a folder that is enough to judge and repeat the run.

    Returns:
        What stands in summary.json, or None when the run was interrupted.
    """
    folder, rows = Path(run.training.output_dir), eval_rows.to_list() if eval_rows else []
    clock = Clock(folder)
    interrupt = InterruptCallback(trainer)
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    for callback in (
        SamplerOrderCallback(),
        RunRecordCallback(run),
        BeforeCallback(trainer, run, rows, metric),
        StepLineCallback(),
        clock,
        interrupt,
    ):
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=checkpoint)
    if interrupt.requested:
        _say(trainer, _how_to_go_on(trainer, folder))
        return None
    judged = _after(trainer, run, rows, metric)
    _save_model(trainer, run)
    if not trainer.is_world_process_zero():
        return None
    summary = _summary(trainer, run, folder, judged, clock.minutes())
    _finish(trainer, folder, summary)
    return summary


class SamplerOrderCallback(TrainerCallback):
    """Restore the order of the rows when a run resumes in a later epoch.

    TRL's `RepeatSampler` shuffles from a generator that moves on with each epoch and is not part of a
    checkpoint: without this, epoch 2 of a resumed run would repeat the order of epoch 1.
    """

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        loader = kwargs["train_dataloader"]
        sampler = get_sampler(loader)
        generator = getattr(sampler, "generator", None)
        if generator is None:  # not shuffled, or a stream
            return
        steps_per_epoch = max(1, math.ceil(len(loader) / args.gradient_accumulation_steps))
        for _ in range(state.global_step // steps_per_epoch):
            torch.randperm(sampler.num_samples, generator=generator)


class RunRecordCallback(TrainerCallback):
    """Write down what is run before its first step, in the folder and in W&B."""

    def __init__(self, run: Run):
        self.run = run

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        _write_json(folder / "versions.json", versions())
        (folder / "preflight.txt").write_text(format_table(self.run.table) + "\n", encoding="utf-8")
        wandb_run = _wandb_run(args)
        if wandb_run is not None:
            wandb_run.config.update({"recipe": self.run.config}, allow_val_change=True)


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
        rewards = [
            f"{name.split('/')[1]} {_number(value)}"
            for name, value in logs.items()
            if name.startswith("rewards/") and name.endswith("/mean")
        ]
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
            _write_json(self.path, {"minutes": self.minutes()})


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
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if sys.platform == "linux" and "ACCELERATE_MIXED_PRECISION" in os.environ:  # set by `accelerate launch`
            PR_SET_PDEATHSIG = 1
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def _on_signal(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self.signalled_at is not None and number == signal.SIGINT and now - self.signalled_at > self.GRACE_S:
            raise KeyboardInterrupt
        if self.signalled_at is None:
            self.signalled_at = now
            # os.write: a print may be interrupted by the very signal that is handled here.
            os.write(2, b"\nInterrupted: saving a checkpoint at the end of this step. Ctrl-C again to quit at once.\n")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs) -> None:
        period = generation_period(args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations)
        if state.global_step % (period or 1):
            return
        flag = torch.tensor([self.signalled_at is not None], dtype=torch.int, device=self.trainer.accelerator.device)
        if self.trainer.accelerator.gather(flag).any() and state.global_step < state.max_steps:
            self.requested = True
            control.should_save = True
            control.should_training_stop = True


def versions() -> dict[str, Any]:
    """Python, packages, commit and hardware of this process."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "hardware": _hardware(),
        "command": [sys.executable, *sys.argv],
    }


def last_whole_checkpoint(folder: Path, world_size: int) -> str | None:
    """The newest checkpoint that was written to its end; one cut short is passed over with a warning."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]), reverse=True)
    for path in found:
        if _is_whole(path, world_size):
            return str(path)
        print(f"warning: {path} was cut short while it was written; passing over it.", file=sys.stderr)
    return None


def _is_whole(path: Path, world_size: int) -> bool:
    """The trainer writes trainer_state.json last, and each rank its own random state before that."""
    states = ["rng_state.pth"] if world_size == 1 else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    with contextlib.suppress(OSError, ValueError):
        json.loads((path / "trainer_state.json").read_text())
        return all((path / name).is_file() for name in states)
    return False


def _decide(run: Run) -> tuple[str, Any]:
    folder = Path(run.training.output_dir)
    if run.recipe.fresh and folder.exists():
        aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
        folder.rename(aside)
        print(f"--fresh: the run in {folder} is now in {aside}.")
    record = folder / "config.json"
    if not record.is_file():
        if folder.exists() and any(folder.iterdir()):
            print(
                f"error: {folder} is not empty and holds no run (no config.json). Use another output_dir, or --fresh."
            )
            return "stop", 2
        _write_json(record, run.config)
        return "go", None
    differences = config_differences(json.loads(record.read_text()), run.config)
    if differences:
        print(f"error: {folder} holds a run with another configuration:")
        print("\n".join(f"  {name}: was {old!r}, now {new!r}" for name, (old, new) in differences.items()))
        print("Undo these changes to go on with it, use another output_dir, or --fresh to move it aside.")
        return "stop", 2
    if (folder / "summary.json").is_file():
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / "table.txt").read_text())
        return "stop", 0
    checkpoint = last_whole_checkpoint(folder, run.training.world_size)
    print(f"Going on from {checkpoint}." if checkpoint else f"No checkpoint in {folder} yet: starting at step 0.")
    return "go", checkpoint


def config_differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that make it another run: name -> (was, is).

    Example: `config_differences({"seed": 0}, {"seed": 1}) == {"seed": (0, 1)}`
    """
    names = sorted((old.keys() | new.keys()) - NOT_COMPARED)
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _after(trainer: GRPOTrainer, run: Run, rows: list[dict], metric: Metric) -> list[dict] | None:
    if not rows:
        return None
    judged = evaluate_in_training(trainer, rows, metric, run.recipe.num_eval_samples, "after")
    if trainer.is_world_process_zero():
        write_rows(Path(run.training.output_dir, AFTER), judged)
    return judged


def _save_model(trainer: GRPOTrainer, run: Run) -> None:
    """The final model (under LoRA its adapter) in the run folder, the merged one beside it on request."""
    trainer.save_model()
    trainer.save_state()
    if run.recipe.merge_adapter and run.model.use_peft and trainer.is_world_process_zero():
        _save_merged(trainer, Path(run.training.output_dir, "merged"))


def _save_merged(trainer: GRPOTrainer, folder: Path) -> None:
    """Merge from what was saved, so that the model in memory keeps its adapter whatever engine holds it."""
    from peft import AutoPeftModelForCausalLM

    dtype = trainer.accelerator.unwrap_model(trainer.model).dtype
    merged = AutoPeftModelForCausalLM.from_pretrained(trainer.args.output_dir, dtype=dtype).merge_and_unload()
    merged.save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)


def _summary(trainer: GRPOTrainer, run: Run, folder: Path, judged: list | None, minutes: float) -> dict[str, Any]:
    before = read_rows(folder / BEFORE) if judged else None
    return {
        "before": summarize(before) if before else None,
        "after": summarize(judged) if judged else None,
        "mcnemar_p": compare(before, judged) if judged else None,
        "minutes": round(minutes, 2),
        "steps": trainer.state.global_step,
        "engine": _engine(trainer),
        **versions(),
        "config": run.config,
    }


def _finish(trainer: GRPOTrainer, folder: Path, summary: dict[str, Any]) -> None:
    """Plots, model card, W&B summary; summary.json last, since it marks the run as finished."""
    plot_runs([folder], folder / "curves.png")
    trainer.create_model_card(model_name=folder.name)
    table = _final_table(folder, summary)
    with (folder / "README.md").open("a", encoding="utf-8") as card:
        card.write(f"\n## Before and after\n\n```\n{table}\n```\n")
    (folder / "table.txt").write_text(table + "\n", encoding="utf-8")
    wandb_run = _wandb_run(trainer.args)
    if wandb_run is not None:
        wandb_run.summary.update({key: summary[key] for key in ("before", "after", "mcnemar_p", "minutes")})
    _write_json(folder / "summary.json", summary)
    if trainer.args.push_to_hub:
        trainer.push_to_hub()
    print("\n" + table)


def _final_table(folder: Path, summary: dict[str, Any]) -> str:
    lines = [f"{folder}: {summary['steps']} steps in {summary['minutes']:.1f} minutes on {summary['hardware']}"]
    if summary["after"]:
        lines.append(comparison_table(summary["before"], summary["after"], summary["mcnemar_p"]))
    else:
        lines.append("  no evaluation rows (num_eval_rows is 0), so nothing says whether the model got better")
    lines.append(f"  Every row: {folder / 'evaluation'}   curves: {folder / 'curves.png'}   all: summary.json")
    return "\n".join(lines)


def _engine(trainer: GRPOTrainer) -> dict[str, Any]:
    accelerator = trainer.accelerator
    plugin = accelerator.state.deepspeed_plugin
    return {
        "distributed_type": str(accelerator.distributed_type.value),
        "zero_stage": plugin.zero_stage if plugin else None,
        "world_size": accelerator.num_processes,
        "mixed_precision": accelerator.mixed_precision,
        "device": str(accelerator.device.type),
    }


def _how_to_go_on(trainer: GRPOTrainer, folder: Path) -> str:
    return (
        f"\nStopped after step {trainer.state.global_step} of {trainer.state.max_steps}; saved "
        f"{folder / f'checkpoint-{trainer.state.global_step}'}.\nRun the same command again to go on from there."
    )


def _on_main(trainer: GRPOTrainer, question: Any) -> bool:
    """The main process's answer, on all ranks: their file systems may not agree."""
    answer = [question() if trainer.is_world_process_zero() else None]
    if trainer.accelerator.num_processes > 1:
        answer = broadcast_object_list(answer)
    return bool(answer[0])


def _wandb_run(args: TrainingArguments) -> Any:
    if "wandb" not in (args.report_to or []):
        return None
    import wandb

    return wandb.run


def _say(trainer: GRPOTrainer, text: str) -> None:
    if trainer.is_world_process_zero():
        print(text, flush=True)


def _write_json(path: Path, value: Any) -> None:
    """Written aside and renamed: a file that exists is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.rename(path)


def _number(value: Any, digits: int = 2) -> str:
    return "-" if value is None else f"{float(value):.{digits}f}"


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _git(*words: str) -> str | None:
    root = Path(__file__).resolve().parents[2]
    try:
        result = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _hardware() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores"


def utc_now() -> str:
    """The time, for records."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
