from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from greendot.errors import Unreadable
from greendot.protocol.codec import encode_event, encode_reply, pong_frame, text_frame
from greendot.protocol.events import (
    EVENTS,
    Event,
    HeartbeatAck,
    InboxBadge,
    NotificationUpdatedV1,
    Refresh,
    RoomMessage,
    Signal,
    TypingStarted,
)
from greendot.protocol.replies import Reply, SendReply
from greendot.protocol.versions import ESSENTIAL, KEPT, KEPT_BYTES, VERSIONS, Dialects, EventVersions, split_frames

NOW = 1_800_000_000_000
UPDATED = "notification.updated"
THROUGH = encode_event(NotificationUpdatedV1("read", ["1-a", "2-b"], 2), NOW)
SOME = encode_event(NotificationUpdatedV1("seen", ["1-a"]), NOW, "trace-1")
OTHERS = [
    encode_event(HeartbeatAck(), NOW),
    encode_event(Signal("ann", None, "x" * 200, body=Raw(b'{"type":"notification.updated","v":1,"data":{}}')), NOW),
    encode_event(RoomMessage("lobby", 1, "m1", "ann", None, Raw(b'"' + b"y" * 70_000 + b'"'), NOW), NOW),
    encode_reply(1, SendReply("m1", 1)),
    encode_reply("x", Reply()),
    pong_frame(b'{"type":"notification.updated","v":1,'),
]


def dialect(**supports: list[int]) -> EventVersions:
    found = Dialects().of({kind.replace("_", "."): versions for kind, versions in supports.items()})
    assert found is not None
    return found


def said(frames: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame[at:]) for frame, at in split_frames(frames)]


# --- choice of versions ---


@pytest.mark.parametrize(
    "supports",
    [
        {},
        {UPDATED: [1]},
        {UPDATED: [1, 99]},
        {UPDATED: [1, 1, 1]},
        {"something.new": [7], "": [], "reply": [2], "error": []},
        {kind: [1] for kind in EVENTS},
    ],
)
def test_a_client_that_reads_version_one_is_like_most(supports: dict[str, list[int]]) -> None:
    assert Dialects().of(supports) is None


@pytest.mark.parametrize("versions", [[2], [1, 2], [2, 1], [3, 2, 1], [2] * 32])
def test_the_newest_version_both_know_is_spoken(versions: list[int]) -> None:
    (told,) = said(dialect(notification_updated=versions).read(THROUGH).frames)
    assert told == {"type": UPDATED, "v": 2, "ts": NOW, "data": {"state": "read", "through": 2}}


def test_clients_of_one_make_share_a_dialect_and_the_last_one_takes_it_along() -> None:
    dialects = Dialects()
    one = dialects.of({UPDATED: [1, 2], "signal": [1], "new": [3]})
    other = dialects.of({UPDATED: [2, 5]})
    assert one is other is not None
    assert dialects.of({UPDATED: [2], "signal": []}) is not one
    assert len(dialects._spoken) == 1
    del one, other
    gc.collect()
    assert len(dialects._spoken) == 0


@pytest.mark.parametrize("kind", sorted(ESSENTIAL))
def test_a_client_that_lacks_a_required_event_is_refused_with_a_sentence(kind: str) -> None:
    for versions in ([], [2], [99, 98]):
        with pytest.raises(Unreadable) as caught:
            Dialects().of({"signal": [1], kind: versions})
        assert (
            str(caught.value)
            == f"this client does not support version 1 of {kind}, which this server sends; update the client"
        )
        assert len(str(caught.value).encode()) <= 123  # the most that fits into a close frame


def test_version_one_of_every_event_is_there_and_it_is_what_is_made_once() -> None:
    assert VERSIONS.keys() == EVENTS.keys()
    assert all(versions[0] == 1 for versions in VERSIONS.values())
    assert {kind.type: kind.v for kind in EVENTS.values()} == {kind: max(found) for kind, found in VERSIONS.items()}


# --- frames in older versions ---


def test_some_are_named_by_their_ids_in_both_versions() -> None:
    (told,) = said(dialect(notification_updated=[2]).read(SOME).frames)
    assert told == {
        "type": UPDATED,
        "v": 2,
        "ts": NOW,
        "data": {"state": "seen", "ids": ["1-a"]},
        "trace": "trace-1",
    }


def test_what_version_one_cannot_name_version_two_can_and_needs_no_fetching() -> None:
    many = encode_event(NotificationUpdatedV1("read", ["1-a"] * 1_000, 5_000), NOW)
    frames = many + encode_event(Refresh(UPDATED), NOW)
    (told,) = said(dialect(notification_updated=[1, 2]).read(frames).frames)
    assert told["data"] == {"state": "read", "through": 5_000}
    others = dialect(signal=[]).read(frames)
    assert others.frames == frames
    assert [event["type"] for event in said(dialect(notification_updated=[3]).read(frames).frames)] == ["refresh"]


