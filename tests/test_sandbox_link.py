"""The link: what the other side sends is a value, an exception or the end, and nothing else."""

import json
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.sandbox.link import (
    LinkError,
    Peer,
    ProgramEnded,
    RemoteError,
    described,
    received,
)


def framed(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def answer_to(data: bytes):
    """What a call gives at this end when the other has already written `data` and closed."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    peer = Peer(reading, {})
    peer.send = lambda message: None
    try:
        return peer.call("f", (1,), {})
    finally:
        os.close(reading)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*"todsf"]), inner, max_size=1)
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    ["value", "error", "end", "call", "next", "iter", "await", "close", "getattr", "ready", ""]
)
messages = st.tuples(kinds, any_json, any_json).map(list)


@settings(deadline=None, max_examples=200)
@given(st.lists(messages | any_json, min_size=1, max_size=3))
def test_any_messages_give_a_value_or_an_exception(sent):
    try:
        answer_to(b"".join(framed(json.dumps(message).encode()) for message in sent))
    except (
        LinkError,
        ProgramEnded,
    ):  # no `Exception`, so that no test can take it for one of the program
        pass
    except Exception as error:
        assert not isinstance(error, StopIteration)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_the_end_of_the_link(data):
    with pytest.raises(LinkError):
        answer_to(b"\xff" + data)


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
