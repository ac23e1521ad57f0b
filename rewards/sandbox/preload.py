"""The modules that programs can import: the zygote imports them before it forks.

A program has no file system, so it can import no other module. Each megabyte of modules makes a
fork some 2 % slower: modules of use only with networks, processes, files or terminals are left out.

What is not covered: time zones, which are files; submodules that a package does not import at once,
unless they are named, as `numpy.random`; an extension that links to a library of the system.
"""

import contextlib
import importlib
import sys

LIBRARY = """
    __future__ abc argparse array ast asyncio base64 binascii bisect builtins bz2 cProfile calendar
    cmath codecs collections collections.abc colorsys concurrent.futures.thread configparser
    contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis doctest
    email.utils encodings.ascii encodings.base64_codec encodings.cp1252 encodings.cp437
    encodings.hex_codec encodings.idna encodings.iso8859_15 encodings.latin_1 encodings.punycode
    encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16
    encodings.utf_16_be encodings.utf_16_le encodings.utf_32 encodings.utf_32_be encodings.utf_32_le
    encodings.utf_7 encodings.utf_8_sig enum errno fcntl fileinput fnmatch fractions functools
    gc getopt gettext glob graphlib gzip hashlib heapq hmac html html.parser http importlib.util
    inspect io ipaddress itertools json keyword linecache locale logging lzma marshal math
    mimetypes mmap multiprocessing multiprocessing.dummy multiprocessing.pool numbers
    operator optparse os pathlib pickle platform pprint pstats pwd queue random re reprlib resource
    sched secrets select selectors shlex shutil signal socket sqlite3 stat statistics string
    stringprep struct subprocess symtable sys tempfile textwrap threading time timeit token tokenize
    traceback tracemalloc types typing tomllib unicodedata unittest unittest.async_case
    unittest.mock urllib.parse uuid warnings
    weakref xml.etree.ElementTree zlib zoneinfo _strptime
"""


def prepare(packages: dict[str, str]) -> None:
    """Import the packages (name -> folder that has the package) and the modules of `LIBRARY`."""
    sys.path += [folder for folder in dict.fromkeys(packages.values()) if folder not in sys.path]
    for name in packages:
        importlib.import_module(name)
    sys.modules.setdefault("ssl", None)  # unless a package has imported it, `import ssl` fails
    for name in LIBRARY.split():
        with contextlib.suppress(ImportError):  # a build of Python may lack one, or its _sqlite3
            importlib.import_module(name)
