"""The folder of a run: a start begins in it, goes on with what it finds, or is refused.

`run_config.json` says which run it is (see identity.py): a start that differs is refused.
"""

import contextlib
import fcntl
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from recipes.common.checks.identity import CODE, changed_limits, differences
from recipes.common.checks.model_files import unreadable
from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import fastest_dtype
from recipes.common.utils.screen import announce, refuse

# What a later start, or the end of a run, reads.
READ_AGAIN = (files.RECORD, files.SUMMARY, files.VERSIONS, files.MINUTES, files.WANDB)
READ_AGAIN += (files.VALIDATION, files.AFTER)
# What a checkpoint from another folder does not hold.
OF_EVALUATION = {"num_eval_rows", "num_eval_samples", "rows_held_out", "held-out rows"}
PARQUET_END = b"PAR1"


class Refusal(Exception):
    """Why the main process refuses the folder; every process ends with it."""


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


def why_not_whole(checkpoint: Path, world_size: int) -> str | None:
    """What keeps a checkpoint from being gone on from; None where it is whole.

    transformers writes trainer_state.json last, and each rank its random state: a save that was cut
    short lacks one.
    """
    ranks = [f"rng_state_{rank}.pth" for rank in range(world_size)]
    for name in [files.STATE, *(ranks if world_size > 1 else ["rng_state.pth"])]:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    if problem := unreadable(checkpoint):
        return problem
    state = files.read_json(checkpoint / files.STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    return None if checkpoint.name == f"checkpoint-{step}" else f"{files.STATE} is of step {step}"


def _decide(recipe: RecipeArguments, training: GRPOConfig, record: dict[str, Any]) -> str | None:
    """Look at the folder on the main process; returns the checkpoint or None, or exits."""
    folder = Path(training.output_dir)
    _take_lock(folder)
    if recipe.fresh and _contents(folder):
        print(f"--fresh: the content of {folder} is now in {_move_aside(folder)}.")
    if not (folder / files.RECORD).is_file() and _contents(folder):
        raise Refusal(
            f"{folder} is not empty and not a run (it has no {files.RECORD}).\n"
            "Use another output_dir, or --fresh to move it aside."
        )
    old = _read_all(folder, record)
    started = bool(files.checkpoints(folder)) or (folder / files.SUMMARY).is_file()
    wrong = differences(old, record)
    longer = wrong.pop("max_steps", None) if recipe.extend else None
    accepted = _accepted(recipe, wrong) if started else []
    if wrong and started:
        raise _other_configuration(folder, wrong)
    # A start that saved nothing binds nobody.
    if wrong and any((folder / name).is_file() for name in (files.BEFORE, files.VALIDATION)):
        print(
            "The start before had another configuration and saved no checkpoint: it is now in "
            f"{_move_aside(folder)}."
        )
    if started:
        _warn_of_versions(old.get("versions") or {}, record.get("versions") or {})
    if longer and started:
        _extend(folder, training, old["max_steps"], record["max_steps"])
    if all((folder / name).is_file() for name in (files.SUMMARY, files.TABLE, files.REPORT)):
        print(f"The run in {folder} is finished (--fresh starts it anew):")
        print((folder / files.TABLE).read_text(encoding="utf-8"))
        sys.exit(0)
    checkpoint = _newest_whole(folder, training.world_size) or training.resume_from_checkpoint
    if checkpoint and Path(checkpoint).absolute().parent != folder.absolute():
        record = _of_another_folder(recipe, checkpoint, record)
    if not started:
        files.write_json(folder / files.RECORD, record)
    _check_resumable(recipe, training, folder, checkpoint)
    _check_completions(folder, checkpoint)
    if started:
        kept = {
            **old,
            **_changed(old, record),
            **_accepted_digests(old, record, accepted, checkpoint),
        }
        files.write_json(folder / files.RECORD, kept)
    print(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.", flush=True)
    return checkpoint


def _accepted(recipe: RecipeArguments, wrong: dict[str, str]) -> list[str]:
    """Take out of the differences what `--accept_changed` names."""
    names = [name for name in wrong if name.startswith(CODE)]
    if "reward_code" not in recipe.accept_changed:
        return []
    for name in names:
        print(f"warning: {name} is another from here on (--accept_changed): {wrong.pop(name)}.")
    return names


def _other_configuration(folder: Path, wrong: dict[str, str]) -> Refusal:
    lines = [f"  {name}: {change}" for name, change in wrong.items()]
    remedy = "Undo these changes to resume it, use another output_dir, or --fresh to move it aside."
    if "max_steps" in wrong:
        remedy += " To train on for more steps, give --extend."
    if any(name.startswith(CODE) for name in wrong):
        remedy += " To go on with the code as it is now, give --accept_changed reward_code."
    return Refusal("\n".join([f"{folder} holds a run with another configuration:", *lines, remedy]))


def _of_another_folder(
    recipe: RecipeArguments, checkpoint: str, record: dict[str, Any]
) -> dict[str, Any]:
    """The record of a run that goes on from another folder's checkpoint, if it is the same run.

    Evaluation apart, of which a checkpoint holds nothing.
    """
    folder = Path(checkpoint).parent
    other = _read(folder / files.RECORD)
    if not isinstance(other, dict):
        raise Refusal(
            f"cannot resume from {checkpoint}: {folder} has no {files.RECORD}, which tells which "
            "run it is. Copy it from that run."
        )
    wrong = differences(other, record)
    wrong = {name: change for name, change in wrong.items() if name not in OF_EVALUATION}
    if recipe.extend:
        wrong.pop("max_steps", None)
    accepted = _accepted(recipe, wrong)
    if wrong:
        raise _other_configuration(folder, wrong)
    more = _accepted_digests(other, record, accepted, checkpoint)
    return {**record, "resumed_from": checkpoint, **more, "digests": record["digests"]}


def _changed(old: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The settings that this start may change of a run, and changes."""
    limits = changed_limits(old, record)
    for name, change in limits.items():
        print(f"{name}: {change}; a resume may change it.")
    return {name: record[name] for name in [*limits, "max_steps"] if name in record}


def _accepted_digests(
    old: dict[str, Any], record: dict[str, Any], names: list[str], checkpoint: str | None
) -> dict[str, Any]:
    """The part of a record that says which code is another from which step on."""
    if not names:
        return {}
    was, now = old["digests"], record["digests"]
    entry = {"from_step": _step_of(checkpoint), **{n: [was.get(n), now[n]] for n in names}}
    return {
        "digests": {**was, **{name: now[name] for name in names}},
        "accepted": [*old.get("accepted", []), entry],
    }


def _read_all(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record of the run, `record` where there is none; refuse a file that is damaged.

    We write our files whole, so that no kill leaves one cut short.
    """
    contents = {}
    for name in READ_AGAIN:
        contents[name] = _read(folder / name)
    old = contents[files.RECORD] if (folder / files.RECORD).is_file() else record
    if not isinstance(old, dict):
        raise _damaged(folder / files.RECORD, "it does not hold settings")
    before, rows = _read(folder / files.BEFORE), old.get("rows_held_out") or 0
    if files.checkpoints(folder) and before is not None and len(before) != rows:
        raise _damaged(folder / files.BEFORE, f"it holds {len(before)} rows of {rows}")
    return old


def _read(path: Path) -> Any:
    try:
        read = files.read_rows if path.suffix == ".jsonl" else files.read_json
        return read(path) if path.is_file() else None
    except ValueError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, why: str) -> Refusal:
    return Refusal(
        f"{path} is damaged ({why}).\n"
        "Restore it from a copy, use another output_dir, or --fresh to start anew."
    )


def _warn_of_versions(was: dict[str, str], now: dict[str, str]) -> None:
    names = [name for name in sorted(was) if was[name] != now.get(name)]
    if names:
        changed = ", ".join(f"{name} {was[name]} -> {now.get(name)}" for name in names)
        print(f"warning: other versions than at the start: {changed}.")
        print("The tokens may not be the same.")


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


def _check_resumable(
    recipe: RecipeArguments, training: GRPOConfig, folder: Path, checkpoint: str | None
) -> None:
    if checkpoint is None:
        if (folder / files.SUMMARY).is_file():
            raise Refusal(
                f"the run in {folder} is finished but for its {files.REPORT} or {files.TABLE}, and "
                "it has no checkpoint left.\nWrite the report with: "
                f"python scripts/report.py {folder}"
            )
        return
    why = why_not_whole(Path(checkpoint), training.world_size)
    if why is None and training.sync_ref_model:
        why = "TRL keeps a moving reference (sync_ref_model) in no checkpoint. Give --fresh"
    if why is None and recipe.num_eval_rows and not (folder / files.BEFORE).is_file():
        other = "" if folder in Path(checkpoint).parents else ", or --num_eval_rows 0"
        why = f"{files.BEFORE} is missing, and the untrained model is gone. "
        why += f"Copy it from that run{other}"
    if why:
        raise Refusal(f"cannot resume from {checkpoint}: {why}.")


def _check_completions(folder: Path, checkpoint: str | None) -> None:
    """Refuse a file of completions that was cut short; one that is written again is taken away."""
    step = _step_of(checkpoint)
    for file in files.completion_files(folder):
        with file.open("rb") as content:
            content.seek(max(len(PARQUET_END), file.stat().st_size - len(PARQUET_END)))
            if content.read() == PARQUET_END:  # it begins with the same word
                continue
        if int(file.stem.rpartition("_")[2]) <= step:
            raise _damaged(file, "it was cut short; the run can do without it, its step is lost")
        file.unlink()


def _step_of(checkpoint: str | None) -> int:
    return int(Path(checkpoint).name.rpartition("-")[2]) if checkpoint else 0


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
    for name in (files.SUMMARY, files.REPORT, files.TABLE, files.AFTER):
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
        raise Refusal(
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


def _contents(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != files.LOCK]
