"""The types of values that go between tests and program, and how each is taken apart and built.

    parts_of({1: "a"})                  # [1, "a"]
    base_of(collections.Counter)        # Counter, which is built anew at the other end
    base_of(enum.IntEnum)               # int
    own_attributes(MyList, list)        # ["peek"], what MyList adds to list

Promises: containers are read and filled by the functions of the built-in type. No method runs that
the program has defined for a type of its own.
"""

import gc
import operator
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import WrapperDescriptorType
from typing import Any

DIGITS = 40_000  # the most hexadecimal digits of an integer
HEAP_TYPE = 1 << 9  # the flag of types that are not static parts of an extension in C
IMMUTABLE_TYPE = 1 << 8  # the flag of types of C, which no type of a program has


def _build_from(kinds: tuple[type, ...], build: Callable) -> Callable[[list], Any]:
    """Wrap `build` so that it takes a list of parts of exactly these types, else raises."""

    def checked(parts: list) -> Any:
        if tuple(map(type, parts)) != kinds:
            raise ValueError(f"not the parts of {build.__name__}")
        return build(*parts)

    return checked


# Views of a dict. The only object to which such a view refers is its dict.
VIEWS: dict[type, tuple[str, Callable, Callable]] = {
    type({}.keys()): ("k", gc.get_referents, lambda parts: dict.keys(*parts)),
    type({}.items()): ("i", gc.get_referents, lambda parts: dict.items(*parts)),
    type({}.values()): ("v", gc.get_referents, lambda parts: dict.values(*parts)),
}
# Values that are made of their parts. Type: (tag, function to parts, function from parts).
LEAVES: dict[type, tuple[str, Callable, Callable]] = VIEWS | {
    bytes: ("b", lambda b: [b.hex()], _build_from((str,), bytes.fromhex)),
    complex: ("c", lambda c: [c.real, c.imag], _build_from((float, float), complex)),
    range: ("r", lambda r: [r.start, r.stop, r.step], _build_from((int, int, int), range)),
    Fraction: ("q", lambda q: [q.numerator, q.denominator], _build_from((int, int), Fraction)),
    Decimal: ("D", lambda d: [str(d)], _build_from((str,), Decimal)),
    date: ("Y", lambda d: [d.isoformat()], _build_from((str,), date.fromisoformat)),
    datetime: ("M", lambda d: [d.isoformat()], _build_from((str,), datetime.fromisoformat)),
    time: ("H", lambda t: [t.isoformat()], _build_from((str,), time.fromisoformat)),
    timezone: ("z", lambda zone: [zone.utcoffset(None)], _build_from((timedelta,), timezone)),
    timedelta: (
        "S", lambda d: [d.days, d.seconds, d.microseconds], _build_from((int, int, int), timedelta)
    ),
}  # fmt: skip
# Containers that cannot change, but may hold some that can: (type, tag).
FROZEN: dict[type, str] = {tuple: "t", frozenset: "f"}
# Containers that can change. What those in HEADS are made with is sent before their parts.
CONTAINERS: dict[type, str] = {
    list: "l", dict: "d", set: "s", deque: "Q", bytearray: "B", Counter: "C", OrderedDict: "O",
    defaultdict: "F",
}  # fmt: skip
HEADS: dict[type, Callable[[Any], Any]] = {
    deque: lambda container: container.maxlen,
    defaultdict: lambda container: container.default_factory,
}
# Types of which a subclass is sent as a plain value and the description of its type.
ATOMS: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    Fraction: lambda value: Fraction(value._numerator, value._denominator),
    Decimal: Decimal,
}
BASES = {base.__name__: base for base in (object, *FROZEN, *CONTAINERS, *ATOMS)}
TYPES = BASES | {kind.__name__: kind for kind in (bool, type, *(LEAVES.keys() - VIEWS.keys()))}
BUILDERS = {
    **{tag: build for tag, _, build in LEAVES.values()},
    **{tag: kind for kind, tag in FROZEN.items()},
    "n": _build_from((str,), lambda digits: int(digits, 16)),
    "T": _build_from((str,), TYPES.__getitem__),
}
# Attributes of a type that mean nothing for a value which has arrived.
UNSENT = frozenset(
    """
    __abstractmethods__ __annotate__ __annotations__ __class__ __class_getitem__ __copy__
    __deepcopy__ __del__ __dict__ __dir__ __doc__ __firstlineno__ __getattribute__ __getnewargs__
    __getnewargs_ex__ __getstate__ __init__ __init_subclass__ __match_args__ __module__ __new__
    __orig_bases__ __parameters__ __qualname__ __reduce__ __reduce_ex__ __set_name__ __setstate__
    __sizeof__ __slots__ __static_attributes__ __subclasshook__ __weakref__ _abc_impl
    """.split()
)


