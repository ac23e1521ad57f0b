"""Whether the files that training goes on from are whole: weights by their header, states by the end of their archive.

*Not covered*: bytes that changed in the middle of a file.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader

from recipes.common.utils.run_files import STATE

WEIGHTS = (
    "model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "adapter_model.bin",
)
FSDP_STATES = ("pytorch_model_fsdp", "optimizer")  # accelerate's names
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def read_safetensors_header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file; ValueError where it is damaged or the data after it is not all there."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= size - 8:
            raise ValueError(f"{path.name} has no whole header ({size} bytes)")
        try:
            header = json.loads(file.read(length))
            end = max(
                (
                    entry["data_offsets"][1]
                    for name, entry in header.items()
                    if name != "__metadata__"
                ),
                default=0,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the header of {path.name} is damaged") from error
    if 8 + length + end != size:
        raise ValueError(f"{path.name} has {size} bytes of {8 + length + end}")
    return header


def weights_problem(folder: Path, required: bool = True) -> str | None:
    """Say what is wrong with the weights of a checkpoint: none, parts missing by their index, or cut short."""
    names = [name for name in WEIGHTS if (folder / name).is_file()]
    for index in (name for name in INDEXES if (folder / name).is_file()):
        try:
            names += sorted(
                set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{index} is damaged"
    if not names:
        return (
            f"there are no weights (none of {', '.join((*WEIGHTS[:2], INDEXES[0]))})"
            if required
            else None
        )
    return next((problem for name in names if (problem := _file_problem(folder / name))), None)


def checkpoint_problem(path: Path, world_size: int, engine: str) -> str | None:
    """Say what a checkpoint lacks that a run goes on from: weights, optimizer, scheduler, random state, or its log."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if f"checkpoint-{state['global_step']}" != path.name:
            return f"{STATE} is of step {state['global_step']}"
    except OSError:
        return f"{STATE} is missing"
    except (ValueError, KeyError, TypeError):
        return f"{STATE} is damaged"
    states = (
        ["rng_state.pth"]
        if world_size == 1
        else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    )
    if engine.startswith("ZeRO"):
        tag = path / "latest"
        folder = path / (tag.read_text().strip() if tag.is_file() else "latest")
        for kind, needed in (
            ("optim", world_size),
            ("model", world_size if engine.startswith("ZeRO-3") else 1),
        ):
            parts = sorted(folder.glob(f"*{kind}_states.pt"))
            if len(parts) < needed:
                return (
                    f"{folder.name} holds the {kind} states of {len(parts)} of {needed} processes"
                )
            states += [str(part.relative_to(path)) for part in parts]
    elif engine.startswith("FSDP"):
        for name in FSDP_STATES:  # in parts, or whole
            if not (path / f"{name}_0").is_dir():
                states.append(f"{name}.bin")
            elif problem := _parts_problem(path / f"{name}_0"):
                return problem
        states.append("scheduler.pt")
    else:
        states += ["optimizer.pt", "scheduler.pt"]
    wrong = next((problem for name in states if (problem := _file_problem(path / name))), None)
    return wrong or weights_problem(path, required=not engine.startswith(("ZeRO", "FSDP")))


def _parts_problem(folder: Path) -> str | None:
    """Hold the parts of a sharded state to their index, as `torch.distributed.checkpoint` writes both."""
    try:
        parts = FileSystemReader(folder).read_metadata().storage_data.values()
    except Exception:  # whatever a damaged pickle makes of it
        return f"{folder.name}/.metadata is missing or damaged"
    for part in parts:
        file = folder / part.relative_path
        if not file.is_file() or file.stat().st_size < part.offset + part.length:
            return f"{folder.name}/{file.name} is missing or cut short"
    return None


def _file_problem(path: Path) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    if path.suffix != ".safetensors":
        return None if zipfile.is_zipfile(path) else f"{path.name} is cut short or damaged"
    try:
        read_safetensors_header(path)
    except ValueError as problem:
        return str(problem)
    return None
