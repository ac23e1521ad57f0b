"""Call the program's functions from the tests, over one stream socket between two processes that do
not trust each other.

    Caller(stream).call("add", (1, 2), {})          # in the checker
    Server(stream, flush).serve({"add": add})       # in the worker, until the checker closes

Promises: a call means what it means in one process. Values keep type and identity (see `codec`). A
change of an argument or result shows at the other end, also in later calls. An exception arrives
with its type, arguments and attributes. While a call runs, the program can ask the tests for three
things only: the next value of an iterator that they passed, a call of what they have put in place
of `input` or `print`, and the use of what they have put in place of `sys.stdin` or `sys.stdout`.
Whatever else the program sends is a `LinkError`. `StopIteration` or `GeneratorExit`, which would
end a loop, arrives as another type. `SystemExit` arrives as itself if the test names it.

What is not covered: the program may answer anything, late or never (the time limit ends that).
Functions, coroutines and objects cannot be used at the other end, even in a correct program. The
values of an iterator are read some at a time, so its side effects come earlier than in one process.
"""

import builtins
import contextlib
import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from rewards.sandbox.codec import CodecError, NotPlain, Table

MAX_BYTES = 8 << 20
LOOP_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit)
FIRST_READ, MOST_READ = 16, 4096  # how many values of an iterator are read at a time
# Made once: `json.dumps` with separators would make an encoder in each call.
_to_json = json.JSONEncoder(separators=(",", ":")).encode
Message = tuple[str, Any, list]  # kind, plain data that say more, values


class LinkError(BaseException):
    """The program is gone or broke the rules. A test cannot catch it by `except Exception`."""


class ProgramEnded(BaseException):
    """The program raised an exception that is to end it, which the test does not name."""


class RemoteError(Exception):
    """An exception of the program that would end a loop of the test."""


# --------------------------------------------------------------------------- messages


