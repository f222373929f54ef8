"""Tenants that are admitted: all, or those of the settings and the registered ones."""

from __future__ import annotations

import pytest

from greendot.auth.tenants import MOST_LABELS, Tenants
from greendot.errors import StoreUnavailable, TokenError
from greendot.protocol.codes import Close
from greendot.store.read_cache import BELIEVED_S
from unit.node_parts import NodeParts, in_virtual_time, pass_time


async def tenants(parts: NodeParts, *registered: str, strict: bool = True) -> Tenants:
    for tenant in registered:
        await parts.store.create_tenant(tenant, 1)
    return Tenants(parts.store, parts.context, ["named"], strict=strict)


async def erase(parts: NodeParts, tenant: str) -> None:
    while await parts.store.erase_tenant(tenant, limit=100):
        pass


@in_virtual_time
async def test_any_tenant_may_come_without_a_look_into_the_store(parts: NodeParts) -> None:
    known = await tenants(parts, strict=False)
    known.start()
    await known.admit("whoever")
    await pass_time(3 * BELIEVED_S)
    assert parts.store.count("tenant") == 0


@in_virtual_time
async def test_only_named_and_registered_tenants_may_come(parts: NodeParts) -> None:
    known = await tenants(parts, "acme")
    await known.admit("named")
    assert parts.store.count("tenant") == 0
    await known.admit("acme")
    with pytest.raises(TokenError, match="not registered"):
        await known.admit("other")


@in_virtual_time
async def test_an_answer_is_believed_for_some_seconds(parts: NodeParts) -> None:
    known = await tenants(parts, "acme")
    await known.admit("acme")
    with pytest.raises(TokenError):
        await known.admit("late")
    await erase(parts, "acme")
    await parts.store.create_tenant("late", 1)
    await pass_time(BELIEVED_S - 0.1)
    await known.admit("acme")
    with pytest.raises(TokenError):
        await known.admit("late")
    assert parts.store.count("tenant") == 2
    await pass_time(0.2)
    await known.admit("late")
    with pytest.raises(TokenError):
        await known.admit("acme")


@in_virtual_time
async def test_clients_of_a_tenant_that_is_registered_no_more_are_closed(parts: NodeParts) -> None:
    known = await tenants(parts, "acme", "other")
    clients = [parts.session("ann", tenant=tenant) for tenant in ("acme", "acme", "other", "named")]
    stranger = parts.client()
    known.start()
    await pass_time(BELIEVED_S + 0.1)
    assert [await client.closed() for client in clients] == [None] * 4
    await erase(parts, "acme")
    await pass_time(2 * BELIEVED_S)
    assert [await client.closed() for client in clients] == [Close.REVOKED, Close.REVOKED, None, None]
    assert await stranger.closed() is None


@in_virtual_time
async def test_an_unavailable_store_ends_no_session_and_is_read_again(parts: NodeParts) -> None:
    known = await tenants(parts, "acme")
    client = parts.session("ann", tenant="acme")
    known.start()
    await erase(parts, "acme")
    parts.store.away = {"tenant"}
    await pass_time(3 * BELIEVED_S)
    assert await client.closed() is None
    with pytest.raises(StoreUnavailable):
        await known.admit("acme")
    parts.store.away = set()
    await pass_time(BELIEVED_S)
    assert await client.closed() == Close.REVOKED


@in_virtual_time
async def test_tenants_without_open_connections_are_not_looked_up(parts: NodeParts) -> None:
    known = await tenants(parts, "acme")
    parts.session("ann", tenant="acme").session.connection = None
    known.start()
    await pass_time(2 * BELIEVED_S)
    assert parts.store.count("tenant") == 0


@in_virtual_time
async def test_labels_are_the_named_and_a_bounded_number_of_registered_tenants(parts: NodeParts) -> None:
    known = await tenants(parts, "acme", "beta", strict=False)
    assert await known.labels() == {"named", "acme", "beta"}
    await known.labels()
    assert parts.store.made("tenants") == [(None, MOST_LABELS)]


@in_virtual_time
async def test_labels_are_the_named_tenants_while_the_store_is_away(parts: NodeParts) -> None:
    known = await tenants(parts, "acme")
    parts.store.away = {"tenants"}
    assert await known.labels() == {"named"}
    parts.store.away = set()
    assert await known.labels() == {"named", "acme"}
