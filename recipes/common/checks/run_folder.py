"""The folder of a run: a start begins in it, goes on with what it finds, or is refused.

`run_config.json` says which run it is (see identity.py): a start that differs is refused, but for
what a resume may change.
"""

import contextlib
import fcntl
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.checks.identity import CHANGEABLE, CODE, differences
from recipes.common.checks.model_files import check_readable
from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import fastest_dtype
from recipes.common.utils.screen import announce, refuse

FINISHED = (files.SUMMARY, files.TABLE, files.REPORT)
# What a checkpoint from another folder does not hold.
OF_EVALUATION = {"num_eval_rows", "num_eval_samples", "rows_held_out", "held-out rows"}


def dtype_of_run(recipe: RecipeArguments, training: GRPOConfig) -> str:
    """What `dtype: fastest` is: as the folder records it, else measured. Every rank calls this."""
    dtype = None
    if not recipe.fresh:
        with contextlib.suppress(ValueError):  # `open_run_folder` refuses a damaged record
            dtype = files.read_json(Path(training.output_dir, files.RECORD), {}).get("dtype")
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
    decision: list[Any] = [None, None]  # a refusal, or whether it is finished and its checkpoint
    if training.process_index == 0:
        try:
            decision = [None, _decide(recipe, training, record)]
        except ValueError as refusal:
            decision = [f"error: {refusal}", None]
    if training.world_size > 1:
        decision = broadcast_object_list(decision)
    refusal, answer = decision
    if refusal:
        refuse(refusal)
    is_finished, checkpoint = answer
    if is_finished:
        sys.exit(0)
    return checkpoint


