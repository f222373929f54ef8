"""Client connections of a node: sockets that open and close, forced disconnection, and clients of old versions."""

from __future__ import annotations

import pytest

from greendot.connect.connections import LONGEST_S
from greendot.engine.messages import Disconnect, Topic
from greendot.errors import EngineUnavailable
from greendot.presence.deadlines import HELLO_S
from greendot.presence.model import SessionEpoch
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.events import InboxBadge
from greendot.protocol.versions import EventVersions
from unit.node_parts import Client, NodeParts, held, in_virtual_time, pass_time, settle

GRACE_S, CLEAN_S = 30.0, 5.0


# --- sockets open ---


@in_virtual_time
async def test_connections_have_ids_of_their_own_and_hashes_in_place_of_addresses(parts: NodeParts) -> None:
    node = await parts.whole()
    one, other = (node.connections.connect("agent", address="192.0.2.7") for _ in range(2))
    third = node.connections.connect(None, address="192.0.2.8")
    assert len({one.id, other.id, third.id}) == 3
    assert all(made.id.startswith(f"{parts.incarnation}/") for made in (one, other, third))
    assert one.ip_hash == other.ip_hash != third.ip_hash
    assert (one.agent_hash is not None, third.agent_hash) == (True, None)
    assert "192" not in str(one.ip_hash)


@in_virtual_time
async def test_a_socket_is_registered_limited_and_must_send_hello(parts: NodeParts) -> None:
    node = await parts.whole()
    client = parts.client()
    assert parts.registry.connections == {client.connection.id: client.connection}
    assert (node.hello.strangers, client.connection.limit is not None) == ({client.connection}, True)
    await pass_time(HELLO_S + 0.1)
    assert await client.closed() == Close.PROTOCOL_ERROR


@in_virtual_time
async def test_new_sockets_are_refused_while_too_many_have_not_sent_a_hello(parts: NodeParts) -> None:
    node = await parts.whole(admission={"strangers": 2})
    first, _ = parts.client(), parts.client()
    stay_s = node.connections.crowded_s()
    assert stay_s is not None
    assert stay_s > 0
    assert parts.metrics.realtime_upgrades_refused_total == 1
    first.say(type="hello", token=parts.token("ann"))
    await settle()
    assert node.connections.crowded_s() is None


@in_virtual_time
async def test_a_socket_that_opens_while_the_node_drains_is_turned_away(parts: NodeParts) -> None:
    node = await parts.whole()
    await node.drain(1.0)
    late = parts.client()
    assert [frame["type"] for frame in await late.frames()] == ["drain", "close"]


# --- sockets close ---


@in_virtual_time
async def test_the_end_of_a_connection_ends_its_watches_and_its_session_lingers(parts: NodeParts) -> None:
    node = await parts.whole(presence={"grace_s": GRACE_S})
    ann = await parts.greeted("ann")
    await ann.ask(type="watch", users=["bob"])
    session = ann.session
    ann.cut()
    await settle()
    watched = node.watching.watched(Topic("watch", "default", "bob"))
    assert watched is not None
    assert (watched.is_wanted, session.connection, session.id in parts.registry.sessions) == (False, None, True)
    assert (parts.registry.connections, parts.registry.closes) == ({}, {1006: 1})
    await pass_time(GRACE_S + 0.1)
    assert parts.registry.sessions == {}


