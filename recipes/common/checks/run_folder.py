"""The folder of a run: decide whether to start in it, to resume its run, or to refuse.

`run_config.json` identifies the run: every setting, the engine, and digests of rows, code and the
model at step 0. A start with another record is refused, but a resume may change some settings.

*Not covered*: secrets, what a reward's file imports or reads, and a model that is not on this disk
yet.
"""

import ast
import contextlib
import fcntl
import functools
import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from accelerate.utils import broadcast_object_list, gather_object

from recipes.common.settings import PATHS, RecipeArguments, file_of
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import fastest_dtype, package_versions
from recipes.common.utils.screen import announce, end, refuse

FINISHED = (files.SUMMARY, files.TABLE, files.REPORT)
# A later start may change these freely: they do not belong to the identity of the run.
NOT_COMPARED = {
    "accept_changed", "digests", "disable_tqdm", "dry_run", "fresh", "num_completions_to_print",
    "output_dir", "push_to_hub", "report_to", "resume_from_checkpoint", "run_name",
    "save_total_limit", "versions",
}  # fmt: skip
# A resume may change these: they decide when the run ends, and where it is served or pushed.
CHANGEABLE = {
    "max_reward_error_rate", "reward_timeout_s", "ddp_timeout", "vllm_server_base_url",
    "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port",
    "hub_model_id", "hub_strategy", "hub_private_repo", "hub_revision",
}  # fmt: skip
CODE = "the code of "  # the names of digests that --accept_changed reward_code accepts begin so
TEMPLATE = "chat template"
MODEL_FILES = {".safetensors", ".bin", ".json", ".jinja", ".txt", ".model"}
NFS_DELAY_S = 90  # a network disk may hide a new file for a minute
SAMPLE = 1 << 25  # bytes digested, from the middle of a file: training changes all weights


# --- What a start does


def check_output_dir(settings: dict[str, Any]) -> None:
    """Raise ValueError if a run could not write to `output_dir`, or --fresh would move its inputs.

    `settings` has all settings of the run by name.
    """
    given = settings["output_dir"]
    folder = Path("trainer_output" if given is None else given).resolve()  # the trainer's default
    if Path.cwd().is_relative_to(folder):
        raise ValueError(
            f"{given!r} is the working folder, or holds it; give the run a folder of its own."
        )
    file = next(path for path in (folder, *folder.parents) if path.exists())
    if not file.is_dir():
        raise ValueError(f"{given!r} cannot be made: {file} is not a folder.")
    if (folder / files.LOCK).is_dir():
        raise ValueError(f"{folder / files.LOCK} is a folder; remove it.")
    for name in PATHS if settings["fresh"] else ():
        values = settings[name] if isinstance(settings[name], list) else [settings[name]]
        for value in map(str, values):
            path = file_of(value).resolve()
            if name != "output_dir" and path.is_relative_to(folder) and path.exists():
                raise ValueError(
                    f"--fresh would move {path} ({name}) with all of {folder}, and the run needs "
                    "it there; move it elsewhere, or give another output_dir."
                )


def dtype_of_run(recipe: RecipeArguments, training: GRPOConfig) -> str:
    """The dtype for `dtype: fastest`: recorded in the folder or measured. Every rank calls this."""
    dtype = None
    if not recipe.fresh:
        with contextlib.suppress(ValueError, OSError):  # `open_run_folder` refuses what is damaged
            dtype = files.read_json(Path(training.output_dir, files.RECORD), {}).get("dtype")
    if dtype is None:
        dtype, times = fastest_dtype(training.use_cpu)
        announce(f"dtype: {dtype}, the fastest here, by {times:.1f} times (dtype: fastest)")
    return broadcast_object_list([dtype])[0] if training.world_size > 1 else dtype


