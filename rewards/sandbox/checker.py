"""The checker: holds the tests in a confined child of its own, and reports on each. It never sees the program.

Promises: a name in a test is what the task's own setup defines, else a built-in or a module of the standard library,
else (and where the task names it) a function of the program, which is called over the link. So nothing that the program
patches, overrides or returns changes what a test means; and no line of a test exists in the program's process.

What is not covered: a test that calls the program and then compares nothing passes; a weak test stays weak.
"""

import gc
import importlib
import json
import marshal
import os
from types import CodeType
from typing import Any

from rewards.sandbox.link import Peer, read_all
from rewards.sandbox.remote import LinkError, RemoteCallable, received
from rewards.sandbox.shared_objects import SharedObject, make_shared

LINK, JOB, VERDICT = 3, 4, 5
REASON_LENGTH = 300
NEVER_CALLED = "this test never called the program, so it shows nothing"


class InplaceCallable(RemoteCallable):
    """A function of the program that may change its arguments, as the task says."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._peer.call(self._place, arguments, keywords, inplace=True)


class InplaceObject(SharedObject):
    """Both at once."""

    __slots__ = ()
    __call__ = InplaceCallable.__call__


KINDS = {  # (objects, inplace): what stands for a function of the program
    (False, False): RemoteCallable,
    (False, True): InplaceCallable,
    (True, False): SharedObject,
    (True, True): InplaceObject,
}


def check() -> None:
    """Report that we are confined, then one line a test, `[passed, reason]`; `[null, reason]` where none can run."""
    _report("confined")
    gc.enable()
    job = marshal.loads(read_all(JOB))
    peer = Peer(LINK, {}, remote=make_shared if job["objects"] else None)
    try:
        _await_program(peer)
        scope = _scope(peer, job)
        exec(job["setup"], scope)
    except BaseException as error:
        _report([None, _reason(error)])
        os._exit(0)
    for test in job["tests"]:
        _report(_outcome(test, scope, peer))
    os._exit(0)


def _await_program(peer: Peer) -> None:
    message = peer.receive()
    if message is None:
        raise LinkError("the program ended before it could be tested")
    kind, names, content = message
    if kind == "failed":
        raise received(names, content)
    if kind != "ready":
        raise LinkError("no message")


def _scope(peer: Peer, job: dict) -> dict[str, Any]:
    """What the names in the tests stand for, before the setup adds its own."""
    kind = KINDS[job["objects"], job["inplace"]]
    modules = {name: importlib.import_module(name) for name in job["modules"]}
    return {"__name__": "tests"} | modules | {name: kind(peer, name) for name in job["names"]}


def _outcome(test: CodeType, scope: dict[str, Any], peer: Peer) -> list:
    """A test passes if it has called the program, ends without an error and the program is still there."""
    before = peer.asked
    try:
        exec(test, scope)
    except BaseException as error:
        return [False, _reason(error)]
    if peer.ended:
        return [False, _reason(LinkError("the program ended"))]
    return [True, ""] if peer.asked > before else [False, NEVER_CALLED]


def _reason(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{type(error).__name__}: {message}"[:REASON_LENGTH].removesuffix(": ")


def _report(line: Any) -> None:
    os.write(VERDICT, json.dumps(line).encode() + b"\n")