@pytest.mark.parametrize("versions", [[], [2], [7, 8]])
def test_what_a_client_cannot_read_at_all_it_is_not_sent(versions: list[int]) -> None:
    typing, badge = encode_event(TypingStarted("lobby", "ann", None, 5_000), NOW), encode_event(InboxBadge(1, 1), NOW)
    found = dialect(typing_started=versions, notification_updated=[1, 2]).read(typing + badge + THROUGH + typing)
    assert [event["type"] for event in said(found.frames)] == ["inbox.badge", UPDATED]
    assert found.unread == ("typing.started",)
    assert dialect(typing_started=versions).read(typing) == (b"", ("typing.started",))


@pytest.mark.parametrize("frame", OTHERS, ids=range(len(OTHERS)))
def test_everything_else_stays_as_it_is_byte_for_byte(frame: bytes) -> None:
    reader = dialect(notification_updated=[2], typing_count=[])
    assert reader.read(frame) == (frame, ())
    (put,) = said(reader.read(THROUGH).frames)
    joined = reader.read(frame + THROUGH + frame).frames
    assert joined.startswith(frame)
    assert joined.endswith(frame)
    assert json.dumps(put).encode().replace(b" ", b"") in joined


def test_what_stays_as_it_is_is_not_copied() -> None:
    frames = b"".join(OTHERS)
    assert dialect(notification_updated=[2]).read(frames).frames is frames


@pytest.mark.parametrize("size", [0, 1, 124, 125, 126, 127, 255, 256, 65_535, 65_536])
def test_joined_frames_are_split_by_their_lengths(size: int) -> None:
    header = 2 if size <= 125 else 4 if size <= 65_535 else 10
    frame = text_frame(b"x" * size)
    assert [*split_frames(THROUGH + frame + frame + SOME)] == [
        (THROUGH, 2),
        (frame, header),
        (frame, header),
        (SOME, 2),
    ]


@given(st.lists(st.sampled_from([*OTHERS, THROUGH, SOME]), max_size=6))
def test_what_was_put_stays_put(frames: list[bytes]) -> None:
    reader = dialect(notification_updated=[2])
    once = reader.read(b"".join(frames))
    assert once.frames == b"".join(reader.read(frame).frames for frame in frames)
    assert reader.read(once.frames) == (once.frames, ())


def test_a_frame_is_put_once_for_all_who_read_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, made = dialect(notification_updated=[2]), []
    put = EventVersions._put
    monkeypatch.setattr(EventVersions, "_put", lambda self, frames: made.append(frames) or put(self, frames))
    for _ in range(100):
        for frame in (THROUGH, SOME, OTHERS[0]):
            reader.read(frame)
    assert made == [THROUGH, SOME, OTHERS[0]]


def test_what_a_dialect_remembers_is_bounded() -> None:
    reader = dialect(notification_updated=[2])
    for number in range(100):
        reader.read(encode_event(NotificationUpdatedV1("read", [], number), NOW))
    reader.read(encode_event(NotificationUpdatedV1("read", ["9" * KEPT_BYTES], 1), NOW))
    assert len(reader._kept) <= KEPT
    assert max(map(len, reader._kept)) <= KEPT_BYTES


def test_the_longest_kept_frame_has_the_documented_length() -> None:
    reader = dialect(notification_updated=[2])
    longest = text_frame(b" " * (KEPT_BYTES - 4))  # without its length header
    reader.read(longest)
    reader.read(text_frame(b" " * (KEPT_BYTES - 3)))
    assert [*reader._kept] == [longest]
    assert len(longest) == KEPT_BYTES


@pytest.mark.parametrize(
    ("supports", "straight"),
    [
        ({UPDATED: [2]}, True),
        ({UPDATED: [], "inbox.badge": [], "notification.created": []}, True),
        ({UPDATED: [2], "signal": []}, False),
        ({"room.message": [2]}, False),
        ({"presence.changed": []}, False),
    ],
)
def test_what_is_written_to_many_is_read_as_it_is_unless_it_could_hold_something_else(
    supports: dict[str, list[int]], straight: bool
) -> None:
    found = Dialects().of(supports)
    assert found is not None
    assert found.straight is straight


def test_every_event_begins_so_that_its_kind_is_found_without_reading_it() -> None:
    class Odd(Event, frozen=True):
        type = "signal"
        v = 12

    assert dialect(signal=[]).read(encode_event(Odd(), NOW, "t")).unread == ("signal",)
