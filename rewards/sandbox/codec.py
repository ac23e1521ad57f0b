"""Plain values as JSON text, and back as exact built-in types: what the worker and the checker exchange.

    encode((1, {2: b"x"}))                      # '{"t":[1,{"d":[[2,{"b":"78"}]]}]}'
    decode('{"t":[1,{"d":[[2,{"b":"78"}]]}]}')  # (1, {2: b'x'})

Promises: `decode` builds only the types listed here, never calls anything that the text names, and answers any text
with a value or `CodecError`, in time linear in its length (but for the hashing of keys). A value of a subclass is
sent as the built-in type under it: a `Counter` arrives as a `dict`, a named tuple as a `tuple`.
What has no tag (functions, iterators, objects) goes through `refer` and comes back through `resolve`, or is an error.

What is not covered: two names for one list arrive as two lists; keys with equal hashes make a `dict` slow (the wall
limit of the process that decodes is the answer to that); order and extra methods of subclasses are lost.
"""

import json
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 150
MAX_BYTES = 8 << 20
SMALL = 1 << 53
DIGITS = 40_000  # hexadecimal digits of an integer
_to_json = json.JSONEncoder(
    separators=(",", ":")
).encode  # made once, which `json.dumps` does in each call

TYPES = {
    kind.__name__: kind
    for kind in (
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        list,
        tuple,
        set,
        frozenset,
        dict,
        range,
        type,
    )
}
TYPE_NAMES = {kind: name for name, kind in TYPES.items()}


class CodecError(ValueError):
    """A value without a tag, text that is not an encoding, or either beyond a cap."""


def encode(
    value: Any, refer: Callable[[Any], list] | None = None, max_bytes: int = MAX_BYTES
) -> str:
    """JSON text (ASCII) of a value; `refer` may turn what has no tag into a list of plain JSON."""
    try:
        text = _to_json(_tagged(value, refer, 0))
    except (RecursionError, TypeError, ValueError) as error:
        raise CodecError(f"cannot be sent: {error}"[:200]) from None
    if len(text) > max_bytes:
        raise CodecError(f"cannot be sent: {len(text)} bytes, the most is {max_bytes}")
    return text


def decode(
    text: str | bytes, resolve: Callable[[list], Any] | None = None, max_bytes: int = MAX_BYTES
) -> Any:
    """The value of an encoding; `resolve` is given what `refer` returned."""
    if len(text) > max_bytes:
        raise CodecError(f"{len(text)} bytes, the most is {max_bytes}")
    try:
        return _value(json.loads(text), resolve, 0)
    except CodecError:
        raise
    except (RecursionError, TypeError, ValueError, ArithmeticError) as error:
        raise CodecError(f"not an encoding: {error}"[:200]) from None


