"""The folder of a run: a start begins in it, goes on with what it finds, or is refused.

`run_config.json` says which run it is (see identity.py): a start that differs is refused.
"""

import contextlib
import fcntl
import os
import sys
import time
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.checks.identity import differences
from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.utils.machine import fastest_dtype
from recipes.common.utils.run_files import (
    AFTER,
    BEFORE,
    LOCK,
    MINUTES,
    RECORD,
    REPORT,
    STATE,
    SUMMARY,
    TABLE,
    VALIDATION,
    VERSIONS,
    WANDB,
    checkpoints,
    read_json,
    read_rows,
    write_json,
)
from recipes.common.utils.screen import announce, refuse


class Refusal(Exception):
    """Why the main process refuses the folder; every process ends with it."""


# --------------------------------------------------------------------------- begin, go on, or
# refuse


def dtype_of_run(recipe: RecipeArguments, training: GRPOConfig) -> str:
    """What `dtype: fastest` is: as the folder records it, else measured. Every rank calls this."""
    dtype = None
    if not recipe.fresh:
        with contextlib.suppress(ValueError):  # `open_run_folder` refuses a damaged record
            dtype = read_json(Path(training.output_dir, RECORD), default={}).get("dtype")
    if dtype is None:
        dtype, times = fastest_dtype()
        faster = f", {times:.1f} times as fast here as the other" if times > 1.0 else ""
        announce(f"dtype: {dtype}{faster} (dtype: fastest)")
    return broadcast_object_list([dtype])[0] if training.world_size > 1 else dtype


def open_run_folder(
    recipe: RecipeArguments, training: GRPOConfig, record: dict[str, Any]
) -> str | None:
    """Decide what the output folder asks for. Every rank calls this; the main one decides for all.

    `record` is every setting of the run (`preflight.resolved`) and `identity_of` it.

    Returns:
        The checkpoint to resume from, or None for a start from step 0. `--resume_from_checkpoint`
        is used where the folder has none of its own.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the
            folder belongs to another run, is damaged or is still being written.
    """
    decision: list[Any] = [None, None]
    if training.process_index == 0:
        try:
            decision = ["go", _decide(recipe, training, record)]
        except Refusal as refusal:
            decision = ["refuse", f"error: {refusal}"]
        except SystemExit:
            decision = ["finished", None]
    if training.world_size > 1:
        decision = broadcast_object_list(decision)
    status, value = decision
    if status == "refuse":
        refuse(value)
    if status == "finished":
        sys.exit(0)
    return value


def is_whole(checkpoint: Path, world_size: int) -> bool:
    """Whether a checkpoint can be gone on from.

    transformers writes trainer_state.json last, and each rank its random state: a save that was cut
    short lacks one.
    """
    ranks = [f"rng_state_{rank}.pth" for rank in range(world_size)]
    ranks = ["rng_state.pth"] if world_size == 1 else ranks
    try:
        step = read_json(checkpoint / STATE, {}).get("global_step")
    except ValueError:
        return False
    written = all(zipfile.is_zipfile(checkpoint / name) for name in ranks)
    return written and checkpoint.name == f"checkpoint-{step}"


def _decide(recipe: RecipeArguments, training: GRPOConfig, record: dict[str, Any]) -> str | None:
    """Look at the folder on the main process; returns the checkpoint or None, or exits."""
    folder = Path(training.output_dir)
    _take_lock(folder)
    if recipe.fresh and _contents(folder):
        print(f"--fresh: the content of {folder} is now in {_move_aside(folder)}.")
    if not (folder / RECORD).is_file() and _contents(folder):
        raise Refusal(
            f"{folder} is not empty and not a run (it has no {RECORD}).\n"
            "Use another output_dir, or --fresh to move it aside."
        )
    old = _read(folder / RECORD, record)
    if not isinstance(old, dict):
        raise _damaged(folder / RECORD, "it does not hold settings")
    for name in (SUMMARY, VERSIONS, MINUTES, WANDB):
        _read(folder / name)
    before, rows = _read(folder / BEFORE), old.get("rows_held_out")
    if checkpoints(folder) and before is not None and len(before) != (rows or 0):
        raise _damaged(folder / BEFORE, f"it holds {len(before)} rows of {rows}")
    started = bool(checkpoints(folder)) or (folder / SUMMARY).is_file()
    wrong = differences(old, record)
    longer = wrong.pop("max_steps", None) if recipe.extend else None
    if wrong and started:
        extend = " To train on for more steps, give --extend." if "max_steps" in wrong else ""
        lines = [f"  {name}: {change}" for name, change in wrong.items()]
        remedy = (
            "Undo these changes to resume it, use another output_dir, or --fresh to move it aside."
        )
        first = f"{folder} holds a run with another configuration:"
        raise Refusal("\n".join([first, *lines, remedy + extend]))
    # A start that saved nothing binds nobody.
    if wrong and any((folder / name).is_file() for name in (BEFORE, VALIDATION)):
        print(
            "The start before had another configuration and saved no checkpoint: it is now in "
            f"{_move_aside(folder)}."
        )
    if started:
        was, now = old.get("versions") or {}, record.get("versions") or {}
        if changed := [
            f"{n} {was[n]} -> {now.get(n)}" for n in sorted(was) if was[n] != now.get(n)
        ]:
            print(f"warning: other versions than at the start: {', '.join(changed)}.")
            print("The tokens may not be the same.")
    if longer and started:
        _extend(folder, training, old["max_steps"], record["max_steps"])
        write_json(folder / RECORD, {**old, "max_steps": record["max_steps"]})
    if not started:
        write_json(folder / RECORD, record)
    if all((folder / name).is_file() for name in (SUMMARY, TABLE, REPORT)):
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / TABLE).read_text(encoding="utf-8"))
        sys.exit(0)
    return _checkpoint_of(recipe, training, folder)


