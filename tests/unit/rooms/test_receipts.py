"""Read markers and receipts, with parts of one node."""

from __future__ import annotations

import pytest

from greendot.engine.messages import Receipt
from greendot.errors import Refused, StoreUnavailable
from greendot.protocol.commands import RoomRead
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time


async def read(parts: Parts, connection: RecordedConnection, seq: int) -> int:
    reply = await parts.receipts.read(connection, connection.session, RoomRead(room="lobby", seq=seq))
    return reply.unread


@in_virtual_time
async def test_a_read_marker_is_published_to_the_other_devices_of_its_user(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    phone, laptop, bob = [await parts.connect(user) for user in ("ann", "ann", "bob")]
    await parts.write("lobby", 3)
    unread = [await read(parts, phone, seq) for seq in (2, 1, 9)]
    await parts.settle()
    assert unread == [1, 1, 0]  # the marker never moves back, and never beyond the head
    told = laptop.data("room.changed")
    assert [(data["read"], data["unread"]) for data in told] == [(2, 1), (2, 1), (3, 0)]
    assert (phone.take(), bob.take()) == ([], [])
    stranger = await parts.connect("cid")
    with pytest.raises(Refused):
        await read(parts, stranger, 1)


@in_virtual_time
async def test_a_receipt_that_cannot_be_read_is_lost_and_the_next_one_is_published(parts: Parts) -> None:
    await parts.room("lobby", "ann", "bob")
    await parts.store.put_room(TENANT, "lobby", receipts=True)
    await parts.write("lobby", 3)
    ann = await parts.connect("ann")
    parts.store.thread.failing["readers"] = StoreUnavailable("away")
    assert await read(parts, ann, 1) == 2
    await parts.settle()
    assert parts.engine.sent(Receipt) == []
    del parts.store.thread.failing["readers"]
    await read(parts, ann, 2)
    await parts.timers.sleep(1.1)
    await parts.settle()
    assert parts.engine.sent(Receipt) == [Receipt("ann", 2)]
