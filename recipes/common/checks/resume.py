"""The folder of a run: new, to be resumed, finished, or of another run."""

import fcntl
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.checks.identity import HELD_OUT, changes, version_changes
from recipes.common.checks.whole import checkpoint_problem
from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine
from recipes.common.utils.run_files import (
    AFTER,
    BEFORE,
    IDENTITY,
    LOCK,
    MINUTES,
    RECORD,
    REPORT,
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
from recipes.common.utils.screen import refuse

# Settings that a later start may change without making it another run.
NOT_COMPARED = {
    "disable_tqdm",
    "dry_run",
    "fresh",
    "num_completions_to_print",
    "output_dir",
    "push_to_hub",
}
NOT_COMPARED |= {"extend", "report_to", "resume_from_checkpoint", "save_total_limit"}


class Refusal(Exception):
    """Why the main process refuses the folder; every process ends with it."""


def config_differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that make it another run: `config_differences({"seed": 0}, {"seed": 1}) == {"seed": (0, 1)}`."""
    names = sorted((old.keys() | new.keys()) - NOT_COMPARED)
    return {
        name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    }


def open_run_folder(
    recipe: RecipeArguments, training: GRPOConfig, config: dict[str, Any], identity: dict[str, Any]
) -> str | None:
    """Decide what the output folder asks for: a new run, a resumed one, or nothing because it is finished.

    Every rank calls this; the main one decides for all. `config` is every value of the run (`preflight.resolved`),
    `identity` what else makes it this run (`identity.identity_of`).

    Returns:
        The checkpoint to resume from, or None for a start from step 0. `--resume_from_checkpoint` is used where the
        folder has none of its own.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the folder
            belongs to another run, is damaged or is still being written.
    """
    decision: list[Any] = [None, None]
    if training.process_index == 0:
        try:
            decision = ["go", _decide(recipe, training, config, identity)]
        except Refusal as refusal:
            decision = ["refuse", str(refusal)]
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


def last_whole_checkpoint(folder: Path, world_size: int) -> str | None:
    """Find the newest checkpoint that can be gone on from; one that was cut short is passed over with a warning."""
    for path in checkpoints(folder):
        problem = checkpoint_problem(path, world_size, asked_engine())
        if problem is None:
            return str(path)
        print(
            f"warning: {path} was cut short or damaged: {problem}. Passing over it.",
            file=sys.stderr,
        )
    return None


def _decide(
    recipe: RecipeArguments, training: GRPOConfig, config: dict[str, Any], identity: dict[str, Any]
) -> str | None:
    """Look at the folder on the main process; returns the checkpoint or None, or exits."""
    folder = Path(training.output_dir)
    _take_lock(folder)
    if recipe.fresh and _contents(folder):
        print(f"--fresh: the content of {folder} is now in {_move_aside(folder)}.")
    if not (folder / RECORD).is_file() and _contents(folder):
        _refuse(
            f"{folder} is not empty and not a run (it has no {RECORD}).",
            "Use another output_dir, or --fresh to move it aside.",
        )
    _check_small_files(folder)
    old, old_identity = read_json(folder / RECORD, config), read_json(folder / IDENTITY, identity)
    started = checkpoints(folder) or (folder / SUMMARY).is_file()
    differences = config_differences(old, config)
    steps = differences.pop("max_steps", None) if recipe.extend else None
    wrong = [f"{name}: was {was!r}, now {now!r}" for name, (was, now) in differences.items()]
    wrong += changes(old_identity, identity)
    if wrong and started:
        _refuse(
            f"{folder} holds a run with another configuration:",
            *(f"  {line}" for line in wrong),
            "Undo these changes to resume it, use another output_dir, or --fresh to move it aside."
            + (" To train on for more steps, give --extend." if "max_steps" in differences else ""),
        )
    # A start that saved nothing binds nobody.
    if wrong and any((folder / name).is_file() for name in (BEFORE, VALIDATION)):
        print(
            f"The start before had another configuration and saved no checkpoint: it is now in {_move_aside(folder)}."
        )
    if started and (newer := version_changes(old_identity, identity)):
        print(
            f"warning: other versions than at the start ({', '.join(newer)}): the tokens may not be the same."
        )
    if steps and started:
        _extend(folder, training, *steps)
    if steps or not started:
        write_json(folder / RECORD, config)
    write_json(folder / IDENTITY, old_identity if started else identity)
    if all((folder / name).is_file() for name in (SUMMARY, TABLE, REPORT)):
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / TABLE).read_text(encoding="utf-8"))
        sys.exit(0)
    return _checkpoint_of(recipe, training, folder)


def _checkpoint_of(recipe: RecipeArguments, training: GRPOConfig, folder: Path) -> str | None:
    own = last_whole_checkpoint(folder, training.world_size)
    checkpoint = own or training.resume_from_checkpoint
    if checkpoint is None and (folder / SUMMARY).is_file():
        _refuse(
            f"the run in {folder} is finished but for its {REPORT} or {TABLE}, and it has no checkpoint left.",
            f"Write the report with: python scripts/report.py {folder}",
        )
    if checkpoint is None and checkpoints(folder):
        print(f"warning: no checkpoint of {folder} is whole: the run starts again at step 0.")
    if refusal := checkpoint and _cannot_resume(recipe, training, folder, Path(checkpoint)):
        _refuse(f"cannot resume from {checkpoint}: {refusal}")
    now = time.time()
    for age, path in enumerate(
        checkpoints(folder)
    ):  # the trainer deletes the oldest by its time, which a copy changes
        os.utime(path, (now - age, now - age))
    print(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return checkpoint


def _check_small_files(folder: Path) -> None:
    """Refuse a run whose record is damaged; move aside what can be written again."""
    for name in (RECORD, IDENTITY, BEFORE, SUMMARY, VERSIONS, MINUTES, WANDB):
        problem = _damage(folder / name) if (folder / name).is_file() else None
        if problem and (name in (RECORD, IDENTITY) or (name == BEFORE and checkpoints(folder))):
            _refuse(
                f"{folder / name} is damaged ({problem}), and nothing else has what was in it.",
                "Restore it from a copy, use another output_dir, or --fresh to start anew.",
            )
        if problem:
            (folder / name).rename(folder / f"{name}.damaged")
            print(
                f"warning: {folder / name} was damaged ({problem}): it is now {name}.damaged, and is written anew."
            )


def _damage(path: Path) -> str | None:
    """Say why a small file of the folder cannot be used: not UTF-8, not JSON, or not the kind of value it holds."""
    try:
        values = read_rows(path) if path.suffix == ".jsonl" else [read_json(path)]
    except ValueError as error:
        return str(error)
    run = path.parent.parent
    held_out = read_json(run / IDENTITY, {}).get(HELD_OUT) if path == run / BEFORE else None
    if held_out is not None and len(values) != held_out:
        return f"it holds {len(values)} rows of {held_out}"
    kind, key = (
        (list if path.name == VERSIONS else dict),
        {MINUTES: "minutes", WANDB: "id"}.get(path.name),
    )
    sound = all(isinstance(value, kind) and (key is None or key in value) for value in values)
    return None if sound else "it does not hold what it should"


def _extend(folder: Path, training: GRPOConfig, was: int, now: int) -> None:
    """Allow a larger max_steps, say what becomes of the learning rate, and take back what marks the run as finished."""
    if not 0 < was < now:
        _refuse(
            f"--extend raises max_steps, and it was {was}, now {now}: give a larger number of steps."
        )
    print(
        f"--extend: max_steps {was} -> {now}. From here on the learning rate follows the schedule "
        f"{training.lr_scheduler_type.value!r} over {now} steps, as a run of {now} steps has it at the same step."
    )
    for name in (SUMMARY, REPORT, TABLE, AFTER):
        if (folder / name).is_file():
            (folder / name).rename(folder / f"{name}.{was}_steps")


def _refuse(message: str, *more: str) -> None:
    raise Refusal("\n".join([f"error: {message}", *more]))


def _move_aside(folder: Path) -> Path:
    """Move the folder to another name, and take the lock of a new one."""
    aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
    folder.rename(aside)
    _take_lock(folder)
    return aside


def _cannot_resume(
    recipe: RecipeArguments, training: GRPOConfig, folder: Path, checkpoint: Path
) -> str | None:
    if problem := checkpoint_problem(checkpoint, training.world_size, asked_engine()):
        return f"{problem}. Give the folder of a whole checkpoint of the same launch."
    if training.sync_ref_model:
        return "TRL keeps a moving reference (sync_ref_model) in no checkpoint. Start anew with --fresh."
    if recipe.num_eval_rows and not (folder / BEFORE).is_file():
        other = "" if folder in checkpoint.parents else ", or --num_eval_rows 0"
        return (
            f"{BEFORE} is missing, and the untrained model is gone. Copy it from that run{other}."
        )
    return None


_lock = None  # held for the life of the process


def _take_lock(folder: Path) -> None:
    """Refuse where another process still writes the folder: after Ctrl-C a recipe may outlive its launcher."""
    global _lock
    folder.mkdir(parents=True, exist_ok=True)
    if _lock is not None:
        _lock.close()
    lock = (folder / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip()
        _refuse(
            f"{folder} is still being written by process {owner}.",
            "Wait for it to end, or use another output_dir.",
        )
    except OSError as error:
        print(
            f"warning: this file system cannot lock ({error}): make sure that only one run writes {folder}."
        )
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    _lock = lock


def _contents(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != LOCK]
