"""Encode values as data for JSON, and decode them so that each keeps its type and its identity.

    tests, program = Table(), Table()           # one at each end of a link
    row = [1]
    data = tests.encode((row, row))             # {"t": [[1], {"=": 0}]}
    one, other = program.decode(data)           # ([1], [1]), and `one is other`
    one.append(2)
    tests.apply(program.encode_changes()[0])    # now `row` is [1, 2]

Promises: `decode` builds only the types listed here, runs no code of the sender, and for any data
returns a value or raises `CodecError`, in time linear in their size (except for the hashing of
keys). An object that was sent before is sent as its number, so it arrives as the same object. What
changes in a list, dict or other container at one end changes at the other with the next message.

A type that is not built in never arrives as its base. A named tuple, a `Counter` and other types
listed here arrive as they are. Any other type arrives as a class of the same name that derives from
the same built-in base, or from `object`. It has no method of its own: each attribute that the
sender's type defines itself raises `NotPlain` here. An iterator arrives as an iterator that asks
the sender for the values when they are read.

What is not covered: keys with equal hashes make a `dict` slow (the time limit ends that); what two
types of the same name and attributes have different; attributes set on an object that arrived.
"""

import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from operator import is_not
from types import FunctionType, GeneratorType, WrapperDescriptorType
from typing import Any

MAX_DEPTH = 150
SMALL = 1 << 53  # integers below it are the same in every reader of JSON
DIGITS = 40_000  # the most hexadecimal digits of an integer
MOST_TYPES, MOST_ATTRIBUTES = 100, 500  # that one end describes to the other
HEAP_TYPE = 1 << 9  # the flag of types that are not static parts of an extension in C


class CodecError(Exception):
    """A value that cannot be sent, or data that are no encoding."""


class NotPlain(BaseException):
    """The use of what did not cross the link. A test cannot catch it by `except Exception`."""


# --------------------------------------------------------------------------- the types


def _build_from(kinds: tuple[type, ...], build: Callable) -> Callable[[list], Any]:
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


def _surrogates(text: str) -> str:
    return bytes.fromhex(text).decode("utf-8", "surrogatepass")


