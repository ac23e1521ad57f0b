"""Values arrive as they left, with their types and identities; all else is an error."""

import collections
import contextlib
import datetime
import json
import socket
import struct
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.sandbox.codec import MAX_DEPTH, CodecError, NotPlain, Table
from rewards.sandbox.link import Caller, LinkError, ProgramEnded, RemoteError, from_json, to_json

EAST = datetime.timezone(datetime.timedelta(hours=8))
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=EAST)
ATOMS = [
    None, True, 0, -1, 1 << 60, -(10**4000), 0.1, float("inf"), float("nan"), -0.0, 1j, "", "é",
    "\ud800", "\ud83d\ude00", b"", b"\xff", Fraction(1, 3), Decimal("1.10"), Decimal("sNaN"),
    range(9), NOON, NOON.date(), NOON.timetz(), NOON - NOON, EAST, datetime.UTC, int, list,
    bytearray(), bytearray(b"x"),
    collections.deque([1, [2]]), collections.deque([1], maxlen=2), {1, (2, 3)}, frozenset([()]),
    {"a": {1: [2]}, (1,): {}}, [[], ()], ((((),),),), {}.keys(), {"a": 1}.items(),
    collections.Counter("a"), collections.OrderedDict(b=1, a=2),
    collections.defaultdict(list, a=[1]), KeyError("a", [1]),
]  # fmt: skip


def sent(value, here=None, there=None):
    """A value as it arrives: as data, text, and data again."""
    data = (here or Table()).encode(value)
    return (there or Table()).decode(from_json(to_json(data)))


def same(one, other):
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("value", ATOMS, ids=lambda value: repr(value)[:20])
def test_a_plain_value_arrives_as_it_left(value):
    assert same(sent(value), value) and same(sent([value, (value,)]), [value, (value,)])


@pytest.mark.parametrize("literal", [{20, 5, 25, 10, 15}, {12, 13, 14, 15, 16}, {8, 0}])
def test_a_set_arrives_in_its_order(literal):
    assert [*sent(literal)] == [*literal]


class Stack(list):
    """A container of another type."""


EVERY = [[1], {2: [3]}, {4}, collections.deque([5]), bytearray(b"6")]
EVERY += [collections.Counter("8"), collections.OrderedDict(a=9), Stack([0])]


def test_a_change_at_one_end_is_made_at_the_other():
    here, there = Table(), Table()
    theirs = sent(EVERY, here, there)
    for container in theirs:
        container.clear()
    theirs[0].append(theirs[2])
    changes = there.encode_changes()
    here.apply(from_json(to_json(changes)))
    assert not any(EVERY[1:]) and EVERY[0] == [set()] and EVERY[0][0] is EVERY[2]
    assert there.encode_changes() == here.encode_changes() == []


def test_what_nothing_holds_any_more_is_forgotten_at_both_ends():
    here, there = Table(), Table()
    sent([1], here, there)
    kept = sent(mine := [2], here, there)
    assert (here.release(), there.release()) == ([0], [])  # by who has sent it
    there.forget([0])
    assert sent(kept, there, here) is mine


def test_an_argument_of_many_calls_is_sent_once():
    here, there = Table(), Table()
    argument = [*range(1000)]
    sent(argument, here, there)
    for _ in range(3):
        assert there.release() == here.release() == []  # the other end holds it no longer
        assert here.encode(argument) == {"=": 0}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_depth_and_length_are_capped_both_ways():
    assert sent(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    for value in (nested(MAX_DEPTH + 2), nested(5_000), 1 << 200_000):
        with pytest.raises(CodecError, match="cannot be sent"):
            Table().encode(value)
    for depth in (MAX_DEPTH + 2, 5_000):
        with pytest.raises(CodecError):
            Table().decode(nested(depth))


NO_ENCODINGS = [
    '{}', '{"t":[],"s":[]}', '{"z":1}', '{"t":1}', '{"t":"ab"}', '{"s":[[1]]}', '{"d":[1]}',
    '{"b":["g"]}', '{"c":[1,2]}', '{"r":[1,2,0]}', '{"r":[1,2]}', '{"q":[1,0]}', '{"q":[true,1]}',
    '{"D":["x"]}', '{"T":["eval"]}', '{"n":["zz"]}', '{"M":["2024"]}', '{"S":[1e9,0,0]}',
    '{"S":[9999999999,0,0]}', '{"=":0}', '{"=":-1}', '{"=":[]}', '{"a":[]}',
    '{"B":[256]}', '[{"=":2}]', '{"Q":["x"]}', '{"F":[1]}', '{"I":[]}', '{"I":[1]}', '{"N":[]}',
    '{"N":[["a","eval",[]]]}', '{"N":[["a","int",[]],"x"]}', '{"N":[[1,"int",[]],1]}',
    '{"N":[["a","int",["__classcell__"]],1]}',
    '{"E":[]}', '{"E":[[[],null,[]]]}',
    '{"E":[[[["builtins","UnicodeDecodeError"]],null,[]],1]}',
]  # fmt: skip
tags = st.sampled_from([*"nutsfdbBcrqDYMHSkivTozaxI=NEFCOQ"])
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
        Table(read=lambda number: iter(())).decode(json.loads(text))


# ------------------------------------------------------------------ the link


def answer_to(data: bytes):
    """What a call gives where the program has already written `data` and then no more."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        return Caller(here.fileno()).call("f", ([1], iter("a")), {})


def message(*parts) -> bytes:
    text = json.dumps(parts).encode()
    return struct.pack("!I", len(text)) + text


kinds = st.sampled_from(["value", "end", "error", "broken", "next", "send", "throw", ""])
heads = json_values | st.integers(0, 2)
bodies = st.lists(json_values, max_size=2)
messages = st.tuples(kinds, heads, bodies, bodies, bodies) | st.tuples(json_values)


@settings(deadline=None, max_examples=200)
@given(st.lists(messages, min_size=1, max_size=3), st.binary(max_size=20))
def test_any_messages_give_a_value_or_an_exception_that_no_test_can_catch(sent, rest):
    with contextlib.suppress(LinkError, NotPlain, ProgramEnded):
        answer_to(b"".join(message(*parts) for parts in sent) + rest)


def error_data(*names, text=None):
    return {"E": [[names, text, []], "x"]}


@pytest.mark.parametrize(
    ("data", "kind", "name"),
    [
        (error_data(["json.decoder", "No"], ["builtins", "ValueError"]), ValueError, "No"),
        (error_data(["builtins", "StopIteration"]), RemoteError, "RemoteError"),  # ends a loop
        (error_data(["unittest.case", "SkipTest"]), Exception, "SkipTest"),  # ends a test
        (error_data(["builtins", "GeneratorExit"]), ProgramEnded, "ProgramEnded"),
        (error_data(["builtins", "SystemExit"]), ProgramEnded, "ProgramEnded"),
        (error_data(["builtins", "KeyboardInterrupt"]), ProgramEnded, "ProgramEnded"),
        (error_data(["builtins", "print"]), Exception, "print"),
        (1, LinkError, "LinkError"),
    ],
)
def test_an_exception_arrives_as_one_that_a_test_may_take_for_the_programs(data, kind, name):
    with pytest.raises(kind) as caught:
        answer_to(message("error", None, [data], [], []))
    assert type(caught.value).__name__ == name
    assert not any(base.__module__ == "unittest.case" for base in type(caught.value).__mro__)
