"""Read back what W&B wrote offline: a LevelDB-style log of `wandb.proto` records."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
FILE_HEADER = 7  # ":W&B", a magic number, a version
CHUNK_HEADER = struct.Struct(
    "<IHB"
)  # crc32, length, and whether the chunk is a whole record, its first, middle or last
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def read_records(path: Path) -> Iterator[Record]:
    """The records of a `run-*.wandb` file, in order."""
    data, position, pending = path.read_bytes(), FILE_HEADER, b""
    while position + CHUNK_HEADER.size <= len(data):
        left = BLOCK - position % BLOCK
        if left < CHUNK_HEADER.size:  # a block ends in zeros where no header fits
            position += left
            continue
        _, length, kind = CHUNK_HEADER.unpack_from(data, position)
        position += CHUNK_HEADER.size
        if position + length > len(data):  # cut short when the run was killed
            return
        pending += data[position : position + length]
        position += length
        if kind in (WHOLE, LAST):
            yield Record.FromString(pending)
            pending = b""


def read_runs(folder: Path) -> list[dict]:
    """Each offline run below `folder`, in the order of their starts.

    Id, project, name, group, config and summary; `history`, the keys that were ever logged;
    `artifacts`, each with its type and the files in it.
    """
    paths = sorted(
        folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.parent.name
    )
    return [_read(path) for path in paths]


def _read(path: Path) -> dict:
    run = {
        "config": {},
        "summary": {},
        "history": set(),
        "artifacts": {},
    }
    for record in read_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run["project"], run["name"] = record.run.project, record.run.display_name
            run["id"], run["group"] = record.run.run_id, record.run.run_group
            run["config"].update(_items(record.run.config.update))
        elif kind == "config":
            run["config"].update(_items(record.config.update))
        elif kind == "summary":
            run["summary"].update(_items(record.summary.update))
        elif kind == "history":
            run["history"] |= set(_items(record.history.item))
        elif kind == "artifact":
            run["artifacts"].setdefault(record.artifact.name, []).append(_artifact(record.artifact))
    return run


def _artifact(artifact) -> dict:
    return {"type": artifact.type, "files": [entry.path for entry in artifact.manifest.contents]}


def _items(items) -> dict:
    return {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items}