class Link:
    """What both ends share: messages, with a table that numbers the objects in them."""

    def __init__(self, stream: int):
        self.stream = stream
        self.table = Table(self._read)

    def _read(self, number: int) -> Iterator:
        """The values of an iterator of the other end, by its number."""
        raise NotImplementedError

    def send(self, kind: str, head: Any = None, values: list | None = None) -> None:
        """Send a message and empty `values`; `CodecError`, with nothing sent, if they cannot be."""
        values = [] if values is None else values
        mark = self.table.next
        try:
            data = [self.table.encode(value) for value in values]
            changes, changed = self.table.encode_changes()
            text = _to_json([kind, head, data, changes])
            if len(text) > MAX_BYTES:
                raise CodecError(f"cannot be sent: {len(text)} bytes, the most is {MAX_BYTES}")
        except BaseException:
            self.table.forget_since(mark)
            raise
        self.table.agree(changed)
        changed.clear()
        values.clear()  # so that the table may be all that holds them
        self._write(f"{text[:-1]},{_to_json(self.table.release())}]".encode())

    def tell(self, kind: str, head: Any = None) -> None:
        """Send a message without values and changes."""
        self._write(_to_json([kind, head, [], [], []]).encode())

    def _write(self, data: bytes) -> None:
        left = memoryview(struct.pack("!I", len(data)) + data)
        try:
            while left:
                left = left[os.write(self.stream, left) :]
        except OSError:
            raise LinkError("the program ended") from None

    def receive(self) -> Message | None:
        """Wait for a message; None at the end of the stream."""
        start = self._take(4)
        if start is None:
            return None
        size = struct.unpack("!I", start)[0]
        if size > 2 * MAX_BYTES or (data := self._take(size)) is None:
            raise LinkError("no message")
        try:
            kind, head, values, changes, released = json.loads(data)
            values = [self.table.decode(value) for value in values]
            self.table.apply(changes)
            self.table.forget(released)
        except (CodecError, NotPlain, RecursionError, TypeError, ValueError) as error:
            raise LinkError(f"no message: {error}"[:200]) from None
        return kind, head, values

    def _take(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            try:
                data = os.read(self.stream, min(size - len(parts), 1 << 20))
            except OSError:
                return None
            if not data:
                return None
            parts += data
        return bytes(parts)


# --------------------------------------------------------------------------- the end of the tests

# What tests may replace to give a program its input or to see what it prints.
REPLACEABLE = {"input": builtins, "print": builtins, "stdin": sys, "stdout": sys}
FUNCTIONS = {name: getattr(builtins, name) for name in ("input", "print")}
METHODS = {"read": "stdin", "readline": "stdin", "write": "stdout"}


def _replaced() -> list[str]:
    """The names of REPLACEABLE that are not what they were at the start."""
    at_start = FUNCTIONS | {"stdin": sys.__stdin__, "stdout": sys.__stdout__}
    return [name for name, place in REPLACEABLE.items() if getattr(place, name) != at_start[name]]


class Caller(Link):
    """The end for the tests, in the checker."""

    def __init__(self, stream: int):
        super().__init__(stream)
        self.calls = 0
        self.ended = False  # the program is gone, even if the test caught that error
        self.names_exit = False  # whether the test names `SystemExit`

    def wait(self) -> None:
        """Wait until the program has run and can be called; raise its exception if it failed."""
        self._result("ready", self._receive())

    def call(self, name: str, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Call a function of the program; return its result or raise its exception."""
        self.calls += 1
        values = [*arguments, *keywords.values()]
        return self._request("call", [name, [*keywords]], values, "value")[1][0]

    def _read(self, number: int) -> Iterator:
        count, is_more = FIRST_READ, True
        while is_more:
            is_more, values = self._request("read", [number, count], [], "values")
            yield from values
            count = min(2 * count, MOST_READ)

    def _request(self, kind: str, head: list, values: list, expected: str) -> tuple[Any, list]:
        """Send a request, answer what the program asks meanwhile; return its answer."""
        try:
            self.send(kind, [*head, _replaced()], values)
            while (message := self._receive())[0] == "ask":
                self._answer(message)
            return self._result(expected, message)
        except CodecError as error:  # what the tests pass is too large
            self.table.refused = str(error)
            raise NotPlain(str(error)) from None
        except (LinkError, ProgramEnded):
            self.ended = True
            raise

    def _result(self, expected: str, message: Message) -> tuple[Any, list]:
        """The head and the values of an answer; or raise the program's exception."""
        kind, head, values = message
        if kind == expected and (kind != "value" or len(values) == 1):
            return head, values
        if kind == "broken":
            self.table.refused = str(head)[:200]
            raise NotPlain(self.table.refused)
        if kind != "error" or len(values) != 1 or not isinstance(values[0], BaseException):
            raise LinkError("no message")
        error = values[0]
        if isinstance(error, SystemExit) and self.names_exit:
            raise error
        name = f"the program raised {type(error).__name__}"
        if not isinstance(error, Exception):
            raise ProgramEnded(f"{name}: {error}".removesuffix(": "))
        raise RemoteError(name) if isinstance(error, LOOP_ENDS) else error

    def _answer(self, message: Message) -> None:
        """Do what the program asks for, if the tests have opened that to it."""
        _, head, values = message
        try:
            what, more = head
            place = METHODS.get(what, what)
            keywords = {}
            if what == "next":
                function = partial(next, self.table.iterator(more))
            elif place not in _replaced():
                raise LookupError(place)
            else:
                target = getattr(REPLACEABLE[place], place)
                function = getattr(target, what) if what in METHODS else target
                count = len(values) - len(more)
                keywords = dict(zip(more, values[count:], strict=True))
                values = values[:count]
        except (LookupError, TypeError, ValueError):
            raise LinkError("no message") from None
        try:
            answer = function(*values, **keywords)
        except Exception as error:
            self.send("error", None, [error])
        else:
            self.send("value", None, [answer])

    def _receive(self) -> Message:
        if (message := self.receive()) is None:
            raise LinkError("the program ended")
        return message


# --------------------------------------------------------------------------- the program's end


class Server(Link):
    """The end for the program, in the worker; `flush` is called before each answer."""

    def __init__(self, stream: int, flush: Callable[[], None]):
        super().__init__(stream)
        self.flush = flush
        self.failures: dict[int, BaseException] = {}  # what an iterator raised, by its number

    def serve(self, names: dict[str, Any]) -> None:
        """Answer calls to `names` until the caller closes."""
        while (message := self.receive()) is not None:
            kind, head, values = message
            reply, more, answer = self._reply(names, kind, head, values)
            # Objects that nothing but these lists holds are then no longer numbered.
            values.clear()
            self.flush()
            try:
                self.send(reply, more, answer)
            except CodecError as error:
                self.tell("broken", str(error))

    def _reply(self, names: dict[str, Any], kind: str, head: list, values: list) -> Message:
        what, more, replaced = head
        try:
            with self._replacing(replaced):
                if kind == "read":
                    items, is_more = self._next_values(what, more)
                    return "values", is_more, items
                if what not in names:
                    raise NameError(f"name {what!r} is not defined")
                count = len(values) - len(more)
                keywords = zip(more, values[count:], strict=True)
                return "value", None, [names[what](*values[:count], **dict(keywords))]
        except NotPlain as error:
            return "broken", str(error), []
        except BaseException as error:
            return "error", None, [error]

    def _next_values(self, number: int, count: int) -> tuple[list, bool]:
        """The next values of an iterator, and whether there may be more."""
        if number in self.failures:
            raise self.failures.pop(number)
        values = []
        try:
            for value in islice(self.table.iterator(number), count):
                values.append(value)
        except BaseException as error:
            if not values:
                raise
            self.failures[number] = error
            return values, True
        return values, len(values) == count

    def ask(self, what: str, more: Any, values: list) -> Any:
        """Ask the tests for something in the middle of a call."""
        self.send("ask", [what, more], values)
        message = self.receive()
        if message is None:
            raise LinkError("the tests ended")
        kind, _, (answer,) = message
        if kind == "error":
            raise answer
        return answer

    def _read(self, number: int) -> Iterator:
        while True:
            try:
                value = self.ask("next", number, [])
            except StopIteration:
                return
            yield value

    @contextlib.contextmanager
    def _replacing(self, names: list[str]) -> Iterator[None]:
        """Hand over to the tests what they have put in place of these names."""

        def function(name: str) -> Callable:
            return lambda *arguments, **keywords: self.ask(
                name, [*keywords], [*arguments, *keywords.values()]
            )

        before = {name: getattr(REPLACEABLE[name], name) for name in names}
        for name, place in REPLACEABLE.items():
            if name in names:
                setattr(place, name, function(name) if place is builtins else TestsStream(self.ask))
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(REPLACEABLE[name], name, value)


class TestsStream(io.TextIOBase):
    """A text stream of the tests, such as an `io.StringIO`, seen by the program."""

    def __init__(self, ask: Callable[[str, list, list], Any]):
        self._ask = ask

    def read(self, size: int | None = -1) -> str:
        return self._ask("read", [], [size])

    def readline(self, size: int | None = -1) -> str:
        return self._ask("readline", [], [size])

    def write(self, text: str) -> int:
        return self._ask("write", [], [text])


def read_all(descriptor: int) -> bytes:
    """Read the rest of a file and close it."""
    data = bytearray()
    while part := os.read(descriptor, 1 << 20):
        data += part
    os.close(descriptor)
    return bytes(data)
