"""Call the program's functions from the tests, over one stream socket between two processes that do
not trust each other.

    Caller(stream).call("add", (1, 2), {})      # in the checker
    serve(stream, {"add": add})                 # in the worker, until the checker closes

Promises: the program answers calls and cannot make any. Whatever it sends arrives as a plain value
(see `codec`), as an exception of a built-in type or of a type that the tests name, or as
`LinkError`. If a call changes its arguments, the caller's own objects change too. An exception that
would end a loop (`StopIteration`, `GeneratorExit`) or a process arrives as another type.
`SystemExit` arrives as itself only for a test that names it.

What is not covered: the program may answer anything, late or never (the time limit ends that).
Functions, coroutines and objects are refused as arguments or results, even in a correct program.
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
# Made once: `json.dumps` with separators would make an encoder in each call.
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class LinkError(BaseException):
    """The program is gone or broke the rules. A test cannot catch it by `except Exception`."""


class ProgramEnded(BaseException):
    """The program raised KeyboardInterrupt, or a SystemExit that the test does not name."""


class RemoteError(Exception):
    """An exception of the program whose type does not exist in the checker."""


# --------------------------------------------------------------------------- the two ends


class Caller:
    """The end for the tests. `own`: their names, among which exception types are looked up."""

    def __init__(self, stream: int):
        self.stream = stream
        self.own: Mapping[str, Any] = {}
        self.calls = 0
        self.ended = False  # the program is gone, even if the test caught that error

    def wait(self) -> None:
        """Wait until the program has run and can be called; raise its exception if it failed."""
        kind, names, message = self._receive()
        if kind == "failed":
            raise received(names, message)
        if kind != "ready":
            raise LinkError("no message")

    def call(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Call a function of the program; return its result or raise its exception."""
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
    """Answer calls to `names` until the caller closes; call `flush` before each answer."""
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
            del known[len(before) :]  # containers added by an answer that could not be sent
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
    """The names of an exception's type and its bases, nearest first, and its message.

    The name of a type that is not built in starts with a dot.
    """
    try:
        # `str` of a KeyError quotes its argument, and the checker would quote it again.
        is_quoted = isinstance(error, KeyError) and len(error.args) == 1
        message = str(error.args[0] if is_quoted else error)[:1000]
    except BaseException:
        message = ""
    kinds = type(error).__mro__[:-1]
    return [[("." * (kind.__module__ != "builtins")) + kind.__name__ for kind in kinds], message]


def received(names: Any, message: Any, own: Mapping[str, Any] | None = None) -> BaseException:
    """The exception to raise in the checker for an exception of the program: of the first type in
    `names` that is built in or found in `own`, else `RemoteError`. `SystemExit` must be in `own`.
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
            continue  # the type needs more than a text: try the next
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
