"""The checker: runs the tests in a confined process, apart from the program, and reports on each.

Promises: a name in a test means what the task's own setup defines; else, if it is the task's entry
point, a function of the program; else a built-in or a module of the standard library; else a
function of the program, called over the link. So nothing that the program patches, overrides or
returns changes what a test means. Each program has a checker of its own, so no test leaves anything
behind for another program. If a checker dies, its program is run once more.

What is not covered: a weak test, such as one that calls the program and compares nothing, passes. A
program gets into its checker by an error in the C code of Python's json, int, float or Decimal, or
by a test that runs what it returned, such as `eval(f(1))`. It could then pass itself and read its
tests, and reach nothing else: a checker has no more rights than a program.
"""

import gc
import importlib
import json
import marshal
import os
from types import CodeType
from typing import Any

from rewards.sandbox.codec import NotPlain
from rewards.sandbox.link import Caller, LinkError, read_all

LINK, TESTS, VERDICTS = 3, 4, 5
REASON_LENGTH = 300
NEVER_CALLED = "this test never called the program, so it shows nothing"


def check() -> None:
    """Run a job's tests; write a line `[passed, reason]` for each, or one `[null, reason]` if none
    can run.
    """
    gc.enable()
    job = marshal.loads(read_all(TESTS))
    caller = Caller(LINK)
    scope: dict[str, Any] = {"__name__": "tests"}
    try:
        # The program itself; it answers which names it has defined, with name and docstring.
        [known] = caller.request("run", [*job["names"], *job["errors"]], [])
        scope |= {name: importlib.import_module(name) for name in job["modules"]}
        scope |= {name: type(name, (Exception,), {}) for name in job["errors"] if name in known}
        scope |= {
            name: Program(caller, name, *known[name]) for name in job["names"] if name in known
        }
        exec(job["setup"], scope)
    except BaseException as error:
        _report(None, _reason(error))
        return
    caller.table.exceptions = scope
    for test, names_exit in zip(job["tests"], job["name_exit"], strict=True):
        caller.names_exit = names_exit  # such a test may catch the program's SystemExit
        reason = _fault(test, scope, caller)
        _report(not reason, reason)


class Program:
    """What stands for a function of the program: tests can call it over the link, and see its name.

    Not a function of our own, whose code and defaults a test would take for the program's.
    """

    __slots__ = ("__name__", "_caller", "_doc", "_name")

    def __init__(self, caller: Caller, name: str, own: str | None, doc: str | None):
        self._caller, self._name, self._doc = caller, name, doc
        self.__name__ = own

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._caller.call(self._name, arguments, keywords)

    def __bool__(self, *_: Any) -> bool:  # of a flag, which stays at the other end
        self._caller.table.refused = f"{self._name} is used as a value: it can only be called"
        raise NotPlain(self._caller.table.refused)

    __doc__ = property(lambda self: self._doc)  # else it would be that of this class
    __eq__, __hash__ = __bool__, object.__hash__  # else `f(1) != LIMIT` is true of every LIMIT


def _fault(test: CodeType, scope: dict[str, Any], caller: Caller) -> str:
    """Run a test and say why it fails; empty if it passes.

    It passes if it calls the program, raises nothing, uses nothing that did not cross the link, and
    the program still runs.
    """
    before, caller.table.refused = caller.calls, ""
    try:
        exec(test, scope)
    except BaseException as error:
        return _reason(error)
    if caller.ended:
        return _reason(LinkError("the program ended"))
    if caller.table.refused:  # such a use, whose error the test has caught
        return _reason(NotPlain(caller.table.refused))
    return "" if caller.calls > before else NEVER_CALLED


def _reason(error: BaseException) -> str:
    """An exception as `ValueError: its message`, cut to `REASON_LENGTH` characters."""
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{type(error).__name__}: {message}"[:REASON_LENGTH].removesuffix(": ")


def _report(passes: bool | None, reason: str) -> None:
    os.write(VERDICTS, json.dumps([passes, reason]).encode() + b"\n")
