"""What children of the zygote can import: modules in memory before it forks, and files they may
read.

Promises: the modules of `COMMON` are always there, the rest of the standard library is imported
when it is asked for. In the sealed mode, which has no file system, those of `MORE` are there too,
and what is not cannot be imported.

A child may not enter every folder that the zygote can, such as /root/.pyenv. But a file is found
from the current folder without a right to enter those above it: so there the zygote makes the
library its current folder, and every import goes by a relative path.

What is not covered: modules outside such a folder, for which `__file__` still gives the absolute
path; access times of files under `strictatime`, or after a day; an extension that links to a
library of the system which nothing preloaded uses; time zones in the sealed mode.
"""

import contextlib
import importlib
import importlib.util
import mimetypes
import os
import stat
import sys
import time
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType

from rewards.sandbox import landlock

DAY_S = 86_400.0
ZONES = "/usr/share/zoneinfo"
LIBRARY = [path for path in sys.path if os.path.isdir(path)]  # of an interpreter started with -I -S
LOADERS = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)

COMMON = """
    __future__ abc array ast base64 binascii bisect builtins calendar cmath collections
    collections.abc contextlib copy dataclasses datetime decimal enum fractions functools hashlib
    heapq inspect io itertools json math numbers operator os random re secrets statistics string
    struct sys textwrap threading time traceback types typing unicodedata warnings weakref zlib
    queue pprint keyword copyreg ctypes linecache _bz2 _lzma _sqlite3 tokenize encodings.idna
"""
MORE = """
    argparse asyncio bz2 cProfile concurrent.futures.thread concurrent.futures.process csv difflib
    doctest fileinput fnmatch getpass glob graphlib gzip hmac html html.parser importlib.util
    ipaddress locale logging lzma multiprocessing optparse pathlib pickle platform pstats sched
    select selectors shlex shutil signal socket sqlite3 subprocess tempfile timeit token unittest
    unittest.mock urllib.parse uuid xml.etree.ElementTree zoneinfo
"""


def prepare(isolation: str, packages: dict[str, str]) -> None:
    """Import what is preloaded (packages first), and see that children can import the rest."""
    folders = dict.fromkeys(os.path.dirname(folder) for folder in packages.values())
    sys.path += [folder for folder in folders if folder not in sys.path]
    for name in packages:
        importlib.import_module(name)
    for name in (COMMON if isolation != "sealed" else COMMON + MORE).split():
        # Not every Python has all of its modules.
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    if isolation == "landlock" and not readable_by_all(standard := os.path.dirname(os.__file__)):
        read_from_here(standard)


def readable_paths(packages: dict[str, str]) -> list[str]:
    """Folders of the standard library, of packages, and of libraries that wheels bring along; time
    zones, and types of files.
    """
    libraries = [f"{folder}.libs" for folder in packages.values()]
    return [*LIBRARY, *packages.values(), *libraries, ZONES, *mimetypes.knownfiles]


def readable_by_all(path: str) -> bool:
    """Whether any user may enter every folder on the way to a path and read there."""
    place = Path(path).resolve()
    way = [stat.S_IMODE(folder.stat().st_mode) & 0o001 for folder in (place, *place.parents)]
    return all(way) and bool(place.stat().st_mode & 0o004)


# --------------------------------------------------------------------------- relative imports


class RelativeFinder(FileFinder):
    """Looks in a folder below the current one, and keeps its path relative."""

    def __init__(self, path: str):
        if path != "." and not path.startswith("./"):
            raise ImportError("not a relative path")
        super().__init__(path, *LOADERS)
        self.path = path

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            spec.origin = spec.loader.path  # what is given to the dynamic linker
        return spec


def read_from_here(library: str) -> None:
    """Make the library's folder the current one, and import from it by relative paths."""

    def relative(paths: Sequence[str]) -> list[str]:
        return [f".{p.removeprefix(library)}" if p.startswith(library) else p for p in paths]

    os.chdir(library)
    sys.path_hooks.insert(0, RelativeFinder)
    sys.path[:] = relative(sys.path)
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__ = relative(module.__path__)


# --------------------------------------------------------------------------- traces


def settle_access_times(paths: Sequence[str]) -> None:
    """Read whatever a program may read, so that no first reading by one changes a time that others
    can see.

    Under `relatime` a file's access time changes at the first reading after it was written, or a
    day later.
    """
    for folder in paths:
        with contextlib.suppress(OSError):
            if os.statvfs(folder).f_flag & (os.ST_RDONLY | os.ST_NOATIME):
                continue
        for place, folders, files in os.walk(folder):
            folders[:] = set(folders) - landlock.PACKAGES
            for file in files:
                with contextlib.suppress(OSError):
                    path = os.path.join(place, file)
                    seen = os.stat(path)
                    if seen.st_atime <= max(seen.st_mtime, seen.st_ctime, time.time() - DAY_S):
                        with open(path, "rb") as once:
                            once.read(1)