@in_virtual_time
async def test_a_watch_under_way_when_the_socket_ends_leaves_nothing_behind(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await parts.greeted("ann")
    async with held(parts.engine, "read"):
        ann.say(type="watch", users=["bob"])
        ann.cut()
        await settle()
        assert ann.session.connection is ann.connection  # cleanup follows when the command has ended
    await settle()
    watched = node.watching.watched(Topic("watch", "default", "bob"))
    assert watched is not None
    assert (watched.is_wanted, ann.session.connection) == (False, None)


@in_virtual_time
async def test_a_close_behind_a_bye_that_waits_ends_the_session_without_a_grace(parts: NodeParts) -> None:
    await parts.whole(presence={"clean_grace_s": CLEAN_S})
    ann, bob = await parts.greeted("ann"), await parts.greeted("bob")
    async with held(parts.store, "rooms_of"):
        for client in (ann, bob):
            client.say(type="room.list")
        ann.say(type="bye")
        for client in (ann, bob):
            client.connection.on_client_close(Close.GOING_AWAY)
        await settle()
    await settle()
    assert await parts.states("ann", "bob") == ["offline", "online"]
    assert parts.registry.usage.of("default").closes == {1001: 2}


@in_virtual_time
async def test_a_socket_that_ends_while_its_hello_waits_is_forgotten(parts: NodeParts) -> None:
    node = await parts.whole(admission={"hellos_at_once": 1})
    async with held(parts.engine, "touch"):
        await parts.greeted("ann")
        bob = await parts.greeted("bob")
        bob.cut()
        await settle()
        assert (node.hello.waiting, bob.connection.waiting, bob.connection.timer) == (0, None, None)
        assert bob.connection.id not in parts.registry.connections


@in_virtual_time
async def test_a_client_that_was_too_slow_is_counted_by_itself(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.greeted("ann")
    ann.connection.close(Close.TOO_SLOW)
    assert parts.metrics.realtime_client_slow_closed_total == 1
    assert parts.registry.closes == {Close.TOO_SLOW: 1}


# --- disconnection ---


@in_virtual_time
async def test_a_session_is_disconnected_for_its_own_tenant_only(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await ann.frames()
    session = ann.session.id
    assert not await node.connections.disconnect(session, Close.DISCONNECTED, "by the app", "acme")
    assert await ann.closed() is None
    assert await node.connections.disconnect(session, Close.DISCONNECTED, "by the app", "default")
    assert await ann.closed() == Close.DISCONNECTED
    assert not await node.connections.disconnect(session, Close.DISCONNECTED, "by the app", "default")


@in_virtual_time
async def test_a_session_of_another_node_is_disconnected_by_that_node(parts: NodeParts) -> None:
    node = await parts.whole()
    assert not await node.connections.disconnect("OTHR-1", Close.DISCONNECTED, "by the app", "default")
    assert parts.engine.made("reach") == [("OTHR", Disconnect("OTHR-1", Close.DISCONNECTED, "by the app", "default"))]
    assert not await node.connections.disconnect(f"{parts.incarnation}-gone", Close.DISCONNECTED, "", "default")
    assert parts.engine.count("reach") == 1


@in_virtual_time
async def test_a_session_of_a_live_node_that_receives_nothing_is_not_unknown(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await parts.whole()
    monkeypatch.setattr(parts.engine, "live_nodes", lambda: ["OTHR"])
    with pytest.raises(EngineUnavailable, match="receives no messages now"):
        await node.connections.disconnect("OTHR-1", Close.DISCONNECTED, "by the app", "default")


@in_virtual_time
async def test_a_node_that_receives_nothing_keeps_no_session_of_other_nodes_open(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, ann = await parts.whole(), await parts.greeted("ann")
    monkeypatch.setattr(parts.engine, "live_nodes", lambda: ["OTHR"])
    with pytest.raises(EngineUnavailable):
        await node.disconnect_all(["OTHR-1", ann.session.id], Close.DISCONNECTED, "by the app", "default")
    assert await ann.closed() == Close.DISCONNECTED


@in_virtual_time
async def test_a_session_that_goes_on_elsewhere_is_over_here_without_a_grace(parts: NodeParts) -> None:
    await parts.whole(presence={"grace_s": GRACE_S})
    ann, bob = await parts.greeted("ann"), await parts.greeted("bob")
    sessions = [ann.session.id, bob.session.id]
    bob.cut()
    await settle()
    own, other = Topic("node", "", parts.incarnation), parts.engine.other_node()
    for user, session in zip(("ann", "bob"), sessions, strict=True):
        await parts.engine.adopt("default", user, session, SessionEpoch(f"{other}-{user}", other, 1))
        parts.engine.publish(own, Disconnect(session, Close.REPLACED, "replaced by a resume", "default"))
    await settle()
    assert await ann.closed() == Close.REPLACED
    assert [session in parts.registry.sessions for session in sessions] == [False, False]
    assert await parts.states("ann", "bob") == ["online", "online"]


@in_virtual_time
async def test_a_session_is_cut_as_by_a_broken_network(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await parts.greeted("ann")
    await ann.frames()
    session = ann.session.id
    assert node.connections.cut(session)
    assert await ann.frames() == []
    assert (node.connections.cut(session), node.connections.cut("unknown")) == (False, False)
    assert session in parts.registry.sessions


# --- old versions ---


async def old_client(parts: NodeParts) -> Client:
    """Make a client that supports no version of badges."""
    client = await parts.greeted("ann")
    client.connection.dialect = EventVersions({InboxBadge.type: 0})
    await client.frames()
    return client


@in_virtual_time
async def test_a_client_that_cannot_read_an_event_receives_one_refresh_after_a_delay(parts: NodeParts) -> None:
    await parts.whole()
    ann = await old_client(parts)
    for number in range(5):
        ann.connection.send(encode_event(InboxBadge(number, number), 1))
    await pass_time(LONGEST_S / 2 - 0.1)
    assert await ann.frames() == []
    await pass_time(LONGEST_S / 2 + 0.2)
    assert [event["of"] for event in await ann.events("refresh")] == [InboxBadge.type]
    ann.connection.send(encode_event(InboxBadge(9, 9), 1))
    await pass_time(LONGEST_S + 0.1)
    assert [event["of"] for event in await ann.events("refresh")] == [InboxBadge.type]


@in_virtual_time
async def test_a_client_that_leaves_before_its_refresh_causes_no_error(parts: NodeParts) -> None:
    await parts.whole()
    ann = await old_client(parts)
    ann.connection.send(encode_event(InboxBadge(1, 1), 1))
    ann.cut()
    await pass_time(LONGEST_S + 0.1)
    assert await ann.frames() == []
