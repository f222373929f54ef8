"""Registry of a node: connections, sessions and users, and their counts by tenant."""

from __future__ import annotations

from greendot.engine.messages import Topic
from greendot.node.registry import MOST_ENDED
from greendot.node.session import Disconnection, Session
from greendot.protocol.commands import ClientInfo
from unit.node_parts import NodeParts, in_virtual_time, settle


@in_virtual_time
async def test_a_user_with_two_sessions_is_counted_once_in_the_tenant(parts: NodeParts) -> None:
    first, second = parts.session("ann"), parts.session("ann", "laptop")
    usage = parts.registry.usage.of("default")
    assert (parts.registry.users, usage.users, len(parts.registry.sessions)) == (1, 1, 2)
    parts.registry.remove(first.session)
    assert (parts.registry.users, usage.users) == (1, 1)
    parts.registry.remove(second.session)
    assert (parts.registry.users, usage.users, parts.registry.sessions_of("default", "ann")) == (0, 0, ())


@in_virtual_time
async def test_a_session_is_removed_once_and_never_in_place_of_another_with_its_id(parts: NodeParts) -> None:
    there = parts.session("ann").session
    same_id = Session(there.id, there.grants, "phone", ClientInfo())
    parts.registry.remove(same_id)
    assert parts.registry.sessions_of("default", "ann") == (there,)
    parts.registry.remove(there)
    parts.registry.remove(there)
    assert (parts.registry.sessions, parts.registry.usage.of("default").users) == ({}, 0)


@in_virtual_time
async def test_the_last_frames_of_the_latest_ended_sessions_are_remembered(parts: NodeParts) -> None:
    registry, sessions = parts.registry, [parts.session("ann", f"d{number}").session for number in range(3)]
    for number, session in enumerate(sessions):
        session.leaving = Disconnection(at=100.0 + number, grace_ms=0, silent_ms=4_000)
        registry.remove(session)
    assert [registry.silent_ms(session.id, 110.0) for session in sessions] == [14_000, 13_000, 12_000]
    assert registry.silent_ms("unknown", 110.0) == 0
    for _ in range(MOST_ENDED - 1):
        session = parts.session("bob").session
        session.leaving = Disconnection(105.0, 0, 0)
        registry.remove(session)
    assert [registry.silent_ms(session.id, 110.0) for session in sessions] == [0, 0, 12_000]


@in_virtual_time
async def test_the_number_of_users_is_known_by_their_number_of_sessions(parts: NodeParts) -> None:
    ann, _, _ = parts.session("ann"), parts.session("ann", "laptop"), parts.session("bob")
    assert {size: users for size, users in parts.registry.sizes.items() if users} == {1: 1, 2: 1}
    parts.registry.remove(ann.session)
    assert {size: users for size, users in parts.registry.sizes.items() if users} == {1: 2}


@in_virtual_time
async def test_users_of_one_tenant_are_none_of_another(parts: NodeParts) -> None:
    parts.session("ann")
    other = parts.session("ann", tenant="acme")
    parts.session("bob", tenant="acme")
    assert parts.registry.tenants == {"default", "acme"}
    assert sorted(parts.registry.users_of("acme")) == ["ann", "bob"]
    assert parts.registry.users_of("default") == ["ann"]
    assert [*parts.registry.connections_of("acme", "ann")] == [other.connection]


@in_virtual_time
async def test_a_session_that_lingers_has_no_connection_among_those_of_its_user(parts: NodeParts) -> None:
    ann, laptop = parts.session("ann"), parts.session("ann", "laptop")
    ann.session.connection = None
    assert [*parts.registry.connections_of("default", "ann")] == [laptop.connection]
    assert len(parts.registry.sessions_of("default", "ann")) == 2


@in_virtual_time
async def test_only_connections_that_listen_to_a_channel_are_in_it(parts: NodeParts) -> None:
    phone, _, bob = parts.session("ann"), parts.session("ann", "laptop"), parts.session("bob")
    channel = parts.context.hub.channel(Topic("watch", "default", "bob"))
    parts.context.hub.attach(channel, phone.connection)
    parts.context.hub.attach(channel, bob.connection)
    assert parts.registry.connections_in(channel, "ann") == [phone.connection]


@in_virtual_time
async def test_a_connection_is_counted_from_the_welcome_to_the_end_of_its_socket(parts: NodeParts) -> None:
    client = parts.session("ann")
    usage = parts.registry.usage.of("default")
    parts.registry.greeted(client.connection, client.session, resumed=True)
    assert (usage.connections, usage.resumed, parts.registry.resumed) == (1, 1, 1)
    parts.registry.ended(client.connection, 1000)
    assert (usage.connections, usage.closes) == (1, {1000: 1})
    parts.registry.gone(client.connection)
    parts.registry.gone(client.connection)
    assert (usage.connections, client.connection.id in parts.registry.connections) == (0, False)


@in_virtual_time
async def test_a_connection_whose_socket_closed_before_the_welcome_is_not_counted(parts: NodeParts) -> None:
    client = parts.session("ann")
    client.cut()
    await settle()
    parts.registry.greeted(client.connection, client.session, resumed=False)
    assert parts.registry.usage.of("default").connections == 0
    parts.registry.ended(client.connection, 1006)
    assert (parts.registry.closes, parts.registry.usage.of("default").closes) == ({1006: 1}, {})