def open_run_folder(
    recipe: RecipeArguments,
    training: GRPOConfig,
    record: dict[str, Any],
    held_out: list[dict],
) -> str | None:
    """Open the output folder: start, resume or refuse. Every rank calls this; rank 0 decides.

    `record` holds the settings of the run (`preflight.resolved`) and its identity (`identity_of`);
    `held_out` are the rows evaluated before and after training.

    Returns:
        The checkpoint to resume from, or None for a start from step 0.

    Raises:
        SystemExit: status 0 when the run is finished (its table is printed), status 2 when the
            folder belongs to another run, is damaged or is still being written.
    """
    folder = Path(training.output_dir)
    refusal, is_finished, checkpoint = None, False, None
    own_rows = (record.get("digests") or {}).get("training rows")
    if training.process_index == 0:
        try:
            record = take_over(folder, recipe, record)
            is_finished = all((folder / name).is_file() for name in FINISHED) and (
                "config" in files.read_json(folder / files.SUMMARY, {})
            )
            if not is_finished:
                checkpoint = prepare_start(folder, training, held_out)
                files.write_json(folder / files.RECORD, record)
        except (ValueError, OSError) as error:
            refusal = f"error: {error}"
    if training.world_size > 1:
        decision = [refusal, is_finished, checkpoint]
        refusal, is_finished, checkpoint = broadcast_object_list(decision)
        if not (refusal or is_finished):
            refusal = what_nodes_lack(folder, own_rows)
    if refusal:
        refuse(refusal)
    if is_finished:
        announce(f"The run in {folder} is finished (--fresh starts it anew):")
        if training.process_index == 0:
            announce((folder / files.TABLE).read_text(encoding="utf-8"))
        if training.push_to_hub:
            name = training.hub_model_id or folder.resolve().name
            command = files.push_command(name, folder, training.hub_revision)
            announce(f"It is not pushed again. To push it: {command}")
        end(0)
    announce(f"Resuming from {checkpoint}." if checkpoint else f"A new run in {folder}.")
    return checkpoint


def what_nodes_lack(folder: Path, rows: str | None) -> str | None:
    """An error if a node does not see the folder that rank 0 has opened, or has other rows.

    Every rank calls this; `rows` is its own digest of the training rows.
    """
    lock, waited = folder / files.LOCK, 0
    while not lock.is_file() and waited < NFS_DELAY_S:
        time.sleep(1)
        waited += 1
    nodes = gather_object([(lock.is_file(), rows)])
    if not all(sees for sees, _ in nodes):
        return f"error: not every node sees {folder}: give an output_dir on a disk that all share."
    if len({rows for _, rows in nodes}) > 1:
        return "error: the nodes read different training rows: give them the same files."
    return None


def take_over(folder: Path, recipe: RecipeArguments, record: dict[str, Any]) -> dict[str, Any]:
    """Lock the folder and return the record to write there, updated if it holds this run.

    With `fresh` what was there is moved aside. ValueError refuses: the folder is in use, holds
    something else, or another run than that of `record`.
    """
    take_lock(folder)
    # A start on a full disk leaves the lock and a half of its record.
    is_empty = all(
        path.suffix == files.PARTIAL or path.name == files.LOCK for path in folder.iterdir()
    )
    if recipe.fresh and not is_empty:
        aside = folder.with_name(f"{folder.name}-{datetime.now():%Y%m%d-%H%M%S}")
        folder.rename(aside)
        take_lock(folder)
        print(f"--fresh: the content of {folder} is now in {aside}.")
    elif not is_empty and not (folder / files.RECORD).is_file():
        raise ValueError(
            f"{folder} is not empty and not a run (it has no {files.RECORD}).\n"
            "Use another output_dir, or --fresh to move it aside."
        )
    old = files.read_json(folder / files.RECORD, {})
    if old and not isinstance(old.get("digests"), dict):
        raise ValueError(f"{folder / files.RECORD} is damaged: its digests are lost")
    left = [folder / files.EVALUATION, folder / files.SUMMARY, *files.checkpoints(folder)]
    if any(path.exists() for path in left):
        return update_record(folder, old, record, "reward_code" in recipe.accept_changed)
    return record


