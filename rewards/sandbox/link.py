"""Call the program's functions from the tests, over one stream socket between two processes that do
not trust each other.

    Caller(stream).call("add", (1, 2), {})          # in the checker
    Server(stream, run, flush).serve()              # in the worker, until the checker closes

Promises: a call means what it means in one process. Values keep type and identity (see `codec`). A
change of an argument or result shows at the other end, also in later calls; so does what is sent or
thrown into a generator. While a call runs, the program can ask the tests for three things only: the
next value of an iterator that they passed, and the use of what they have put in place of `input` or
`print`, or of `sys.stdin` or `sys.stdout`. Whatever else it sends is a `LinkError`, after which no
test passes. An exception that would end a loop (`StopIteration`) arrives as another type, and
`SystemExit` arrives as itself only for a test that names it.

What is not covered: the program may answer anything, late or never (the time limit ends that).
Functions, coroutines and objects cannot be used at the other end, even in a correct program. What
shows in one process alone: what is set in a module, such as a seed of `random`, and warnings and
logs; that a generator was closed, or what it returned; what a thread changes after the last answer;
the `id` of an argument in the next call; that a number or text which comes back is the same object
(so a list with a NaN no longer equals itself); of one set in ten the order of its parts;
that calls from several threads overlap: they run one after another; what goes to stderr; a name
that the program defines only while a test calls it.
"""

import builtins
import contextlib
import io
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rewards.sandbox.codec import MALFORMED, CodecError, Table

MAX_BYTES = 8 << 20
LOOP_ENDS = (StopIteration, StopAsyncIteration)
OF_ITERATORS = ("next", "send", "throw")
# Made once: `json.dumps` with separators would make an encoder in each call.
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
# What tests may replace, and the requests by which a program then uses it.
REPLACEABLE = {"input": builtins, "print": builtins, "stdin": sys, "stdout": sys}
REQUESTS = {
    "input": "input", "print": "print", "read": "stdin", "readline": "stdin", "write": "stdout"
}  # fmt: skip
_FUNCTIONS = {"input": input, "print": print}


def to_json(data: Any) -> bytes:
    """JSON in UTF-8, in which lone surrogates stay what they are."""
    return _encoder.encode(data).encode("utf-8", "surrogatepass")


def from_json(text: bytes) -> Any:
    """The inverse of `to_json`."""
    return json.loads(text.decode("utf-8", "surrogatepass"))


class LinkError(BaseException):
    """The program is gone or broke the rules. A test cannot catch it by `except Exception`."""


class ProgramEnded(BaseException):
    """The program raised an exception that is to end it, which the test does not name."""


class RemoteError(Exception):
    """An exception of the program that would end a loop of the test."""


