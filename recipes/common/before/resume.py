"""The folder of a run: new, to be resumed, finished, or of another run."""

import contextlib
import fcntl
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.before.arguments import RecipeArguments
from recipes.common.during.moving_reference import REFERENCE, reference_is_whole
from recipes.common.tools.folder import BEFORE, LOCK, RECORD, STATE, SUMMARY, TABLE, checkpoints, read_json, write_json
from recipes.common.trainer import GRPOConfig

# Settings that a later start may change without making it another run.
NOT_COMPARED = {"disable_tqdm", "dry_run", "fresh", "num_completions_to_print", "output_dir", "push_to_hub"}
NOT_COMPARED |= {"report_to", "resume_from_checkpoint", "save_total_limit"}


def config_differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that make it another run: `config_differences({"seed": 0}, {"seed": 1}) == {"seed": (0, 1)}`."""
    names = sorted((old.keys() | new.keys()) - NOT_COMPARED)
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def open_run_folder(recipe: RecipeArguments, training: GRPOConfig, config: dict[str, Any]) -> str | None:
    """Decide what the output folder asks for: a new run, a resumed one, or nothing because it is finished.

    Every rank calls this; the main one decides for all. `config` is every value of the run (`preflight.resolved`).

    Returns:
        The checkpoint to resume from, or None for a start from step 0. `--resume_from_checkpoint` is used where the
        folder has none of its own.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the folder
            belongs to another run or is still being written.
    """
    decision: list[Any] = [None, None]
    if training.process_index == 0:
        decision = list(_decide(recipe, training, config))
    if training.world_size > 1:
        decision = broadcast_object_list(decision)
    status, value = decision
    if status == "stop":
        sys.exit(value)
    return value


def last_whole_checkpoint(folder: Path, world_size: int) -> str | None:
    """Find the newest checkpoint that was written to its end; one cut short is passed over with a warning."""
    for path in checkpoints(folder):
        if _is_whole(path, world_size):
            return str(path)
        print(f"warning: {path} was cut short while it was written; passing over it.", file=sys.stderr)
    return None


def _is_whole(path: Path, world_size: int) -> bool:
    """The trainer writes trainer_state.json last, and each rank its own random state before that."""
    states = ["rng_state.pth"] if world_size == 1 else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    with contextlib.suppress(OSError, ValueError):
        json.loads((path / STATE).read_text())
        return all((path / name).is_file() for name in states)
    return False


def _decide(recipe: RecipeArguments, training: GRPOConfig, config: dict[str, Any]) -> tuple[str, Any]:
    """Look at the folder on the main process: ("go", checkpoint or None) or ("stop", exit status)."""
    folder = Path(training.output_dir)
    if not _take_lock(folder):
        return "stop", 2
    if recipe.fresh and _contents(folder):
        aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
        folder.rename(aside)
        print(f"--fresh: the content of {folder} is now in {aside}.")
        if not _take_lock(folder):
            return "stop", 2
    if not (folder / RECORD).is_file() and _contents(folder):
        print(f"error: {folder} is not empty and not a run (it has no {RECORD}).")
        print("Use another output_dir, or --fresh to move it aside.")
        return "stop", 2
    # A start that failed before its first step binds nobody.
    if not any((folder / name).is_file() for name in (BEFORE, SUMMARY)) and not checkpoints(folder):
        write_json(folder / RECORD, config)
    return _decide_on_run(recipe, training, config, folder)


def _decide_on_run(
    recipe: RecipeArguments, training: GRPOConfig, config: dict[str, Any], folder: Path
) -> tuple[str, Any]:
    differences = config_differences(read_json(folder / RECORD), config)
    if differences:
        print(f"error: {folder} holds a run with another configuration:")
        print("\n".join(f"  {name}: was {old!r}, now {new!r}" for name, (old, new) in differences.items()))
        print("Undo these changes to resume it, use another output_dir, or --fresh to move it aside.")
        return "stop", 2
    if (folder / SUMMARY).is_file():
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / TABLE).read_text())
        return "stop", 0
    checkpoint = last_whole_checkpoint(folder, training.world_size) or training.resume_from_checkpoint
    refusal = _cannot_resume(recipe, training, folder, Path(checkpoint)) if checkpoint else None
    if refusal:
        print(f"error: cannot resume from {checkpoint}: {refusal}")
        return "stop", 2
    print(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return "go", checkpoint


def _cannot_resume(recipe: RecipeArguments, training: GRPOConfig, folder: Path, checkpoint: Path) -> str | None:
    if training.sync_ref_model and not (checkpoint / REFERENCE).is_file():
        return (
            f"it holds no {REFERENCE} (ZeRO-3 and FSDP keep none), so the reference would be another one. "
            "Start anew with --fresh, under ZeRO-2 or DDP to be able to resume."
        )
    if training.sync_ref_model and not reference_is_whole(training):
        return f"ZeRO-3 and FSDP cannot put its {REFERENCE} back. Resume under ZeRO-2 or DDP, as it was written."
    if recipe.num_eval_rows and not (folder / BEFORE).is_file():
        return f"{BEFORE} is missing, and the untrained model is gone. Copy it from that run, or --num_eval_rows 0."
    return None


_lock = None  # held for the life of the process


def _take_lock(folder: Path) -> bool:
    """False where another process still writes the folder: after Ctrl-C a recipe may outlive its launcher."""
    global _lock
    folder.mkdir(parents=True, exist_ok=True)
    if _lock is not None:
        _lock.close()
    lock = (folder / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        print(f"error: {folder} is still being written by process {lock.read().strip()}.")
        print("Wait for it to end, or use another output_dir.")
        return False
    except OSError as error:
        print(f"warning: this file system cannot lock ({error}): make sure that only one run writes {folder}.")
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    _lock = lock
    return True


def _contents(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != LOCK]
