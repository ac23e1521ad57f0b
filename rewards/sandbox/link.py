"""Calls and plain values between two processes that do not trust each other, over one stream
socket.

Both sides hold a `Peer`. What has no plain form stays where it was made and travels as a number,
for which the other side holds a `Remote`: a callable can be called, an iterable iterated over, an
iterator advanced, a generator sent to, a coroutine awaited; anything else is opaque.

Promises: the other side reaches nothing but what was handed to it, by the number under which it
was, and of that only the above; functions that read whatever they are pointed at (`getattr`,
`str.format`) are not handed over. Whatever it sends is a value, an exception of a built-in type or
of one that the tests name, or `LinkError`. A `Remote` has no value here: comparing or hashing it is
an error and no answer, so an object that equals everything in the program equals nothing in a test.
An exception that means something to a loop (`StopIteration`, `GeneratorExit`) or ends a process
arrives as another one; `SystemExit` as itself for a test that names it.

What is not covered: the other side may answer anything, late or never (the wall limit ends that);
what a callable returns and an iterator yields is the program's word, as any result is. A test that
formats a text of the program with an object of its own shows it that object. Refused though they
may be right: `ZoneInfo` objects, asynchronous generators and context managers as values, coroutines
of a test that the program awaits while the test awaits the program, `throw` into a generator and
the value that one returns, operators and attributes of objects.
"""

import builtins
import operator
import os
import struct
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from types import GeneratorType
from typing import Any

from rewards.sandbox.codec import MAX_BYTES, CodecError, decode, encode

MAX_EXPORTS = 100_000
MAX_NESTED = 50  # calls within calls
LOOP_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit)
# They would read for the other side whatever it names, of what it was handed.
READERS = (getattr, vars, eval, exec, compile, globals, locals, open, __import__)
READERS += (str.format, str.format_map, operator.attrgetter, operator.methodcaller)
OPAQUE = "the program returned an object, not a plain value"


class LinkError(BaseException):
    """The other side is gone, or broke the rules: no `except Exception` of a test swallows it."""


class ProgramEnded(BaseException):
    """The program wanted to end (SystemExit, KeyboardInterrupt), which no test may want."""


class RemoteError(Exception):
    """An exception of the other side that has no counterpart here."""


class EndOfIterator(Exception):
    """The other side's iterator has ended."""


# ------------------------------------------------------------------ things of the other side


class Remote:
    """Something of the other side. To compare, hash or look into it is an error, not False.

    Whether it is true came with it, once: no more than the program tells by returning True or
    False.
    """

    __slots__ = ("_peer", "_place", "_truth")

    def __init__(self, peer: "Peer", place: Any, truth: bool = True):
        self._peer, self._place, self._truth = peer, place, truth

    def __bool__(self) -> bool:
        return self._truth

    def _opaque(self, *_: Any) -> Any:
        raise TypeError(OPAQUE)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _opaque  # type: ignore
    __len__ = __getitem__ = __contains__ = __iter__ = __str__ = __repr__ = _opaque  # type: ignore


class RemoteCallable(Remote):
    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._peer.call(self._place, arguments, keywords)


class RemoteIterable(Remote):
    __slots__ = ()

    def __iter__(self) -> Iterator:
        return self._peer.ask("iter", self._place, None)


class RemoteIterator(Remote):
    __slots__ = ()

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        try:
            return self._peer.ask("next", self._place, value)
        except EndOfIterator:
            raise StopIteration from None

    def close(self) -> None:
        self._peer.ask("close", self._place, None)


