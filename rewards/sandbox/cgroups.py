"""Limits of a container beyond the processor mask: its share of the cores, and its number of tasks.

    core_limit()      # 1.5 under `docker run --cpus 1.5`, None without a limit
    tasks_left()      # 99 under `docker run --pids-limit 100` with one process

What is not covered: limits above the container that the container cannot see.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def core_limit() -> float | None:
    """The least share of processor time, in cores, of this process's groups (version 2 and version 1)."""
    shares = []
    for quota, period in _words("cpu.max"):
        shares += [int(quota) / int(period)] if quota != "max" else []
    for folder in _folders("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (
                int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
            )
            shares += [quota / period] if quota > 0 else []
    return min(shares, default=None)


def tasks_left() -> int | None:
    """How many more processes and threads the group with the least room lets start."""
    left = []
    for folder in [*_folders(""), *_folders("pids")]:
        with contextlib.suppress(OSError, ValueError):  # `max` is not a number
            left.append(
                int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
            )
    return min(left, default=None)


def _words(file: str) -> Iterator[list[str]]:
    for folder in _folders(""):
        with contextlib.suppress(OSError):
            yield (folder / file).read_text().split()


def _folders(controller: str) -> list[Path]:
    """The folders of this process's group of a controller ("" for version 2) and of those above it."""
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                base = ROOT / names if controller else ROOT
                group = base / path.lstrip("/")
                return [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
    return []
