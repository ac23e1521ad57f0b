"""The codec: plain values arrive as they left, of their type; other text is an error, no call."""

import array
import collections
import contextlib
import datetime
import enum
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.sandbox.codec import MAX_DEPTH, CodecError, decode, encode

texts = st.text(st.characters())  # lone surrogates included
east = datetime.timezone(datetime.timedelta(hours=8))
zones = st.sampled_from([None, datetime.UTC, east])
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary()
    | st.builds(bytearray, st.binary())
    | st.fractions()
    | st.decimals()
    | st.dates()
    | st.datetimes(timezones=zones).map(lambda moment: moment.replace(fold=0))
    | st.times(timezones=zones).map(lambda moment: moment.replace(fold=0))
    | st.lists(st.integers(-9, 9)).map(lambda items: array.array("i", items))
    | st.timedeltas()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 5))
)


def is_signalling(value):
    """A NaN that cannot be hashed."""
    return isinstance(value, Decimal) and value.is_snan()


unhashable = (bytearray, array.array)
hashable = st.recursive(
    atoms.filter(lambda value: not isinstance(value, unhashable) and not is_signalling(value)),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)


def containers(inner):
    lists, sets = st.lists(inner, max_size=5), st.sets(hashable, max_size=5)
    return (
        lists
        | lists.map(tuple)
        | sets
        | sets.map(frozenset)
        | st.dictionaries(hashable, inner, max_size=5)
    )


values = st.recursive(atoms, containers, max_leaves=12)


def shape(value):
    """A form of a value that compares by type, and in which nan equals nan."""
    if isinstance(value, dict):
        return "dict", [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shape(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    return type(value), repr(value)


@settings(deadline=None, max_examples=300)
@given(values)
def test_a_plain_value_arrives_as_it_left(value):
    assert shape(decode(encode(value))) == shape(value)


tags = st.sampled_from([*"nutsfdbBcrqDYMHSkivTozax"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(tags, inner, min_size=1, max_size=2)
    ),
    max_leaves=10,
)


@settings(deadline=None, max_examples=500)
@given(json_values)
def test_any_json_is_a_value_or_an_error(data):
    with contextlib.suppress(CodecError):
        decode(json.dumps(data), resolve=lambda parts: None)


class Colour(enum.IntEnum):
    RED = 1


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__

    def __int__(self):
        return 7


class Shout(str):
    def __str__(self):
        return "other"


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (Point(1, 2), (1, 2)),
        (Colour.RED, 1),
        (Liar(3), 3),
        (Shout("text"), "text"),
        ({"a": 1}.keys(), {"a": 1}.keys()),
        ({"a": 1}.items(), {"a": 1}.items()),
        (int, int),
        (10**4000, 10**4000),
        ("\ud83d\ude00", "\ud83d\ude00"),
        (datetime.UTC, datetime.UTC),
        (Decimal("1.10"), Decimal("1.1")),
        (collections.deque([1, 2], maxlen=2), collections.deque([1, 2])),
    ],
)
def test_the_built_in_type_arrives(value, arrives):
    received = decode(encode(value))
    assert received == arrives and type(received) is type(arrives)


@pytest.mark.parametrize(
    "value", [object(), len, iter([]), ValueError(), [object()], {1: print}, json, Colour]
)
def test_what_has_no_tag_is_an_error_without_a_reference(value):
    with pytest.raises(CodecError, match="cannot be sent"):
        encode(value)


def test_a_reference_goes_out_and_comes_back():
    text = encode([len, 1], refer=lambda value: ["f", 3])
    assert decode(text, resolve=lambda parts: tuple(parts)) == [("f", 3), 1]
    with pytest.raises(CodecError):
        decode(text)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_capped_both_ways():
    loop = []
    loop.append(loop)
    with pytest.raises(CodecError):
        encode(loop)
    assert decode(encode(nested(MAX_DEPTH - 1))) == nested(MAX_DEPTH - 1)
    for depth in (MAX_DEPTH, 5_000, 200_000):
        with pytest.raises(CodecError):
            encode(nested(depth))
        with pytest.raises(CodecError):
            decode("[" * depth * 2 + "]" * depth * 2)


def test_size_is_capped_both_ways():
    with pytest.raises(CodecError, match="the most is 10"):
        encode("a" * 11, max_bytes=10)
    with pytest.raises(CodecError, match="the most is 10"):
        decode('"' + "a" * 11 + '"', max_bytes=10)
    with pytest.raises(CodecError, match="bits"):
        encode(1 << 200_000)


NO_ENCODINGS = [
    '', '{}', '{"t":[],"s":[]}', '{"z":1}', '{"t":1}', '{"t":"ab"}', '{"s":[[1]]}',
    '{"d":[[1]]}', '{"d":[[[1],2]]}', '{"b":"g"}', '{"c":[1,2]}', '{"r":[1,2,0]}',
    '{"r":[1,2]}', '{"q":[1,0]}', '{"q":[true,1]}', '{"D":"x"}', '{"T":"object"}',
    '{"T":"eval"}', '{"n":"zz"}', '{"o":["f",1]}', '{"M":"2024"}', '{"S":[1e9,0,0]}',
    '{"S":[9999999999,0,0]}', "1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", NO_ENCODINGS)
def test_what_is_no_encoding_is_an_error(text):
    with pytest.raises(CodecError):
        decode(text)