def _checkpoint_of(recipe: RecipeArguments, training: GRPOConfig, folder: Path) -> str | None:
    there, whole = checkpoints(folder), None  # the newest first
    for path in there:
        if is_whole(path, training.world_size):
            whole = str(path)
            break
        print(f"warning: {path} was cut short. Passing over it.", file=sys.stderr)
    checkpoint = whole or training.resume_from_checkpoint
    if checkpoint is None and (folder / SUMMARY).is_file():
        raise Refusal(
            f"the run in {folder} is finished but for its {REPORT} or {TABLE}, and it has no "
            f"checkpoint left.\nWrite the report with: python scripts/report.py {folder}"
        )
    if checkpoint is None and there:
        print(f"warning: no checkpoint of {folder} is whole: the run starts again at step 0.")
    if checkpoint:
        _check_resumable(recipe, training, folder, Path(checkpoint))
    now = time.time()
    for age, path in enumerate(there):
        # The trainer deletes the oldest by its time, which a copy changes.
        os.utime(path, (now - age, now - age))
    print(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return checkpoint


def _check_resumable(
    recipe: RecipeArguments, training: GRPOConfig, folder: Path, checkpoint: Path
) -> None:
    why = None
    if not is_whole(checkpoint, training.world_size):
        why = "it is no whole checkpoint of a run of so many processes"
    elif training.sync_ref_model:
        why = "TRL keeps a moving reference (sync_ref_model) in no checkpoint. Give --fresh"
    elif recipe.num_eval_rows and not (folder / BEFORE).is_file():
        other = "" if folder in checkpoint.parents else ", or --num_eval_rows 0"
        why = f"{BEFORE} is missing, and the untrained model is gone. Copy it from that run{other}"
    if why:
        raise Refusal(f"cannot resume from {checkpoint}: {why}.")


def _read(path: Path, default: Any = None) -> Any:
    """Read a file of the folder; refuse it where that is damaged: we write it whole."""
    try:
        read = read_rows if path.suffix == ".jsonl" else read_json
        return read(path) if path.is_file() else default
    except ValueError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, why: str) -> Refusal:
    return Refusal(
        f"{path} is damaged ({why}).\n"
        "Restore it from a copy, use another output_dir, or --fresh to start anew."
    )


def _extend(folder: Path, training: GRPOConfig, was: int, now: int) -> None:
    """Allow a larger max_steps, and take back what marks the run as finished."""
    if not 0 < was < now:
        raise Refusal(
            f"--extend raises max_steps, and it was {was}, now {now}: give a larger number of "
            "steps."
        )
    print(
        f"--extend: max_steps {was} -> {now}. From here on the learning rate follows the schedule "
        f"{training.lr_scheduler_type.value!r} over {now} steps, as a run of {now} steps has it at "
        "the same step."
    )
    for name in (SUMMARY, REPORT, TABLE, AFTER):
        if (folder / name).is_file():
            (folder / name).rename(folder / f"{name}.{was}_steps")


def _move_aside(folder: Path) -> Path:
    """Move the folder to another name, and take the lock of a new one."""
    aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
    folder.rename(aside)
    _take_lock(folder)
    return aside


_lock = None  # held for the life of the process


def _take_lock(folder: Path) -> None:
    """Refuse where another process still writes: a recipe may outlive its launcher."""
    global _lock
    folder.mkdir(parents=True, exist_ok=True)
    if _lock is not None:
        _lock.close()
    lock = (folder / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise Refusal(
            f"{folder} is still being written by process {lock.read().strip()}.\n"
            "Wait for it to end, or use another output_dir."
        ) from None
    except OSError as error:
        print(
            f"warning: this file system cannot lock ({error}): make sure that only one run writes "
            f"{folder}."
        )
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    _lock = lock


def _contents(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != LOCK]
