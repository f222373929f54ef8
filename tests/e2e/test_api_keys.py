"""API keys in the store: scopes, expiry, and isolation of tenants."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.processes import Answer, ask
from greendot.auth.model import SCOPES, Caller, KeyScope, hash_of, text_of
from greendot.http.scopes import NEEDED
from greendot.ids import new_key_id, new_key_secret
from greendot.store.api_keys import OPERATOR, ApiKey, Secret
from greendot.store.read_cache import BELIEVED_S
from greendot.testing import Closed, Served, serving
from greendot.testing.server import API_KEY

UNKNOWN_KEY = "unknown API key; check it, or create one with greendot keys create NAME"
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/presence/query": {"users": ["ann"]},
    "POST /v1/rooms/{room}/messages": {"user": "app", "body": 1},
    "PATCH /v1/rooms/{room}/messages/{seq}": {"body": 1},
    "POST /v1/notifications": {"user": "ann", "kind": "k", "body": 1},
    "POST /v1/signals": {"user": "ann", "kind": "k"},
    "POST /v1/tokens/revoke": {"jti": "none"},
    "PUT /v1/users/{user}/presence/mode": {"mode": "poll"},
    "PUT /v1/users/{user}/devices/{device}": {"provider": "fcm", "token": "t"},
}

QUERIES = {"/v1/rooms/{room}/messages/{seq}/reactions/{reaction}": "?user=ann"}
MISSING = ("{session}", "{seq}", "receipts")  # not there, which the route finds only after authorization


async def make(
    served: Served, *scopes: str, tenant: str = "acme", name: str = "backend", expires_at: int | None = None
) -> str:
    """Create a key as `greendot keys create` does and return its text."""
    id, secret, now = new_key_id(), new_key_secret(), served.clock.now_ms()
    key, kept = ApiKey(tenant, name, scopes, now), Secret(id, hash_of(secret), now, expires_at)
    assert await served.node.store.create_key(key, kept)
    return text_of(id, secret)


async def call(served: Served, key: str, route: str) -> Answer:
    method, path = route.split()
    path = path.format(room="club", user="ann", other="bob", session="none-1", device="phone", seq=1, reaction="x")
    path += QUERIES.get(route.partition(" ")[2], "")
    return await ask(served.port, method, path, BODIES.get(route), Authorization=f"Bearer {key}")


def detail(answer: Answer, status: int) -> str:
    assert answer.status == status, answer
    return str(answer.json()["detail"])


@pytest.mark.parametrize("scope", [*SCOPES, "operator"])
async def test_a_key_opens_the_routes_of_its_scope_and_no_others(scope: KeyScope) -> None:
    async with serving() as served:
        await served.node.store.put_room("acme", "club", receipts=True)
        key = await make(served, scope, tenant=OPERATOR if scope == "operator" else "acme")
        for route, needed in NEEDED.items():
            answer = await call(served, key, route)
            if Caller("acme", frozenset({scope})).may(needed):
                is_missing = answer.status == 404 and any(part in route for part in MISSING)
                assert answer.status in (200, 201, 202, 204) or is_missing, route
                continue
            assert answer.json()["code"] == "forbidden"
            said = detail(answer, 403)
            if needed == "operator":
                assert "--operator" in said
            elif scope == "operator":
                assert "belongs to no tenant" in said
            else:
                assert f"`{needed}`" in said


async def test_a_key_sees_its_own_tenant_only() -> None:
    async with serving() as served:
        acme, rival = await make(served, "admin"), await make(served, "admin", tenant="rival")
        await served.client("ann", claims={"tenant": "acme"})
        for key in (acme, API_KEY):
            put = await ask(served.port, "PUT", "/v1/rooms/club", {"open": True}, Authorization=f"Bearer {key}")
            assert put.status == 200
        assert detail(await call(served, rival, "GET /v1/rooms/{room}"), 404)
        assert (await call(served, rival, "GET /v1/rooms")).json() == {"rooms": []}
        assert (await call(served, acme, "GET /v1/users/{user}/presence")).json()["state"] == "online"
        assert (await call(served, rival, "GET /v1/users/{user}/presence")).json()["state"] == "offline"
        assert (await call(served, API_KEY, "GET /v1/users/{user}/presence")).json()["state"] == "offline"
        assert (await call(served, rival, "GET /v1/users/{user}/sessions")).json()["sessions"] == []
        (session,) = (await call(served, acme, "GET /v1/users/{user}/sessions")).json()["sessions"]
        path = f"/v1/sessions/{session['session']}"
        assert (await ask(served.port, "DELETE", path, Authorization=f"Bearer {rival}")).status == 404
        assert (await ask(served.port, "DELETE", path, Authorization=f"Bearer {acme}")).status == 204


async def test_a_key_ends_within_ten_seconds_of_being_revoked() -> None:
    async with serving() as served:
        key = await make(served, "rooms:read")
        assert (await call(served, key, "GET /v1/rooms")).status == 200
        await served.node.store.remove_key("acme", "backend")
        served.clock.advance(BELIEVED_S)
        assert detail(await call(served, key, "GET /v1/rooms"), 401) == UNKNOWN_KEY


async def test_a_key_that_was_asked_for_before_it_was_made_is_known_ten_seconds_later() -> None:
    async with serving() as served:
        id, secret = new_key_id(), new_key_secret()
        key = text_of(id, secret)
        assert (await call(served, key, "GET /v1/rooms")).status == 401
        await served.node.store.create_key(ApiKey("acme", "a", ("admin",), 1), Secret(id, hash_of(secret), 1))
        assert (await call(served, key, "GET /v1/rooms")).status == 401  # an unknown key is cached as unknown
        served.clock.advance(BELIEVED_S)
        assert (await call(served, key, "GET /v1/rooms")).status == 200


async def test_two_secrets_of_a_key_overlap_without_a_gap() -> None:
    async with serving() as served:
        old = await make(served, "rooms:read")
        assert (await call(served, old, "GET /v1/rooms")).status == 200
        id, secret, now = new_key_id(), new_key_secret(), served.clock.now_ms()
        kept = Secret(id, hash_of(secret), now)
        assert await served.node.store.rotate_key("acme", "backend", kept, old_ends_at=now + 3_600_000)
        new = text_of(id, secret)
        for _ in range(60):
            assert [(await call(served, key, "GET /v1/rooms")).status for key in (old, new)] == [200, 200]
            served.clock.advance(59.99)
        served.clock.advance(1)
        assert "has expired" in detail(await call(served, old, "GET /v1/rooms"), 401)
        assert (await call(served, new, "GET /v1/rooms")).status == 200


async def test_a_key_ends_at_its_date_whatever_is_remembered_of_it() -> None:
    async with serving() as served:
        key = await make(served, "rooms:read", expires_at=served.clock.now_ms() + 5_000)
        served.clock.advance(4.999)
        assert (await call(served, key, "GET /v1/rooms")).status == 200
        served.clock.advance(0.001)
        assert "has expired" in detail(await call(served, key, "GET /v1/rooms"), 401)


async def test_the_id_of_a_key_is_of_no_use_without_its_secret() -> None:
    async with serving() as served:
        key = await make(served, "admin")
        other = await make(served, "admin", tenant="rival")
        prefix, id, secret = key.split("_")
        for forged in (
            f"{prefix}_{id}_{other.split('_')[2]}",
            f"{prefix}_{id}_{secret[:-1]}{'a' if secret[-1] != 'a' else 'b'}",
            f"{prefix}_{id}_{hash_of(secret).hex()[:43]}",
            f"{prefix}_{id}_{'0' * 43}",
            f"{prefix}_{id}_",
            f"{prefix}_{id}_{secret}{secret}",
            f"{prefix}_{id}_%00",
            f"{prefix}_' OR 1=1 --_{secret}",
        ):
            assert detail(await call(served, forged, "GET /v1/rooms"), 401) == UNKNOWN_KEY
        assert (await call(served, key, "GET /v1/rooms")).status == 200


async def test_when_a_secret_was_used_is_written_down_once_an_hour() -> None:
    async with serving() as served:
        key, store = await make(served, "rooms:read"), served.node.store
        id, began = key.split("_")[1], served.clock.now_ms()

        async def used_at() -> int | None:
            found = await store.key_of_secret(id)
            assert found is not None
            return found[1].used_at

        assert await used_at() is None
        await call(served, "gd_" + id + "_" + "0" * 43, "GET /v1/rooms")
        assert await used_at() is None
        await call(served, key, "GET /v1/rooms")
        assert await used_at() == began
        for _ in range(5):
            served.clock.advance(60)
            await call(served, key, "GET /v1/rooms")
        assert await used_at() == began
        served.clock.advance(3_600)
        await call(served, key, "GET /v1/rooms")
        assert await used_at() == served.clock.now_ms()


async def test_while_the_store_is_away_its_keys_are_503_and_that_of_the_settings_goes_on() -> None:
    async with serving() as served:
        key = await make(served, "admin")
        await served.node.store.close()
        answer = await call(served, key, "GET /v1/presence/online")
        assert (answer.status, answer.json()["code"]) == (503, "unavailable")
        assert (await call(served, API_KEY, "GET /v1/presence/online")).status == 200


# --- counts ---


async def test_a_tenant_receives_its_own_counts_and_an_operator_those_of_the_node() -> None:
    async with serving() as served:
        acme, rival = await make(served, "stats:read"), await make(served, "stats:read", tenant="rival")
        operator = await make(served, "operator", tenant=OPERATOR)
        await served.node.store.put_room("acme", "club", open=True)
        ann = await served.client("ann", claims={"tenant": "acme"})
        await served.client("ann", claims={"tenant": "acme"})
        bob = await served.client("bob", claims={"tenant": "acme"})
        await ann.request(type="room.join", room="club")
        await ann.request(type="room.send", room="club", body=1)
        await ann.receive("room.message")
        ann.send(type="room.send", room="nowhere", body=1, id=1)
        await ann.receive("error")
        counts = (await call(served, acme, "GET /v1/stats")).json()
        node = served.node.incarnation
        assert counts == {"node": node, "tenant": "acme", "connections": 3, "users": 2, "sends": 1, "refused": 1}
        nothing = {"node": node, "tenant": "rival", "connections": 0, "users": 0, "sends": 0, "refused": 0}
        assert (await call(served, rival, "GET /v1/stats")).json() == nothing
        for key in (operator, API_KEY):
            whole = (await call(served, key, "GET /v1/stats")).json()
            assert (whole["connections"], whole["users"]) == (3, 2)
            assert "acme" not in str(whole)
        await bob.end()
        await served.until_gone(2)
        assert (await call(served, acme, "GET /v1/stats")).json()["connections"] == 2
        await served.advance(31)
        assert (await call(served, acme, "GET /v1/stats")).json()["users"] == 1


async def test_metrics_name_tenants_only_where_a_setting_asks_for_it_and_only_known_ones() -> None:
    async with serving() as served:
        await served.client("ann", claims={"tenant": "acme"})
        assert b"acme" not in (await ask(served.port, "GET", "/metrics")).body
    named = {"named": {"limits": {}}}
    async with serving(server={"tenant_metrics": True}, tenants=named) as served:
        await served.node.store.create_tenant("acme", 1)
        for tenant in ("acme", "named", "stranger"):
            await served.client("ann", claims={"tenant": tenant})
        key = await make(served, "notify")
        assert (await call(served, key, "POST /v1/notifications")).status == 201
        text, node = (await ask(served.port, "GET", "/metrics")).body.decode(), served.node.incarnation
        assert f'tenant_connections{{node="{node}",tenant="acme"}} 1.0\n' in text
        assert f'tenant_users_online{{node="{node}",tenant="named"}} 1.0\n' in text
        assert f'tenant_sends_total{{node="{node}",tenant="acme"}} 1.0\n' in text
        assert text.count("# TYPE tenant_connections gauge\n") == 1
        assert "stranger" not in text


# --- registered tenants ---


async def test_where_only_registered_tenants_may_come_others_are_refused() -> None:
    async with serving(auth={"secret": "s" * 32, "tenants": "registered"}, tenants={"named": {"limits": {}}}) as served:
        await served.node.store.create_tenant("acme", 1)
        for tenant in ("acme", "named"):
            assert (await served.client("ann", claims={"tenant": tenant})).welcome["tenant"] == tenant
        for tenant in ("default", "acm", "acme2", "ACME"):
            stranger = await served.socket()
            stranger.send(type="hello", token=served.token("ann", tenant=tenant))
            closed = await stranger.closed()
            assert (closed.code, closed.reason) == (
                4500,
                "the token's tenant is not registered; create it with greendot tenants create TENANT",
            )
        assert len(served.node.registry.sessions) == 2


async def test_users_of_a_tenant_that_is_registered_no_more_are_closed() -> None:
    async with serving(auth={"secret": "s" * 32, "tenants": "registered"}) as served:
        await served.node.store.create_tenant("acme", 1)
        await served.node.store.create_tenant("other", 1)
        ann = await served.client("ann", claims={"tenant": "acme"})
        bob = await served.client("bob", claims={"tenant": "other"})
        await served.advance(25, alive=[ann, bob])
        while await served.node.store.erase_tenant("acme", limit=100):
            pass
        await served.advance(2 * BELIEVED_S, alive=[bob])
        with pytest.raises(Closed) as closed:
            await ann.receive()
        assert closed.value.code == 4501
        bob.send(type="heartbeat")
        await bob.receive("heartbeat.ack")