class RemoteCoroutine(Remote):
    """Runs to its end over there when it is awaited here; `asyncio` asks for these methods, and
    keeps it as a key.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore

    def __await__(self) -> Generator[None, None, Any]:
        return self._peer.ask("await", self._place, None)
        yield  # which makes it a generator

    def send(self, _: None) -> None:
        raise StopIteration(self._peer.ask("await", self._place, None))

    def throw(self, error: BaseException, *_: Any) -> None:
        raise error

    def close(self) -> None:
        """Nothing is held here."""


REMOTES = {
    "callable": RemoteCallable,
    "coroutine": RemoteCoroutine,
    "iterator": RemoteIterator,
    "iterable": RemoteIterable,
    "object": Remote,
}


def kind_of(value: Any) -> str:
    """As which of `REMOTES` the other side will know it."""
    if callable(value):
        return "callable"
    methods = {"__await__": "coroutine", "__next__": "iterator", "__iter__": "iterable"}
    return next((kind for name, kind in methods.items() if hasattr(type(value), name)), "object")


async def finish(awaitable: Awaitable) -> Any:
    return await awaitable


def replace_contents(mine: Any, theirs: Any) -> None:
    """Let a list, dict, set or bytearray become what the call made of it."""
    if type(mine) is not type(theirs):
        return
    if type(mine) in (list, bytearray):
        mine[:] = theirs
    elif type(mine) in (dict, set):
        mine.clear()
        mine.update(theirs)


# --------------------------------------------------------------------------- exceptions


def described(error: BaseException) -> list:
    """Names of the types of an exception, nearest first, and its message.

    A dot stands before the name of a type that is not built in. An exception that came from the
    other side has the names that it had there.
    """
    try:
        # A KeyError shows its argument's repr, and would do so once more over there.
        is_quoted = isinstance(error, KeyError) and len(error.args) == 1
        message = str(error.args[0] if is_quoted else error)[:1000]
    except BaseException:
        message = ""
    names = getattr(error, "names_there", None)
    if type(names) is not list:
        kinds = type(error).__mro__[:-1]
        names = [("." * (kind.__module__ != "builtins")) + kind.__name__ for kind in kinds]
    return [names, message]


def received(names: Any, message: Any, own: Mapping[str, Any] | None = None) -> BaseException:
    """The exception to raise for one of the other side: a built-in one, or one of our `own` that is
    called as it is there, else `RemoteError`. `SystemExit` arrives where it is among our own.
    """
    text, own = message if type(message) is str else "", own or {}
    error: BaseException = RemoteError(text)
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
            error = kind(text)
        except Exception:
            continue  # of types that want more than a text the next one
        break
    error.names_there = names
    return error


def _exception_type(name: Any, own: Mapping[str, Any]) -> type[BaseException] | None:
    if type(name) is not str:
        return None
    is_own = name.startswith(".")
    kind = own.get(name[1:]) if is_own else getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception if is_own else BaseException):
        return None
    return kind


# --------------------------------------------------------------------------- the link


class Peer:
    """One end of a stream (a descriptor); `names` are what the other side may call by name.

    `inplace`: what the other side made of the arguments of a call is taken over.
    """

    def __init__(self, stream: int, names: dict[str, Any], inplace: bool = False):
        self.stream, self.names, self.inplace = stream, names, inplace
        self.own: Mapping[str, Any] = {}  # among which exceptions of the other side may be
        self.exports: list[Any] = []
        self.depth = 0
        self.asked = 0
        self.ended = False  # the other side is gone, whatever whoever asked makes of the error
        self.flush: Callable[[], None] = lambda: None

    def call(self, target: Any, arguments: tuple, keywords: dict) -> Any:
        """Call a name, or a number handed over."""
        answer = self.ask("call", target, [arguments, keywords, self.inplace])
        if not self.inplace:
            return answer
        result, after = answer
        for mine, theirs in zip((*arguments, *keywords.values()), after, strict=True):
            replace_contents(mine, theirs)
        return result

    def ask(self, kind: str, target: Any, content: Any) -> Any:
        self.asked += 1
        try:
            self.send([kind, target, content])
            return self.serve(until_answer=True)
        except (LinkError, ProgramEnded):
            self.ended = True
            raise

    def serve(self, until_answer: bool = False) -> Any:
        """Answer the other side until it closes, or answers the call that is under way."""
        if self.depth >= MAX_NESTED:
            raise RecursionError("calls between program and tests are nested too deeply")
        self.depth += 1
        try:
            while (message := self.receive()) is not None:
                kind, target, content = message
                if kind not in ("value", "error", "end"):
                    self._reply(kind, target, content)
                elif not until_answer:
                    raise LinkError("an answer that nobody asked for")
                elif kind == "value":
                    return content
                elif kind == "end":
                    raise EndOfIterator
                else:
                    raise received(target, content, self.own)
        finally:
            self.depth -= 1
        if until_answer:
            raise LinkError("the program ended")
        return None

    def send(self, message: list) -> None:
        data = encode(message, self._refer).encode()
        left = memoryview(struct.pack("!I", len(data)) + data)
        try:
            while left:
                left = left[os.write(self.stream, left) :]
        except OSError:
            raise LinkError("the program ended") from None

    def receive(self) -> list | None:
        """A message of three parts; None at the end."""
        head = self._read(4)
        if head is None:
            return None
        size = struct.unpack("!I", head)[0]
        if size > MAX_BYTES or (data := self._read(size)) is None:
            raise LinkError("no message")
        try:
            message = decode(data, self._resolve)
        except (CodecError, NameError) as error:
            raise LinkError(str(error)) from None
        if type(message) is not list or len(message) != 3 or type(message[0]) is not str:
            raise LinkError("no message")
        return message

    def _read(self, size: int) -> bytes | None:
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

    def _reply(self, kind: str, target: Any, content: Any) -> None:
        try:
            message = ["value", None, self._do(kind, target, content)]
        except StopIteration as stop:
            message = ["end", None, None] if kind == "next" else ["error", *described(stop)]
        except LinkError:
            raise
        except BaseException as error:
            message = ["error", *described(error)]
        self.flush()
        try:
            self.send(message)
        except CodecError as error:
            self.send(["error", ["ValueError"], str(error)])

    def _do(self, kind: str, target: Any, content: Any) -> Any:
        if kind == "call":
            arguments, keywords, inplace = content
            call = self._named(target) if type(target) is str else self._exported(target)
            result = call(*arguments, **keywords)
            return (result, [*arguments, *keywords.values()]) if inplace is True else result
        thing = self._exported(target)
        if kind == "next":
            return next(thing) if content is None else self._generator(thing).send(content)
        if kind == "close":
            return self._generator(thing).close()
        if kind == "iter":
            return iter(thing)
        if kind == "await":
            import asyncio

            return asyncio.run(finish(thing))
        raise LinkError(f"no message of kind {kind!r}"[:100])

    def _generator(self, thing: Any) -> GeneratorType:
        if type(thing) is not GeneratorType:
            raise AttributeError("this is no generator, to which something could be sent")
        return thing

    def _named(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"name {name!r} is not defined")
        return self.names[name]

    def _exported(self, place: Any) -> Any:
        if type(place) is not int or not 0 <= place < len(self.exports):
            raise LinkError("a number that was never handed over")
        return self.exports[place]

    def _refer(self, value: Any) -> list:
        if isinstance(value, Remote):
            return ["yours", value._place, True]
        if any(value is reader for reader in READERS):
            raise CodecError(f"cannot be sent: {value.__name__}, which reads what it is pointed at")
        if len(self.exports) >= MAX_EXPORTS:
            raise CodecError(f"cannot be sent: more than {MAX_EXPORTS} objects")
        self.exports.append(value)
        return [kind_of(value), len(self.exports) - 1, bool(value)]

    def _resolve(self, parts: list) -> Any:
        if len(parts) != 3 or type(parts[2]) is not bool:
            raise CodecError("no reference")
        kind, place, truth = parts
        if kind == "yours":
            return self._named(place) if type(place) is str else self._exported(place)
        if type(kind) is not str or kind not in REMOTES or type(place) is not int:
            raise CodecError("no reference")
        return REMOTES[kind](self, place, truth)


def read_all(descriptor: int) -> bytes:
    """Read the rest of a file and close it."""
    data = bytearray()
    while part := os.read(descriptor, 1 << 20):
        data += part
    os.close(descriptor)
    return bytes(data)
