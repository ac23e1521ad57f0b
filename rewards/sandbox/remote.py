"""Stand-ins in one process for things of the other: callables, iterators, opaque objects, and exceptions.

Promises: nothing here has a value of its own. Comparing or hashing it is an error and no answer, so an object that
equals everything in the program equals nothing in a test.

What is not covered: what a callable returns and an iterator yields is the program's word, as any result is.
"""

import builtins
from collections.abc import Iterator
from typing import Any

_UNFIT = (StopIteration, StopAsyncIteration, GeneratorExit)


class LinkError(BaseException):
    """The other side is gone, or has sent no message: nothing that `except Exception` in a test may swallow."""


class ProgramEnded(BaseException):
    """The program wanted to end (SystemExit, KeyboardInterrupt): a test must not take it for another exception."""


class RemoteError(Exception):
    """An exception of the other side that has no counterpart here."""


class EndOfIterator(Exception):
    """The other side's iterator has ended."""


class Remote:
    """Something of the other side. It has no value here: to compare or hash it is an error, not False.

    Whether it is true came with it, once: no more than the program tells by returning True or False.
    """

    __slots__ = ("_peer", "_place", "_truth")

    def __init__(self, peer: Any, place: Any, truth: bool = True):
        for name, value in (("_peer", peer), ("_place", place), ("_truth", truth)):
            object.__setattr__(self, name, value)

    def __bool__(self) -> bool:
        return self._truth

    def _opaque(self, *_: Any) -> Any:
        raise TypeError("the program returned an object, not a plain value")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _opaque  # type: ignore[assignment]
    __len__ = __getitem__ = __contains__ = __iter__ = __str__ = __repr__ = _opaque  # type: ignore[assignment]


class RemoteCallable(Remote):
    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._peer.call(self._place, arguments, keywords)


class RemoteIterator(Remote):
    __slots__ = ()

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        try:
            return self._peer.ask("next", self._place, None)
        except EndOfIterator:
            raise StopIteration from None


def make_remote(peer: Any, kind: str, place: int, truth: bool) -> Remote:
    return {"callable": RemoteCallable, "iterator": RemoteIterator, "object": Remote}[kind](
        peer, place, truth
    )


def replace_contents(mine: Any, theirs: Any) -> None:
    """Let a list, dict, set or bytearray become what the call made of it; others are as they were."""
    if type(mine) is not type(theirs):
        return
    if type(mine) in (list, bytearray):
        mine[:] = theirs
    elif type(mine) in (dict, set):
        mine.clear()
        mine.update(theirs)


def described(error: BaseException) -> list:
    """Names of the built-in types of an exception, nearest first, and its message."""
    try:
        quoted = (
            isinstance(error, KeyError) and len(error.args) == 1
        )  # it shows its argument's repr, and would do so twice
        message = str(error.args[0] if quoted else error)[:1000]
    except BaseException:
        message = ""
    return [
        [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"],
        message,
    ]


def received(names: Any, message: Any) -> BaseException:
    """The exception to raise for one of the other side: of a built-in type that a test can name, else `RemoteError`."""
    text = message if type(message) is str else ""
    for name in names if type(names) is list else []:
        kind = getattr(builtins, name, None) if type(name) is str else None
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            continue
        if issubclass(kind, (SystemExit, KeyboardInterrupt)):
            return ProgramEnded(f"the program raised {name}: {text}")
        if not issubclass(kind, Exception) or issubclass(kind, _UNFIT):
            return RuntimeError(f"the program raised {name}: {text}")
        try:
            return kind(text)
        except TypeError:
            continue
    return RemoteError(text)
