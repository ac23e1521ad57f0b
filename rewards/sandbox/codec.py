"""Plain values as JSON text, and back as exact built-in types: what worker and checker exchange.

    encode((1, {2: b"x"}))                      # '{"t":[1,{"d":[[2,{"b":"78"}]]}]}'
    decode('{"t":[1,{"d":[[2,{"b":"78"}]]}]}')  # (1, {2: b'x'})

Promises: `decode` builds only the types listed here, never calls anything that the text names, and
answers any text with a value or `CodecError`, in time linear in its length (but for the hashing of
keys). A value of a subclass is sent as the built-in type under it: a `Counter` arrives as a `dict`,
a named tuple as a `tuple`; a time with a zone as one with its offset from UTC. What has no tag
(functions, iterators, objects) goes through `refer` and comes back through `resolve`, or is an
error.

What is not covered: two names for one list arrive as two lists; keys with equal hashes make a
`dict` slow (the wall limit of the process that decodes is the answer to that); order and extra
methods of subclasses are lost.
"""

import builtins
import json
from array import array
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 150
MAX_BYTES = 8 << 20
SMALL = 1 << 53  # integers below it are the same in every reader of JSON
DIGITS = 40_000  # hexadecimal digits of an integer
# Made once, which `json.dumps` does in each call.
_to_json = json.JSONEncoder(separators=(",", ":")).encode

Refer = Callable[[Any], list]
Resolve = Callable[[list], Any]


class CodecError(ValueError):
    """A value without a tag, text that is not an encoding, or either beyond a cap."""


def encode(value: Any, refer: Refer | None = None, max_bytes: int = MAX_BYTES) -> str:
    """JSON text (ASCII) of a value; `refer` may turn what has no tag into a list of plain JSON."""
    try:
        text = _to_json(_tagged(value, refer, 0))
    except (RecursionError, TypeError, ValueError) as error:
        raise CodecError(f"cannot be sent: {error}"[:200]) from None
    if len(text) > max_bytes:
        raise CodecError(f"cannot be sent: {len(text)} bytes, the most is {max_bytes}")
    return text


def decode(text: str | bytes, resolve: Resolve | None = None, max_bytes: int = MAX_BYTES) -> Any:
    """The value of an encoding; `resolve` is given what `refer` returned."""
    if len(text) > max_bytes:
        raise CodecError(f"{len(text)} bytes, the most is {max_bytes}")
    try:
        return _value(json.loads(text), resolve, 0)
    except CodecError:
        raise
    except (RecursionError, TypeError, ValueError, ArithmeticError) as error:
        raise CodecError(f"not an encoding: {error}"[:200]) from None


# --------------------------------------------------------------------------- the types


def _of(kinds: tuple[type, ...], build: Callable) -> Callable[[list], Any]:
    """Build from parts of exactly these types, as many as there are types."""

    def checked(parts: list) -> Any:
        if tuple(map(type, parts)) != kinds:
            raise CodecError(f"not an encoding of {build.__name__}")
        return build(*parts)

    return checked


def _parts_of_delta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _utf8_or_hex(text: str) -> Any:
    """The text, or what stands for one with lone surrogates."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return {"u": text.encode("utf-8", "surrogatepass").hex()}
    return text


def _integer(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise CodecError(f"an integer of {len(text)} digits")
    return int(text, 16)


def _type_of(name: str) -> type:
    if name not in TYPES:
        raise CodecError("not an encoding: a type")
    return TYPES[name]


_names = "bool int float complex str bytes bytearray list tuple set frozenset dict range type"
TYPES = {name: getattr(builtins, name) for name in _names.split()}
KEYS, ITEMS, VALUES = type({}.keys()), type({}.items()), type({}.values())
# type: (tag, JSON type of its parts, parts of a value, value of the parts)
CODES: dict[type, tuple[str, type, Callable, Callable]] = {
    tuple: ("t", list, list, tuple),
    set: ("s", list, list, set),
    frozenset: ("f", list, list, frozenset),
    dict: ("d", list, lambda value: [[key, item] for key, item in dict.items(value)], dict),
    bytes: ("b", str, bytes.hex, bytes.fromhex),
    bytearray: ("B", str, bytearray.hex, bytearray.fromhex),
    complex: ("c", list, lambda c: [c.real, c.imag], _of((float, float), complex)),
    deque: ("Q", list, list, deque),
    range: ("r", list, lambda r: [r.start, r.stop, r.step], _of((int, int, int), range)),
    Fraction: ("q", list, lambda q: [q.numerator, q.denominator], _of((int, int), Fraction)),
    Decimal: ("D", str, str, Decimal),
    date: ("Y", str, date.isoformat, date.fromisoformat),
    datetime: ("M", str, datetime.isoformat, datetime.fromisoformat),
    time: ("H", str, time.isoformat, time.fromisoformat),
    timezone: ("z", list, lambda zone: [zone.utcoffset(None)], _of((timedelta,), timezone)),
    array: ("a", list, lambda items: [items.typecode, items.tolist()], _of((str, list), array)),
    timedelta: ("S", list, _parts_of_delta, _of((int, int, int), timedelta)),
    KEYS: ("k", list, list, lambda keys: dict.fromkeys(keys).keys()),
    ITEMS: ("i", list, list, lambda items: dict(items).items()),
    VALUES: ("v", list, list, lambda values: dict(enumerate(values)).values()),
}
# tag: (JSON type of the parts, value of the parts)
BUILDERS = {tag: (parts, build) for tag, parts, _, build in CODES.values()}
BUILDERS |= {
    "n": (str, _integer),
    "u": (str, lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass")),
    "T": (str, _type_of),
}
# By the method of the base, so that nothing of the subclass is called.
BASES: list[tuple[type, Callable[[Any], Any]]] = [
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


# --------------------------------------------------------------------------- both ways


def _tagged(value: Any, refer: Refer | None, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        if value.bit_length() > DIGITS * 4:
            raise CodecError(f"cannot be sent: an integer of {value.bit_length()} bits")
        return value if -SMALL < value < SMALL else {"n": format(value, "x")}
    if kind is str:
        return _utf8_or_hex(value)
    if depth >= MAX_DEPTH:
        raise CodecError(f"cannot be sent: deeper than {MAX_DEPTH}")
    if kind is list:
        return [_tagged(item, refer, depth + 1) for item in value]
    if kind in CODES:
        tag, _, parts_of, _ = CODES[kind]
        parts = parts_of(value)
        if type(parts) is list:
            parts = [_tagged(part, refer, depth + 1) for part in parts]
        return {tag: parts}
    if kind is type and TYPES.get(value.__name__) is value:
        return {"T": value.__name__}
    for base, plain in BASES:
        if issubclass(kind, base):
            return _tagged(plain(value), refer, depth)
    if refer is None:
        raise CodecError(f"cannot be sent: {kind.__name__}")
    return {"o": refer(value)}


def _value(data: Any, resolve: Resolve | None, depth: int) -> Any:
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
        if resolve is None or type(parts) is not list:
            raise CodecError("not an encoding: a reference")
        return resolve(parts)
    if tag not in BUILDERS:
        raise CodecError(f"not an encoding: tag {tag!r}"[:200])
    expected, build = BUILDERS[tag]
    if type(parts) is not expected:
        raise CodecError(f"not an encoding: {type(parts).__name__} under tag {tag!r}")
    return build(_value(parts, resolve, depth + 1))
