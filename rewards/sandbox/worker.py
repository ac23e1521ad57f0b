"""The worker: runs the model's program in a confined child, and answers the calls of the checker.

Promises: this process holds no test, no expected value and no way to report a verdict.

What is not covered: the program can change this process as it likes, also the code below. By that
it can make itself fail or answer a call with any value, which any program can do anyway.
"""

import atexit
import builtins
import contextlib
import gc
import os
import stat
import sys
import threading
import traceback
from os import _exit  # now, since a program can replace `os._exit`
from types import ModuleType
from typing import Any, TextIO

from rewards.sandbox import link

LINK, JOB = 3, 4


def serve_calls() -> None:
    """Run the program as a module, then answer the checker's calls (for assert tests)."""
    source = _prepare_and_read()
    module = ModuleType("solution")
    sys.modules["solution"] = module

    def run() -> dict[str, Any]:
        exec(compile(source, "<program>", "exec"), module.__dict__)
        return module.__dict__

    with contextlib.suppress(link.LinkError):
        link.Server(LINK, run, _flush).serve()
    _end(0)


def run_script() -> None:
    """Run the program like `python program.py`, with its exit code (for stdin/stdout tests)."""
    code = _run_main(_prepare_and_read())
    # As the interpreter does, also after an exception: wait for the threads, then leave. Files
    # that the program left open write the rest when they are deleted.
    for step in (threading._shutdown, atexit._run_exitfuncs, _delete_main):
        with contextlib.suppress(BaseException):
            step()
    _end(code)


def _run_main(source: bytes) -> int:
    """Run a program as `__main__` and return its exit code."""
    module = ModuleType("__main__")
    module.__builtins__, module.__file__ = builtins, "program.py"  # as the interpreter has them
    sys.modules["__main__"] = module
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):  # also a bool, which is an int
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)  # as Python does
        return 1
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without our frame
        traceback.print_exception(type(error), error, trace)
        return 1
    return 0


def _delete_main() -> None:
    del sys.modules["__main__"]
    gc.collect()


def open_streams() -> None:
    """Open the children's standard streams, once, in the zygote.

    Meanwhile 1 and 2 are a pipe, since Python would buffer by line on a terminal.
    """
    kept, pipe = [os.dup(1), os.dup(2)], os.pipe()
    os.dup2(pipe[1], 1)
    os.dup2(pipe[1], 2)
    sys.stdin = sys.__stdin__ = _stream(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = _stream(1, "w", "surrogateescape")
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")
    for number, descriptor in zip((1, 2), kept, strict=True):
        os.dup2(descriptor, number)
    for descriptor in (*kept, *pipe):
        os.close(descriptor)


def _prepare_and_read() -> bytes:
    """Prepare the interpreter for the program, and return its source."""
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["program.py"]
    os.fstat = _fstat  # libc's is refused
    # The frames of this harness must not count towards the program's limit.
    sys.setrecursionlimit(sys.getrecursionlimit() + 50)
    gc.enable()
    return link.read_all(JOB)


def _stream(number: int, mode: str, errors: str) -> TextIO:
    return open(number, mode, encoding="utf-8", errors=errors, closefd=False)


def _fstat(number: int) -> os.stat_result:
    """The size of a file, as fast readers of input ask for it: libc's `fstat` is refused here,
    since it could look up any path.
    """
    here = os.lseek(number, 0, os.SEEK_CUR)
    size = os.lseek(number, 0, os.SEEK_END)
    os.lseek(number, here, os.SEEK_SET)
    return os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _flush() -> None:
    """Write out what the program has printed, whatever it has put in place of the streams."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        with contextlib.suppress(BaseException):
            stream.flush()


def _end(code: int) -> None:
    _flush()
    _exit(code)
