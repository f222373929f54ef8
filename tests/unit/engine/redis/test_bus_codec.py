"""Bus codec: messages are read as they were written, and everything else is refused."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha1

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.engine.messages import (
    AnySent,
    Audit,
    Deliver,
    Disconnect,
    Entered,
    InboxChanged,
    Left,
    MemberRemoved,
    Message,
    Notified,
    Topic,
    Typing,
)
from greendot.engine.redis.bus_codec import BusCodec, Malformed
from greendot.presence.model import Change, VisibleState

KEY = b"a key for tests, thirty-two long"
ROOM, NODE = Topic("room", "t1", "lobby"), Topic("node", "", "k3Fa")
CHANNEL = "p:room:{9k}:t1/lobby"
MESSAGES: list[Message] = [
    Deliver(b'{"type":"room.message"}', 7),
    Deliver(b"\x00\xff", None, "cursor", "k3Fa-c1"),
    Deliver(b"{}", None, ("ann", "cursor", "k"), "k3Fa-c1", sender="ann"),
    Deliver(b"{}", None, (None, "cursor", "k")),
    MemberRemoved("t1", "r1", "ann", "left", "abcd", 3),
    Notified([(7, b'{"type":"notification.created"}', False), (8, b"", True)]),
    InboxChanged(b"\x00\xff", "k3Fa/1", [7, 8], 9),
    InboxChanged(),
    Disconnect("k3Fa-s1", 4505, "replaced"),
    Disconnect("k3Fa-s1", 4503, "operator", "t1"),
    Audit(),
]


def by_script(kind: str, body: str, channel: str = CHANNEL, key: bytes = KEY) -> bytes:
    """Sign a message as the Lua verbs do."""
    return f"{kind}{sha1(f'{BusCodec(key).script_key}{channel}|{body}'.encode()).hexdigest()}{body}".encode()


CHANGE = by_script("c", "o1a|b1b,1a,,Lunch%2C soon,b|A%7CB|phone,tv|1||1")
TYPING = by_script("t", "ann|Zoë|5000")
ENTERED = by_script("p", "ann|1")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_kind_a_node_publishes_is_read_as_it_was_written(message: Message) -> None:
    ours = BusCodec(KEY)
    assert ours.reader(CHANNEL, ROOM)(ours.write(CHANNEL, message)) == (ROOM, message)


def test_a_message_on_a_nodes_channel_may_name_the_topic_it_is_for() -> None:
    ours, user = BusCodec(KEY), Topic("user", "t1", "ann")
    topic, message = ours.reader("n", NODE)(ours.write("n", Deliver(b"x"), user))
    assert (topic, message) == (user, Deliver(b"x"))


def test_what_scripts_publish_is_read() -> None:
    read = BusCodec(KEY).reader(CHANNEL, ROOM)
    own = VisibleState("busy", 0x1A, None, 0x1B, "Lunch, soon", "busy")
    visible = VisibleState("online", 0x1A, None, 0x1A)
    assert read(CHANGE) == (ROOM, Change(visible, own, "A|B", ["phone", "tv"], True, False, True))
    assert read(TYPING) == (ROOM, Typing("ann", "Zoë", 5_000))
    assert read(by_script("t", "ann||0")) == (ROOM, Typing("ann", None, 0))
    assert read(ENTERED) == (ROOM, Entered("ann"))
    assert read(by_script("p", "ann|r")) == (ROOM, Entered("ann", restored=True))
    assert read(by_script("p", "ann|")) == (ROOM, Left("ann"))


@pytest.mark.parametrize(
    "message", [Typing("ann", None, 0), Left("ann"), Change(VisibleState(), VisibleState(), None, [], True, True)]
)
def test_what_only_scripts_may_publish_is_not_written(message: Message) -> None:
    with pytest.raises(TypeError, match="scripts"):
        BusCodec(KEY).write(CHANNEL, message)


def samples() -> list[bytes]:
    return [*(BusCodec(KEY).write(CHANNEL, message) for message in MESSAGES), CHANGE, TYPING, ENTERED]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: chr(sample[0]))
def test_one_changed_byte_is_enough_to_be_refused(sample: bytes) -> None:
    read = BusCodec(KEY).reader(CHANNEL, ROOM)
    read(sample)
    for at in range(1, len(sample)):
        with pytest.raises(Malformed):
            read(sample[:at] + bytes([sample[at] ^ 1]) + sample[at + 1 :])
        with pytest.raises(Malformed):
            read(sample[:at])
    for kind in b"mx\x00":
        if kind != sample[0]:
            with pytest.raises(Malformed):
                read(bytes([kind]) + sample[1:])
    with pytest.raises(Malformed):
        read(sample + b"\x00")


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: chr(sample[0]))
def test_a_message_is_good_on_its_own_channel_and_under_its_own_key_only(sample: bytes) -> None:
    for stranger in (
        BusCodec(KEY).reader("p:room:{9k}:t1/other", ROOM),
        BusCodec(b"another key").reader(CHANNEL, ROOM),
        BusCodec(KEY[:-1]).reader(CHANNEL, ROOM),
    ):
        with pytest.raises(Malformed):
            stranger(sample)


def test_the_signature_of_a_script_message_covers_the_end_of_the_channel_name() -> None:
    body = "annabel\n\n5000"
    told = by_script("t", body)
    moved = told[:41] + body[3:].encode()
    with pytest.raises(Malformed):
        BusCodec(KEY).reader(f"{CHANNEL}{body[:3]}", ROOM)(moved)


def test_a_script_message_of_one_kind_is_refused_as_another_kind() -> None:
    """The signature of a script does not cover the kind. So the text of one kind must not be valid for another."""
    read = BusCodec(KEY).reader(CHANNEL, ROOM)
    samples = (b"c", CHANGE), (b"t", TYPING), (b"p", ENTERED)
    for other, sample in ((kind, sample) for kind, _ in samples for own, sample in samples if own != kind):
        with pytest.raises(Malformed):
            read(other + sample[1:])


@given(st.binary(max_size=200))
def test_a_strangers_bytes_are_refused_and_never_more_than_that(data: bytes) -> None:
    with pytest.raises(Malformed):
        BusCodec(KEY).reader(CHANNEL, ROOM)(data)


@pytest.mark.parametrize("body", ["", "|", "x|x|x|x|x|x|x", "o1|o1|A|", "oZZ|o1|A||1|1|", "o1|o1|A||1|1||", "|||||||"])
@pytest.mark.parametrize("kind", ["c", "t"])
def test_what_is_signed_and_makes_no_sense_is_refused_too(kind: str, body: str) -> None:
    with pytest.raises(Malformed):
        BusCodec(KEY).reader(CHANNEL, ROOM)(by_script(kind, body))


def signed(body: bytes, channel: str = CHANNEL) -> bytes:
    """Sign a body as a node does."""
    seal = BusCodec(KEY)._mac(channel)
    seal.update(body)
    return seal.digest() + body


SENSELESS = {
    "nothing": b"\x90",
    "arrays in arrays": b"\x91" * 100_000,
    "arrays in a key": b"\x92\x94\xa1d\xc4\x00\xc0" + b"\x91" * 100_000,
    "a list longer than memory": b"\x92\xa1n\xdd\xff\xff\xff\xff",
    "no such kind of message": msgspec.msgpack.encode([["?"], None]),
    "no such kind of topic": msgspec.msgpack.encode([["a"], ["tenant", "t1", "ann"]]),
    "a topic of two": msgspec.msgpack.encode([["a"], ["user", "t1"]]),
    "a code no close frame holds": msgspec.msgpack.encode([["x", "k3Fa-s1", 70_000, "why"]]),
    "a code below zero": msgspec.msgpack.encode([["x", "k3Fa-s1", -1, "why"]]),
    "a reason no close frame holds": msgspec.msgpack.encode([["x", "k3Fa-s1", 4503, "why" * 50]]),
}


@pytest.mark.parametrize("body", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_signed_message_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        BusCodec(KEY).reader(CHANNEL, ROOM)(b"m" + signed(body))


@given(st.binary(max_size=60))
def test_whatever_is_signed_is_a_message_or_refused(body: bytes) -> None:
    with suppress(Malformed):
        BusCodec(KEY).reader(CHANNEL, ROOM)(b"m" + signed(body))


@given(st.sampled_from("ctp?"), st.text(alphabet="|,;%obif0189aé\0-", max_size=40))
def test_any_text_signed_with_the_key_of_scripts_is_a_message_or_refused(kind: str, body: str) -> None:
    with suppress(Malformed):
        BusCodec(KEY).reader(CHANNEL, ROOM)(by_script(kind, body))


def test_a_long_key_is_used_as_far_as_it_can_be() -> None:
    long = BusCodec(b"k" * 200)
    assert long.reader(CHANNEL, ROOM)(long.write(CHANNEL, Audit())) == (ROOM, Audit())


def test_a_beat_is_read_as_it_was_written_and_a_strangers_is_not() -> None:
    ours, beat = BusCodec(KEY), BusCodec(KEY).write_beat("beat:k3Fa", 17)
    assert ours.read_beat("beat:k3Fa", beat) == 17
    with pytest.raises(Malformed):
        ours.read_beat("beat:other", beat)
    with pytest.raises(Malformed):
        BusCodec(b"another key").read_beat("beat:k3Fa", beat)
    senseless = (signed(body, "beat:k3Fa") for body in (b"", b"x", b"\xff", b"9" * 5_000))
    for forged in (b"", b"17", beat[:-1], beat + b"0", beat[:-1] + b"8", b"9" * 5_000, *senseless):
        with pytest.raises(Malformed):
            ours.read_beat("beat:k3Fa", forged)


def test_nodes_of_the_version_before_read_messages_with_a_time_and_are_read_without() -> None:
    """Nodes of the previous version read two fields of an envelope. The time of publication is a third field."""

    class Before(msgspec.Struct, frozen=True, array_like=True):
        message: AnySent
        topic: tuple[str, str, str] | None = None

    ours, message, told = BusCodec(KEY), Deliver(b"x", 7), list[int]()
    ours.timed = told.append
    timed = ours.write(CHANNEL, message, at=1_700_000_000_123)
    assert msgspec.msgpack.decode(timed[17:], type=Before) == Before(message)
    assert ours.reader(CHANNEL, ROOM)(timed) == (ROOM, message)
    assert told == [1_700_000_000_123]
    seal = ours._mac(CHANNEL)
    body = msgspec.msgpack.encode(Before(message))
    seal.update(body)
    assert ours.reader(CHANNEL, ROOM)(b"m" + seal.digest() + body) == (ROOM, message)
    assert len(told) == 1


class _OldSent(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class _OldDeliver(_OldSent, frozen=True, tag="d"):
    """The struct before messages carried a trace."""

    frame: bytes
    seq: int | None = None
    key: object = None
    without_connection: str | None = None
    members_rev: int = 0


class _OldNotified(_OldSent, frozen=True, tag="n"):
    records: list[tuple[int, bytes, bool]]


class _OldParcel(msgspec.Struct, frozen=True, array_like=True):
    message: _OldDeliver | _OldNotified
    topic: tuple[str, str, str] | None = None


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("message", "old"),
    [
        (Deliver(b"f", 7, members_rev=3, traceparent=TRACEPARENT), _OldDeliver(b"f", 7, members_rev=3)),
        (Deliver(b"f", None, "k", "c"), _OldDeliver(b"f", None, "k", "c")),
        (Notified([(7, b"f", True)], TRACEPARENT), _OldNotified([(7, b"f", True)])),
    ],
)
def test_nodes_of_before_traces_and_of_now_understand_each_other(message: Message, old: _OldSent) -> None:
    sealed = BusCodec(KEY).write(CHANNEL, message, NODE)
    assert msgspec.msgpack.decode(sealed[17:], type=_OldParcel).message == old
    body = msgspec.msgpack.encode(_OldParcel(old, ("node", "", "k3Fa")))  # type: ignore[arg-type]
    mac = BusCodec(KEY)._mac(CHANNEL)
    mac.update(body)
    _, read = BusCodec(KEY).reader(CHANNEL, ROOM)(b"m" + mac.digest() + body)
    assert read == msgspec.structs.replace(message, traceparent=None)
