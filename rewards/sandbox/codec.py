"""Encode values as data for JSON, and decode them so that each keeps its type and its identity.

    tests, program = Table(), Table()           # one at each end of a link
    row = [1]
    data = tests.encode((row, row))             # {"t": [[1], {"=": 0}]}
    one, other = program.decode(data)           # ([1], [1]), and `one is other`
    one.append(2)
    tests.apply(program.encode_changes())       # now `row` is [1, 2]

Promises: `decode` builds only the types of `kinds`, runs no code of the sender, and for any data
returns a value or raises `CodecError`, in time linear in their size (except for the hashing of
keys). An object that was sent before is sent as its number, so it arrives as the same object. What
changes in a list, dict or other container at one end changes at the other with the next message.

A value of another type arrives as one of a class of the same name, which derives from the same
built-in base and has no method of its own: what the sender's type defines itself raises `NotPlain`
here. An iterator arrives as one that asks the sender for each value when it is read, an exception
with its arguments, attributes and cause, as all of its types that exist here.

What is not covered: keys with equal hashes make a `dict` slow (the time limit ends that); two types
of the same name and attributes arrive as one; attributes of an object stay where it was made.
"""

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import is_not
from types import FunctionType, GeneratorType
from typing import Any

from rewards.sandbox.kinds import (
    ATOMS,
    BASES,
    BUILDERS,
    CONTAINERS,
    DIGITS,
    FROZEN,
    HEADS,
    HEAP_TYPE,
    HELD_ONCE,
    LEAVES,
    TYPES,
    UNSENT,
    base_of,
    fill,
    is_iterator,
    members_of,
    own_attributes,
    parts_of,
)

