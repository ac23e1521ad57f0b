"""The run folder: the names of its files, and functions that read and write them."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recipes.common.utils.secrets import hide_secrets

RECORD = "run_config.json"  # every setting, and digests of rows, rewards and the model at step 0
PREFLIGHT = "preflight.json"  # the table of rewards and the notes of preflight
VERSIONS = "versions.json"  # one entry for each start: versions, commit, hardware, command
MINUTES = "minutes.json"  # wall time so far, over all starts
EVALUATION = "evaluation"
BEFORE = "evaluation/before.jsonl"  # held-out rows with their completions, before training
AFTER = "evaluation/after.jsonl"  # the same rows after training
VALIDATION = "evaluation/validation.jsonl"  # a line for each evaluation of the validation rows
COMPLETIONS = "completions"  # TRL's parquet files, one for each logged step
CHECKPOINTS = "checkpoint-*"
STATE = "trainer_state.json"  # the Trainer's log
MANIFEST = "manifest.json"  # of a checkpoint: the size and the digest of each of its files
SUMMARY = "summary.json"  # a run with this, TABLE and REPORT is finished
TABLE = "table.txt"
REPORT = "report.html"
WANDB = "wandb_run.json"
LOCK = "run.lock"
CARD = "README.md"
PARTIAL = ".partial"  # the ending of a file that is still being written
WARM_START = "warm_start.json"  # settings of a warm start, and digests of its questions
PROBE_FIGURES = "figures.json"  # the results of a probe

# The first columns of a file of completions; rewards, their logs and the advantage follow.
FIRST_COLUMNS = ("step", "prompt", "completion")


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name, then rename it, so that a file is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(PARTIAL)
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON by `write_whole`, with secrets blanked."""
    write_whole(path, json.dumps(hide_secrets(value), indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, default: Any = None) -> Any:
    """Read JSON; `default` if there is no file. ValueError if it is no JSON of `default`'s type."""
    if not path.is_file():
        return default
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if default is not None and type(value) is not type(default):
            raise ValueError(f"it holds no {'list' if isinstance(default, list) else 'mapping'}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return value


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one line of JSON per row by `write_whole`."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines: an object for each line; ValueError if the file is damaged."""
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:  # splitlines would cut at U+2028
            rows = [json.loads(line) for line in lines]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line of it is no JSON object")
        return rows
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def read_config(run: Path) -> dict[str, Any]:
    """Read the settings of a run; FileNotFoundError if no run was started in this folder."""
    record = read_json(run / RECORD, {})  # settings, digests and versions
    if not record:
        raise FileNotFoundError(
            f"{run} holds no {RECORD}: give the output_dir of a run that was started."
        )
    return {name: record[name] for name in record if name not in ("digests", "versions")}


def read_evaluated(run: Path, file: str) -> list[dict[str, Any]]:
    """Read an evaluation, such as evaluation/before.jsonl; [] if there is no file yet."""
    if not (run / file).is_file():
        return []
    rows = read_rows(run / file)
    if not all(isinstance(row.get("metrics"), dict) for row in rows):
        raise ValueError(f"{run / file} is damaged: a line of it has no metrics")
    return rows


def read_evaluation(run: Path) -> tuple[list[dict], list[dict]]:
    """Read the rows evaluated before and after training; ValueError if one file is missing."""
    before, after = read_evaluated(run, BEFORE), read_evaluated(run, AFTER)
    if not (before and after):
        raise ValueError(
            f"{run} has no {BEFORE} and {AFTER}: is it a finished run with num_eval_rows > 0?"
        )
    return before, after


def read_validation(run: Path) -> list[dict[str, Any]]:
    """Read the evaluations of the validation rows; the first is of the untrained model.

    An evaluation has `step`, `metrics` (name -> True, False or None for each row), `truncated` (a
    share), `mean_length` and `rewards` (name -> mean or None).
    """
    return read_evaluated(run, VALIDATION)


def completion_files(run: Path) -> list[Path]:
    """The files of completions, one for each logged step, in the order of the steps."""
    found = (run / COMPLETIONS).glob("completions_*.parquet")
    return sorted(found, key=lambda path: (len(path.name), path.name))  # step 100000 after 99999


def read_completions(path: Path) -> Any:
    """Read the completions that TRL logged at one step; ValueError if the file is damaged.

    The pyarrow table has a row for each completion: step, prompt, completion, rewards, advantage.
    """
    from pyarrow import ArrowInvalid, parquet

    try:
        return parquet.read_table(path)
    except ArrowInvalid as error:
        raise ValueError(
            f"{path} is damaged: it was cut short, or a run is writing it; the report can do "
            "without it"
        ) from error


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, the newest first."""
    by_step = {path.name.rpartition("-")[2]: path for path in run.glob(CHECKPOINTS)}
    steps = [step for step in by_step if step.isdecimal()]
    return [by_step[step] for step in sorted(steps, key=int, reverse=True)]


def write_manifest(checkpoint: Path) -> None:
    """Write manifest.json, the last file of a checkpoint: size and SHA-256 digest of the others.

    Call it when all processes have written theirs. A resumed run compares with it.
    """
    names = [
        path.relative_to(checkpoint).as_posix()
        for path in sorted(checkpoint.rglob("*"))
        # A save that was cut short before may have left a part of its manifest.
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(PARTIAL)
    ]
    write_json(checkpoint / MANIFEST, sizes_and_digests(checkpoint, names))


def why_not_whole(checkpoint: Path) -> str | None:
    """Why a checkpoint cannot be resumed, such as "optimizer.pt is missing"; None if it is whole.

    Its last file, manifest.json, has the size and digest of each file. *Not covered*: files that a
    process wrote to the disk of another machine.
    """
    try:
        manifest = read_json(checkpoint / MANIFEST, {})
        step = read_json(checkpoint / STATE, {}).get("global_step")
    except ValueError as damage:
        return str(damage)
    if not manifest:
        return f"{MANIFEST}, its last file, is missing: the save was cut short"
    for name in manifest:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    for name, size_and_digest in sizes_and_digests(checkpoint, list(manifest)).items():
        if size_and_digest != manifest[name]:
            return f"{name} has another content than when it was saved"
    return None if checkpoint.name == f"checkpoint-{step}" else f"{STATE} is of step {step}"


def sizes_and_digests(folder: Path, names: list[str]) -> dict[str, list[int | str]]:
    """Name -> [size in bytes, SHA-256 digest] of each file; in threads, as files are large."""

    def size_and_digest(name: str) -> list[int | str]:
        with (folder / name).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        return [(folder / name).stat().st_size, digest]

    with ThreadPoolExecutor() as pool:  # hashlib releases the GIL
        return dict(zip(names, pool.map(size_and_digest, names), strict=True))


def read_log(run: Path) -> list[dict[str, float]]:
    """Read the logged training steps of a run, up to its end or else its newest checkpoint.

    Raises ValueError if the file at the end is damaged; a checkpoint that was cut short is passed.
    """
    for state in (run / STATE, *(path / STATE for path in checkpoints(run))):
        if state.is_file():
            try:
                history = read_json(state, {}).get("log_history", [])
            except ValueError:
                if state.parent == run:
                    raise
                continue
            if not (isinstance(history, list) and all(isinstance(line, dict) for line in history)):
                raise ValueError(f"{state} is damaged: its log_history is no list of steps")
            # The Trainer also logs evaluations and the end of training, which have no reward.
            return [entry for entry in history if "reward" in entry]
    return []


def messages(prompt: str | list[dict] | None) -> list[tuple[str, str]]:
    """Role and text of each message of a prompt or completion; a plain text has no role ("").

    The text of a message ends with its tool calls as JSON.

    >>> messages([{"role": "user", "content": "hi"}]), messages("hi")
    ([('user', 'hi')], [('', 'hi')])
    """
    if not isinstance(prompt, list):
        return [("", prompt or "")]
    texts = []
    for message in prompt:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content, default=str)
        for call in message.get("tool_calls") or []:
            name, arguments = json.dumps(call["function"]["name"]), call["function"]["arguments"]
            if not isinstance(arguments, str):  # a table of completions has them as JSON already
                arguments = json.dumps(arguments, default=str)
            text += f'{{"call": {name}, "arguments": {arguments}}}'
        texts.append((message.get("role") or "", text))
    return texts


def push_command(repo_id: str, folder: Path, revision: str | None) -> str:
    """The command that uploads a run folder without its checkpoints."""
    branch = f" --revision {revision}" if revision else ""
    return f"hf upload {repo_id} {folder} --exclude '{CHECKPOINTS}'{branch}"