def update_record(
    folder: Path, old: dict[str, Any], new: dict[str, Any], accepts_code: bool
) -> dict[str, Any]:
    """Return the record `old` with the changes that a resume may make; ValueError for others.

    `accepts_code`: the code of a reward may have changed. versions.json keeps the command of each
    start, so it shows when a change was made.
    """
    changed = differences(old, new)
    codes = {name for name in changed if name.startswith(CODE)}
    accepted = CHANGEABLE | codes if accepts_code else CHANGEABLE
    if wrong := [name for name in changed if name not in accepted]:
        lines = "\n".join(f"  {name}: {changed[name]}" for name in wrong)
        hint = "\nTo go on with the changed code, give --accept_changed reward_code."
        raise ValueError(
            f"{folder} holds a run with another configuration:\n{lines}\nUndo these changes to "
            "resume it, use another output_dir, or --fresh to move it aside."
            f"{hint if codes & set(wrong) else ''}"
        )
    record = {**old, "digests": dict(old["digests"])}
    for name, change in changed.items():
        print(f"{name}: {change}; from here on this is the run's.")
        if name in codes:
            record["digests"][name] = new["digests"][name]
        else:
            record[name] = new[name]
    return record


def prepare_start(folder: Path, training: GRPOConfig, held_out: list[dict]) -> str | None:
    """Return the checkpoint to resume, and delete the completions that its run wrote after it.

    None for a start at step 0. ValueError if what a resume needs is damaged or missing, such as
    the evaluation of the rows `held_out` before training.
    """
    checkpoint = newest_whole_checkpoint(folder)
    if checkpoint:
        check_resumable(checkpoint, training, held_out)
    step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    for file in files.completion_files(folder):
        number = file.stem.rpartition("_")[2]
        if number.isdecimal() and int(number) > step:
            file.unlink()  # the resumed run writes this step again
    return str(checkpoint) if checkpoint else None


def newest_whole_checkpoint(folder: Path) -> Path | None:
    """Find the newest whole checkpoint; None if no save was ever completed.

    A warning names each newer one that is not whole. ValueError if a checkpoint was damaged after
    its save and no other is whole.
    """
    damaged = []
    for path in files.checkpoints(folder):
        reason = files.why_not_whole(path)
        if reason is None:
            return path
        print(f"warning: {path} is not whole ({reason}). Passing over it.", file=sys.stderr)
        # With neither file the save was cut short early, and the checkpoint was never whole.
        if (path / files.MANIFEST).is_file() or (path / files.STATE).is_file():
            damaged.append(f"{path}: {reason}")
    if damaged:
        raise ValueError(
            f"no checkpoint in {folder} is whole ({'; '.join(damaged)}). Restore one, or give "
            "--fresh to begin at step 0."
        )
    return None


def check_resumable(checkpoint: Path, training: GRPOConfig, held_out: list[dict]) -> None:
    """Raise ValueError if the run cannot continue from a whole checkpoint.

    The rows `held_out` must have been evaluated before training: the untrained model is gone.
    """
    folder = checkpoint.parent
    for name, default in ((files.MINUTES, {}), (files.WANDB, {}), (files.VERSIONS, [])):
        files.read_json(folder / name, default)  # ValueError now, not when the model is loaded
    if training.load_best_model_at_end:
        best = files.read_json(checkpoint / files.STATE, {}).get("best_model_checkpoint")
        best = folder / Path(best).name if best else checkpoint
        if best != checkpoint and (reason := files.why_not_whole(best)):
            raise ValueError(
                f"{best}, the best checkpoint so far, is not whole: {reason}. Restore it, or give "
                "--fresh."
            )
    if training.sync_ref_model:
        raise ValueError(
            f"cannot resume from {checkpoint}: TRL keeps a moving reference (sync_ref_model) in no "
            "checkpoint. Give --fresh."
        )
    before = files.read_evaluated(folder, files.BEFORE) if held_out else []
    if [row.get("prompt") for row in before] != [row["prompt"] for row in held_out]:
        raise ValueError(
            f"cannot resume from {checkpoint}: {files.BEFORE} does not hold the {len(held_out)} "
            "test questions, and the untrained model is gone. Restore it, or give --fresh."
        )


