"""The worker: runs the model's program in a confined child, and answers the calls of the checker.

Promises: nothing here knows a test, an expected value or the way to the verdict.

What is not covered: the program can do what it likes to this process, including to the code below.
It can so make itself fail, and answer calls with any value: which is all that a program does.
"""

import atexit
import builtins
import contextlib
import gc
import os
import sys
import threading
import traceback
from os import _exit  # before a program can put something in its place
from types import ModuleType
from typing import Any, TextIO

from rewards.sandbox import link

LINK, JOB = 3, 4


def serve_calls() -> None:
    """For assert tests: run the program as a module, then do what the checker asks."""
    source = _begin()
    module = ModuleType("solution")
    sys.modules["solution"] = module
    with contextlib.suppress(link.LinkError):
        try:
            exec(compile(source, "<program>", "exec"), module.__dict__)
        except BaseException as error:
            link.send(LINK, ["failed", *link.described(error)])
            _end(1)
        link.send(LINK, ["ready", None, None])
        link.serve(LINK, module.__dict__, _flush)
    _end(0)


def run_script() -> None:
    """For stdin/stdout tests: run it as `python program.py` would, and end with its exit code."""
    source = _begin()
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
        threading._shutdown()  # waits for its threads, as the interpreter does
        atexit._run_exitfuncs()
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException as error:
        own = error.__traceback__ and error.__traceback__.tb_next  # without our frame
        traceback.print_exception(type(error), error, own)
        code = 1
    _end(code)


def open_streams() -> None:
    """Once, in the zygote: its children's streams, opened on what they will find there."""
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


def _begin() -> bytes:
    """The source of the program."""
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["program.py"]
    # The frames of this harness are not the program's.
    sys.setrecursionlimit(sys.getrecursionlimit() + 50)
    gc.enable()
    return link.read_all(JOB)


def _stream(number: int, mode: str, errors: str) -> TextIO:
    return open(number, mode, encoding="utf-8", errors=errors, closefd=False)


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):  # a truth is a number to `sys.exit`
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