def _tagged(value: Any, refer: Callable[[Any], list] | None, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        if value.bit_length() > DIGITS * 4:
            raise CodecError(f"cannot be sent: an integer of {value.bit_length()} bits")
        return value if -SMALL < value < SMALL else {"n": format(value, "x")}
    if kind is str:
        return (
            value
            if value.isascii() or _is_utf8(value)
            else {"u": value.encode("utf-8", "surrogatepass").hex()}
        )
    if depth >= MAX_DEPTH:
        raise CodecError(f"cannot be sent: deeper than {MAX_DEPTH}")
    if kind is list:
        return [_tagged(item, refer, depth + 1) for item in value]
    if kind in _TO_TAG:
        tag, parts = _TO_TAG[kind]
        inner = parts(value)
        return {
            tag: [_tagged(part, refer, depth + 1) for part in inner]
            if type(inner) is list
            else inner
        }
    if kind is type and value in TYPE_NAMES:
        return {"T": TYPE_NAMES[value]}
    return _other(value, refer, depth)


def _other(value: Any, refer: Callable[[Any], list] | None, depth: int) -> Any:
    """A subclass as the built-in type under it, else a reference."""
    for base, plain in _BASES:
        if issubclass(type(value), base):
            return _tagged(plain(value), refer, depth)
    if refer is None:
        raise CodecError(f"cannot be sent: {type(value).__name__}")
    return {"o": refer(value)}


def _pairs(items: dict) -> list:
    return [[key, item] for key, item in dict.items(items)]


def _naive(value: Any) -> Any:
    if value.tzinfo is not None:
        raise CodecError("cannot be sent: a time with a time zone")
    return value.isoformat()


_TO_TAG: dict[type, tuple[str, Callable[[Any], Any]]] = {
    tuple: ("t", list),
    set: ("s", list),
    frozenset: ("f", list),
    dict: ("d", _pairs),
    bytes: ("b", bytes.hex),
    bytearray: ("B", bytearray.hex),
    complex: ("c", lambda value: [value.real, value.imag]),
    deque: ("Q", list),
    range: ("r", lambda value: [value.start, value.stop, value.step]),
    Fraction: ("q", lambda value: [value.numerator, value.denominator]),
    Decimal: ("D", str),
    date: ("Y", date.isoformat),
    datetime: ("M", _naive),
    time: ("H", _naive),
    timedelta: ("S", lambda value: [value.days, value.seconds, value.microseconds]),
    type({}.keys()): ("k", list),
    type({}.items()): ("i", list),
    type({}.values()): ("v", list),
}
_BASES: list[tuple[type, Callable[[Any], Any]]] = [
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _value(data: Any, resolve: Callable[[list], Any] | None, depth: int) -> Any:
    kind = type(data)
    if kind is not list and kind is not dict:
        return data
    if depth > MAX_DEPTH + 1:
        raise CodecError(f"deeper than {MAX_DEPTH}")
    if kind is list:
        return [_value(item, resolve, depth + 1) for item in data]
    if len(data) != 1:
        raise CodecError(f"not an encoding: {len(data)} tags")
    [(tag, parts)] = data.items()
    if tag == "o":
        return _resolved(parts, resolve)
    if tag not in _FROM_TAG:
        raise CodecError(f"not an encoding: tag {tag!r}"[:200])
    expected, build = _FROM_TAG[tag]
    if type(parts) is not expected:
        raise CodecError(f"not an encoding: {type(parts).__name__} under tag {tag!r}")
    return build(_value(parts, resolve, depth + 1))


def _resolved(parts: Any, resolve: Callable[[list], Any] | None) -> Any:
    if resolve is None or type(parts) is not list:
        raise CodecError("not an encoding: a reference")
    return resolve(parts)


def _of(kinds: tuple[type, ...], build: Callable) -> Callable[[list], Any]:
    def check(parts: list) -> Any:
        if len(parts) != len(kinds) or any(
            type(part) is not kind for part, kind in zip(parts, kinds, strict=True)
        ):
            raise CodecError(f"not an encoding of {getattr(build, '__name__', build)}")
        return build(*parts)

    return check


def _integer(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise CodecError(f"an integer of {len(text)} digits")
    return int(text, 16)


_FROM_TAG: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "n": (str, _integer),
    "u": (str, lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass")),
    "t": (list, tuple),
    "s": (list, set),
    "f": (list, frozenset),
    "d": (list, dict),
    "b": (str, bytes.fromhex),
    "B": (str, bytearray.fromhex),
    "c": (list, _of((float, float), complex)),
    "Q": (list, deque),
    "r": (list, _of((int, int, int), range)),
    "q": (list, _of((int, int), Fraction)),
    "D": (str, Decimal),
    "Y": (str, date.fromisoformat),
    "M": (str, datetime.fromisoformat),
    "H": (str, time.fromisoformat),
    "S": (list, _of((int, int, int), timedelta)),
    "k": (list, lambda items: dict.fromkeys(items).keys()),
    "i": (list, lambda items: dict(items).items()),
    "v": (list, lambda items: dict(enumerate(items)).values()),
    "T": (str, lambda name: TYPES[name] if name in TYPES else _resolved(None, None)),
}
