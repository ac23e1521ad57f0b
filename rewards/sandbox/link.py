"""Calls from the tests to the program, over one stream socket between two processes that do not
trust each other.

    Caller(stream).call("add", (1, 2), {})      # in the checker
    serve(stream, {"add": add})                 # in the worker, until the checker closes

Promises: the program answers calls and can ask for nothing. Whatever it sends is a plain value (see
`codec`), an exception of a built-in type or of one that the tests name, or `LinkError`. What the
call changed in its arguments is changed in the caller's own. An exception that means something to a
loop (`StopIteration`, `GeneratorExit`) or ends a process arrives as another one; `SystemExit` as
itself for a test that names it.

What is not covered: the program may answer anything, late or never (the time limit ends that).
Refused though they may be right: functions, coroutines and objects as arguments or results.
"""

import builtins
import json
import os
import struct
from collections.abc import Callable, Mapping
from operator import is_not
from typing import Any

from rewards.sandbox.codec import CodecError, decode, encode, parts_of, replace_parts

MAX_BYTES = 8 << 20
LOOP_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit)
# Made once, which `json.dumps` does in each call.
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class LinkError(BaseException):
    """The program is gone, or broke the rules: no `except Exception` of a test swallows it."""


class ProgramEnded(BaseException):
    """The program wanted to end (SystemExit, KeyboardInterrupt), which no test may want."""


class RemoteError(Exception):
    """An exception of the program that has no counterpart here."""


# --------------------------------------------------------------------------- the two ends


class Caller:
    """The end of the tests. `own` are the names among which exceptions of the program may be."""

    def __init__(self, stream: int):
        self.stream = stream
        self.own: Mapping[str, Any] = {}
        self.calls = 0
        self.ended = False  # the program is gone, whatever a test makes of the error

    def wait(self) -> None:
        """Until the program has run and can be called; its exception where it failed."""
        kind, names, message = self._receive()
        if kind == "failed":
            raise received(names, message)
        if kind != "ready":
            raise LinkError("no message")

    def call(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """The result of a function of the program, or its exception."""
        known: list = []
        request = encode((arguments, tuple(keywords.items())), known)
        mine = len(known)
        self.calls += 1
        try:
            send(self.stream, [name, request, None])
            kind, answer, changes = self._receive()
            try:
                answer = decode(answer, known)
                for number, parts in decode(changes, known):
                    if type(number) is not int or not 0 <= number < mine:
                        raise LinkError("a change of what was never handed over")
                    replace_parts(known[number], parts)
            except (ArithmeticError, CodecError, LookupError, TypeError, ValueError) as error:
                raise LinkError(str(error)) from None
            if kind == "value":
                return answer
            if kind != "error" or type(answer) is not list or len(answer) != 2:
                raise LinkError("no message")
            raise received(*answer, self.own)
        except (LinkError, ProgramEnded):
            self.ended = True
            raise

    def _receive(self) -> list:
        if (message := receive(self.stream)) is None:
            raise LinkError("the program ended")
        return message


def serve(stream: int, names: dict[str, Any], flush: Callable[[], None]) -> None:
    """Answer calls of `names` until the caller closes; `flush` is called before each answer."""
    while (message := receive(stream)) is not None:
        known: list = []
        arguments, keywords = decode(message[1], known)
        before = [parts_of(container) for container in known]
        try:
            if message[0] not in names:
                raise NameError(f"name {message[0]!r} is not defined")
            result = names[message[0]](*arguments, **dict(keywords))
            kind, answer = "value", encode(result, known, has_objects=True)
        except BaseException as error:
            del known[len(before) :]  # what an answer that could not be sent has added
            kind, answer = "error", encode(described(error), known)
        flush()
        try:
            changed = []
            for number, then in enumerate(before):
                now = parts_of(known[number])
                if len(then) != len(now) or any(map(is_not, then, now)):
                    changed.append((number, tuple(now)))
            send(stream, [kind, answer, encode(tuple(changed), known, has_objects=True)])
        except CodecError as error:
            send(stream, ["error", encode(described(error), []), encode((), [])])


def send(stream: int, message: list) -> None:
    """Write a message of three parts."""
    data = _to_json(message).encode()
    if len(data) > MAX_BYTES:
        raise CodecError(f"cannot be sent: {len(data)} bytes, the most is {MAX_BYTES}")
    left = memoryview(struct.pack("!I", len(data)) + data)
    try:
        while left:
            left = left[os.write(stream, left) :]
    except OSError:
        raise LinkError("the program ended") from None


def receive(stream: int) -> list | None:
    """Read a message of three parts; None at the end."""
    head = _read(stream, 4)
    if head is None:
        return None
    size = struct.unpack("!I", head)[0]
    if size > MAX_BYTES or (data := _read(stream, size)) is None:
        raise LinkError("no message")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LinkError(f"no message: {error}"[:200]) from None
    if type(message) is not list or len(message) != 3 or type(message[0]) is not str:
        raise LinkError("no message")
    return message


def _read(stream: int, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            data = os.read(stream, min(size - len(parts), 1 << 20))
        except OSError:
            return None
        if not data:
            return None
        parts += data
    return bytes(parts)


# --------------------------------------------------------------------------- exceptions


def described(error: BaseException) -> list:
    """Names of the types of an exception, nearest first, and its message.

    A dot stands before the name of a type that is not built in.
    """
    try:
        # A KeyError shows its argument's repr, and would do so once more over there.
        is_quoted = isinstance(error, KeyError) and len(error.args) == 1
        message = str(error.args[0] if is_quoted else error)[:1000]
    except BaseException:
        message = ""
    kinds = type(error).__mro__[:-1]
    return [[("." * (kind.__module__ != "builtins")) + kind.__name__ for kind in kinds], message]


def received(names: Any, message: Any, own: Mapping[str, Any] | None = None) -> BaseException:
    """The exception to raise for one of the program: a built-in one, or one of our `own` that is
    called as it is there, else `RemoteError`. `SystemExit` arrives where it is among our own.
    """
    text, own = message if type(message) is str else "", own or {}
    for name in names if type(names) is list else []:
        kind = _exception_type(name, own)
        if kind is None:
            continue
        if kind is SystemExit and "SystemExit" in own:
            return SystemExit(int(text) if text.isdecimal() else text)
        if issubclass(kind, (SystemExit, KeyboardInterrupt)):
            return ProgramEnded(f"the program raised {name}: {text}")
        if not issubclass(kind, Exception) or issubclass(kind, LOOP_ENDS):
            return RuntimeError(f"the program raised {name}: {text}")
        try:
            return kind(text)
        except Exception:
            continue  # of types that want more than a text the next one
    return RemoteError(text)


def _exception_type(name: Any, own: Mapping[str, Any]) -> type[BaseException] | None:
    if type(name) is not str:
        return None
    is_own = name.startswith(".")
    kind = own.get(name[1:]) if is_own else getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception if is_own else BaseException):
        return None
    return kind


def read_all(descriptor: int) -> bytes:
    """Read the rest of a file and close it."""
    data = bytearray()
    while part := os.read(descriptor, 1 << 20):
        data += part
    os.close(descriptor)
    return bytes(data)