_lock: IO | None = None  # held until this process ends: then the kernel unlocks it, also on NFS


def take_lock(folder: Path) -> None:
    """Make and lock the folder; ValueError if another process has it (its launcher may be gone)."""
    global _lock
    folder.mkdir(parents=True, exist_ok=True)
    _lock = (folder / files.LOCK).open("a")
    try:
        fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"{folder} is still being written by another process.\nWait for it to end, or use "
            f"another output_dir; if its machine is lost, delete {files.LOCK}."
        ) from None
    except OSError as error:  # the file system has no locks
        print(f"warning: {folder} cannot be locked ({error}): let only one run write it.")


# --- Which run it is


def identity_of(
    code: Iterable[Callable],
    train_rows: list[dict],
    eval_rows: list[dict],
    model: Path | None,
    template: str | None = None,
) -> dict[str, Any]:
    """The identity of a run besides its settings: engine, versions and digests.

    `code` holds rewards, tools, environments and functions in whose files metrics are. `train_rows`
    are the first rows of a stream. `model` is the folder of the model at step 0, or None if it is
    not on this disk; `template` is the file of a chat template.
    """
    digests = {"model and tokenizer": _model_digest(model) if model else None}
    if template and Path(template).is_file():
        digests[TEMPLATE] = _digest([Path(template).read_bytes()])
    for name, rows in (("training rows", train_rows), ("held-out rows", eval_rows)):
        digests[name] = _digest(json.dumps(row, sort_keys=True, default=str) for row in rows)
    for function in code:
        name = getattr(function, "__name__", type(function).__name__)
        digests[f"{CODE}{name!r}"] = _source_digest(function)
    return {"engine": asked_engine(), "versions": package_versions(), "digests": digests}


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """The differences between two records that make them different runs, by name.

    Example: `differences({"seed": 0}, {"seed": 1}) == {"seed": "was 0, now 1"}`
    """
    changed = {}
    for name in sorted((old.keys() | new.keys()) - NOT_COMPARED):
        if old.get(name) != new.get(name):
            changed[name] = f"was {old.get(name)!r}, now {new.get(name)!r}"
    was = {TEMPLATE: None, **(old.get("digests") or {})}  # runs of an earlier version lack it
    for name, digest in sorted((new.get("digests") or {}).items()):
        if name not in was:
            changed[name] = "it is not in the record"
        elif None not in (was[name], digest) and was[name] != digest:  # None: unknown
            changed[name] = "changed: restore what it was"
    return changed


def _digest(texts: Iterable[str | bytes]) -> str:
    """The digest of several texts or contents of files: 16 hexadecimal digits of their SHA-256."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def _source_digest(function: Callable) -> str | None:
    """Digest of a function's file, without comments and layout; None if it has no source file.

    A class or an object with `__call__` has the file of its class.
    """
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = getattr(function, "__wrapped__", None) or function.func
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    try:
        file = inspect.getsourcefile(function if is_plain else type(function))
        return _digest([ast.dump(ast.parse(Path(file).read_text(encoding="utf-8")))])
    except (OSError, TypeError, SyntaxError):
        return None


def _model_digest(folder: Path) -> str:
    """Digest of a model's files: configuration, weights, tokenizer and chat template.

    Of a large file only its size and 32 MiB (`SAMPLE`) in its middle: training changes all weights.
    """
    pieces = []
    for path in sorted(path for path in folder.iterdir() if path.suffix in MODEL_FILES):
        size = path.stat().st_size
        with path.open("rb") as content:
            content.seek(max(0, (size - SAMPLE) // 2))
            pieces += [f"{path.name} {size}", content.read(SAMPLE)]
    return _digest(pieces)
