"""What programs can import: modules that the zygote has in memory before it forks.

A program has no file system, so what is not there cannot be imported. There are the standard
library, parts of it that it imports only when they are asked for, and the packages of a run.

What is not covered: time zones, which are files; parts of a package that it imports later, unless
they are named, as `numpy.random`; an extension that links to a library of the system.
"""

import contextlib
import importlib
import sys
import warnings

# They greet, open windows, need a terminal or are the tests of Python.
LEFT_OUT = """
    antigravity this idlelib tkinter turtle turtledemo lib2to3 test ensurepip venv pydoc_data pydoc
    curses readline rlcompleter
"""
PARTS = """
    _strptime collections.abc concurrent.futures.process concurrent.futures.thread ctypes.util
    email.message encodings.ascii encodings.cp1252 encodings.hex_codec encodings.idna
    encodings.latin_1 encodings.punycode encodings.rot_13 encodings.utf_16 encodings.utf_32
    html.entities html.parser http.client http.cookies importlib.metadata importlib.resources
    importlib.util json.tool logging.config logging.handlers multiprocessing.dummy
    multiprocessing.pool multiprocessing.queues multiprocessing.shared_memory os.path
    unittest.mock urllib.error urllib.parse urllib.request xml.dom.minidom xml.etree.ElementTree
    xml.sax.handler
"""


def prepare(packages: dict[str, str]) -> None:
    """Import every module by name; of `packages` with the folder that each is in."""
    sys.path += [folder for folder in dict.fromkeys(packages.values()) if folder not in sys.path]
    for name in packages:
        importlib.import_module(name)
    library = sys.stdlib_module_names - set(LEFT_OUT.split())
    names = [name for name in sorted(library) if not name.startswith("_")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that Python is about to drop
        for name in [*names, *PARTS.split()]:
            with contextlib.suppress(ImportError):  # not every Python has all of its modules
                importlib.import_module(name)