MAX_DEPTH = 150
SMALL = 1 << 53  # integers below it are the same in every reader of JSON
MOST_TYPES, MOST_ATTRIBUTES = 100, 500  # that one end describes to the other
CONTAINERS_BY_TAG = {tag: kind for kind, tag in CONTAINERS.items()}
# What Python itself raises where data are no encoding.
MALFORMED = (
    ArithmeticError, AttributeError, BufferError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
# What else an exception refers to. Setting the cause sets the last, so that comes last.
CHAIN = {"__cause__": None, "__context__": None, "__suppress_context__": False}


class CodecError(Exception):
    """A value that cannot be sent, or data that are no encoding."""


class NotPlain(BaseException):
    """The use of what did not cross the link. A test cannot catch it by `except Exception`."""


class Refusal:
    """An attribute of which every use raises: to read it, on its type too, to set or delete it."""

    def __init__(self, refuse: Callable[[], None]):
        self.refuse = refuse

    def _refuse(self, *_: Any) -> None:
        self.refuse()

    __get__ = __set__ = __delete__ = _refuse


class Stream:
    """An iterator of the other end. Unlike a generator it may go on after it raised: read anew."""

    __slots__ = ("_read", "_values")

    def __init__(self, read: Callable[[], Iterator]):
        self._read, self._values = read, read()

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._values)
        except StopIteration:
            raise
        except Exception:
            self._values = self._read()  # a generator that has raised yields nothing more
            raise


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
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # by the `id` of the object
        self._next = 0  # the number of the next object
        self._agreed: dict[int, list] = {}  # the parts of a container that both ends know
        self._kept: set[int] = set()  # objects of this end of which the other has no full copy
        self._sent: set[int] = set()  # objects that came from this end
        self._types: dict[tuple, type] = {}

    # ------------------------------------------------------------------ numbers

    def _add(self, value: Any, parts: list | None = None, is_kept: bool = False) -> None:
        """Number an object; `parts`: of a container; `is_kept`: the other end has no full copy."""
        self._objects[self._next] = value
        self._numbers[id(value)] = self._next
        if parts is not None:
            self._agreed[self._next] = parts
        if is_kept:
            self._kept.add(self._next)
        self._next += 1

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop these objects; sent again, they get new numbers."""
        for number in numbers:
            del self._numbers[id(self._objects.pop(number))]
            self._agreed.pop(number, None)
            self._kept.discard(number)
            self._sent.discard(number)

    def release(self) -> list[int]:
        """Drop the objects that nothing at this end can use any more; return their numbers.

        These are the objects that it sent in full and to which only this table refers now. So each
        message stays short when a test calls the program many thousand times.
        """
        sent_in_full = self._sent - self._kept
        numbers = [one for one in sent_in_full if sys.getrefcount(self._objects[one]) <= HELD_ONCE]
        self.forget(numbers)
        return numbers

    def iterator(self, number: int) -> Iterator:
        """An iterator of this end that was sent; `LookupError` if this number is of no such."""
        value = self._objects[number]
        if number not in self._kept or not is_iterator(type(value)):
            raise LookupError(f"object {number} is no iterator of this end")
        return value

    def encode_changes(self) -> list:
        """The lists, dicts ... that changed since the last message: [[number, part, ...], ...]"""
        changed = {}
        for number, before in self._agreed.items():
            now = parts_of(self._objects[number])
            if len(now) != len(before) or any(map(is_not, now, before)):  # other objects
                changed[number] = now
        self._agreed |= changed
        return [[number, *map(self.encode, parts)] for number, parts in changed.items()]

    def apply(self, changes: list) -> None:
        """Make the changes of containers that the other end sent: [number, all its parts] each."""
        for number, *data in changes:
            container, parts = self._objects[number], [self.decode(part) for part in data]
            fill(container, parts)
            self._agreed[number] = parts_of(container)  # what both ends know by now

    # ------------------------------------------------------------------ encode

    def encode(self, value: Any) -> Any:
        """Return the data of a value, and give what is new a number; may raise `CodecError`.

        A list, text or number stands for itself, all else is `{tag: parts}`; the tag "=" has the
        number of an object that was sent before.

        Example: `Table().encode({"a": (1, 2.5)}) == {"d": ["a", {"t": [1, 2.5]}]}`
        """
        first = self._next
        data = self._encode(value, 0)
        self._sent.update(range(first, self._next))
        return data

    def _encode(self, value: Any, depth: int) -> Any:
        """The data of a value that stands `depth` containers deep."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            if value.bit_length() > DIGITS * 4:  # hexadecimal digits, of four bits
                raise CodecError(f"cannot be sent: an integer of {value.bit_length()} bits")
            return value if -SMALL < value < SMALL else {"n": [format(value, "x")]}
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
        if kind in FROZEN:
            parts = self._encode_all(value, depth)
            if value:  # there is only one empty tuple
                self._add(value)
            return {FROZEN[kind]: parts}
        if kind is type and TYPES.get(value.__name__) is value:
            return {"T": [value.__name__]}
        if isinstance(value, BaseException):
            return {"E": self._encode_exception(value, depth)}
        if is_iterator(kind):
            self._add(value, is_kept=True)
            return {"I": [kind.__name__]}
        return {"N": self._encode_object(value, depth)}

    def _encode_all(self, parts: Iterable, depth: int) -> list:
        return [self._encode(part, depth + 1) for part in parts]

    def _encode_container(self, value: Any, base: type, depth: int, is_kept: bool = False) -> list:
        """The data of what a container is made with (a deque: its `maxlen`), then of its parts.

        `_add` numbers it before its parts, since a list may hold itself. `is_kept`: it is of a type
        of its own, so the other end gets no full copy.
        """
        head = [HEADS[base](value)] if base in HEADS else []
        data, parts = self._encode_all(head, depth), parts_of(value)
        self._add(value, parts, is_kept)
        return data + self._encode_all(parts, depth)

    def _encode_object(self, value: Any, depth: int) -> list:
        """The data of an object of another type: a description of its type, then its parts.

        The description has the names of the type, of its base, and of its own attributes.
        """
        kind = type(value)
        base = base_of(kind)
        attributes = own_attributes(kind, base)
        if hasattr(value, "__dict__"):  # it may get others, which stay here too
            attributes += ["__getattr__", "__setattr__", "__delattr__"]
        description = [kind.__name__, base.__name__, attributes]
        if base in CONTAINERS:
            return [description, *self._encode_container(value, base, depth, is_kept=True)]
        parts = base.__iter__(value) if base in FROZEN else []
        data = self._encode_all([ATOMS[base](value)] if base in ATOMS else parts, depth)
        self._add(value, is_kept=True)
        return [description, *data]

    def _encode_exception(self, error: BaseException, depth: int) -> list:
        """The data of an exception: its types from the nearest on, its text if its type has its own
        `__str__`, the names of its attributes; then its arguments and the attributes.
        """
        reduce = (OSError if isinstance(error, OSError) else BaseException).__reduce__
        _, arguments, *state = reduce(error)  # the state is its `__dict__`, if it has any
        members = {name: member.__get__(error) for name, member in members_of(type(error)).items()}
        of_types = {
            name: value
            for kind in reversed(type(error).__mro__)
            if kind.__flags__ & HEAP_TYPE
            for name, value in vars(kind).items()
            if name[:2] != "__" and not callable(value) and not hasattr(type(value), "__get__")
        }
        attributes = of_types | dict(*state) | members
        chain = {name: getattr(error, name) for name in CHAIN}
        attributes |= {name: value for name, value in chain.items() if value is not CHAIN[name]}
        text = str(error)[:1000] if isinstance(type(error).__str__, FunctionType) else None
        kinds = [(kind.__module__, kind.__name__) for kind in type(error).__mro__[:-1]]
        head = [kinds, text, list(attributes)]
        return [head, *self._encode_all([*arguments, *attributes.values()], depth)]

    # ------------------------------------------------------------------ decode

    def decode(self, data: Any) -> Any:
        """Return the value of encoded data, and number what is new as the sender did; else raise
        `CodecError`.
        """
        try:
            return self._decode(data, 0)
        except (*MALFORMED, NotPlain) as error:
            raise CodecError(f"not an encoding: {error}"[:200]) from None

    def _decode(self, data: Any, depth: int) -> Any:
        """The value of plain JSON: a list, a text or number, or `{tag: parts}` for all else."""
        if depth > MAX_DEPTH:
            raise CodecError(f"deeper than {MAX_DEPTH}")
        if type(data) is list:
            return self._decode_container(list, list, data, depth)
        if type(data) is not dict:
            return data
        [(tag, parts)] = data.items()
        if tag == "=":
            return self._objects[parts]
        if type(parts) is not list:
            raise CodecError(f"not an encoding: {type(parts).__name__} under tag {tag!r}"[:200])
        if tag in CONTAINERS_BY_TAG:
            kind = CONTAINERS_BY_TAG[tag]
            return self._decode_container(kind, kind, parts, depth)
        if tag == "N":  # of another type
            return self._decode_object(*parts[0], parts[1:], depth)
        if tag == "E":  # an exception
            return self._decode_exception(*parts[0], self._decode_all(parts[1:], depth))
        if tag == "I":  # an iterator, which stays there
            return self._decode_iterator(*parts)
        value = BUILDERS[tag](self._decode_all(parts, depth))
        if type(value) in FROZEN and value:
            self._add(value)
        return value

    def _decode_all(self, parts: list, depth: int) -> list:
        return [self._decode(part, depth + 1) for part in parts]

    def _decode_container(self, base: type, kind: type, data: list, depth: int) -> Any:
        """A container of `kind`, which is `base` or derives from it; numbered before its parts."""
        heads = 1 if base in HEADS else 0  # such as the `maxlen` of a deque
        head = self._decode_all(data[:heads], depth)
        container = base.__new__(kind)
        if base is deque:
            deque.__init__(container, (), *head)
        elif base is defaultdict:
            defaultdict.__init__(container, *head)
        number = self._next
        self._add(container)
        fill(container, self._decode_all(data[heads:], depth))
        self._agreed[number] = parts_of(container)
        return container

    def _decode_iterator(self, name: str) -> Iterator:
        """An iterator that asks the other end for each value; `name` is that of its type there."""
        read = partial(self.read, self._next)
        is_generator = name == GeneratorType.__name__
        value = read() if is_generator else self._class_for(name, Stream, [])(read)
        self._add(value)
        return value

    def _decode_object(
        self, name: str, base_name: str, attributes: list, data: list, depth: int
    ) -> Any:
        """An object of a class named as its type at the other end; its `attributes` only raise."""
        base = BASES[base_name]
        kind = self._class_for(name, base, attributes)
        if base in CONTAINERS:
            return self._decode_container(base, kind, data, depth)
        parts = self._decode_all(data, depth)
        value = base.__new__(kind, parts) if base in FROZEN else base.__new__(kind, *parts)
        self._add(value)
        return value

    def _class_for(self, name: str, base: type, attributes: list) -> type:
        """The class that stands for a type of the other end, whose `attributes` stay there."""
        key = (name, base, *attributes)
        if key not in self._types:
            if len(self._types) >= MOST_TYPES or len(attributes) > MOST_ATTRIBUTES:
                raise CodecError(f"more than {MOST_TYPES} types")
            refusals = {
                of.rstrip("=."): None if of.endswith("=") else self._refusal(name, of)
                for of in attributes
                if of.rstrip("=.") not in UNSENT
            }
            self._types[key] = type(name, (base,), {"__slots__": (), **refusals})
        return self._types[key]

    def _refusal(self, kind: str, attribute: str) -> Any:
        """What a class has in place of an attribute that stays at the other end: it only raises.

        Of a method with two underscores a function: Python calls it without looking at it.
        """

        def refuse(*_: Any, **__: Any) -> Any:
            self.refused = (
                f"{attribute.rstrip('.')} of a {kind} stays where it was made: it is no plain value"
            )
            raise NotPlain(self.refused)

        is_method = attribute.startswith("__") and not attribute.endswith(".")
        return refuse if is_method else Refusal(refuse)

    def _decode_exception(
        self, names: list, text: str | None, attributes: list, values: list
    ) -> BaseException:
        """An exception of the types that exist here, as `_encode_exception` describes it.

        `names` are [module, name] of its types from the nearest on. The last of `values` are those
        of `attributes`, the others its arguments.
        """
        known = [kind for kind in map(self._exception_type, names) if kind] or [Exception]
        # Of the types that are known here, those from which no other of them derives.
        bases = [kind for kind in known if not any(kind in of.__mro__[1:] for of in known)]
        kind = built_in = bases[0]
        if text is not None or len(bases) > 1 or self._exception_type(names[0]) is None:
            methods = {} if text is None else {"__str__": lambda _: text}
            kind = built_in = type(names[0][1], (*dict.fromkeys(bases),), methods)
        while built_in.__module__ != "builtins":  # up to the nearest type of Python itself
            built_in = built_in.__base__
        arguments = values[: len(values) - len(attributes)]
        error = built_in.__new__(kind, *arguments)  # runs no `__init__` of a test's own type
        built_in.__init__(error, *arguments)
        state = dict(zip(attributes, values[len(arguments) :], strict=True))
        for name in CHAIN:
            setattr(error, name, state.pop(name, CHAIN[name]))
        for name, member in members_of(built_in).items():
            if name in state and state[name] is not member.__get__(error):
                member.__set__(error, state[name])
            state.pop(name, None)
        vars(error).update(state)
        return error

    def _exception_type(self, name: list) -> type | None:
        """The exception type that [module, name] means here; None if there is none.

        Of a type that is not Python's own, `self.exceptions` (the tests' names) has the meaning.
        """
        top = name[0].partition(".")[0]
        if top in sys.stdlib_module_names:
            kind = getattr(sys.modules.get(name[0]), name[1], None)
        else:
            kind = self.exceptions.get(name[1])
        is_exception = isinstance(kind, type) and issubclass(kind, BaseException)
        # `SkipTest` would end a test that has not passed.
        return kind if is_exception and not kind.__module__.startswith("unittest") else None
