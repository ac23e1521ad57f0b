"""What programs can import: modules that the zygote has in memory before it forks.

A program has no file system, so what is not named here cannot be imported. Each megabyte of modules
makes a fork some 2 % slower: those that only reach for networks, processes, files or terminals are
left out, and `ssl`, which asyncio would bring along.

What is not covered: time zones, which are files; parts of a package that it imports later, unless
they are named, as `numpy.random`; an extension that links to a library of the system.
"""

import importlib
import importlib.util
import sys

LIBRARY = """
    __future__ abc argparse array ast asyncio base64 binascii bisect builtins bz2 cProfile calendar
    cmath codecs collections collections.abc colorsys concurrent.futures.thread configparser
    contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis doctest
    encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.utf_16
    encodings.utf_32 enum errno fcntl fileinput fnmatch fractions functools gc getopt gettext glob
    graphlib gzip hashlib heapq hmac html html.parser importlib.util inspect io ipaddress itertools
    json keyword linecache locale logging lzma marshal math mimetypes mmap multiprocessing numbers
    operator optparse os pathlib pickle platform pprint pstats pwd queue random re reprlib resource
    sched secrets select selectors shlex shutil signal socket sqlite3 stat statistics string
    stringprep struct subprocess symtable sys tempfile textwrap threading time timeit token tokenize
    traceback tracemalloc types typing unicodedata unittest unittest.mock urllib.parse uuid warnings
    weakref xml.etree.ElementTree zlib zoneinfo _strptime
"""


def prepare(packages: dict[str, str]) -> None:
    """Import the packages, by name and the folder that each is in, and what programs may use."""
    sys.path += [folder for folder in dict.fromkeys(packages.values()) if folder not in sys.path]
    for name in packages:
        importlib.import_module(name)
    sys.modules.setdefault("ssl", None)  # where no package wants it: an import of it fails
    for name in LIBRARY.split():
        # Not every Python has all of its modules.
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
