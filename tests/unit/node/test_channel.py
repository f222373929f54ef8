"""Channels: frames that wait for the listeners of a topic, and listeners that join while frames wait."""

from __future__ import annotations

from typing import Any, cast

from greendot.engine.messages import Topic
from greendot.node.channel import Channel, ChannelWrite, Pending, ReplyKey, RoomKey
from greendot.node.session import Connection


class Listener:
    """Listener that takes offered frames one by one."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, bool, object]] = []

    def send(self, frame: bytes, *, record: bool, key: object) -> None:
        self.got.append((frame, record, key))


def listener() -> Any:
    return cast(Connection, Listener())


def channel(*listeners: Any) -> Channel:
    """Make a channel with listeners that joined one after the other."""
    made = Channel(Topic("room", "default", "lobby"))
    made.listeners = {each: number for number, each in enumerate(listeners, 1)}
    return made


def signal(frame: bytes, key: object = None, joins: int = 9, skip: tuple[Any, ...] = ()) -> Pending:
    return Pending(frame, False, key, skip, joins)


def record(frame: bytes, joins: int = 9) -> Pending:
    return Pending(frame, True, "seq", (), joins)


def frames(pending: list[Pending]) -> list[bytes]:
    return [item.frame for item in pending]


def test_of_signals_with_one_key_the_latest_is_kept_in_the_last_place() -> None:
    busy = channel(listener())
    busy.pending = [signal(b"a1", "a"), signal(b"b1", "b"), signal(b"a2", "a")]
    assert busy.merge() == [b"a1"]
    assert frames(busy.pending) == [b"b1", b"a2"]


def test_records_and_signals_without_a_key_are_never_merged() -> None:
    busy = channel(listener())
    busy.pending = [record(b"1"), signal(b"x"), record(b"2"), signal(b"y"), signal(b"z", 0), signal(b"w", 2)]
    assert busy.merge() == []
    assert frames(busy.pending) == [b"1", b"x", b"2", b"y", b"z", b"w"]


def test_frames_are_taken_once() -> None:
    busy = channel(listener())
    busy.pending = [record(b"1")]
    assert frames(busy.take()) == [b"1"]
    assert busy.take() == []


def test_a_listener_is_owed_what_was_offered_since_it_came_and_not_to_others() -> None:
    early, late, stranger = listener(), listener(), listener()
    busy = channel(early, late)
    busy.pending = [signal(b"old", joins=1), signal(b"not for late", skip=(late,)), signal(b"new", joins=2)]
    assert frames(busy.unwritten(early)) == [b"old", b"not for late", b"new"]
    assert frames(busy.unwritten(late)) == [b"new"]
    assert busy.unwritten(stranger) == []


def test_a_write_under_way_is_owed_to_those_it_has_not_reached() -> None:
    first, second = listener(), listener()
    busy = channel(first, second)
    busy.run = ChannelWrite(busy, [record(b"1"), record(b"2")])
    busy.run.todo, busy.run.at = [first, second], 1
    busy.pending = [record(b"3")]
    assert frames(busy.unwritten(first)) == [b"3"]
    assert frames(busy.unwritten(second)) == [b"1", b"2", b"3"]
    assert busy.waiting == 1 + 2


def test_a_channel_without_frames_has_no_writes_to_make() -> None:
    idle = channel(listener(), listener())
    assert idle.waiting == 0
    idle.run = ChannelWrite(idle, [record(b"1")])
    idle.run.todo, idle.run.at = [*idle.listeners], 200
    assert idle.waiting == 0


def test_one_write_has_all_frames_and_names_listeners_that_get_only_some() -> None:
    early, skipped, late = listener(), listener(), listener()
    write = ChannelWrite(channel(early, skipped, late), [record(b"1", joins=2), signal(b"2", joins=3, skip=(skipped,))])
    assert write.data == b"12"
    assert write.special == {skipped, late}


def test_a_special_listener_gets_its_frames_one_by_one_with_their_kind_and_key() -> None:
    early, late, gone = listener(), listener(), listener()
    busy = channel(early, late)
    write = ChannelWrite(busy, [record(b"1", joins=1), signal(b"2", "k", joins=2), signal(b"3", joins=2, skip=(late,))])
    for each in (early, late, gone):
        write.offer_each(each)
    assert early.got == [(b"1", True, "seq"), (b"2", False, "k"), (b"3", False, None)]
    assert late.got == [(b"2", False, "k")]
    assert gone.got == []


def test_a_write_is_for_listeners_that_were_there_when_its_last_frame_was_offered() -> None:
    early, late, gone = listener(), listener(), listener()
    write = ChannelWrite(channel(early, late), [record(b"1", joins=1), record(b"2", joins=1)])
    assert [write.is_for(each) for each in (early, late, gone)] == [True, False, False]


def test_keys_of_two_rooms_and_of_two_commands_are_different() -> None:
    keys = {
        RoomKey("a", ReplyKey(1)),
        RoomKey("b", ReplyKey(1)),
        RoomKey("a", ReplyKey(2)),
        RoomKey("a", ReplyKey("1")),
    }
    assert len(keys) == 4
    assert RoomKey("a", ReplyKey(1)) in keys
