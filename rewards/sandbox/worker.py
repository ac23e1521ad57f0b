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
    source = _prepare_and_read()
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    code = 0
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without our frame
        traceback.print_exception(type(error), error, trace)
        code = 1
    # As the interpreter does, also after an exception: wait for the threads, then leave.
    with contextlib.suppress(BaseException):
        threading._shutdown()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    _end(code)


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
    # The frames of this harness must not count towards the program's limit.
    sys.setrecursionlimit(sys.getrecursionlimit() + 50)
    gc.enable()
    return link.read_all(JOB)


def _stream(number: int, mode: str, errors: str) -> TextIO:
    return open(number, mode, encoding="utf-8", errors=errors, closefd=False)


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):  # also a bool, which is an int
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def _flush() -> None:
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()


def _end(code: int) -> None:
    _flush()
    _exit(code)