def base_of(kind: type) -> type:
    """The nearest of the BASES from which a type derives; `object` if it derives from no other."""
    if kind in CONTAINERS:  # at once: each call asks it for each container that both ends hold
        return kind
    return next(base for base in kind.__mro__ if BASES.get(base.__name__) is base)


def parts_of(container: Any) -> list:
    """The parts of a container: of a dict its keys and values in turn."""
    base = base_of(type(container))
    if issubclass(base, dict):
        return [part for pair in base.items(container) for part in pair]
    return list(base.__iter__(container))


def fill(container: Any, parts: list) -> None:
    """Replace the content of a container by these parts."""
    base = base_of(type(container))
    base.clear(container)
    if issubclass(base, dict):
        for key, item in zip(parts[::2], parts[1::2], strict=True):
            base.__setitem__(container, key, item)
    elif base is set:
        set.update(container, parts)
        # Their order depends on the size of the set's table: that of a literal is often larger.
        if any(map(operator.is_not, set.__iter__(container), parts)):
            set.clear(container)
            set.update(container, frozenset(parts))
    else:
        base.extend(container, parts)


def own_attributes(kind: type, base: type) -> list[str]:
    """The names of what a type defines that its built-in base lacks or defines otherwise.

    Of names with two underscores the value matters: "=" follows one that is None, "." one that
    cannot be called, such as `__closure__`.
    """
    owners: dict[str, type] = {}
    for above in kind.__mro__:
        for name in vars(above):
            owners.setdefault(name, above)

    def mark(name: str, value: Any) -> str:
        if not name.startswith("__") or callable(value):
            return ""
        return "=" if value is None else "."

    # numpy.float64 derives from float and is written in C: it means the same as its base.
    return sorted(
        name + mark(name, vars(owner)[name])
        for name, owner in owners.items()
        if owner not in base.__mro__
        and name not in UNSENT
        and (base is object or owner.__flags__ & HEAP_TYPE)
    )


def is_iterator(kind: type) -> bool:
    """Whether a type is an iterator of Python itself, such as a generator; files are none."""
    if not kind.__flags__ & IMMUTABLE_TYPE or kind.__module__ == "_io":
        return False
    return isinstance(getattr(kind, "__next__", None), WrapperDescriptorType)  # written in C


# What exceptions keep apart from their `__dict__`. Left out: objects, and the parts of a
# `UnicodeError`, whose `__str__` in C trusts them.
MEMBERS = {
    SystemExit: ("code",), OSError: ("errno", "strerror", "filename", "filename2"),
    ImportError: ("msg", "name", "path"), NameError: ("name",), AttributeError: ("name",),
    SyntaxError: ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset"),
}  # fmt: skip


def members_of(kind: type) -> dict[str, Any]:
    """The descriptors, by name, of what this type of exceptions keeps outside of `__dict__`."""
    return {
        name: vars(base)[name]
        for base, names in MEMBERS.items()
        if issubclass(kind, base)
        for name in names
    }


_HELD_ONCE = {0: []}
HELD_ONCE = sys.getrefcount(_HELD_ONCE[0])  # the count of an object that only a dict holds
