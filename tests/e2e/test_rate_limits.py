"""Limits per connection, user, room and tenant: the refused client, its error, and unaffected clients.

test_bad_input.py has the limit of a connection's commands and the consequences of ignoring it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from e2e.test_api_keys import make as make_key
from e2e.test_bad_input import flood
from e2e.test_http import Backend, is_problem
from greendot.store.inbox import Inbox
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import COMINGS

SEND = {"type": "room.send", "room": "lobby", "body": {}}
SIGNAL = {"type": "signal.send", "room": "lobby", "kind": "wave"}
TYPING = {"type": "typing.start", "room": "lobby"}
WATCH = {"type": "watch", "users": ["bob"]}


@asynccontextmanager
async def limited(**limits: Any) -> AsyncIterator[Served]:
    """Run a server with these limits, a burst of one second, and the open rooms lobby and attic."""
    tenants = limits.pop("tenants", {})
    async with serving(limits={"burst_s": 1.0} | limits, tenants=tenants) as served:
        for tenant in ("default", "acme"):
            for room in ("lobby", "attic"):
                await served.node.store.put_room(tenant, room, open=True)
        yield served


async def tried(client: WireClient, count: int, **command: Any) -> list[dict[str, Any]]:
    """Send a command `count` times and return the errors among the replies, in order."""
    for number in range(count):
        client.send(**command, id=f"try {number}")
    answers: list[dict[str, Any]] = []
    while len(answers) < count:
        frame = await client.receive()
        if str(frame.get("id")).startswith("try "):
            answers.append(frame)
    return [frame for frame in answers if frame["type"] == "error"]


async def passes(client: WireClient, count: int, **command: Any) -> None:
    assert await tried(client, count, **command) == []


def limited_total(served: Served, scope: str) -> int:
    found: int = dict(served.node.metrics_items())[f"realtime_rate_limited_{scope}_total"]
    return found


# --- each limit ---

EVERY = [
    ("user_commands_per_s", {"type": "activity"}, "this user's devices together send more than 5 commands/s"),
    ("tenant_commands_per_s", {"type": "activity"}, "this tenant sends more than 5 commands/s"),
    ("connection_signals_per_s", SIGNAL, "this connection sends more than 5 signals/s"),
    ("user_signals_per_s", SIGNAL, "this user's devices together send more than 5 signals/s"),
    ("room_signals_per_s", SIGNAL, "room `lobby` receives more than 5 signals/s"),
    ("tenant_signals_per_s", SIGNAL, "this tenant sends more than 5 signals/s"),
    ("connection_sends_per_s", SEND, "this connection sends more than 5 messages/s"),
    ("user_sends_per_s", SEND, "this user's devices together send more than 5 messages/s"),
    ("room_sends_per_s", SEND, "room `lobby` receives more than 5 messages/s"),
    ("tenant_sends_per_s", SEND, "this tenant sends more than 5 messages/s"),
    ("connection_watches_per_s", WATCH, "this connection sends more than 5 user lookups/s"),
    ("user_watches_per_s", WATCH, "this user's devices together send more than 5 user lookups/s"),
    ("tenant_watches_per_s", WATCH, "this tenant sends more than 5 user lookups/s"),
]


@pytest.mark.parametrize(("limit", "command", "said"), EVERY, ids=[limit for limit, _, _ in EVERY])
async def test_what_is_over_a_limit_is_refused_with_the_limit_and_the_time_to_wait(
    limit: str, command: dict[str, Any], said: str
) -> None:
    async with limited(**{limit: 5}) as served:
        alice = await served.joined("alice")
        await served.advance(1)  # the join was a command, too
        errors = await tried(alice, 8, **command)
        assert len(errors) == 3
        for error in errors:
            assert (error["code"], error["retry"], error["retry_in_ms"]) == ("rate_limited", True, 200)
            assert error["message"] == f"{said}; retry after 200 ms"
        assert limited_total(served, limit.split("_")[0]) == 3
        await served.advance(0.199)
        assert len(await tried(alice, 1, **command)) == 1
        await served.advance(0.001)
        await passes(alice, 1, **command)


@pytest.mark.parametrize("scope", ["connection", "user", "room", "tenant"])
@pytest.mark.parametrize("kind", ["typing.start", "typing.stop"])
async def test_typing_over_a_limit_is_dropped_without_a_word(scope: str, kind: str) -> None:
    async with limited(**{f"{scope}_typing_per_s": 5}) as served:
        alice = await served.joined("alice")
        for number in range(8):
            alice.send(type=kind, room="lobby", id=number)
        assert [frame["id"] for frame in await alice.quiet()] == [0, 1, 2, 3, 4]
        assert limited_total(served, scope) == 3


async def test_changes_of_messages_count_like_messages() -> None:
    async with limited(room_sends_per_s=5) as served:
        alice = await served.joined("alice")
        await passes(alice, 2, **SEND)
        await passes(alice, 1, type="room.react", room="lobby", ref=1, reaction="+")
        await passes(alice, 1, type="room.edit", room="lobby", ref=1, body={})
        await passes(alice, 1, type="room.delete", room="lobby", ref=2)
        for command in (
            SEND,
            {"type": "room.edit", "room": "lobby", "ref": 1, "body": {}},
            {"type": "room.delete", "room": "lobby", "ref": 1},
            {"type": "room.react", "room": "lobby", "ref": 1, "reaction": "+"},  # also if it would write nothing
        ):
            (error,) = await tried(alice, 1, **command)
            assert error["code"] == "rate_limited"
        room = await served.node.store.room("default", "lobby")
        assert room is not None
        assert room.head == 5


async def test_watches_are_counted_by_users_and_questions_like_watches() -> None:
    async with limited(user_watches_per_s=10) as served:
        alice = await served.client("alice")
        await passes(alice, 1, type="watch", users=["a", "b", "c", "d"])
        await passes(alice, 1, type="presence.get", users=["a", "b", "c", "d"])
        (error,) = await tried(alice, 1, type="presence.get", users=["a", "b", "c"])
        assert error["retry_in_ms"] == 100
        await passes(alice, 1, type="watch", users=["a", "b"])


async def test_a_list_larger_than_a_burst_passes_when_nothing_was_asked_before_and_the_next_waits_for_it() -> None:
    async with limited(user_watches_per_s=10) as served:
        alice = await served.client("alice")
        users = [f"user{number}" for number in range(100)]
        await passes(alice, 1, type="watch", users=users)
        (error,) = await tried(alice, 1, type="watch", users=["bob"])
        assert error["retry_in_ms"] == 9_100
        await served.advance(9.1, [alice])
        await passes(alice, 1, type="watch", users=["bob"])


async def test_signals_to_users_count_for_the_sender_and_for_no_room() -> None:
    async with limited(user_signals_per_s=5, room_signals_per_s=1) as served:
        alice = await served.joined("alice")
        assert len(await tried(alice, 6, type="signal.send", user="bob", kind="wave")) == 1


# --- shared and separate limits ---


async def test_devices_of_a_user_share_and_others_do_not() -> None:
    async with limited(user_sends_per_s=5) as served:
        phone, laptop = [await served.joined("alice", device=device) for device in ("phone", "laptop")]
        bob = await served.joined("bob")
        await passes(phone, 3, **SEND)
        assert len(await tried(laptop, 3, **SEND)) == 1
        await passes(bob, 5, **SEND)


async def test_all_in_a_room_share_and_other_rooms_do_not() -> None:
    async with limited(room_sends_per_s=5) as served:
        alice, bob = await served.joined("alice"), await served.joined("bob")
        await passes(alice, 4, **SEND)
        (error,) = await tried(bob, 2, **SEND)
        assert "room `lobby`" in error["message"]
        await bob.request(type="room.join", room="attic")
        await passes(bob, 5, **SEND | {"room": "attic"})


async def test_what_a_room_refuses_costs_its_sender_nothing() -> None:
    async with limited(room_sends_per_s=2, user_sends_per_s=6) as served:
        alice = await served.joined("alice")
        for room in ("attic", "cellar", "garden"):
            await served.node.store.put_room("default", room, open=True)
            await alice.request(type="room.join", room=room)
        assert len(await tried(alice, 10, **SEND)) == 8
        await passes(alice, 2, **SEND | {"room": "attic"})
        await passes(alice, 2, **SEND | {"room": "cellar"})
        (error,) = await tried(alice, 1, **SEND | {"room": "garden"})
        assert error["message"].startswith("this user's devices together send more than 6 messages/s")


async def test_tenants_do_not_share_though_users_and_rooms_have_the_same_names() -> None:
    async with limited(tenant_sends_per_s=5, room_sends_per_s=4, user_sends_per_s=3) as served:
        here = await served.joined("alice")
        there = await elsewhere(served, "alice")
        assert len(await tried(here, 10, **SEND)) == 7
        assert len(await tried(there, 10, **SEND)) == 7


async def elsewhere(served: Served, user: str, tenant: str = "acme") -> WireClient:
    """Connect a client to the lobby of another tenant."""
    client = await served.client(user, claims={"tenant": tenant})
    client.deaf_to = COMINGS
    await client.request(type="room.join", room="lobby")
    return client


async def test_non_members_and_readers_do_not_use_up_the_rate_limits_of_a_room() -> None:
    async with limited(room_sends_per_s=3, room_signals_per_s=3, room_typing_per_s=3) as served:
        store = served.node.store
        await store.put_room("default", "closed", open=False)
        await store.put_member("default", "closed", "alice", "member")
        await store.put_member("default", "closed", "reader", "reader")
        alice = await served.joined("alice", "closed")
        stranger, reader = await served.client("stranger"), await served.joined("reader", "closed")
        for command in (SEND, SIGNAL, TYPING):
            for other in (stranger, reader):
                errors = await tried(other, 10, **command | {"room": "closed"})
                assert {error["code"] for error in errors} <= {"not_a_member", "forbidden"}
                assert len(errors) == 10
        for command in (SEND, SIGNAL):
            await passes(alice, 3, **command | {"room": "closed"})
        bob = await served.client("bob")
        await store.put_member("default", "closed", "bob", "member")
        bob.deaf_to = COMINGS
        await bob.request(type="room.join", room="closed")
        alice.send(**TYPING | {"room": "closed"})
        assert (await bob.receive("typing.started"))["data"]["user"] == "alice"


async def test_a_member_who_has_not_joined_is_counted_all_the_same() -> None:
    async with limited(room_signals_per_s=3, room_sends_per_s=3) as served:
        await served.node.store.put_member("default", "lobby", "alice", "member")
        alice = await served.client("alice")
        assert len(await tried(alice, 5, **SIGNAL)) == 2
        assert len(await tried(alice, 5, **SEND)) == 2


async def test_a_tenant_that_is_busy_does_not_keep_its_users_from_staying_or_leaving() -> None:
    async with limited(tenant_commands_per_s=5) as served:
        busy, alice = await served.client("busy"), await served.client("alice")
        assert len(await tried(busy, 20, type="activity")) == 15
        assert len(await tried(alice, 1, type="activity")) == 1
        assert await alice.quiet() == []  # the heartbeat is acknowledged
        await alice.request(type="token.refresh", token=served.token("alice"))
        alice.send(type="bye")
        assert (await alice.closed()).code == 1000


async def test_commands_refused_to_a_connection_are_not_counted_for_its_user_or_tenant() -> None:
    async with limited(commands_per_s=5, commands_burst=6, user_commands_per_s=10, tenant_commands_per_s=11) as served:
        flooder, second = await served.client("alice"), await served.client("alice")
        bob = await served.client("bob")
        assert len(await tried(flooder, 100, type="activity")) == 95
        await passes(second, 5, type="activity")
        await passes(bob, 1, type="activity")
        assert limited_total(served, "connection") == 95


@pytest.mark.parametrize(("count", "code"), [(50, None), (100, 4003)], ids=["of its room's", "of its own"])
async def test_ten_times_the_limit_of_a_room_closes_no_session_but_ten_times_its_own_limit_does(
    count: int, code: int | None
) -> None:
    async with limited(room_signals_per_s=5, commands_per_s=10, commands_burst=10) as served:
        alice = await served.joined("alice")
        for _ in range(11):
            await flood(served, alice, msgspec.json.encode(SIGNAL), count)
            await served.advance(1)
        if code is not None:
            assert (await alice.closed()).code == code
        else:
            assert {frame["code"] for frame in await alice.quiet()} == {"rate_limited"}
            assert limited_total(served, "room") > 0


# --- apps ---


async def test_an_app_above_the_message_rate_of_a_room_gets_429_and_nothing_is_written() -> None:
    async with limited(room_sends_per_s=5) as served:
        api, alice = Backend(served), await served.joined("alice")
        path, message = "/v1/rooms/lobby/messages", {"user": "bot", "body": {}}
        await passes(alice, 2, **SEND)
        assert [(await api("POST", path, message)).status for _ in range(3)] == [201] * 3
        answer = await api("POST", path, message | {"key": "later"})
        said = is_problem(answer, 429, "rate_limited")
        assert said == "room `lobby` receives more than 5 messages/s; retry after 200 ms"
        assert answer.headers["retry-after"] == "1"
        assert (await api.get("/v1/rooms/lobby"))["head"] == 5
        assert len(await tried(alice, 1, **SEND)) == 1  # clients and the app share the limit of a room
        assert (await api("POST", "/v1/rooms/attic/messages", message)).status == 201
        await served.advance(1)
        assert (await api("POST", path, message | {"key": "later"})).json()["seq"] == 6


async def test_an_app_may_speak_for_one_user_as_much_as_it_likes() -> None:
    async with limited(user_sends_per_s=1, user_signals_per_s=1) as served:
        api = Backend(served)
        for _ in range(3):
            assert (await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": {}})).status == 201
            assert (await api("POST", "/v1/signals", {"room": "lobby", "kind": "tick", "from": "bot"})).status == 202


@pytest.mark.parametrize(
    ("limit", "target"),
    [
        ("room_signals_per_s", {"room": "lobby"}),
        ("tenant_signals_per_s", {"room": "lobby"}),
        ("tenant_signals_per_s", {"user": "alice"}),
    ],
)
async def test_signals_of_an_app_are_counted(limit: str, target: dict[str, str]) -> None:
    async with limited(**{limit: 3}) as served:
        api, alice = Backend(served), await served.joined("alice")
        answers = [await api("POST", "/v1/signals", target | {"kind": "tick"}) for _ in range(5)]
        assert [answer.status for answer in answers] == [202] * 3 + [429] * 2
        assert len(await alice.quiet()) == 3


async def test_notifications_are_counted_one_by_one_and_a_large_list_passes_whole_or_not_at_all() -> None:
    async with limited(tenant_sends_per_s=1_000) as served:
        api, path = Backend(served), "/v1/notifications"

        def many(count: int, user: str) -> dict[str, Any]:
            return {"notifications": [{"user": user, "kind": "news", "body": number} for number in range(count)]}

        assert (await api("POST", path, many(10_000, "ann"))).status == 201
        answer = await api("POST", path, many(1, "bob"))
        assert "this tenant sends more than 1000 messages and notifications/s" in is_problem(
            answer, 429, "rate_limited"
        )
        assert answer.headers["retry-after"] == "10"  # 9.001 s, rounded up
        assert is_problem(await api("POST", path, many(10_000, "bob")), 429, "rate_limited")
        assert is_problem(await api("POST", path, {"user": "bob", "kind": "news", "body": 1}), 429, "rate_limited")
        assert await served.node.store.inbox("default", "bob") == Inbox()
        await served.advance(10)
        assert (await api("POST", path, many(600, "bob"))).status == 201
        assert (await api("POST", path, many(600, "bob"))).status == 429
        assert (await api("POST", path, many(400, "bob"))).status == 201
        assert (await served.node.store.inbox("default", "bob")).head == 1_000


READ = "/v1/rooms/lobby"


async def made_key(served: Served, tenant: str, name: str, scope: str = "admin") -> str:
    """Create an API key and return its `Authorization` header."""
    return f"Bearer {await make_key(served, scope, tenant=tenant, name=name)}"


async def statuses(api: Backend, count: int, path: str = READ, **headers: str) -> list[int]:
    return [(await api("GET", path, **headers)).status for _ in range(count)]


async def test_an_app_that_reads_too_much_gets_429_and_a_time_to_wait_and_others_do_not_notice() -> None:
    async with limited(key_requests_per_s=5) as served:
        api, alice = Backend(served), await served.joined("alice")
        other = await made_key(served, "default", "other")
        assert await statuses(api, 6) == [200] * 5 + [429]
        answer = await api("GET", READ)
        assert (
            is_problem(answer, 429, "rate_limited") == "this API key sends more than 5 requests/s; retry after 200 ms"
        )
        assert answer.headers["retry-after"] == "1"
        assert await statuses(api, 1, Authorization=other) == [200]
        await passes(alice, 5, **SEND)
        assert limited_total(served, "key") == 2
        await served.advance(1)
        assert await statuses(api, 6) == [200] * 5 + [429]


async def test_keys_of_a_tenant_share_what_it_may_ask_and_tenants_do_not() -> None:
    async with limited(tenant_requests_per_s=4, tenants={"acme": {"limits": {"tenant_requests_per_s": 2}}}) as served:
        api = Backend(served)
        mine, theirs = await made_key(served, "default", "other"), await made_key(served, "acme", "other")
        assert await statuses(api, 3) + await statuses(api, 2, Authorization=mine) == [200] * 4 + [429]
        assert await statuses(api, 3, Authorization=theirs) == [200, 200, 429]
        assert served.node.tenant_stats("acme")["refused"] == 1


async def test_whatever_is_asked_counts_but_not_what_takes_away_or_has_its_own_limit() -> None:
    async with limited(key_requests_per_s=3) as served:
        api = Backend(served)
        assert (await api("PUT", "/v1/rooms/new", {})).status == 200
        assert (await api("GET", "/v1/rooms/missing")).status == 404
        assert (await api("POST", "/v1/presence/query", {"users": ["ann"]})).status == 200
        for method, path in (("GET", "/v1/stats"), ("GET", "/v1/nodes"), ("PUT", "/v1/users/ann/status")):
            is_problem(await api(method, path), 429, "rate_limited")
        assert (await api("POST", "/v1/tokens/revoke", {"user": "ann"})).status == 200
        assert (await api("DELETE", "/v1/rooms/lobby/members/ann")).status == 204
        assert (await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": 1})).status == 201


async def test_refused_requests_do_not_use_up_the_rate_of_a_key_or_tenant() -> None:
    async with limited(key_requests_per_s=2, tenant_requests_per_s=2) as served:
        api = Backend(served)
        assert await statuses(api, 5, Authorization="Bearer gd_nobody") == [401] * 5
        weak = await made_key(served, "default", "weak", "notify")
        assert await statuses(api, 5, Authorization=weak) == [403] * 5
        assert await statuses(api, 2) == [200, 200]


async def test_users_an_app_asks_for_are_counted_with_those_its_clients_watch() -> None:
    async with limited(tenant_watches_per_s=10) as served:
        api, alice = Backend(served), await served.client("alice")
        await alice.request(type="watch", users=[f"u{number}" for number in range(4)])
        users = {"users": [f"u{number}" for number in range(6)]}
        assert (await api("POST", "/v1/presence/query", users)).status == 200
        said = is_problem(await api("POST", "/v1/presence/query", users), 429, "rate_limited")
        assert said.startswith("this tenant sends more than 10 user lookups/s")


@pytest.mark.parametrize("bad", [{"user": "bot"}, {"user": "b t", "body": {}}, {"user": "bot", "body": "x" * 70_000}])
async def test_a_request_that_is_wrong_costs_nothing(bad: dict[str, Any]) -> None:
    async with limited(room_sends_per_s=1) as served:
        api, path = Backend(served), "/v1/rooms/lobby/messages"
        for _ in range(3):
            assert (await api("POST", path, bad)).status in (400, 413)
            assert (await api("POST", "/v1/rooms/missing/messages", {"user": "bot", "body": {}})).status == 404
        assert (await api("POST", path, {"user": "bot", "body": {}})).status == 201


# --- limits of tenants ---

ACME = {"acme": {"limits": {"room_sends_per_s": 2, "rooms": 1, "watches": 3, "commands_per_s": 7, "commands_burst": 9}}}


async def test_a_tenant_with_limits_of_its_own_has_those_and_others_have_the_common_ones() -> None:
    async with limited(room_sends_per_s=5, tenants=ACME) as served:
        alice, bob = await served.joined("alice"), await elsewhere(served, "bob")
        assert len(await tried(alice, 8, **SEND)) == 3
        (*_, error) = errors = await tried(bob, 4, **SEND)
        assert len(errors) == 2
        assert error["message"].startswith("room `lobby` receives more than 2 messages/s")
        await alice.request(type="room.join", room="attic")
        (error,) = await tried(bob, 1, type="room.join", room="attic")
        assert (error["code"], error["message"]) == (
            "too_many",
            "a connection may be in at most 1 rooms; leave a room first",
        )
        await served.advance(1)
        (error,) = await tried(bob, 1, type="watch", users=["a", "b", "c", "d"])
        assert (error["code"], error["message"]) == (
            "too_many",
            "a connection may watch at most 3 users; stop watching others first",
        )


async def test_a_connection_has_its_tenants_limit_of_commands_from_hello_on() -> None:
    async with limited(tenants=ACME) as served:
        bob = await served.client("bob", claims={"tenant": "acme"})
        errors = await tried(bob, 20, type="activity")
        assert len(errors) == 12  # the hello was the first of nine
        assert errors[0]["message"].startswith("this connection sends more than 7 commands/s")


async def test_the_welcome_has_the_limits_of_the_tenant() -> None:
    async with serving(tenants=ACME) as served:
        alice, bob = await served.client("alice"), await served.client("bob", claims={"tenant": "acme"})
        common = {
            "frame_bytes": 65_536,
            "commands_per_s": 50,
            "commands_burst": 200,
            "watches": 10_000,
            "rooms": 500,
            "typing_per_s": 20,
            "signals_per_s": 100,
            "sends_per_s": 50,
            "watches_per_s": 5_000,
            "room_signals_per_s": 1_000,
            "room_sends_per_s": 100,
        }
        assert alice.welcome["limits"] == common
        assert bob.welcome["limits"] == common | ACME["acme"]["limits"]


@pytest.mark.parametrize("common", [True, False])
async def test_a_tenant_may_be_without_rate_limits_or_alone_with_them(common: bool) -> None:
    own = {"acme": {"limits": {"enabled": not common}}}
    async with limited(enabled=common, commands_per_s=5, commands_burst=5, tenants=own) as served:
        clients = await served.client("alice"), await served.client("bob", claims={"tenant": "acme"})
        with_limits, without = clients if common else clients[::-1]
        await passes(without, 100, type="activity")
        assert without.welcome["limits"]["commands_per_s"] == 0
        assert with_limits.welcome["limits"]["commands_per_s"] == 5
        assert len(await tried(with_limits, 100, type="activity")) >= 95


async def test_without_rate_limits_counts_still_hold() -> None:
    rates = {limit: 1 for limit, _, _ in EVERY}
    async with limited(enabled=False, rooms=1, watches=1, **rates) as served:
        alice, api = await served.joined("alice"), Backend(served)
        for command in (SEND, SIGNAL, WATCH, {"type": "activity"}):
            await passes(alice, 50, **command)
        for _ in range(3):
            assert (await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": {}})).status == 201
        assert (await tried(alice, 1, type="room.join", room="attic"))[0]["code"] == "too_many"
        assert (await tried(alice, 1, type="watch", users=["carol"]))[0]["code"] == "too_many"
