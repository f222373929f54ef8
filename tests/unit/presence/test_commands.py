"""Commands of presence: charged by the number of users, and answered by the services."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.errors import Refused
from greendot.node.commands import CommandTable
from greendot.node.session import Connection
from greendot.presence.commands import PresenceCommands
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.protocol.commands import Command
from unit.node_parts import Client, NodeParts, entries_of, in_virtual_time, pass_time

BURST_S = 1.0
LIMITS = {"limits": {"connection_watches_per_s": 3, "burst_s": BURST_S}}


class Commands:
    """Table of presence commands, and a list of connections that were hidden."""

    def __init__(self, table: CommandTable, hidden: list[Connection]) -> None:
        self.table = table
        self.hidden = hidden

    async def run(self, client: Client, command: Command) -> Any:
        return await self.table[type(command)](client.connection, client.session, command)  # type: ignore[misc]


async def commands(parts: NodeParts, client: Client) -> Commands:
    node, hidden = parts.node, list[Connection]()
    assert node is not None
    made = PresenceCommands(node.statuses, node.watching, node.rate_limits, hidden.append)
    node.rate_limits.greeted(client.connection, client.session)
    return Commands(made.commands, hidden)


@in_virtual_time
async def test_a_status_is_set_and_answered_as_own_devices_see_it(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.online("ann")
    table = await commands(parts, ann)
    reply = await table.run(ann, wire.StatusSet(status="busy", text="in a call"))
    assert (reply.presence.state, reply.presence.status, reply.presence.status_text) == ("busy", "busy", "in a call")
    assert table.hidden == []


@in_virtual_time
async def test_a_user_who_becomes_invisible_is_hushed_on_that_connection_after_it_is_kept(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.online("ann")
    table = await commands(parts, ann)
    with pytest.raises(Refused):
        await table.run(ann, wire.StatusSet(status="invisible", until=1))
    assert table.hidden == []
    await table.run(ann, wire.StatusSet(status="invisible"))
    assert table.hidden == [ann.connection]


@pytest.mark.parametrize("announcement", ["status", "signals"])
@in_virtual_time
async def test_each_announcement_of_an_invisible_user_ends_typing_whose_stop_is_late(
    parts: NodeParts, announcement: str
) -> None:
    """A node may publish a start until it knows the status, so the second announcement ends typing again."""
    node = await parts.whole()
    await parts.store.put_room("default", "lobby", open=True)
    bob = await parts.greeted("bob")
    await bob.ask(type="room.join", room="lobby")
    parts.engine.typing_start("default", "lobby", "ann", None)
    assert [event["user"] for event in await bob.events("typing.started")] == ["ann"]
    parts.engine._topics.clear()  # the stop is still on its way
    await node.visibility_updates.appliers[announcement](("default", "ann"))
    assert [event["user"] for event in await bob.events("typing.stopped")] == ["ann"]


@in_virtual_time
async def test_watch_and_presence_get_are_charged_for_every_user_from_one_limit(parts: NodeParts) -> None:
    await parts.whole(**LIMITS)
    ann = await parts.online("ann")
    table = await commands(parts, ann)
    await table.run(ann, wire.Watch(users=["bob", "cid"]))
    await table.run(ann, wire.PresenceGet(users=["dan"]))
    reads = parts.engine.count("read")
    for command in (wire.PresenceGet(users=["dan"]), wire.Watch(users=["dan"])):
        with pytest.raises(Refused) as refused:
            await table.run(ann, command)
        assert refused.value.code == Err.RATE_LIMITED
    assert (parts.engine.count("read"), ann.connection.watches) == (reads, {"bob", "cid"})
    await pass_time(1 / 3)
    assert entries_of(await table.run(ann, wire.PresenceGet(users=["dan"])))[0]["user"] == "dan"


@in_virtual_time
async def test_unwatch_costs_nothing_and_ends_watches(parts: NodeParts) -> None:
    await parts.whole(**LIMITS)
    ann = await parts.online("ann")
    table = await commands(parts, ann)
    await table.run(ann, wire.Watch(users=["bob", "cid", "dan"]))
    for _ in range(5):
        assert await table.run(ann, wire.Unwatch(users=["bob", "cid", "eve", "fay"])) is None
    assert ann.connection.watches == {"dan"}
