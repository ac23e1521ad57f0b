"""The sandbox package where every user can read it: a clone may lie in a folder that others cannot enter."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"


@functools.cache
def folder_for_everyone() -> Path:
    """A folder outside the clone that holds `rewards/sandbox` and an empty `rewards/__init__.py`; removed at exit."""
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
