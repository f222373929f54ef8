"""Connection limits per user and per tenant on a node."""

from __future__ import annotations

import pytest

from greendot.limits.claim_model import BEGINNING_S
from greendot.limits.connection_limits import ConnectionLimits, TooManyConnections
from greendot.limits.model import Quota
from greendot.limits.rate_limits import RateLimits
from greendot.node.session import Session
from greendot.protocol.commands import ClientInfo, Hello, Resume
from unit.node_parts import Client, NodeParts, in_virtual_time, settle


class Entrance(ConnectionLimits):
    """Connection limits on the parts of a node, with clients that send hello."""

    def __init__(self, parts: NodeParts, per_user: int = 0, per_tenant: int = 0) -> None:
        self.parts = parts
        quota = Quota(False, (1, 1), 1.0, {}, 1, 1, (per_user, per_tenant))
        limits = RateLimits(quota, {}, parts.clock, parts.metrics, parts.registry.usage)
        super().__init__(parts.registry, limits)

    def enter(self, user: str = "ann", *, resume: str | None = None, tenant: str = "default") -> Client:
        """Connect a client and give it a session."""
        client = self.parts.client()
        grants = self.parts.grants(user, tenant=tenant)
        hello = Hello(resume=None if resume is None else Resume(session=resume))
        with self.entering(client.connection, grants, hello):
            session = self.parts.registry.sessions.get(resume or "")
            if session is None:
                session = Session(f"n-{client.connection.id}", grants, "phone", ClientInfo())
                self.parts.registry.add(session)
            session.connection, client.connection.session = client.connection, session
        return client


@in_virtual_time
async def test_the_number_of_connections_is_limited_per_user(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_user=2)
    entrance.enter()
    entrance.enter()
    with pytest.raises(TooManyConnections, match="this user"):
        entrance.enter()
    entrance.enter("bob")
    entrance.enter(tenant="acme")


@in_virtual_time
async def test_a_session_that_lingers_has_no_connection_to_be_counted(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_user=1)
    entrance.enter().session.connection = None
    entrance.enter()
    with pytest.raises(TooManyConnections):
        entrance.enter()


@in_virtual_time
async def test_the_connection_that_a_resume_replaces_is_not_counted(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_user=1)
    there = entrance.enter().session
    entrance.enter(resume=there.id)
    with pytest.raises(TooManyConnections):
        entrance.enter(resume="n-unknown")


@in_virtual_time
async def test_a_tenant_at_its_limit_takes_a_user_back_whose_old_connection_is_replaced(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_tenant=1)
    there = entrance.enter().session
    with pytest.raises(TooManyConnections, match="this tenant"):
        entrance.enter("bob", resume=there.id)  # the session of another user
    with pytest.raises(TooManyConnections):
        entrance.enter(resume="n-unknown")
    entrance.enter(resume=there.id)
    entrance.enter(resume=there.id)
    assert entrance.counts == {"default": 1}


@in_virtual_time
async def test_a_connection_beyond_the_claim_of_the_node_is_replaced_too(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_tenant=4)
    clients = [entrance.enter(user) for user in ("ann", "bob", "cid")]
    for now in (0.0, BEGINNING_S):
        entrance.claims.meet("NODE", ["PEER"], now)
    with pytest.raises(TooManyConnections) as refused:
        entrance.enter("dan")
    assert refused.value.soon
    again = entrance.enter("ann", resume=clients[0].session.id)
    assert entrance.counts == {"default": 3}
    entrance.gone(clients[0].connection)
    assert entrance.counts == {"default": 3}
    entrance.gone(again.connection)
    assert entrance.counts == {"default": 2}


@in_virtual_time
async def test_a_connection_that_was_not_replaced_after_all_is_counted_again(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_tenant=1)
    there, coming = entrance.enter(), parts.client()
    hello = Hello(resume=Resume(session=there.session.id))
    with (
        entrance.entering(coming.connection, parts.grants("ann"), hello),
        pytest.raises(TooManyConnections),  # it is replaced once only
    ):
        entrance.enter(resume=there.session.id)
    assert entrance.counts == {"default": 2}
    entrance.gone(coming.connection)
    entrance.gone(there.connection)
    assert entrance.tenants == 0


@in_virtual_time
async def test_connections_on_their_way_in_count_until_they_have_a_session(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_user=1)
    coming = parts.client()
    with entrance.entering(coming.connection, parts.grants("ann"), Hello()):
        with pytest.raises(TooManyConnections):
            entrance.enter()
        coming.connection.session = Session("n-1", parts.grants("ann"), "phone", ClientInfo())
        entrance.enter()  # this connection is now counted by its session
    with pytest.raises(TooManyConnections):
        entrance.enter()


@in_virtual_time
async def test_a_connection_that_failed_on_its_way_in_is_counted_no_longer(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_user=1)
    with (
        pytest.raises(KeyError),
        entrance.entering(parts.client().connection, parts.grants("ann"), Hello()),
    ):
        raise KeyError
    entrance.enter()


@in_virtual_time
async def test_the_number_of_connections_of_a_tenant_is_limited_until_sockets_are_closed(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_tenant=2)
    first, _ = entrance.enter("ann"), entrance.enter("bob")
    with pytest.raises(TooManyConnections, match="this tenant"):
        entrance.enter("cid")
    entrance.enter("cid", tenant="acme")
    assert entrance.tenants == 2
    entrance.gone(first.connection)
    entrance.gone(first.connection)
    entrance.enter("cid")
    with pytest.raises(TooManyConnections):
        entrance.enter("dan")


@in_virtual_time
async def test_a_tenant_without_connections_is_not_kept(parts: NodeParts) -> None:
    entrance = Entrance(parts, per_tenant=2)
    client = entrance.enter()
    entrance.gone(client.connection)
    assert entrance.tenants == 0
    entrance.gone(parts.client().connection)  # a connection that was never counted
    assert entrance.tenants == 0


@in_virtual_time
async def test_a_socket_that_is_closed_already_is_not_counted_for_ever(parts: NodeParts) -> None:
    entrance, client = Entrance(parts, per_tenant=1), parts.client()
    client.cut()
    await settle()
    with entrance.entering(client.connection, parts.grants("ann"), Hello()):
        pass
    assert entrance.tenants == 0
    entrance.enter()


@in_virtual_time
async def test_tenants_without_a_limit_are_not_counted(parts: NodeParts) -> None:
    entrance = Entrance(parts)
    for _ in range(20):
        entrance.enter()
    assert entrance.tenants == 0