def why_not_whole(checkpoint: Path, world_size: int) -> str | None:
    """What keeps a checkpoint from being gone on from; None where it is whole.

    transformers writes trainer_state.json last, and each rank its random state: a save that was cut
    short lacks one.
    """
    ranks = [f"rng_state_{rank}.pth" for rank in range(world_size)]
    for name in [files.STATE, *(ranks if world_size > 1 else ["rng_state.pth"])]:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    try:
        check_readable(checkpoint)
    except ValueError as problem:
        return str(problem)
    state = files.read_json(checkpoint / files.STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    return None if checkpoint.name == f"checkpoint-{step}" else f"{files.STATE} is of step {step}"


def _decide(
    recipe: RecipeArguments, training: GRPOConfig, record: dict[str, Any]
) -> tuple[bool, str | None]:
    """Whether the run is finished, and its checkpoint; ValueError for what is refused."""
    folder = Path(training.output_dir)
    _take_lock(folder)
    is_there = any(path.name != files.LOCK for path in folder.iterdir())
    if recipe.fresh and is_there:
        print(f"--fresh: the content of {folder} is now in {_move_aside(folder)}.")
    elif is_there and not (folder / files.RECORD).is_file():
        raise ValueError(
            f"{folder} is not empty and not a run (it has no {files.RECORD}).\n"
            "Use another output_dir, or --fresh to move it aside."
        )
    try:
        old = _read_all(folder, record)
    except ValueError as damage:
        remedy = "Restore it from a copy, use another output_dir, or --fresh to start anew."
        raise ValueError(f"{damage}.\n{remedy}") from None
    checkpoint = _newest_whole(folder, training.world_size) or training.resume_from_checkpoint
    started = bool(files.checkpoints(folder)) or (folder / files.SUMMARY).is_file()
    if started:
        kept = _same_run(recipe, folder, old, record, checkpoint)
        if kept.get("max_steps") != old.get("max_steps"):
            _extend(folder, training, old["max_steps"], kept["max_steps"])
    else:  # a start that saved nothing binds nobody
        kept = record
        evaluated = [name for name in (files.BEFORE, files.VALIDATION) if (folder / name).is_file()]
        if evaluated and differences(old, record).keys() - CHANGEABLE:
            print(
                "The start before had another configuration and saved no checkpoint: it is now in "
                f"{_move_aside(folder)}."
            )
    if all((folder / name).is_file() for name in FINISHED):
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / files.TABLE).read_text(encoding="utf-8"))
        return True, None
    if checkpoint and Path(checkpoint).absolute().parent != folder.absolute():
        kept = _from_elsewhere(recipe, checkpoint, record)
    if not started:  # a file that is missing may be copied into it
        files.write_json(folder / files.RECORD, kept)
    _check_resumable(recipe, training, folder, checkpoint)
    for file in files.completion_files(folder):
        if int(file.stem.rpartition("_")[2]) > _step_of(checkpoint):
            file.unlink()  # it is written again; a kill may have cut it short
        else:
            files.read_completions(file)
    files.write_json(folder / files.RECORD, kept)
    print(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return False, checkpoint


def _read_all(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record of the run, `record` where there is none; ValueError for a file that is damaged.

    We write our files whole, so that no kill leaves one cut short.
    """
    for name in (files.SUMMARY, files.VERSIONS, files.MINUTES, files.WANDB):
        files.read_json(folder / name)
    for name in (files.VALIDATION, files.AFTER):
        files.read_evaluated(folder, name)
    old = files.read_json(folder / files.RECORD, record)
    if not isinstance(old, dict):
        raise ValueError(f"{folder / files.RECORD} is damaged: it does not hold settings")
    before, rows = files.read_evaluated(folder, files.BEFORE), old.get("rows_held_out") or 0
    is_due = files.checkpoints(folder) and (folder / files.BEFORE).is_file()
    if is_due and len(before) != rows:
        held = f"it holds {len(before)} rows of {rows}"
        raise ValueError(f"{folder / files.BEFORE} is damaged: {held}")
    return old


def _newest_whole(folder: Path, world_size: int) -> str | None:
    there = files.checkpoints(folder)  # the newest first
    for path in there:
        why = why_not_whole(path, world_size)
        if why is None:
            return str(path)
        print(f"warning: {path} was cut short ({why}). Passing over it.", file=sys.stderr)
    if there:
        print(f"warning: no checkpoint of {folder} is whole: the run starts again at step 0.")
    return None


def _same_run(
    recipe: RecipeArguments,
    folder: Path,
    old: dict[str, Any],
    record: dict[str, Any],
    checkpoint: str | None,
    not_compared: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The record `old` of a folder with what a resume may change of it; ValueError for another run.

    What is changed stands under `accepted`, with the step from which on it holds.
    """
    changed = differences(old, record)
    changed = {name: change for name, change in changed.items() if name not in not_compared}
    allowed = CHANGEABLE | ({"max_steps"} if recipe.extend else set())
    if "reward_code" in recipe.accept_changed:
        allowed |= {name for name in changed if name.startswith(CODE)}
    if wrong := changed.keys() - allowed:
        more = {
            "To train on for more steps, give --extend.": "max_steps" in wrong,
            "To go on with the code as it is now, give --accept_changed reward_code.": any(
                name.startswith(CODE) for name in wrong
            ),
        }
        lines = [
            f"{folder} holds a run with another configuration:",
            *(f"  {name}: {change}" for name, change in changed.items() if name in wrong),
            "Undo these changes to resume it, use another output_dir, or --fresh to move it aside.",
            *(remedy for remedy, helps in more.items() if helps),
        ]
        raise ValueError("\n".join(lines))
    was, now = old.get("versions") or {}, record.get("versions") or {}
    others = [
        f"{name} {was[name]} -> {now.get(name)}" for name in was if was[name] != now.get(name)
    ]
    if others:
        print(f"warning: other versions than at the start: {', '.join(others)}.")
        print("The tokens may not be the same.")
    if not changed:
        return old
    before, after = ({**each, **each["digests"]} for each in (old, record))
    entry = {name: [before.get(name), after.get(name)] for name in changed}
    kept = {**old, "digests": {**old["digests"]}}
    for name, change in changed.items():
        print(f"{name}: {change}; from here on this is the run's.")
        (kept["digests"] if name in record["digests"] else kept)[name] = after.get(name)
    entry = {"from_step": _step_of(checkpoint), **entry}
    return {**kept, "accepted": [*old.get("accepted", []), entry]}


def _from_elsewhere(
    recipe: RecipeArguments, checkpoint: str, record: dict[str, Any]
) -> dict[str, Any]:
    """The record of a run that goes on from another folder's checkpoint, if it is the same run.

    Evaluation apart, of which a checkpoint holds nothing.
    """
    folder = Path(checkpoint).parent
    other = files.read_json(folder / files.RECORD)
    if not isinstance(other, dict):
        raise ValueError(
            f"cannot resume from {checkpoint}: {folder} has no {files.RECORD}, which tells which "
            "run it is. Copy it from that run."
        )
    kept = _same_run(recipe, folder, other, record, checkpoint, OF_EVALUATION)
    return {**kept, **record, "resumed_from": checkpoint}


def _check_resumable(
    recipe: RecipeArguments, training: GRPOConfig, folder: Path, checkpoint: str | None
) -> None:
    if checkpoint is None and (folder / files.SUMMARY).is_file():
        raise ValueError(
            f"the run in {folder} is finished but for its {files.REPORT} or {files.TABLE}, and "
            "it has no checkpoint left.\nWrite the report with: "
            f"python scripts/report.py {folder}"
        )
    if checkpoint is None:
        return
    why = why_not_whole(Path(checkpoint), training.world_size)
    if why is None and training.sync_ref_model:
        why = "TRL keeps a moving reference (sync_ref_model) in no checkpoint. Give --fresh"
    if why is None and recipe.num_eval_rows and not (folder / files.BEFORE).is_file():
        other = "" if folder in Path(checkpoint).parents else ", or --num_eval_rows 0"
        why = f"{files.BEFORE} is missing, and the untrained model is gone. "
        why += f"Copy it from that run{other}"
    if why:
        raise ValueError(f"cannot resume from {checkpoint}: {why}.")


def _step_of(checkpoint: str | None) -> int:
    return int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0


def _extend(folder: Path, training: GRPOConfig, was: int, now: int) -> None:
    """Allow a larger max_steps, and take back what marks the run as finished."""
    if not 0 < was < now:
        raise ValueError(
            f"--extend raises max_steps, and it was {was}, now {now}: give a larger number of "
            "steps."
        )
    print(
        f"--extend: max_steps {was} -> {now}. From here on the learning rate follows the schedule "
        f"{training.lr_scheduler_type.value!r} over {now} steps, as a run of {now} steps has it at "
        "the same step."
    )
    for name in (*FINISHED, files.AFTER):
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
    _lock = (folder / files.LOCK).open("a+")
    try:
        fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _lock.seek(0)
        raise ValueError(
            f"{folder} is still being written by process {_lock.read().strip()}.\n"
            "Wait for it to end, or use another output_dir."
        ) from None
    except OSError as error:
        print(
            f"warning: this file system cannot lock ({error}): make sure that only one run writes "
            f"{folder}."
        )
    _lock.truncate(0)
    _lock.write(f"{os.getpid()}\n")
    _lock.flush()