# Values without parts that could change. Type: (tag, function to parts, function from parts).
LEAVES: dict[type, tuple[str, Callable, Callable]] = {
    bytes: ("b", lambda b: [b.hex()], _build_from((str,), bytes.fromhex)),
    complex: ("c", lambda c: [c.real, c.imag], _build_from((float, float), complex)),
    range: ("r", lambda r: [r.start, r.stop, r.step], _build_from((int, int, int), range)),
    Fraction: (
        "q",
        lambda q: [q.numerator, q.denominator],
        _build_from((int, int), Fraction),
    ),
    Decimal: ("D", lambda d: [str(d)], _build_from((str,), Decimal)),
    date: ("Y", lambda d: [d.isoformat()], _build_from((str,), date.fromisoformat)),
    datetime: ("M", lambda d: [d.isoformat()], _build_from((str,), datetime.fromisoformat)),
    time: ("H", lambda t: [t.isoformat()], _build_from((str,), time.fromisoformat)),
    timedelta: (
        "S",
        lambda d: [d.days, d.seconds, d.microseconds],
        _build_from((int, int, int), timedelta),
    ),
    timezone: ("z", lambda zone: [zone.utcoffset(None)], _build_from((timedelta,), timezone)),
    type({}.keys()): ("k", list, lambda keys: dict.fromkeys(keys).keys()),
    type({}.items()): ("i", list, lambda items: dict(items).items()),
    type({}.values()): ("v", list, lambda values: dict(enumerate(values)).values()),
}
# Containers that cannot change, but hold some that can.
FROZEN: dict[type, str] = {tuple: "t", frozenset: "f"}
# Containers that can change. What those in HEADS are made with is sent before their parts.
CONTAINERS: dict[type, str] = {
    list: "l",
    dict: "d",
    set: "s",
    deque: "Q",
    bytearray: "B",
    array: "a",
    Counter: "C",
    OrderedDict: "O",
    defaultdict: "F",
}
HEADS: dict[type, Callable[[Any], Any]] = {
    deque: lambda container: container.maxlen,
    array: lambda container: container.typecode,
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
TYPES = BASES | {kind.__name__: kind for kind in (bool, type, *list(LEAVES)[:-3])}
LEAF_BUILDERS = {tag: build for tag, _, build in LEAVES.values()} | {
    "n": _build_from((str,), _integer),
    "u": _build_from((str,), _surrogates),
    "x": _build_from((), lambda: float("nan")),
    "T": _build_from((str,), TYPES.__getitem__),
}
FROZEN_BY_TAG = {tag: kind for kind, tag in FROZEN.items()}
CONTAINERS_BY_TAG = {tag: kind for kind, tag in CONTAINERS.items()}
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


def parts_of(container: Any) -> list:
    """The parts of a container: of a dict keys and values in turn. Runs no method of a subclass."""
    base = _base_of(type(container))
    if issubclass(base, dict):
        return [part for pair in base.items(container) for part in pair]
    return list(base.__iter__(container))


def _fill(container: Any, parts: list) -> None:
    """Replace the content of a container by these parts; run no method of a subclass."""
    base = _base_of(type(container))
    if base is array:
        array.__setitem__(container, slice(None), array(container.typecode, parts))
        return
    base.clear(container)
    if issubclass(base, dict):
        for key, item in zip(parts[::2], parts[1::2], strict=True):
            base.__setitem__(container, key, item)
    elif base is set:
        set.update(container, parts)
    else:
        base.extend(container, parts)


def _empty(base: type, kind: type, head: Any) -> Any:
    """A new container of `kind`, which is `base` or derives from it."""
    if base is array:
        return array.__new__(kind, head)
    container = base.__new__(kind)
    if base is deque:
        deque.__init__(container, (), head)
    elif base is defaultdict:
        defaultdict.__init__(container, head)
    return container


def _base_of(kind: type) -> type:
    """The nearest of the BASES of a type; `object` if it derives from no other."""
    return next((base for base in kind.__mro__ if BASES.get(base.__name__) is base), object)


def _own_attributes(kind: type, base: type) -> list[str]:
    """The names of what a type defines that its built-in base does not, or defines otherwise."""
    owners: dict[str, type] = {}
    for above in kind.__mro__:
        for name in vars(above):
            owners.setdefault(name, above)
    # numpy.float64 derives from float and is written in C: it means the same as its base.
    return sorted(
        name
        for name, owner in owners.items()
        if owner not in base.__mro__
        and name not in UNSENT
        and (base is object or owner.__flags__ & HEAP_TYPE)
    )


_Named = namedtuple("_Named", "first")


def _fields_of(kind: type) -> list[str] | None:
    """The names of a named tuple's fields; None for a type with methods of its own."""
    fields = vars(kind).get("_fields")
    if type(fields) is not tuple or kind.__bases__ != (tuple,):
        return None
    code = getattr(vars(kind).get("__repr__"), "__code__", None)
    has_more = not vars(kind).keys() <= {*vars(_Named), *fields, *UNSENT}
    return None if has_more or code is not _Named.__repr__.__code__ else list(fields)


def _is_iterator(kind: type) -> bool:
    """Whether a type is an iterator of Python itself, such as a generator; files are none."""
    is_built_in = isinstance(getattr(kind, "__next__", None), WrapperDescriptorType)
    return is_built_in and kind.__module__ != "_io"


class Stream:
    """An iterator of the other end."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterator):
        self._values = values

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return next(self._values)


# --------------------------------------------------------------------------- both ways


class Table:
    """The objects that both ends of a link hold, by number. It encodes and decodes all values.

    Both ends number objects in the order in which they are sent, so their tables agree after each
    message. Only objects whose identity can matter are numbered.

    `read(number)` gives the values of an iterator of the other end. `exceptions` are types to look
    up by name. `refused` says what was used that did not cross the link; empty if nothing was.
    """

    def __init__(self, read: Callable[[int], Iterator] = iter):
        self.read = read
        self.exceptions: Mapping[str, Any] = {}
        self.refused = ""
        self.objects: dict[int, Any] = {}
        self.next = 0  # the number of the next object
        self._numbers: dict[int, int] = {}  # by the `id` of the object
        self._agreed: dict[int, list] = {}  # the parts of a container that both ends know
        self._kept: set[int] = set()  # objects of this end of which the other has no full copy
        self._types: dict[tuple, type] = {}

    # ------------------------------------------------------------------ numbers

    def _add(self, value: Any, parts: list | None = None, is_kept: bool = False) -> None:
        self.objects[self.next] = value
        self._numbers[id(value)] = self.next
        if parts is not None:
            self._agreed[self.next] = parts
        if is_kept:
            self._kept.add(self.next)
        self.next += 1

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop these objects; sent again, they get new numbers."""
        for number in numbers:
            if number in self.objects:
                del self._numbers[id(self.objects.pop(number))]
                self._agreed.pop(number, None)
                self._kept.discard(number)

    def forget_since(self, mark: int) -> None:
        """Drop the objects with a number of at least `mark`, for a message that was not sent."""
        self.forget(range(mark, self.next))
        self.next = mark

    def iterator(self, number: int) -> Iterator:
        """An iterator of this end that was sent; `LookupError` if this number is of no such."""
        value = self.objects[number]
        if number not in self._kept or not _is_iterator(type(value)):
            raise LookupError(f"object {number} is no iterator of this end")
        return value

    def release(self) -> list[int]:
        """Drop the objects that nothing at this end can use any more; return their numbers.

        So a test may call the program many thousand times, and each message stays short.
        """
        numbers = [
            number
            for number in self.objects
            if number not in self._kept and sys.getrefcount(self.objects[number]) <= UNUSED
        ]
        self.forget(numbers)
        return numbers

    def encode_changes(self) -> tuple[list, dict[int, list]]:
        """The containers that have changed since the last message: as data `[[number, part, ...],
        ...]`, and their new parts by number, for `agree`.
        """
        changed = {}
        for number, before in self._agreed.items():
            now = parts_of(self.objects[number])
            if len(now) != len(before) or any(map(is_not, now, before)):
                changed[number] = now
        data = [[number, *map(self.encode, parts)] for number, parts in changed.items()]
        return data, changed

    def agree(self, changed: dict[int, list]) -> None:
        """Note that the other end has been told of these changes."""
        self._agreed.update(changed)

    def apply(self, changes: list) -> None:
        """Take over what `encode_changes` of the other end has returned."""
        for number, *data in changes:
            parts = [self.decode(part) for part in data]
            if number not in self._agreed:
                raise CodecError("a change of what was never sent")
            _fill(self.objects[number], parts)
            self._agreed[number] = parts_of(self.objects[number])

    # ------------------------------------------------------------------ encode

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Return the data of a value, and number what is new; may raise `CodecError`."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if value.bit_length() > DIGITS * 4:
                raise CodecError(f"cannot be sent: an integer of {value.bit_length()} bits")
            return value if -SMALL < value < SMALL else {"n": [format(value, "x")]}
        if kind is float and value == value:
            return value
        if kind is str:
            return value if value.isascii() else _utf8_or_hex(value)
        if id(value) in self._numbers:
            return {"=": self._numbers[id(value)]}
        if depth >= MAX_DEPTH:
            raise CodecError(f"cannot be sent: deeper than {MAX_DEPTH}")
        if kind in CONTAINERS:
            parts = self._encode_container(value, kind, depth)
            return parts if kind is list else {CONTAINERS[kind]: parts}
        if kind in LEAVES:
            tag, parts, _ = LEAVES[kind]
            return {tag: self._encode_all(parts(value), depth)}
        if kind is type and TYPES.get(value.__name__) is value:
            return {"T": [value.__name__]}
        if kind is float:
            data = {"x": []}  # a NaN: it equals nothing, but a list finds it by its identity
        elif kind in FROZEN:
            data = {FROZEN[kind]: self._encode_all(value, depth)}
            if not value:
                return data
        elif isinstance(value, BaseException):
            return {"E": self._encode_exception(value, depth)}
        elif _is_iterator(kind):
            self._add(value, is_kept=True)
            return {"I": [kind.__name__]}
        else:
            return {"N": self._encode_object(value, depth)}
        self._add(value)
        return data

    def _encode_all(self, parts: Iterable, depth: int) -> list:
        return [self.encode(part, depth + 1) for part in parts]

    def _encode_container(self, value: Any, base: type, depth: int, is_kept: bool = False) -> list:
        parts = parts_of(value)
        self._add(value, parts, is_kept)
        head = [HEADS[base](value)] if base in HEADS else []
        return self._encode_all([*head, *parts], depth)

    def _encode_object(self, value: Any, depth: int) -> list:
        """The data of an object of another type: the description of its type, then its parts."""
        kind = type(value)
        base = _base_of(kind)
        fields = _fields_of(kind)
        attributes = [] if fields is not None else _own_attributes(kind, base)
        if hasattr(value, "__dict__"):
            attributes += ["__getattr__", "__setattr__"]
        description = [kind.__name__, base.__name__, attributes, fields]
        if base in CONTAINERS:
            return [description, *self._encode_container(value, base, depth, is_kept=True)]
        if base in FROZEN:
            parts = self._encode_all(base.__iter__(value), depth)
        else:
            parts = self._encode_all([ATOMS[base](value)] if base in ATOMS else [], depth)
        self._add(value, is_kept=True)
        return [description, *parts]

    def _encode_exception(self, error: BaseException, depth: int) -> list:
        """The data of an exception: its types from the nearest on, its text where `str` is its own,
        the names of its attributes, then its arguments and the values of the attributes.
        """
        reduce = (OSError if isinstance(error, OSError) else BaseException).__reduce__
        _, arguments, *attributes = reduce(error)
        attributes = dict(*attributes)
        if error.__cause__ is not None:
            attributes["__cause__"] = error.__cause__
        kinds = type(error).__mro__
        text = None
        if isinstance(type(error).__str__, FunctionType):
            try:
                text = str(error)[:1000]
            except Exception:
                text = ""
        names = [[kind.__module__, kind.__name__] for kind in kinds[:-1]]
        head = [names, text, list(attributes)]
        return [head, *self._encode_all([*arguments, *attributes.values()], depth)]

    # ------------------------------------------------------------------ decode

    def decode(self, data: Any, depth: int = 0) -> Any:
        """Return the value of encoded data, and number what is new; may raise `CodecError`."""
        try:
            return self._decode(data, depth)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            NotPlain,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise CodecError(f"not an encoding: {error}"[:200]) from None

    def _decode(self, data: Any, depth: int) -> Any:
        if type(data) is list:
            return self._decode_container(list, list, data, depth)
        if type(data) is not dict:
            return data if data == data else self._decode_leaf("x", [])
        if depth > MAX_DEPTH:
            raise CodecError(f"deeper than {MAX_DEPTH}")
        [(tag, parts)] = data.items()
        if tag == "=":
            return self.objects[parts]
        if type(parts) is not list:
            raise CodecError(f"not an encoding: {type(parts).__name__} under tag {tag!r}"[:200])
        if tag in CONTAINERS_BY_TAG:
            kind = CONTAINERS_BY_TAG[tag]
            return self._decode_container(kind, kind, parts, depth)
        if tag == "N":
            return self._decode_object(parts, depth)
        if tag == "E":
            return self._decode_exception(parts, depth)
        if tag == "I":
            return self._decode_iterator(*parts)
        values = self._decode_all(parts, depth)
        if tag not in FROZEN_BY_TAG:
            return self._decode_leaf(tag, values)
        value = FROZEN_BY_TAG[tag](values)
        if value:
            self._add(value)
        return value

    def _decode_all(self, parts: list, depth: int) -> list:
        if depth > MAX_DEPTH:
            raise CodecError(f"deeper than {MAX_DEPTH}")
        return [self._decode(part, depth + 1) for part in parts]

    def _decode_leaf(self, tag: str, parts: list) -> Any:
        value = LEAF_BUILDERS[tag](parts)
        if tag == "x":
            self._add(value)
        return value

    def _decode_container(self, base: type, kind: type, parts: list, depth: int) -> Any:
        head = None
        if base in HEADS:
            head, parts = parts[0], parts[1:]
            # The head of an array or a deque is a plain value; only a factory is numbered.
            if base is not defaultdict:
                container = _empty(base, kind, head)
            else:
                container = defaultdict.__new__(kind)
        else:
            container = _empty(base, kind, None)
        number = self.next
        self._add(container, [])
        if base is defaultdict:
            defaultdict.__init__(container, self._decode(head, depth + 1))
        _fill(container, self._decode_all(parts, depth))
        self._agreed[number] = parts_of(container)
        return container

    def _decode_iterator(self, name: str) -> Iterator:
        values = self.read(self.next)
        is_generator = name == GeneratorType.__name__ and isinstance(values, GeneratorType)
        value = values if is_generator else self._type(name, Stream, [], None)(values)
        self._add(value)
        return value

    def _decode_object(self, parts: list, depth: int) -> Any:
        (name, base_name, attributes, fields), *parts = parts
        base = BASES[base_name]
        kind = self._type(name, base, attributes, fields)
        if base in CONTAINERS:
            return self._decode_container(base, kind, parts, depth)
        values = self._decode_all(parts, depth)
        value = base.__new__(kind, values) if base in FROZEN else base.__new__(kind, *values)
        self._add(value)
        return value

    def _type(self, name: str, base: type, attributes: list, fields: list | None) -> type:
        """The class that stands for a type of the other end."""
        key = (name, base, tuple(attributes), fields if fields is None else tuple(fields))
        if key not in self._types:
            if len(self._types) >= MOST_TYPES or len(attributes) > MOST_ATTRIBUTES:
                raise CodecError(f"cannot be sent: more than {MOST_TYPES} types")
            if fields is not None:
                base = namedtuple(name, fields)
            refusals = {
                attribute: self._refusal(name, attribute)
                for attribute in attributes
                if attribute not in UNSENT
            }
            self._types[key] = type(name, (base,), {"__slots__": (), **refusals})
        return self._types[key]

    def _refusal(self, kind: str, attribute: str) -> Any:
        """What a class has in place of an attribute that stays at the other end."""

        def refuse(*_: Any, **__: Any) -> Any:
            self.refused = f"{attribute} of a {kind} stays where it was made: it is no plain value"
            raise NotPlain(self.refused)

        return refuse if attribute.startswith("__") else property(refuse)

    def _decode_exception(self, parts: list, depth: int) -> BaseException:
        (names, text, attributes), *data = parts
        values = self._decode_all(data, depth)
        count = len(values) - len(attributes)
        kinds = [self._exception_type(module, name) for module, name in names]
        if kinds[0] is not None and text is None:
            kind = kinds[0]
        else:
            known = [kind for kind in kinds if kind] or [Exception]
            kind = self._stand_in(names[0][1], known, text)
        built_in = next(above for above in kind.__mro__ if above.__module__ == "builtins")
        error = built_in.__new__(kind, *values[:count])
        built_in.__init__(error, *values[:count])
        for attribute, value in zip(attributes, values[count:], strict=True):
            if attribute == "__cause__":
                error.__cause__ = value
            else:
                vars(error)[attribute] = value
        return error

    def _exception_type(self, module: str, name: str) -> type | None:
        """The exception type of this name here; None if there is none."""
        top = module.partition(".")[0]
        if top == "unittest":  # `SkipTest` would end a test that has not passed
            return None
        if top in sys.stdlib_module_names:
            kind = getattr(sys.modules.get(module), name, None)
        else:
            kind = self.exceptions.get(name)
        is_exception = isinstance(kind, type) and issubclass(kind, BaseException)
        return kind if is_exception else None

    def _stand_in(self, name: str, kinds: list[type], text: str | None) -> type:
        """A class for an exception type of the other end, below those of its types known here."""
        bases = [
            kind
            for place, kind in enumerate(kinds)
            if not any(issubclass(other, kind) for other in kinds[:place])
        ]
        methods = {} if text is None else {"__str__": lambda _: str(text)}
        try:
            return type(name, tuple(bases), methods)
        except TypeError:  # bases that do not fit together
            return type(name, tuple(bases[:1]), methods)


def _utf8_or_hex(text: str) -> Any:
    """The text itself, or its bytes in hex if it has lone surrogates, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"u": [text.encode("utf-8", "surrogatepass").hex()]}
    return text


_HELD_ONCE = {0: []}
UNUSED = sys.getrefcount(_HELD_ONCE[0])  # the count of an object that only a table holds
