"""The folder of a run: new, to be gone on with, finished, or somebody else's."""

import contextlib
import fcntl
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.before.preflight import Run
from recipes.common.before.run_config import RECORD, config_differences
from recipes.common.during.callbacks import BEFORE
from recipes.common.during.moving_reference import REFERENCE, reference_is_whole
from recipes.common.tools.folder import write_json

LOCK = "run.lock"


def open_run_folder(run: Run) -> str | None:
    """Decide what the output folder asks for: a new run, a resumed one, or nothing because it is finished.

    Every rank calls this; the main one decides for all.

    Returns:
        The checkpoint to resume from, or None for a start from step 0. `--resume_from_checkpoint` is used where the
        folder has none of its own.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the folder
            belongs to another run or is still being written.
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
    """What the main process finds in the folder: ("go", checkpoint or None) or ("stop", exit status)."""
    folder = Path(run.training.output_dir)
    if not _take_lock(folder):
        return "stop", 2
    if run.recipe.fresh and _contents(folder):
        aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
        folder.rename(aside)
        print(f"--fresh: what was in {folder} is now in {aside}.")
        if not _take_lock(folder):
            return "stop", 2
    if not (folder / RECORD).is_file() and _contents(folder):
        print(f"error: {folder} is not empty, and no run (it has no {RECORD}).")
        print("Use another output_dir, or --fresh to move it aside.")
        return "stop", 2
    if not _holds_results(folder):  # a start that failed before its first step binds nobody
        write_json(folder / RECORD, run.config)
    return _decide_on_run(run, folder)


def _holds_results(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (BEFORE, "summary.json")) or any(folder.glob("checkpoint-*"))


def _decide_on_run(run: Run, folder: Path) -> tuple[str, Any]:
    differences = config_differences(json.loads((folder / RECORD).read_text()), run.config)
    if differences:
        print(f"error: {folder} holds a run with another configuration:")
        print("\n".join(f"  {name}: was {old!r}, now {new!r}" for name, (old, new) in differences.items()))
        print("Undo these changes to go on with it, use another output_dir, or --fresh to move it aside.")
        return "stop", 2
    if (folder / "summary.json").is_file():
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / "table.txt").read_text())
        return "stop", 0
    checkpoint = last_whole_checkpoint(folder, run.training.world_size) or run.training.resume_from_checkpoint
    refusal = _cannot_resume(run, folder, Path(checkpoint)) if checkpoint else None
    if refusal:
        print(f"error: cannot go on from {checkpoint}: {refusal}")
        return "stop", 2
    print(f"Going on from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return "go", checkpoint


def _cannot_resume(run: Run, folder: Path, checkpoint: Path) -> str | None:
    if run.training.sync_ref_model and not (checkpoint / REFERENCE).is_file():
        return (
            f"it holds no {REFERENCE} (ZeRO-3 and FSDP keep none), so the reference would be another one. "
            "Start anew with --fresh, under ZeRO-2 or DDP to be able to resume."
        )
    if run.training.sync_ref_model and not reference_is_whole(run.training):
        return f"ZeRO-3 and FSDP cannot put its {REFERENCE} back. Go on under ZeRO-2 or DDP, as it was written."
    if run.recipe.num_eval_rows and not (folder / BEFORE).is_file():
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