class Link:
    """What both ends share: requests and answers, and a table that numbers the objects in them.

    A message is JSON of five parts: its kind, plain details of the request, values, the changes of
    objects known to both ends, and the numbers of objects to forget.
    """

    def __init__(self, stream: int):
        self.incoming = os.fdopen(stream, "rb", closefd=False)
        self.outgoing = os.fdopen(stream, "wb", closefd=False)
        self.table = Table(self._values_of)
        self.turn = threading.RLock()  # either end may ask from threads

    def _values_of(self, number: int) -> Iterator:
        """The values of an iterator of the other end, by its number; a request for each.

        What is sent or thrown into this generator goes into that one.
        """
        kind, passed_on = "next", []
        while values := self.request(kind, number, passed_on):  # [] at its end
            kind, passed_on = "next", []
            try:
                sent = yield values[0]
                if sent is not None:
                    kind, passed_on = "send", [sent]
            except Exception as error:  # thrown into a generator
                kind, passed_on = "throw", [error]

    def request(self, kind: str, details: Any, values: list) -> list:
        """Ask the other end, and answer what it asks meanwhile. Return [value], or [] for the end
        of an iterator; raise what it has raised. `values` is emptied.
        """
        with self.turn:
            self.send(kind, details, values)
            while (message := self.receive()) is not None:
                kind, details, values = message
                if kind == "error" and len(values) == 1 and isinstance(values[0], BaseException):
                    raise values[0]
                if kind in ("value", "end") and len(values) == (kind == "value"):  # one, or none
                    return values
                self.answer(kind, details, values)
        raise LinkError("the program ended")

    def answer(self, kind: str, details: Any, values: list) -> None:
        """Do what the other end asks, and send it the result or the exception."""
        try:
            if kind == "next":
                answer = [next(self.table.iterator(details))]
            elif kind in OF_ITERATORS:
                answer = [getattr(self.table.iterator(details), kind)(*values)]
            else:
                answer = [self.perform(kind, details, values)]
            kind = "value"
        except LinkError:
            raise
        except StopIteration as error:
            kind, answer = ("end", []) if kind in OF_ITERATORS else ("error", [error])
        except BaseException as error:
            kind, answer = "error", [error]
        values.clear()  # `send` tells the other end to forget what nobody here holds any longer
        self.send(kind, None, answer)

    def perform(self, kind: str, details: Any, values: list) -> Any:
        """Do what this end does for the other."""
        raise NotImplementedError

    def send(self, kind: str, details: Any, values: list) -> None:
        """Send a message and empty `values`; `LinkError` if they cannot be sent."""
        try:
            data = [self.table.encode(value) for value in values]
            text = to_json([kind, details, data, self.table.encode_changes()])
            if len(text) > MAX_BYTES:
                raise CodecError(f"cannot be sent: {len(text)} bytes, the most is {MAX_BYTES}")
        except Exception as error:
            self._write(to_json(["broken", str(error), [], [], []]))
            raise LinkError(str(error)) from None
        values.clear()  # so that `release` finds what nobody here holds any longer
        self._write(text[:-1] + b"," + to_json(self.table.release()) + b"]")

    def _write(self, data: bytes) -> None:
        """Write a message behind its length in four bytes."""
        try:
            self.outgoing.write(struct.pack("!I", len(data)) + data)
            self.outgoing.flush()
        except OSError:
            raise LinkError("the program ended") from None

    def receive(self) -> tuple[str, Any, list] | None:
        """Wait for a message, return its kind, details and values; None at the end of the stream.

        `LinkError` for anything that is no message.
        """
        try:
            start = self.incoming.read(4)
            if len(start) < 4:
                return None
            size = struct.unpack("!I", start)[0]
            data = self.incoming.read(size) if size <= 2 * MAX_BYTES else b""
        except OSError:
            return None
        if len(data) != size:
            raise LinkError("no message")
        try:
            kind, details, values, changes, released = from_json(data)
            values = [self.table.decode(value) for value in values]
            self.table.apply(changes)
            self.table.forget(released)
        except (CodecError, *MALFORMED) as error:
            raise LinkError(f"no message: {error}"[:200]) from None
        if kind == "broken":
            raise LinkError(str(details)[:200])
        return kind, details, values


