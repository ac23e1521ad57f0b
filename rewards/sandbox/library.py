"""The standard library for children that may not enter the folder it lies in, such as /root/.pyenv.

    read_from_here("/root/.pyenv/versions/3.11.7/lib/python3.11")

A file is found from the current folder without a right to enter the folders above it. So the zygote, as root, makes
the library its current folder, and every import of its children goes by a relative path.

What is not covered: modules outside the library's folder; the path that `__file__` gives is still the absolute one.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType

LOADERS = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)


class RelativeFinder(FileFinder):
    """Looks in a folder below the current one, and keeps its path relative."""

    def __init__(self, path: str):
        super().__init__(path, *LOADERS)
        self.path = path

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            spec.origin = spec.loader.path  # what is given to the dynamic linker
        return spec


def read_from_here(library: str) -> None:
    """Make the library's folder the current one, and import from it by relative paths from now on."""
    os.chdir(library)
    sys.path_hooks.insert(0, _finder)
    sys.path[:] = _relative(sys.path, library)
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__ = _relative(module.__path__, library)


def _finder(path: str) -> RelativeFinder:
    if path != "." and not path.startswith("./"):
        raise ImportError("not a relative path")
    return RelativeFinder(path)


def _relative(paths: Sequence[str], library: str) -> list[str]:
    return [
        f".{path.removeprefix(library)}" if path.startswith(library) else path for path in paths
    ]
