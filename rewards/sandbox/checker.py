"""The checker: holds the tests in a confined child of its own, and reports on each.

Promises: a name in a test is what the task's own setup defines, else a built-in or a module of the
standard library, else (and where the task names it) a function of the program, which is called over
the link. So nothing that the program patches, overrides or returns changes what a test means; and
no line of a test exists in the program's process.

Where tests are plain (see `names.are_plain`), one checker serves up to 64 programs, one after the
other; tests that could leave something behind in the process have one of their own for each
program. All that a checker takes from a program are messages, of which the codec makes new built-in
values. The link, the names and the values of a program are gone before the next one comes, and a
checker with threads or much more memory than at first is replaced; a program whose checker dies
under it after serving others is run once more, on a fresh one. A program that took the checker over
could pass itself and the programs after it in the group, and read their tests; it could reach
nothing else, for the checker has no more rights than a program. It would need an error in the C
code of Python's json, int, float or Decimal.

What is not covered: such an error; a test that calls the program and then compares nothing passes;
a weak test stays weak.
"""

import gc
import importlib
import json
import marshal
import os
import random
import resource
import socket
import threading
from collections import ChainMap
from types import CodeType
from typing import Any

from rewards.sandbox.link import Caller, LinkError, read_all

CHECKER_PROGRAMS = 64  # that one checker serves at the most
ORDERS = 3  # the descriptor on which programs come in and verdicts go out
GROWTH_KB = 100_000  # a checker that has needed so much more memory serves no other program
REASON_LENGTH = 300
NEVER_CALLED = "this test never called the program, so it shows nothing"


def check() -> None:
    """Serve one program after the other, each with a link and its tests, until no more comes."""
    orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=ORDERS)
    gc.enable()
    at_first = _memory_kb()
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, 16, 2)
        if not data:
            os._exit(0)
        link, tests = descriptors
        random.seed()
        try:
            _check_program(link, marshal.loads(read_all(tests)))
        finally:
            os.close(link)
        gc.collect()
        has_grown = _memory_kb() > at_first + GROWTH_KB or threading.active_count() > 1
        _report("spent" if has_grown else "done")


def _check_program(link: int, job: dict) -> None:
    """Report one line a test, `[passed, reason]`; `[null, reason]` where none can run."""
    caller = Caller(link)
    try:
        caller.wait()
        scope = _scope(caller, job)
        exec(job["setup"], scope)
    except BaseException as error:
        _report([None, _reason(error)])
        return
    for test, names_exit in zip(job["tests"], job["name_exit"], strict=True):
        caller.own = ChainMap(scope, {"SystemExit": SystemExit} if names_exit else {})
        _report(_outcome(test, scope, caller))


def _memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _scope(caller: Caller, job: dict) -> dict[str, Any]:
    """The values of the names in the tests, before the setup adds its own."""

    def function(name: str) -> Any:
        return lambda *arguments, **keywords: caller.call(name, arguments, keywords)

    modules = {name: importlib.import_module(name) for name in job["modules"]}
    errors = {name: type(name, (Exception,), {}) for name in job["errors"]}
    functions = {name: function(name) for name in job["names"]}
    return {"__name__": "tests"} | modules | errors | functions


def _outcome(test: CodeType, scope: dict[str, Any], caller: Caller) -> list:
    """A test passes if it called the program, raised nothing, and the program is still there."""
    before = caller.calls
    try:
        exec(test, scope)
    except BaseException as error:
        return [False, _reason(error)]
    if caller.ended:
        return [False, _reason(LinkError("the program ended"))]
    return [True, ""] if caller.calls > before else [False, NEVER_CALLED]


def _reason(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{type(error).__name__}: {message}"[:REASON_LENGTH].removesuffix(": ")


def _report(line: Any) -> None:
    os.write(ORDERS, json.dumps(line).encode())
