"""Connection limits of users and tenants; closed connections are subtracted."""

from __future__ import annotations

import asyncio

from greendot.testing import Served, WireClient, serving


async def refused(served: Served, user: str, tenant: str = "default", **hello: object) -> tuple[int, str]:
    client = await served.socket()
    client.send(type="hello", token=served.token(user, tenant=tenant), **hello)
    assert 15_000 <= (await client.receive("overloaded"))["data"]["retry_in_ms"] <= 30_000
    closed = await client.closed()
    return closed.code, closed.reason


async def joined(served: Served, user: str, tenant: str = "default", **hello: object) -> WireClient:
    return await served.client(user, claims={"tenant": tenant}, **hello)


async def test_a_user_at_the_connection_limit_is_refused_with_the_advice_to_reconnect_later() -> None:
    async with serving(limits={"user_connections": 2}) as served:
        first, second = await joined(served, "alice"), await joined(served, "alice")
        assert await refused(served, "alice") == (
            4003,
            "this user has reached the connection limit; close a connection or reconnect later",
        )
        await joined(served, "bob")
        await joined(served, "alice", "acme")  # another user: the tenant differs
        assert await first.quiet() == await second.quiet() == []
        await first.close()
        await served.until_gone(3)
        await joined(served, "alice")
        assert await refused(served, "alice") == (
            4003,
            "this user has reached the connection limit; close a connection or reconnect later",
        )


async def test_who_comes_back_to_a_session_replaces_it_and_is_not_one_more() -> None:
    async with serving(limits={"user_connections": 1, "tenant_connections": 2}) as served:
        alice = await joined(served, "alice")
        again = await joined(served, "alice", resume={"session": alice.welcome["session"]})
        assert again.welcome["resumed"] is True
        assert (await alice.closed()).code == 4505
        await served.until_gone(1)
        another = {"session": "no-such-session"}
        assert await refused(served, "alice", resume=another) == (
            4003,
            "this user has reached the connection limit; close a connection or reconnect later",
        )


async def test_many_hellos_at_once_do_not_get_past_the_limit() -> None:
    async with serving(limits={"user_connections": 3, "tenant_connections": 5}) as served:
        for tenant, users, most in (("one", ["alice"] * 12, 3), ("two", [f"user{i}" for i in range(12)], 5)):
            clients = [await served.socket() for _ in users]
            for number, (client, user) in enumerate(zip(clients, users, strict=True)):
                resume = {"session": f"elsewhere-{number}"} if number % 2 else None
                more = {} if resume is None else {"resume": resume}
                client.send(type="hello", token=served.token(user, tenant=tenant), **more)
            answers = await asyncio.gather(*(client.receive() for client in clients))
            assert sorted(answer["type"] for answer in answers) == ["overloaded"] * (12 - most) + ["welcome"] * most


async def test_a_tenant_has_its_own_number_and_it_is_counted_down_when_sockets_go() -> None:
    own = {"acme": {"limits": {"tenant_connections": 2}}}
    async with serving(tenants=own) as served:
        users = [await joined(served, f"user{number}", "acme") for number in range(2)]
        assert await refused(served, "late", "acme") == (
            4003,
            "this tenant has reached the connection limit; reconnect later",
        )
        for number in range(4):
            await joined(served, f"user{number}", "other")
        await users[0].reset()
        await served.until_gone(5)
        await joined(served, "late", "acme")
        assert await refused(served, "later", "acme") == (
            4003,
            "this tenant has reached the connection limit; reconnect later",
        )
        await served.close_clients()
        await served.until_gone()
        assert served.node.connection_limits.tenants == 0


async def test_a_hello_that_is_refused_leaves_nothing_behind() -> None:
    async with serving(limits={"user_connections": 1, "tenant_connections": 1}) as served:
        alice = await joined(served, "alice")
        for user in ("alice", "bob"):
            await refused(served, user)
        await served.until_gone(1)
        assert len(served.node.registry.sessions) == 1
        await alice.close()
        await served.until_gone()
        assert served.node.connection_limits.tenants == 0
        assert served.node.connection_limits._coming == {}
