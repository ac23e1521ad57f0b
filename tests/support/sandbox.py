"""Processes, and the sandbox package where every user can read it, as perhaps not in a clone."""

import atexit
import contextlib
import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

SYSTEM_PYTHON = "/usr/bin/python3"
on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)


class Program(NamedTuple):
    """A program of a table, what the table says of it in a word, and its tests."""

    kind: str
    source: str
    tests: list[str]


def programs(name: str) -> dict[str, Program]:
    """The programs of tests/programs/NAME.txt, by name, in the order of the file.

    `=== kind | name` or `=== name` stands before each, `--- ` before each of its tests.
    """
    file = Path(__file__).parents[1] / "programs" / f"{name}.txt"
    found = {}
    for part in file.read_text(encoding="utf-8").rstrip("\n").split("\n=== ")[1:]:
        heading, _, text = part.partition("\n")
        kind, _, title = heading.rpartition(" | ")
        source, *tests = text.split("\n--- ")
        found[title] = Program(kind, source, tests)
    return found


def descendants(pid: int) -> list[int]:
    """The processes below one, children of all its threads, dead and not yet reaped ones too."""
    below = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                below += [child, *descendants(child)]
    return below


@functools.cache
def folder_for_everyone() -> Path:
    """A folder outside the clone, until exit, with `rewards/sandbox` in an empty package."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(
        Path(__file__).parents[2] / "rewards" / "sandbox",
        folder / "rewards" / "sandbox",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (folder / "rewards" / "__init__.py").touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
