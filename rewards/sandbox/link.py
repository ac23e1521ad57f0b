"""Calls and plain values between two processes that do not trust each other, over one stream socket.

Both sides hold a `Peer`. What has no plain form stays where it was made and travels as a number: a callable can be
called from the other side, an iterator advanced; anything else is opaque.

Promises: the other side reaches nothing but what was handed to it, by the number under which it was, and of that only
calling and advancing; whatever it sends is a value, an exception of a built-in type, or `LinkError`. An exception that
means something to a loop (`StopIteration`, `GeneratorExit`) or ends a process (`SystemExit`) arrives as `RuntimeError`.

What is not covered: the other side may answer anything, late or never; the wall limit ends that.
"""

import os
import struct
from collections.abc import Callable
from typing import Any

from rewards.sandbox.codec import MAX_BYTES, CodecError, decode, encode
from rewards.sandbox.remote import (
    EndOfIterator,
    LinkError,
    ProgramEnded,
    Remote,
    described,
    make_remote,
    received,
    replace_contents,
)

MAX_EXPORTS = 100_000
MAX_NESTED = 50  # calls within calls


class Peer:
    """One end of a stream (a descriptor); `names` are what the other side may call by name."""

    def __init__(self, stream: int, names: dict[str, Any]):
        self.stream, self.names = stream, names
        self.exports: list[Any] = []
        self.depth = 0
        self.asked = 0
        self.ended = False  # the other side is gone, whatever whoever asked makes of the error
        self.flush: Callable[[], None] = lambda: None

    def call(self, target: Any, arguments: tuple, keywords: dict, inplace: bool = False) -> Any:
        """Call a name, or a number that was handed over; with `inplace`, take over what became of the arguments."""
        answer = self.ask("call", target, [arguments, keywords, inplace])
        if not inplace:
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
        """Answer the other side until it closes (or, in a call, until the answer of that call is there)."""
        if self.depth >= MAX_NESTED:
            raise RecursionError("calls between program and tests are nested too deeply")
        self.depth += 1
        try:
            while (message := self.receive()) is not None:
                kind, target, content = message
                if kind in ("value", "error", "end"):
                    if not until_answer:
                        raise LinkError("an answer that nobody asked for")
                    return self._answer_of(kind, target, content)
                self._reply(kind, target, content)
        finally:
            self.depth -= 1
        if until_answer:
            raise LinkError("the program ended")
        return None

    # ------------------------------------------------------------------ messages

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

    # ------------------------------------------------------------------ answering

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
        if kind == "next":
            return next(self._exported(target))
        raise LinkError(f"no message of kind {kind!r}"[:100])

    def _named(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"name {name!r} is not defined")
        return self.names[name]

    def _exported(self, place: Any) -> Any:
        if type(place) is not int or not 0 <= place < len(self.exports):
            raise LinkError("a number that was never handed over")
        return self.exports[place]

    def _answer_of(self, kind: str, names: Any, content: Any) -> Any:
        if kind == "value":
            return content
        if kind == "end":
            raise EndOfIterator
        raise received(names, content)

    # ------------------------------------------------------------------ references

    def _refer(self, value: Any) -> list:
        if isinstance(value, Remote):
            return ["yours", value._place, True]
        if len(self.exports) >= MAX_EXPORTS:
            raise CodecError(f"cannot be sent: more than {MAX_EXPORTS} objects")
        self.exports.append(value)
        kind = (
            "callable"
            if callable(value)
            else "iterator"
            if hasattr(type(value), "__next__")
            else "object"
        )
        return [kind, len(self.exports) - 1, bool(value)]

    def _resolve(self, parts: list) -> Any:
        if len(parts) != 3 or type(parts[2]) is not bool:
            raise CodecError("no reference")
        kind, place, truth = parts
        if kind == "yours":
            return self._named(place) if type(place) is str else self._exported(place)
        if kind not in ("callable", "iterator", "object") or type(place) is not int:
            raise CodecError("no reference")
        return make_remote(self, kind, place, truth)


def read_all(descriptor: int) -> bytes:
    """Read the rest of a file and close it."""
    data = bytearray()
    while part := os.read(descriptor, 1 << 20):
        data += part
    os.close(descriptor)
    return bytes(data)
