"""Objects of the program that the tests may use, for the few tasks that cannot be stated in plain values.

Promises: an object of the program is compared with its like only, never with a plain value, and whatever it answers
is a plain value or another such object.

What is not covered: here the program answers `==` and `<` between its own objects, `len`, `in` and every attribute,
so a test that compares two of its objects can be lied to. Use it for tasks that need it only: data preparation turns
it on where nothing less lets the reference pass.
"""

from collections.abc import Callable, Iterator
from typing import Any

from rewards.sandbox.link import Peer
from rewards.sandbox.remote import Remote, make_remote


class SharedObject(Remote):
    """Attributes and operators of an object of the program, each one a question to it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask("getattr", self, (name,))

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("setattr", self, (name, value))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._peer.call(self._place, arguments, keywords)

    def __iter__(self) -> Iterator:
        return self._peer.ask("iter", self, ())

    def __instancecheck__(self, value: Any) -> bool:
        return (
            isinstance(value, SharedObject) and self._peer.ask("isinstance", value, (self,)) is True
        )

    def __hash__(self) -> int:
        return _exactly(int, self._peer.ask("hash", self, ()))


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(
            f"the program's object gave a {type(value).__name__} where Python wants a {kind.__name__}"
        )
    return value


def _operator(name: str, kind: type | None) -> Callable:
    def ask(self: SharedObject, *operands: Any) -> Any:
        answer = self._peer.ask(name, self, operands)
        return answer if kind is None else _exactly(kind, answer)

    return ask


def _comparison(name: str) -> Callable:
    def compare(self: SharedObject, other: Any) -> bool:
        if not isinstance(other, SharedObject):
            raise TypeError(f"an object of the program is compared with a {type(other).__name__}")
        return _exactly(bool, self._peer.ask(name, self, (other,)))

    return compare


_ASKED = {
    "contains": bool,
    **dict.fromkeys(("str", "repr"), str),
    **dict.fromkeys(("getitem", "setitem", "add", "sub", "mul", "truediv", "neg")),
    "len": int,
}
for _name, _kind in _ASKED.items():
    setattr(SharedObject, f"__{_name}__", _operator(_name, _kind))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SharedObject, f"__{_name}__", _comparison(_name))


def make_shared(peer: Peer, kind: str, place: int, truth: bool) -> Remote:
    """An object whose operators ask the program; iterators stay iterators."""
    if kind == "iterator":
        return make_remote(peer, kind, place, truth)
    return SharedObject(peer, place, truth)
