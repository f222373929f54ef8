"""Native frames as pushes of the Centrifuge protocol."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from greendot.compat.centrifuge.channel_model import Namespaces, Rules
from greendot.compat.centrifuge.codec_model import PING_FRAME
from greendot.compat.centrifuge.dialect_model import CentrifugeDialect
from greendot.compat.centrifuge.push_model import PUBLICATION, SERVER
from greendot.errors import Refused
from greendot.protocol.codec import encode_error, encode_event, encode_reply, pong_frame
from greendot.protocol.codes import Err
from greendot.protocol.events import (
    Event,
    HeartbeatAck,
    Resync,
    RoomChanged,
    RoomEntered,
    RoomLeft,
    RoomMessage,
    Signal,
    TypingStarted,
)
from greendot.protocol.replies import Reply
from greendot.protocol.versions import split_frames

MESSAGE = RoomMessage("news=3A1", 7, "7-x", "ann", "Ann", Raw(b'{\n"a": 1}'), 5)


def read(*frames: bytes, join_leave: bool = True, **named: Rules) -> list[Any]:
    dialect = CentrifugeDialect(Namespaces(named), join_leave=join_leave)
    made = dialect.read(b"".join(frames)).frames
    assert dialect.read(made).frames == made, "a converted frame stays as it is"
    return [msgspec.json.decode(frame[at:]) for frame, at in split_frames(made)]


def event(of: Event) -> bytes:
    return encode_event(of, 1)


def test_messages_are_publications_in_their_order() -> None:
    second = RoomMessage("news=3A1", 8, "8-x", SERVER, None, Raw(b"null"), 5, info=Raw(b'{"age":4}'))
    assert read(event(MESSAGE), event(second)) == [
        {
            "push": {
                "channel": "news:1",
                "pub": {"data": {"a": 1}, "offset": 7, "info": {"user": "ann", "client": "ann"}},
            }
        },
        {"push": {"channel": "news:1", "pub": {"data": None, "offset": 8}}},
    ]


def test_a_change_of_a_message_has_tags() -> None:
    edit = RoomMessage("r", 9, "9-x", "ann", None, Raw(b"2"), 5, ref=7, op="edit")
    erased = RoomMessage("r", 3, "3-x", "", None, Raw(b"null"), 5, op="erased")
    [first, second] = read(event(edit), event(erased))
    assert first["push"]["pub"]["tags"] == {"op": "edit", "ref": "7"}
    assert second["push"]["pub"] == {"data": None, "offset": 3, "tags": {"op": "erased"}}


def test_publications_without_a_history_are_signals_of_one_kind() -> None:
    def signal(kind: str, **fields: Any) -> bytes:
        return event(Signal(**{"sender": "ann", "name": None, "kind": kind, "room": "r", "body": Raw(b"1")} | fields))

    assert read(signal(PUBLICATION)) == [
        {"push": {"channel": "r", "pub": {"data": 1, "info": {"user": "ann", "client": "ann"}}}}
    ]
    assert read(signal(PUBLICATION, sender=None, body=UNSET)) == [{"push": {"channel": "r", "pub": {"data": None}}}]
    assert read(signal("cursor")) == read(signal(PUBLICATION, room=UNSET)) == []


def test_joins_and_leaves_depend_on_the_client_and_the_namespace() -> None:
    frames = event(RoomEntered("a=3A1", "bob", None, Raw(b'{"b":1}'))), event(RoomLeft("a=3A1", "bob"))
    bob = {"user": "bob", "client": "bob"}
    assert read(*frames) == [
        {"push": {"channel": "a:1", "join": {"info": bob | {"conn_info": {"b": 1}}}}},
        {"push": {"channel": "a:1", "leave": {"info": bob}}},
    ]
    assert read(*frames, join_leave=False) == []
    assert read(*frames, a=Rules(join_leave=False)) == read(*frames, b=Rules()) == []


def test_the_loss_of_a_room_ends_the_subscription() -> None:
    assert read(event(RoomChanged("r", removed=True, reason="removed"))) == [
        {"push": {"channel": "r", "unsubscribe": {"code": 2000, "reason": "removed"}}}
    ]
    [push] = read(event(RoomChanged("r", removed=True)))
    assert push["push"]["unsubscribe"]["reason"]
    assert read(event(RoomChanged("r"))) == []
    assert read(event(Resync("room:r"))) == []


def test_errors_to_a_number_are_kept_and_other_native_frames_are_not() -> None:
    refused = Refused(Err.NOT_A_MEMBER, "why")
    assert read(encode_error(refused, 4)) == [{"id": 4, "error": {"code": 103, "message": "why"}}]
    assert read(encode_error(refused), encode_error(refused, "x"), encode_reply(4, Reply())) == []
    assert read(event(HeartbeatAck()), event(TypingStarted("r", "ann", None, 5))) == []


def test_frames_of_the_protocol_and_control_frames_stay() -> None:
    dialect = CentrifugeDialect(Namespaces({}))
    both = PING_FRAME + pong_frame(b'{"type":"x"}')
    assert dialect.read(both).frames == both
