"""Encode plain values as data for JSON, and decode them to exact built-in types.

    row = [1]
    encode((row, row), [])                      # {"t": [[1], {"=": 0}]}
    one, other = decode({"t": [[1], {"=": 0}]}, [])     # ([1], [1]), and `one is other`

The tests and the program exchange values in this form. Mutable containers (lists, dicts, ...) are
numbered in the order in which they are met. A container that is met again is sent as its number.
`known` lists the containers by number. A reply goes on with the `known` of its request, so it can
refer to the caller's own arguments.

Promises: `decode` builds only the types listed here and never calls anything that the data name.
For any data it returns a value or raises `CodecError`, in time linear in their size (except for the
hashing of keys). An instance of a subclass is sent as its built-in base: a `Counter` as a `dict`, a
named tuple as a `tuple`. A time zone is sent as its offset from UTC. An iterator is sent as its
first `MOST_ITEMS` values; if it had more, the receiver gets an error when it reads past them. Any
other object of the program arrives as an `Opaque`, which tells only whether the object is true.

What is not covered: keys with equal hashes make a `dict` slow (the time limit ends that); the order
and methods of a subclass are lost; the values of a generator are all computed during the call.
"""

import builtins
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

MAX_DEPTH = 150
MOST_ITEMS = 10_000
SMALL = 1 << 53  # integers below it are the same in every reader of JSON
DIGITS = 40_000  # the most hexadecimal digits of an integer
OPAQUE = "the program returned an object, not a plain value"


class CodecError(Exception):
    """A value that cannot be sent, or data that are no encoding."""


class Opaque:
    """An object of the program. Comparing, ordering or printing it raises `TypeError`."""

    __slots__ = ("_truth",)

    def __init__(self, truth: bool):
        self._truth = truth

    def __bool__(self) -> bool:
        return self._truth

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(OPAQUE)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __repr__ = _refuse  # type: ignore
    __hash__ = __iter__ = __contains__ = None  # type: ignore


# --------------------------------------------------------------------------- the types


def _of(kinds: tuple[type, ...], build: Callable) -> Callable[[list], Any]:
    """Wrap `build` so that it takes a list of parts of exactly these types, else raises."""

    def checked(parts: list) -> Any:
        if tuple(map(type, parts)) != kinds:
            raise CodecError(f"not an encoding of {build.__name__}")
        return build(*parts)

    return checked


