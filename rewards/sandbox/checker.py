"""The checker: runs the tests in a confined process, apart from the program, and reports on each.

Promises: a name in a test means what the task's own setup defines; else, if it is the task's entry
point, a function of the program; else a built-in or a module of the standard library; else a
function of the program. Those functions are called over the link. So nothing that the program
patches, overrides or returns changes what a test means, and its process holds no line of a test.

If the tests are plain (see `names.are_plain`), one checker serves up to 64 programs, one after the
other. Other tests could leave changes behind, so each program gets a new checker. A checker takes
only messages from a program, from which the codec builds values that run none of its code. The
link, names and values of a program are deleted before the next program. A checker that has started
threads or uses much more memory than at first is replaced. If a checker dies, its program is run
once more, on a new checker. A program that took over the checker could pass itself and the programs
after it in the group, and read their tests. It could reach nothing else, since a checker has no
more rights than a program. To take it over needs an error in the C code of Python's json, int,
float, Decimal.

What is not covered: such an error; a weak test stays weak: for example, a test that calls the
program and compares nothing passes.
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
from types import CodeType
from typing import Any

from rewards.sandbox.codec import NotPlain
from rewards.sandbox.link import Caller, LinkError, read_all

CHECKER_PROGRAMS = 64  # the most programs that one checker serves
ORDERS = 3  # the descriptor on which programs come in and verdicts go out
GROWTH_KB = 100_000  # a checker whose peak memory has grown by more is replaced
REASON_LENGTH = 300
NEVER_CALLED = "this test never called the program, so it shows nothing"


def check() -> None:
    """Serve programs one by one until the trainer closes; each comes as a link and its tests."""
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
    """Report `[passed, reason]` for each test, or one `[null, reason]` if no test can run."""
    caller = Caller(link)
    try:
        caller.request("run", None, [])
        scope = _scope(caller, job)
        exec(job["setup"], scope)
    except BaseException as error:
        _report([None, _reason(error)])
        return
    caller.table.exceptions = scope
    for test, names_exit in zip(job["tests"], job["name_exit"], strict=True):
        caller.names_exit = names_exit
        _report(_outcome(test, scope, caller))


def _memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _scope(caller: Caller, job: dict) -> dict[str, Any]:
    """The global names of the tests and their values; the setup then adds its own."""

    def function(name: str) -> Any:
        return lambda *arguments, **keywords: caller.call(name, arguments, keywords)

    modules = {name: importlib.import_module(name) for name in job["modules"]}
    errors = {name: type(name, (Exception,), {}) for name in job["errors"]}
    functions = {name: function(name) for name in job["names"]}
    return {"__name__": "tests"} | modules | errors | functions


def _outcome(test: CodeType, scope: dict[str, Any], caller: Caller) -> list:
    """Run a test: it passes if it calls the program, raises nothing and the program still runs."""
    before, caller.table.refused = caller.calls, ""
    try:
        exec(test, scope)
    except BaseException as error:
        return [False, _reason(error)]
    if caller.ended:
        return [False, _reason(LinkError("the program ended"))]
    if caller.table.refused:  # and the test caught that error
        return [False, _reason(NotPlain(caller.table.refused))]
    return [True, ""] if caller.calls > before else [False, NEVER_CALLED]


def _reason(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{type(error).__name__}: {message}"[:REASON_LENGTH].removesuffix(": ")


def _report(line: Any) -> None:
    os.write(ORDERS, json.dumps(line).encode())
