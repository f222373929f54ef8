"""Deadlines of a connection: one timer for hello, silence, end of the token and idle user."""

from __future__ import annotations

from typing import Any

from greendot.ids import new_session_id
from greendot.node.session import Session
from greendot.presence.deadlines import HELLO_S, ConnectionDeadlines
from greendot.presence.grace_model import Graces, SessionPeriods
from greendot.protocol.codes import Close
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time

DEAD_S, IDLE_S, LEEWAY_S = 60.0, 300.0, 3.0
PERIODS = SessionPeriods(DEAD_S, IDLE_S, Graces(20.0, 5.0, 2.0), LEEWAY_S)
SHORTLY_S = 0.05


class Deadlines(ConnectionDeadlines):
    """Deadlines on the parts of a node, with a list of sessions that became idle."""

    def __init__(self, parts: NodeParts) -> None:
        self.parts = parts
        self.idle: list[Session] = []
        super().__init__(parts.context, PERIODS, self._set_idle)

    def _set_idle(self, session: Session) -> None:
        session.idle = True
        self.idle.append(session)

    def enter(self, user: str = "ann", **claims: Any) -> Client:
        """Open a connection with a session, as after a hello."""
        client = self.parts.client()
        session = Session(new_session_id(self.parts.incarnation), self.parts.grants(user, **claims), "phone", None)
        session.active_at = self.parts.clock.monotonic()
        session.connection, client.connection.session = client.connection, session
        self.arm(client.connection)
        return client


@in_virtual_time
async def test_a_socket_that_sends_no_hello_is_closed(parts: NodeParts) -> None:
    deadlines, client = Deadlines(parts), parts.client()
    deadlines.expect_hello(client.connection)
    await pass_time(HELLO_S - SHORTLY_S)
    assert await client.closed() is None
    await pass_time(2 * SHORTLY_S)
    assert await client.closed() == Close.PROTOCOL_ERROR


@in_virtual_time
async def test_a_silent_connection_is_closed_and_an_active_one_is_not(parts: NodeParts) -> None:
    deadlines = Deadlines(parts)
    silent, alive = deadlines.enter("ann"), deadlines.enter("bob")
    await pass_time(DEAD_S - 1)
    alive.connection.on_received()
    await pass_time(1 + SHORTLY_S)
    assert (await silent.closed(), await alive.closed()) == (Close.HEARTBEAT_LOST, None)
    await pass_time(DEAD_S - 1)
    assert await alive.closed() == Close.HEARTBEAT_LOST


@in_virtual_time
async def test_a_connection_is_closed_when_its_token_and_the_leeway_have_ended(parts: NodeParts) -> None:
    client = Deadlines(parts).enter(expires_at=parts.clock.now_ms() + 10_000)
    await pass_time(10 + LEEWAY_S - SHORTLY_S)
    assert await client.closed() is None
    await pass_time(2 * SHORTLY_S)
    assert await client.closed() == Close.TOKEN_EXPIRED


@in_virtual_time
async def test_a_new_token_that_ends_earlier_ends_the_connection_earlier(parts: NodeParts) -> None:
    deadlines = Deadlines(parts)
    client = deadlines.enter(expires_at=parts.clock.now_ms() + 50_000)
    client.session.grants = parts.grants("ann", expires_at=parts.clock.now_ms() + 10_000)
    deadlines.rearm(client.session)
    await pass_time(10 + LEEWAY_S + SHORTLY_S)
    assert await client.closed() == Close.TOKEN_EXPIRED


@in_virtual_time
async def test_a_user_without_activity_is_idle_although_heartbeats_arrive(parts: NodeParts) -> None:
    deadlines = Deadlines(parts)
    client = deadlines.enter()
    for _ in range(12):
        assert deadlines.idle == []
        await pass_time(IDLE_S / 12)
        client.connection.on_received()
    await pass_time(SHORTLY_S)
    assert deadlines.idle == [client.session]