def _integer(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise CodecError(f"an integer of {len(text)} digits")
    return int(text, 16)


def _iterator(parts: list) -> Iterator:
    is_cut, *items = parts
    yield from items
    if is_cut:
        raise CodecError(f"an iterator is followed for {MOST_ITEMS} values and no further")


_names = "bool int float complex str bytes bytearray list tuple set frozenset dict range type"
TYPES = {name: getattr(builtins, name) for name in _names.split()}
KEYS, ITEMS, VALUES = type({}.keys()), type({}.items()), type({}.values())
# Type: (tag, JSON type of its parts, function from value to parts, function from parts to value).
PLAIN: dict[type, tuple[str, type, Callable, Callable]] = {
    tuple: ("t", list, tuple.__iter__, tuple),
    frozenset: ("f", list, frozenset.__iter__, frozenset),
    bytes: ("b", str, bytes.hex, bytes.fromhex),
    complex: ("c", list, lambda c: [c.real, c.imag], _of((float, float), complex)),
    range: ("r", list, lambda r: [r.start, r.stop, r.step], _of((int, int, int), range)),
    Fraction: ("q", list, lambda q: [q.numerator, q.denominator], _of((int, int), Fraction)),
    Decimal: ("D", str, str, Decimal),
    date: ("Y", str, date.isoformat, date.fromisoformat),
    datetime: ("M", str, datetime.isoformat, datetime.fromisoformat),
    time: ("H", str, time.isoformat, time.fromisoformat),
    timezone: ("z", list, lambda zone: [zone.utcoffset(None)], _of((timedelta,), timezone)),
    timedelta: (
        "S", list, lambda d: [d.days, d.seconds, d.microseconds], _of((int, int, int), timedelta)
    ),
    KEYS: ("k", list, list, lambda keys: dict.fromkeys(keys).keys()),
    ITEMS: ("i", list, list, lambda items: dict(items).items()),
    VALUES: ("v", list, list, lambda values: dict(enumerate(values)).values()),
}  # fmt: skip
# Mutable containers, which are numbered: (tag, function from container to parts). It calls the
# methods of the built-in base, so that no method of a subclass runs.
SHARED: dict[type, tuple[str, Callable]] = {
    list: ("l", list.__iter__),
    dict: ("d", lambda value: (part for pair in dict.items(value) for part in pair)),
    set: ("s", set.__iter__),
    deque: ("Q", deque.__iter__),
    bytearray: ("B", bytearray.__iter__),
    array: ("a", lambda value: (value.typecode, *array.tolist(value))),
}
# Tag: (JSON type of the parts, function from parts to value).
BUILDERS = {tag: (parts, build) for tag, parts, _, build in PLAIN.values()} | {
    "n": (str, _integer),
    "u": (str, lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass")),
    "T": (str, TYPES.__getitem__),
    "o": (bool, Opaque),
    "I": (list, _iterator),
}
EMPTY = {tag: base for base, (tag, _) in SHARED.items()}
BASES = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}


def parts_of(container: Any) -> list:
    """The parts of a container: for a dict keys and values in turn, for an array its type first."""
    return list(SHARED[_shared_type(container)][1](container))


def replace_parts(container: Any, parts: Sequence) -> None:
    """Replace the content of a container by these parts."""
    if isinstance(container, array):
        container[:] = array(parts[0], parts[1:])
        return
    container.clear()
    if isinstance(container, dict):
        for key, item in zip(parts[::2], parts[1::2], strict=True):
            container[key] = item
    elif isinstance(container, set):
        container.update(parts)
    else:
        container.extend(parts)


def _shared_type(value: Any) -> type | None:
    kind = type(value)
    return (
        kind if kind in SHARED else next((base for base in SHARED if issubclass(kind, base)), None)
    )


# --------------------------------------------------------------------------- both ways


def encode(value: Any, known: list, has_objects: bool = False) -> Any:
    """Return the data of a value, and add its mutable containers to `known`.

    `has_objects`: send an object of any other type as its truth value instead of raising an error.
    """
    numbers = {id(container): number for number, container in enumerate(known)}

    def data_of(value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            if value.bit_length() > DIGITS * 4:
                raise CodecError(f"cannot be sent: an integer of {value.bit_length()} bits")
            return value if -SMALL < value < SMALL else {"n": format(value, "x")}
        if kind is str:
            return value if value.isascii() else _utf8_or_hex(value)
        if depth >= MAX_DEPTH:
            raise CodecError(f"cannot be sent: deeper than {MAX_DEPTH}")
        if kind in PLAIN:
            tag, parts_type, parts, _ = PLAIN[kind]
            is_leaf = parts_type is str
            return {tag: parts(value) if is_leaf else [data_of(p, depth + 1) for p in parts(value)]}
        if base := _shared_type(value):
            if id(value) in numbers:
                return {"=": numbers[id(value)]}
            numbers[id(value)] = len(known)
            known.append(value)
            tag, parts = SHARED[base]
            items = [data_of(part, depth + 1) for part in parts(value)]
            return items if base is list else {tag: items}
        if kind is type and TYPES.get(value.__name__) is value:
            return {"T": value.__name__}
        for base, plain in BASES.items():
            if issubclass(kind, base):
                return data_of(plain(value), depth)
        if isinstance(value, Iterator):
            items = [data_of(item, depth + 1) for item in islice(value, MOST_ITEMS)]
            return {"I": [any(True for _ in islice(value, 1)), *items]}
        if has_objects:
            return {"o": bool(value)}
        raise CodecError(f"cannot be sent: {kind.__name__}")

    return data_of(value, 0)


def decode(data: Any, known: list) -> Any:
    """Return the value of encoded data, and add its mutable containers to `known`."""
    try:
        return _value(data, known, 0)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CodecError(f"not an encoding: {error}"[:200]) from None


def _value(data: Any, known: list, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise CodecError(f"deeper than {MAX_DEPTH}")
    if type(data) is list:
        tag, parts = "l", data
    elif type(data) is not dict:
        return data
    elif len(data) != 1:
        raise CodecError(f"not an encoding: {len(data)} tags")
    else:
        [(tag, parts)] = data.items()
    if tag == "=" and type(parts) is int and 0 <= parts < len(known):
        return known[parts]
    if tag in EMPTY and type(parts) is list:
        known.append(made := array(parts[0]) if tag == "a" else EMPTY[tag]())
        replace_parts(made, [_value(part, known, depth + 1) for part in parts])
        return made
    if tag not in BUILDERS or type(parts) is not BUILDERS[tag][0]:
        raise CodecError(f"not an encoding: {type(parts).__name__} under tag {tag!r}"[:200])
    build = BUILDERS[tag][1]
    if type(parts) is list:
        return build([_value(part, known, depth + 1) for part in parts])
    return build(parts)


def _utf8_or_hex(text: str) -> Any:
    """The text itself, or its bytes in hex if it has lone surrogates, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"u": text.encode("utf-8", "surrogatepass").hex()}
    return text
