"""Plain values arrive as they left, of their type and shared as they were; all else is an error."""

import array
import collections
import datetime
import enum
import json
import socket
import struct
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.sandbox.codec import MAX_DEPTH, MOST_ITEMS, CodecError, decode, encode
from rewards.sandbox.link import Caller, LinkError, ProgramEnded, RemoteError, described, received

EAST = datetime.timezone(datetime.timedelta(hours=8))
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=EAST)
ATOMS = [None, True, 0, -1, 1 << 60, -(10**4000), 0.1, float("inf"), -0.0, 1j, "", "é", "\ud800"]
ATOMS += ["\ud83d\ude00", b"", b"\xff", Fraction(1, 3), Decimal("1.10"), Decimal("sNaN"), range(9)]
ATOMS += [NOON, NOON.date(), NOON.timetz(), NOON - NOON, EAST, datetime.UTC, int, list, bytearray()]
ATOMS += [bytearray(b"x"), array.array("i", [1]), array.array("d"), collections.deque([1, [2]])]
ATOMS += [{1, (2, 3)}, frozenset([()]), {"a": {1: [2]}, (1,): {}}, [[], ()], ((((),),),)]
ATOMS += [{"a": 1}.keys(), {"a": 1}.items()]


def sent(value, **options):
    """A value as it arrives: as data, text, and data again."""
    return decode(json.loads(json.dumps(encode(value, [], **options))), [])


def same(one, other):
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("value", ATOMS, ids=lambda value: repr(value)[:20])
def test_a_plain_value_arrives_as_it_left(value):
    assert same(sent(value), value) and same(sent([value, (value,)]), [value, (value,)])


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_any_nested_value_arrives_as_it_left(value):
    assert same(sent(value), value)


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
        (collections.deque([1, 2], maxlen=2), collections.deque([1, 2])),
    ],
)
def test_of_a_subclass_the_built_in_type_arrives(value, arrives):
    assert same(sent(value), arrives)


def test_what_is_shared_stays_shared_and_what_is_not_does_not():
    row = [1]
    one, other, alone, loop = sent((row, row, [1], (again := {"row": row}, again)))
    assert one is other and alone is not one and loop[0] is loop[1] and loop[0]["row"] is one


def test_a_reply_speaks_of_the_containers_of_its_request_by_their_numbers():
    here, there = [], []
    mine = [[1], {2: [3]}]
    theirs = decode(encode(mine, here), there)
    reply = encode([theirs[1][2], theirs], there)
    assert [id(one) for one in decode(reply, here)] == [id(mine[1][2]), id(mine)]


def test_an_iterator_arrives_as_one_over_its_values_and_is_cut_off():
    values = sent(iter([1, [2]]))
    assert [*values] == [1, [2]] and [*values] == []
    ones = sent(iter(lambda: 1, 2))
    assert sum(next(ones) for _ in range(MOST_ITEMS)) == MOST_ITEMS
    with pytest.raises(CodecError, match="and no further"):
        next(ones)


@pytest.mark.parametrize("truth", [[], [1]])
def test_of_an_object_its_truth_arrives_and_every_question_is_an_error(truth):
    class Anything:
        __len__ = truth.__len__

        def __eq__(self, other):
            return True

    thing = sent(Anything(), has_objects=True)
    assert bool(thing) is bool(truth)
    asks = [lambda: thing == 1, lambda: thing != 1, lambda: thing < 1, lambda: str(thing)]
    asks += [
        lambda: {thing},
        lambda: [*thing],
        lambda: 1 in thing,
        lambda: thing[0],
        lambda: thing(),
    ]
    for ask in asks:
        with pytest.raises(TypeError):
            ask()


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


CANNOT = [object(), len, ValueError(), {1: print}, json, Colour, 1 << 200_000]


@pytest.mark.parametrize("value", CANNOT, ids=lambda value: type(value).__name__)
def test_what_cannot_be_sent_is_an_error(value):
    with pytest.raises(CodecError, match="cannot be sent"):
        encode([value], [])


def test_depth_is_capped_both_ways():
    assert sent(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    for depth in (MAX_DEPTH + 2, 5_000):
        with pytest.raises(CodecError):
            encode(nested(depth), [])
        with pytest.raises(CodecError):
            decode(nested(depth), [])


NO_ENCODINGS = [
    '{}', '{"t":[],"s":[]}', '{"z":1}', '{"t":1}', '{"t":"ab"}', '{"s":[[1]]}', '{"d":[1]}',
    '{"d":[[1],2]}', '{"b":"g"}', '{"c":[1,2]}', '{"r":[1,2,0]}', '{"r":[1,2]}', '{"q":[1,0]}',
    '{"q":[true,1]}', '{"D":"x"}', '{"T":"object"}', '{"T":"eval"}', '{"n":"zz"}', '{"o":1}',
    '{"M":"2024"}', '{"S":[1e9,0,0]}', '{"S":[9999999999,0,0]}', '{"=":0}', '{"=":-1}',
    '{"=":true}', '{"a":[]}', '{"a":["i",0.5]}', '{"B":[256]}', '[{"=":2}]',
]  # fmt: skip
tags = st.sampled_from([*"nutsfdbBcrqDYMHSkivTozaxI="])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(tags, inner, min_size=1, max_size=2)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("text", NO_ENCODINGS)
def test_what_is_no_encoding_is_an_error(text):
    with pytest.raises(CodecError):
        decode(json.loads(text), [])


# ------------------------------------------------------------------ the link


def answer_to(data: bytes):
    """What a call gives where the program has already written `data` and then no more."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        return Caller(here.fileno()).call("f", ([1],), {})


kinds = st.sampled_from(["value", "error", "end", "call", "ready", "failed", ""])
messages = st.tuples(kinds, json_values, json_values).map(list) | json_values


@settings(deadline=None, max_examples=200)
@given(st.lists(messages, min_size=1, max_size=3), st.binary(max_size=20))
def test_any_messages_give_a_value_or_an_exception(sent, rest):
    texts = [json.dumps(message).encode() for message in sent]
    data = b"".join(struct.pack("!I", len(text)) + text for text in texts)
    try:
        answer_to(data + rest)
    except (LinkError, ProgramEnded):  # no `Exception`, so that no test takes it for the program's
        pass
    except Exception as error:
        assert not isinstance(error, StopIteration)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (described(json.JSONDecodeError("x", "", 0))[0], ValueError),  # the nearest built in
        (described(UnicodeDecodeError("utf-8", b"", 0, 1, "x"))[0], UnicodeError),  # of one text
        # What means something to a loop.
        (["StopIteration"], RuntimeError),
        (["GeneratorExit"], RuntimeError),
        (["BaseException"], RuntimeError),
        # No exception that a test could want.
        (["SystemExit"], ProgramEnded),
        (["KeyboardInterrupt"], ProgramEnded),
        # No exception at all.
        *((names, RemoteError) for names in (None, [], ["no_such"], ["print"], [1])),
    ],
)
def test_an_exception_arrives_as_one_that_a_test_may_take_for_the_programs(names, kind):
    assert type(received(names, "x")) is kind
