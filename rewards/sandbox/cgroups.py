"""Limits of a container beyond the processor mask: its share of the cores, and its number of tasks.

    core_limit()      # 1.5 under `docker run --cpus 1.5`, None without a limit
    tasks_left()      # 99 under `docker run --pids-limit 100` with one process

What is not covered: control groups of version 1; limits above the container that it cannot see.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def core_limit() -> float | None:
    """The least share of processor time, in cores, of this process's group and those above it."""
    shares = []
    for folder in _groups():
        with contextlib.suppress(OSError, ValueError):  # `max` is not a number
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            shares.append(quota / period)
    return min(shares, default=None)


def tasks_left() -> int | None:
    """How many more processes and threads the group with the least room lets start."""
    left = []
    for folder in _groups():
        with contextlib.suppress(OSError, ValueError):
            most, now = ((folder / f"pids.{name}").read_text() for name in ("max", "current"))
            left.append(int(most) - int(now))
    return min(left, default=None)


def _groups() -> Iterator[Path]:
    """The folders of this process's group and of those above it."""
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            if line.startswith("0::"):  # version 2
                group = ROOT / line.removeprefix("0::").lstrip("/")
                folders = (group, *group.parents)
                yield from (folder for folder in folders if folder.is_relative_to(ROOT))