class Caller(Link):
    """The end for the tests, in the checker."""

    def __init__(self, stream: int):
        super().__init__(stream)
        self.calls = 0
        self.ended = False  # the program is gone, even if the test caught that error
        self.names_exit = False  # whether the test names `SystemExit`

    def call(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Call a function of the program; return its result or raise its exception."""
        self.calls += 1
        return self.request("call", [name, [*keywords]], [*arguments, *keywords.values()])[0]

    def request(self, kind: str, details: Any, values: list) -> list:
        """Ask the program as `Link.request`; raise its exception as one that a test may catch."""
        try:
            # With the names that the tests have replaced, such as `input`, for the program's end.
            with self.turn:
                answer = super().request(kind, [details, _replaced()], values)
            if not answer and kind not in OF_ITERATORS:
                raise LinkError("no message")
            return answer
        except LinkError:
            self.ended = True
            raise
        except LOOP_ENDS as error:  # in a test's `for` it would pass for the end of the loop
            raise RemoteError(f"the program raised {error!r}") from None
        except Exception:
            raise
        except BaseException as error:
            if self.names_exit and isinstance(error, SystemExit):
                raise
            self.ended = True
            text = f"the program raised {type(error).__name__}: {error}"
            raise ProgramEnded(text.removesuffix(": ")) from None

    def perform(self, kind: str, details: Any, values: list) -> Any:
        """Use what the tests have put in place of `input`, `print` or a stream."""
        name = REQUESTS.get(kind)
        if name not in _replaced():
            raise LinkError("no message")
        target = getattr(REPLACEABLE[name], name)  # a function, or a stream with the method `kind`
        return _call(target if kind == name else getattr(target, kind), details, values)


def _replaced() -> list[str]:
    """Those of `input`, `print`, `stdin` and `stdout` that are not what they were at the start."""
    at_start = {**_FUNCTIONS, "stdin": sys.__stdin__, "stdout": sys.__stdout__}
    return [name for name, place in REPLACEABLE.items() if getattr(place, name) != at_start[name]]


def _call(function: Callable, keywords: list[str], values: list) -> Any:
    """Call a function: `values` are its positional arguments, then those of `keywords`."""
    count = len(values) - len(keywords)
    return function(*values[:count], **dict(zip(keywords, values[count:], strict=True)))


class Server(Link):
    """The end for the program, in the worker.

    `run` runs the program and returns the names that it defines; `flush` is called before each
    message.
    """

    def __init__(self, stream: int, run: Callable[[], dict[str, Any]], flush: Callable[[], None]):
        super().__init__(stream)
        self.run, self.flush = run, flush
        self.names: dict[str, Any] = {}
        self.before: dict[str, Any] = {}  # what the tests have replaced, as it was before

    def serve(self) -> None:
        """Do what the tests ask until they close the link."""
        while (message := self.receive()) is not None:
            self.answer(*message)

    def send(self, kind: str, details: Any, values: list) -> None:
        """Send a message as `Link.send`, after what the program has printed."""
        self.flush()
        super().send(kind, details, values)

    def answer(self, kind: str, details: Any, values: list) -> None:
        """Do what the tests ask, after replacing what they have replaced, such as `input`.

        `details` are those of the request and the names that are replaced now.
        """
        details, replaced = details
        for name, place in REPLACEABLE.items():
            if name in replaced and name not in self.before:
                self.before[name] = getattr(place, name)
                is_function = name in _FUNCTIONS
                new = self._function(name) if is_function else TestsStream(self._function)
                setattr(place, name, new)
            elif name in self.before and name not in replaced:
                setattr(place, name, self.before.pop(name))
        super().answer(kind, details, values)

    def perform(self, kind: str, details: Any, values: list) -> Any:
        """Run the program, or call a function of it."""
        if kind == "run":
            self.names = self.run()
            known = {name: self.names[name] for name in details if name in self.names}
            return {
                name: [_text(of, "__name__"), _text(of, "__doc__")] for name, of in known.items()
            }
        name, keywords = details
        if name not in self.names:
            raise NameError(f"name {name!r} is not defined")
        return _call(self.names[name], keywords, values)

    def _function(self, kind: str) -> Callable:
        """A function that hands its arguments to the tests as a request of this kind."""
        return lambda *arguments, **keywords: self.request(
            kind, [*keywords], [*arguments, *keywords.values()]
        )[0]


def _text(value: Any, attribute: str) -> str | None:
    """A text that a function of the program has; None if it has none, or raises."""
    with contextlib.suppress(Exception):
        text = getattr(value, attribute)
        return text if type(text) is str else None
    return None


class TestsStream(io.TextIOBase):
    """A text stream of the tests, such as an `io.StringIO`, for the program."""

    def __init__(self, function: Callable[[str], Callable]):
        self.read, self.readline = function("read"), function("readline")
        self.write = function("write")


def read_all(descriptor: int) -> bytes:
    """Read the rest of a file and close it."""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
