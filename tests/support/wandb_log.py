"""Read back what W&B wrote offline: a LevelDB-style log of `wandb.proto` records."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
FILE_HEADER = 7  # ":W&B", a magic number, a version
# crc32, length, and whether the chunk is a whole record (1), its first, middle or last (4)
CHUNK_HEADER = struct.Struct("<IHB")


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
        if kind in (1, 4):
            yield Record.FromString(pending)
            pending = b""


def read_runs(folder: Path) -> list[dict]:
    """Each offline run below `folder`, in the order of their starts.

    Id, project, name, group, config and summary; `history`, the keys that were ever logged;
    `artifacts`, each with its type and the files in it.
    """
    paths = folder.glob("wandb/offline-run-*/run-*.wandb")
    return [_read(path) for path in sorted(paths, key=lambda path: path.parent.name)]


def _read(path: Path) -> dict:
    run = {"config": {}, "summary": {}, "history": set(), "artifacts": {}}
    for record in read_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run |= {"project": record.run.project, "name": record.run.display_name}
            run |= {"id": record.run.run_id, "group": record.run.run_group}
            run["config"] |= _items(record.run.config.update)
        elif kind in ("config", "summary"):
            run[kind] |= _items(getattr(record, kind).update)
        elif kind == "history":
            run["history"] |= _items(record.history.item).keys()
        elif kind == "artifact":
            files = [entry.path for entry in record.artifact.manifest.contents]
            made = {"type": record.artifact.type, "files": files}
            run["artifacts"].setdefault(record.artifact.name, []).append(made)
    return run


def _items(items) -> dict:
    return {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items}
