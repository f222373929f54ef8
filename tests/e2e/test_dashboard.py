"""Dashboard socket: authorization, contents, actions, and that it costs nothing without connections."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from e2e.narrow import Peer, peer
from e2e.processes import ask, exchange, until
from greendot.admin.actions import HOLDS_S
from greendot.admin.dashboard import HELLO_S, KEY_EVERY, MOST_COMMANDS, WRONG_S
from greendot.admin.socket import MOST_OPERATORS, MOST_PENDING, MOST_TENANT
from greendot.auth.model import hash_of, text_of
from greendot.ids import new_key_id, new_key_secret
from greendot.limits.overload_model import Load
from greendot.node.event_recorder_model import HOLD_S, KINDS
from greendot.node.event_recorder_model import MOST as MOST_EVENTS
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.store.api_keys import OPERATOR, ApiKey, Secret
from greendot.store.audit import AuditNote
from greendot.store.read_cache import BELIEVED_S
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY
from greendot.testing.wire import PING, PONG, TEXT, make_frame
from redis_servers import free_port

KEY = "the operator's own key, long enough to be"
ON: dict[str, Any] = {"enabled": True, "key": KEY}


async def make(served: Served, *scopes: str, tenant: str = "acme", name: str = "boss") -> str:
    id, secret, now = new_key_id(), new_key_secret(), served.clock.now_ms()
    assert await served.node.store.create_key(ApiKey(tenant, name, scopes, now), Secret(id, hash_of(secret), now))
    return text_of(id, secret)


async def look(served: Served, key: str = KEY) -> WireClient:
    """Connect to the dashboard and return the socket before its first data."""
    client = await served.socket("/admin/live")
    client.send(type="hello", key=key)
    await served.settle()
    client.welcome = (await client.receive("welcome"))["data"]
    return client


async def seen(served: Served, client: WireClient, seconds: float = 1.0) -> list[dict[str, Any]]:
    """Advance the clock and return the frames of that time, without earlier frames."""
    await said(client)
    await served.advance(seconds)
    return await said(client)


async def said(client: WireClient) -> list[dict[str, Any]]:
    """Return all frames sent so far. The reply to a request marks the end."""
    client.send(type="confirm", number=-1, id=99_999)
    frames = []
    while (frame := await client.receive()).get("id") != 99_999:
        frames.append(frame)
    return frames


async def sample(served: Served, client: WireClient) -> dict[str, Any]:
    """Return the newest sample."""
    frames = [frame for frame in await seen(served, client, 2.0) if frame["type"] == "sample"]
    data: dict[str, Any] = frames[-1]["data"]
    return data


async def events(served: Served, client: WireClient, seconds: float = 2.0) -> list[dict[str, Any]]:
    frames = await seen(served, client, seconds)
    return [event for frame in frames if frame["type"] == "tail" for event in frame["data"]["events"]]


async def refusal(client: WireClient, **command: Any) -> str:
    client.send(**command, id=7)
    while (frame := await client.receive()).get("id") != 7:
        pass
    assert frame["type"] == "error", frame
    return str(frame["code"])


async def ends(client: WireClient) -> int:
    """Return the close code, ignoring frames before it."""
    try:
        while True:
            await client.receive()
    except Closed as closed:
        return closed.code


async def refused(served: Served, key: str) -> Closed:
    """Connect with a wrong key and return the close: it comes after a delay and without frames before it."""
    client = await served.socket("/admin/live")
    client.send(type="hello", key=key)
    dashboard = served.greendot.dashboard
    assert dashboard is not None
    await until(lambda: all(look.asked for look in dashboard._views.values()))
    await served.settle()
    await served.advance(WRONG_S / 2)
    assert dashboard.viewers == 1
    await served.advance(WRONG_S / 2)
    return await client.closed()


async def done(client: WireClient, **act: Any) -> str:
    """Send a command and return the result of its reply."""
    offer = await client.request(type="act", **act)
    return str((await client.request(type="confirm", number=offer["number"]))["done"])


# --- availability ---


async def test_it_is_not_there_unless_it_is_switched_on() -> None:
    async with serving() as served:
        for path in ("/admin", "/admin/app.js", "/admin/live"):
            assert (await ask(served.port, "GET", path)).status == 404
        with pytest.raises(ConnectionError, match="404"):
            await served.socket("/admin/live")
        assert "GREENDOT_ADMIN_ENABLED=true" in (await ask(served.port, "GET", "/admin")).json()["detail"]


async def test_the_page_is_served_with_a_strict_policy_and_no_key() -> None:
    async with serving(admin=ON) as served:
        for path, kind in (
            ("/admin", "text/html"),
            ("/admin/app.js", "text/javascript"),
            ("/admin/tokens.css", "text/css"),
        ):
            answer = await ask(served.port, "GET", path)
            assert answer.status == 200
            assert answer.headers["content-type"].startswith(kind)
            assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        assert (await ask(served.port, "GET", "/admin/live")).status == 404  # the path is for WebSockets only
        assert (await ask(served.port, "GET", "/admin/../app.js")).status == 404


async def test_on_a_port_of_its_own_it_is_there_alone() -> None:
    async with serving(admin=ON | {"port": free_port()}) as served:
        assert served.greendot.ports.admin is not None
        own = served.greendot.ports.admin.port
        assert (await ask(own, "GET", "/admin")).status == 200
        assert (await ask(served.port, "GET", "/admin")).status == 404
        for path in (b"/metrics", b"/v1/rooms", b"/v1/connect"):  # not `ask`: this port is not in the OpenAPI document
            request = b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % path
            assert (await exchange(own, request)).status == 404
        with pytest.raises(ConnectionError, match="404"):
            await WireClient.connect(own, "/v1/connect")
        with pytest.raises(ConnectionError, match="404"):
            await WireClient.connect(served.port, "/admin/live")
        async with await WireClient.connect(own, "/admin/live") as client:
            client.send(type="hello", key=KEY)
            await served.settle()
            assert (await client.receive("welcome"))["data"]["every"]


async def test_a_page_of_another_origin_may_not_open_it() -> None:
    async with serving(admin=ON) as served:
        with pytest.raises(ConnectionError, match="403"):
            await served.socket("/admin/live", {"Origin": "https://evil.example"})


# --- authorization ---


@pytest.mark.parametrize("key", ["wrong", "", "x" * 512, "gd_000000000000_" + "0" * 43])
async def test_a_wrong_key_waits_and_is_shown_nothing(key: str) -> None:
    async with serving(admin=ON) as served:
        if key:
            closed = await refused(served, key)
            assert closed.code == 4500
            assert closed.reason.startswith("unknown key")
            assert "scope" not in closed.reason
        else:
            client = await served.socket("/admin/live")
            client.send(type="hello", key=key)
            assert (await client.receive())["code"] == "bad_field"
        assert served.node.recorder.tail.open is False


async def test_a_key_without_the_scope_is_refused() -> None:
    async with serving(admin=ON) as served:
        closed = await refused(served, await make(served, "rooms:read", "sessions", "stats:read"))
        assert closed.code == 4500
        assert "scope admin" in closed.reason
        assert "unknown" not in closed.reason


async def test_the_empty_key_of_the_settings_opens_nothing() -> None:
    async with serving(admin={"enabled": True}) as served:
        assert (await refused(served, " ")).code == 4500


async def test_hello_comes_first_once_and_soon() -> None:
    async with serving(admin=ON) as served:
        early = await served.socket("/admin/live")
        early.send(type="find.user", user="ann")
        assert (await early.closed()).code == 4502
        twice = await look(served)
        twice.send(type="hello", key=KEY)
        assert await ends(twice) == 4502
        silent = await served.socket("/admin/live")
        await served.advance(HELLO_S)
        assert (await silent.closed()).code == 4502


async def test_silent_sockets_lock_no_operator_out() -> None:
    async with serving(admin=ON) as served:
        silent = [await served.socket("/admin/live") for _ in range(MOST_OPERATORS)]
        operators = [await look(served) for _ in range(MOST_OPERATORS // 2)]
        assert all(operator.welcome["every"] for operator in operators)
        await served.advance(HELLO_S)
        assert {(await socket.closed()).code for socket in silent} == {4502}
        assert served.greendot.dashboard is not None
        assert served.greendot.dashboard.viewers == len(operators)
        assert served.node.metrics.dashboard_refused_total == len(silent)


@pytest.mark.parametrize(
    "frame", [make_frame(PING), make_frame(PONG), make_frame(TEXT, fin=False)], ids=["pings", "pongs", "fragments"]
)
async def test_a_socket_that_floods_is_closed_4003_whether_it_has_a_key_or_not(frame: bytes) -> None:
    rest = make_frame(0x0, fin=False) if frame[0] == TEXT else frame
    async with serving(admin=ON) as served:
        for flooder in (await served.socket("/admin/live"), await look(served)):
            flooder.send_bytes(frame + rest * 1_000)
            assert await ends(flooder) == 4003
        assert (await look(served)).welcome["every"]


async def test_sockets_without_a_key_are_bounded_and_the_oldest_goes_first() -> None:
    async with serving(admin=ON) as served:
        assert served.greendot.dashboard is not None
        operator = await served.socket("/admin/live")  # sends its key only after hundreds of other sockets
        silent = [await served.socket("/admin/live") for _ in range(MOST_PENDING - 1)]
        operator.send(type="hello", key=KEY)
        await served.settle()
        assert (await operator.receive("welcome"))["data"]["every"]
        silent += [await served.socket("/admin/live") for _ in range(3)]
        for displaced in silent[:2]:
            closed = await displaced.closed()
            assert (closed.code, closed.reason) == (4003, "too many sockets wait to sign in; reconnect later")
        assert served.greendot.dashboard.viewers == MOST_PENDING + 1
        assert (await look(served)).welcome["every"]
        assert served.node.metrics.dashboard_refused_total == 3


async def test_no_more_operators_view_at_once_than_may() -> None:
    async with serving(admin=ON) as served:
        for _ in range(MOST_OPERATORS):
            await look(served)
        one_more = await served.socket("/admin/live")
        one_more.send(type="hello", key=KEY)
        closed = await one_more.closed()
        assert (closed.code, closed.reason[:12]) == (4003, "32 operators")
        assert (await look(served, await make(served, "admin"))).welcome["tenant"] == "acme"


async def test_one_tenant_takes_no_place_of_operators_or_of_other_tenants() -> None:
    async with serving(admin=ON) as served:
        boss = await make(served, "admin")
        for _ in range(MOST_TENANT):
            await look(served, boss)
        one_more = await served.socket("/admin/live")
        one_more.send(type="hello", key=boss)
        assert (await one_more.closed()).code == 4003
        assert (await look(served, await make(served, "admin", tenant="rival"))).welcome["tenant"] == "rival"
        assert (await look(served)).welcome["every"]


async def test_a_socket_without_a_key_is_answered_a_few_frames_only() -> None:
    async with serving(admin=ON) as served:
        for bad in ('{"type":', "[" * 60_000, '{"type":"nonsense"}'):
            socket = await served.socket("/admin/live")
            socket.send_frame(TEXT, bad.encode())
            assert (await socket.receive())["code"] == "bad_field"
            assert (await socket.closed()).code == 4502
        guess = await served.socket("/admin/live")
        guess.send(type="hello", key="wrong")
        for _ in range(MOST_COMMANDS + 1):
            guess.send(type="find.user", user="ann")
        for _ in range(MOST_COMMANDS + 1):
            assert (await guess.receive())["code"] == "rate_limited"
        assert (await guess.closed()).code == 4502


async def test_keys_see_what_is_theirs() -> None:
    async with serving(admin=ON) as served:
        whole = await look(served)
        assert whole.welcome["nodes"]
        assert whole.welcome["every"]
        first = await look(served, API_KEY)
        assert (first.welcome["nodes"], first.welcome["every"], first.welcome["tenant"]) == (True, False, "default")
        operator = await look(served, await make(served, "operator", tenant=OPERATOR))
        assert (operator.welcome["nodes"], operator.welcome["tenant"], operator.welcome["kinds"]) == (True, None, [])
        for command in ({"type": "find.user", "user": "ann"}, {"type": "tail", "kinds": ["rooms"]}):
            assert await refusal(operator, **command) == "forbidden"
        boss = await look(served, await make(served, "admin"))
        assert (boss.welcome["nodes"], boss.welcome["tenant"], boss.welcome["tenants"]) == (False, "acme", ["acme"])


async def test_a_tenants_admin_sees_and_does_nothing_of_others() -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("default", "den", open=True)
        await served.node.store.put_room("acme", "den", open=True)
        boss = await look(served, await make(served, "admin"))
        await boss.request(type="tail", kinds=[*KINDS])
        await served.advance(1)
        other = await served.joined("ann", "den")
        own = await served.joined("ann", "den", claims={"tenant": "acme"})
        await other.request(type="room.send", room="den", body="secret")
        await other.quiet()

        shown = await events(served, boss)
        assert {event["tenant"] for event in shown} == {"acme"}
        frame = await sample(served, boss)
        assert frame["sums"] == {"tenant_connections": 1, "tenant_users_online": 1}
        assert "nodes" not in frame
        assert {name.split("_")[0] for name in frame["rates"]} == {"tenant"}

        for tenant in ("default", "rival", "nobody"):
            for command in (
                {"type": "find.user", "user": "ann"},
                {"type": "find.room", "room": "den"},
                {"type": "act", "do": "revoke", "user": "ann"},
                {"type": "act", "do": "ban", "user": "ann"},
                {"type": "act", "do": "delete", "room": "den"},
            ):
                assert await refusal(boss, **command, tenant=tenant) == "forbidden"
        found = await boss.request(type="find.user", user="ann")
        assert [it["session"] for it in found["sessions"]] == [own.welcome["session"]]
        assert await done(boss, do="disconnect", session=other.welcome["session"]) == "0 sessions disconnected (4503)"
        await done(boss, do="revoke", session=other.welcome["session"])
        assert await other.quiet() == []
        assert (await boss.request(type="find.room", room="den"))["listeners"] == 1


async def test_a_key_that_is_removed_ends_the_look_and_does_nothing_more() -> None:
    async with serving(admin=ON) as served:
        key = await make(served, "admin")
        ann = await served.client("ann", claims={"tenant": "acme"})
        idle, busy = await look(served, key), await look(served, key)
        offer = await busy.request(type="act", do="disconnect", user="ann")
        await served.node.store.remove_key("acme", "boss")
        served.clock.advance(BELIEVED_S)
        busy.send(type="confirm", number=offer["number"], id=1)
        await served.settle()
        await served.advance(KEY_EVERY)
        for client in (idle, busy):
            assert await ends(client) == 4501
        assert await ann.quiet() == []


# --- contents ---


async def test_rates_and_counts_are_what_happened() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        ann, bob = await served.joined("ann"), await served.joined("bob")
        client = await look(served)
        await served.advance(1)
        for number in range(10):
            await ann.request(type="room.send", room="lobby", body=number)
        frame = [frame for frame in await seen(served, client) if frame["type"] == "sample"][-1]["data"]
        assert frame["sums"]["ws_connections"] == frame["sums"]["ws_users_online"] == 2
        assert frame["rates"]["realtime_pubsub_received_total"] == 10
        assert frame["rates"]["realtime_socket_send_total"] >= 20
        (node,) = frame["nodes"]
        assert (node["node"], node["state"], node["level"]) == (served.node.incarnation, "live", "normal")
        assert node["gauges"]["store_latency_ms"] >= 0
        await bob.end()
        await served.until_gone(1)
        assert (await seen(served, client))[-1]["data"]["closes"] == {"1006": 1}
        text = (await ask(served.port, "GET", "/metrics")).body.decode()
        assert f'ws_closed_total{{code="1006",node="{served.node.incarnation}"}} 1.0\n' in text


async def test_no_timer_runs_and_no_event_is_kept_without_a_viewer() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        await client.request(type="tail", kinds=[*KINDS])
        await served.advance(1)
        assert served.node.recorder.tail.open
        assert served.timers == 1
        await client.end()
        await served.settle()
        assert served.timers == 0
        assert served.greendot.dashboard is not None
        assert served.greendot.dashboard.viewers == 0
        served.node.recorder.tail.expire(served.clock.monotonic() + HOLD_S)
        assert not served.node.recorder.tail.open


async def test_an_hour_is_kept_without_a_viewer_and_shown_at_once() -> None:
    async with serving(admin=ON) as served:
        bob = await served.client("bob")
        await served.advance(3_700, alive=[bob])
        client = await look(served)
        history = await client.request(type="history")
        assert history["every_ms"] == 10_000
        assert len(history["at"]) in (359, 360)  # the point of the current period may be still to come
        assert {later - earlier for earlier, later in pairwise(history["at"])} == {10_000}
        assert 0 <= served.clock.now_ms() - history["at"][-1] <= 10_000
        assert set(history["columns"]["sums.ws_connections"]) == {1}
        assert history["columns"]["rates.realtime_socket_send_total"][-1] > 0  # replies to heartbeats
        # A tenant's key sees figures of its own tenant alone.
        assert not any("tenant" in name for name in history["columns"])
        strangers = await look(served, await make(served, "admin"))
        assert (await strangers.request(type="history"))["at"] == []
        owner = await look(served, await make(served, "admin", tenant="default"))
        theirs = await owner.request(type="history")
        assert set(theirs["columns"]["sums.tenant_connections"]) == {1}
        assert {name.split(".")[0] for name in theirs["columns"] if "tenant" not in name} <= {"closes"}


async def test_users_online_are_listed_by_the_beginning_of_their_ids() -> None:
    async with serving(admin=ON) as served:
        for user in ("anna", "anton", "bea"):
            await served.client(user, device="phone-1")
        shy = await served.client("anke")
        await shy.request(type="status.set", status="invisible")
        client = await look(served)
        everyone = await client.request(type="list.users")
        assert [it["shown"]["user"] for it in everyone["users"]] == ["anna", "anton", "bea"]
        assert (everyone["next"], everyone["total"], everyone["tenant"]) == (None, 3, "default")
        assert everyone["users"][0]["devices"] == ["phone-1"]
        assert everyone["users"][0]["name"] == "Anna"
        some = await client.request(type="list.users", prefix="an")
        assert [it["shown"]["user"] for it in some["users"]] == ["anna", "anton"]
        assert (await client.request(type="list.users", prefix="an", after="anna"))["users"][0]["name"] == "Anton"
        assert (await client.request(type="list.users", prefix="x"))["users"] == []
        assert (await client.request(type="list.users", tenant="acme"))["users"] == []
        theirs = await look(served, await make(served, "admin"))
        assert (await theirs.request(type="list.users"))["users"] == []
        assert await refusal(theirs, type="list.users", tenant="default") == "forbidden"
        assert await refusal(theirs, type="list.rooms", tenant="default") == "forbidden"
        operator = await look(served, await make(served, "operator", tenant=OPERATOR))
        assert await refusal(operator, type="list.users") == "forbidden"


async def test_many_users_are_listed_in_pages_without_a_gap() -> None:
    async with serving(admin=ON) as served:
        names = [f"user-{number:04}" for number in range(1_100)]  # more than are sorted
        engine = served.node.engine
        for name in names:
            ref = SessionEpoch(f"s-{name}", served.node.incarnation, 1)
            await engine.touch("default", name, ref, "web", False, None)
            await engine.set_status("default", name, ManualStatus())
        client = await look(served)
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = await client.request(type="list.users", prefix="user-1", **after)
            found += [it["shown"]["user"] for it in page["users"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert sorted(found) == names[1_000:]


async def test_rooms_are_listed_by_the_beginning_of_their_ids_in_pages() -> None:
    async with serving(admin=ON) as served:
        store = served.node.store
        for name in ("news", "new", "old", *(f"new-{number:03}" for number in range(120))):
            await store.put_room("default", name, open=name != "old")
        await store.put_member("default", "old", "bob")
        bob = await served.client("bob")
        await bob.request(type="room.join", room="news")
        client = await look(served)
        found: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            page = await client.request(type="list.rooms", prefix="new", **after)
            assert len(page["rooms"]) <= 51
            found += page["rooms"]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert [it["room"] for it in found] == ["new", *(f"new-{number:03}" for number in range(120)), "news"]
        assert (found[-1]["listeners"], found[0]["listeners"]) == (1, 0)
        (old,) = (await client.request(type="list.rooms", prefix="old"))["rooms"]
        assert old == {"room": "old", "open": False, "archived": False, "head": 0, "members": 1, "listeners": 0}
        assert (await client.request(type="list.rooms", prefix="-"))["rooms"] == []
        assert (await client.request(type="list.rooms", tenant="acme"))["rooms"] == []


async def test_the_audit_is_listed_newest_first_in_pages() -> None:
    async with serving(admin=ON) as served:
        store = served.node.store
        for number in range(1, 121):
            note = AuditNote("default", number, "desk", "message.deleted", f"r{number % 2}", "ann", number, "spam")
            await store.put_audit(note)
        client = await look(served)
        found: list[dict[str, Any]] = []
        after: dict[str, int] = {}
        while True:
            page = await client.request(type="list.audit", **after)
            found += page["audits"]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert [it["number"] for it in found] == [*range(120, 0, -1)]
        assert (found[0]["actor"], found[0]["action"], found[0]["ref"]) == ("desk", "message.deleted", 120)
        some = await client.request(type="list.audit", room="r1")
        assert [it["number"] for it in some["audits"]] == [*range(119, 20, -2)]
        theirs = await look(served, await make(served, "admin"))
        assert (await theirs.request(type="list.audit"))["audits"] == []
        assert await refusal(theirs, type="list.audit", tenant="default") == "forbidden"


async def test_two_who_look_share_one_question_and_see_the_same() -> None:
    async with serving(admin=ON) as served:
        one, other = await look(served), await look(served)
        await served.advance(0)
        asked: list[object] = []
        reply = served.node.cluster.reply
        served.node.cluster.reply = lambda question: (asked.append(question), reply(question))[1]
        await served.advance(3)
        assert len(asked) == 3
        frames = [await said(client) for client in (one, other)]
        assert frames[0] == frames[1]


async def test_who_reads_nothing_is_sent_the_next_sample_and_not_all() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        (viewer,) = served.greendot.dashboard._views  # type: ignore[union-attr]
        await served.advance(1)
        size = viewer.socket  # type: ignore[attr-defined]
        for _ in range(2_000):
            await served.greendot.dashboard._refresh()  # type: ignore[union-attr]
        assert size.get_write_buffer_size() < 1_000_000
        await client.end()


async def test_a_user_is_found_with_sessions_rooms_unread_and_tokens() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        ann = await served.joined("ann", device="laptop", claims={"jti": "t1"})
        await served.node.store.put_member("default", "lobby", "ann")
        client = await look(served)
        await done(client, do="notify", user="ann")
        await ann.request(type="status.set", status="invisible")
        found = await client.request(type="find.user", user="ann")
        assert (found["name"], found["own"]["state"], found["seen_as"]["state"]) == ("Ann", "online", "offline")
        assert found["status"]["status"] == "invisible"
        assert found["inbox"] == {"head": 1, "unread": 1, "unseen": 1}
        assert [room["room"] for room in found["rooms"]] == ["lobby"]
        (session,) = found["sessions"]
        assert (session["device"], session["token_id"], session["rooms"]) == ("laptop", "t1", ["lobby"])
        assert session["token_expires_at"] > served.clock.now_ms()
        assert found["revoked_before"] is None
        await done(client, do="revoke", user="ann")
        assert (await client.request(type="find.user", user="ann"))["revoked_before"] == served.clock.now_ms()


async def test_a_room_is_found_with_members_listeners_typers_and_head() -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("default", "den")
        for user, role in (("ann", "admin"), ("bob", "member"), ("carl", "reader")):
            await served.node.store.put_member("default", "den", user, role)  # type: ignore[arg-type]
        ann, _ = await served.joined("ann", "den"), await served.joined("bob", "den")
        await ann.request(type="room.send", room="den", body=1)
        ann.send(type="typing.start", room="den")
        await ann.quiet()
        client = await look(served)
        found = await client.request(type="find.room", room="den")
        assert (found["head"], found["open"], found["listeners"], found["member_count"]) == (1, False, 2, 3)
        assert found["present"] == ["ann", "bob"]
        assert found["typing"] == ["ann"]
        assert found["members"][0] == {"user": "ann", "role": "admin"}


async def test_an_unknown_user_room_or_tenant_is_reported_as_unknown() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        assert (await client.request(type="find.user", user="nobody"))["known"] is False
        assert (await client.request(type="find.room", room="nowhere"))["known"] is False
        assert (await client.request(type="find.user", user="ann", tenant="nobodys"))["known"] is False


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"null",
        b"[]",
        b'{"type":"unheard.of"}',
        b'{"type":"find.user"}',
        b'{"type":"find.user","user":"../etc"}',
        b'{"type":"find.user","user":"' + b"x" * 10_000 + b'"}',
        b'{"type":"act","do":"explode","user":"ann"}',
        b'{"type":"tail","kinds":["everything"]}',
        b"[" * 30_000,
    ],
)
async def test_an_invalid_dashboard_command_is_answered_with_an_error_and_has_no_effect(frame: bytes) -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        client.send_frame(1, frame)
        while (answer := await client.receive())["type"] != "error":
            pass
        assert answer["code"] == "bad_field"
        assert (await client.request(type="find.user", user="ann"))["known"] is False


# --- event tail ---


async def test_events_name_ids_and_never_what_people_write() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        client = await look(served)
        await client.request(type="tail", kinds=[*KINDS])
        await served.advance(1)
        ann = await served.joined("ann", device="phone")
        await ann.request(type="room.send", room="lobby", body="a secret")
        await done(client, do="notify", user="ann", text="another secret")
        await ann.request(type="status.set", status="busy", text="a third secret")
        frames = await seen(served, client, 2.0)
        told = [event for frame in frames if frame["type"] == "tail" for event in frame["data"]["events"]]
        assert {(event["kind"], event["what"]) for event in told} >= {
            ("connects", "connected"),
            ("presence", "online"),
            ("presence", "status set"),
            ("rooms", "joined"),
            ("rooms", "occupied"),
            ("rooms", "message"),
            ("notifications", "notified"),
        }
        assert "secret" not in str(frames)
        message = next(event for event in told if event["what"] == "message")
        assert (message["user"], message["room"], message["number"], message["node"]) == (
            "ann",
            "lobby",
            1,
            served.node.incarnation,
        )


async def test_a_resume_a_lost_socket_and_an_end_are_shown_in_the_tail() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        await client.request(type="tail", kinds=["connects"])
        await served.advance(1)
        ann = await served.client("ann")
        await ann.end()
        await served.until_gone()
        back = await served.client("ann", resume={"session": ann.welcome["session"]})
        back.send(type="bye")
        await back.closed()
        await served.until_gone()
        told = await events(served, client)
        assert [(event["what"], event.get("number")) for event in told] == [
            ("connected", None),
            ("disconnected", 1006),
            ("resumed", None),
            ("disconnected", 1000),
            ("session over", None),
        ]


async def test_only_the_requested_kinds_of_events_are_sent() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        client = await look(served)
        await client.request(type="tail", kinds=["presence"])
        await served.advance(1)
        await served.joined("ann")
        assert {event["kind"] for event in await events(served, client)} == {"presence"}
        await client.request(type="tail", kinds=[])
        await served.advance(1)
        await served.joined("bob")
        assert await events(served, client) == []
        assert not served.node.recorder.tail.open


async def test_bodies_are_shown_in_dev_mode() -> None:
    async with serving(admin=ON, server={"dev": True}) as served:
        client = await look(served)
        await client.request(type="tail", kinds=["rooms"])
        await served.advance(1)
        ann = await served.joined("ann")
        await ann.request(type="room.send", room="lobby", body="hello")
        assert '"hello"' in [event.get("body") for event in await events(served, client)]


async def test_the_tail_is_bounded_and_sheds_first() -> None:
    async with serving(admin=ON, limits={"enabled": False}) as served:
        await served.lobby()
        client = await look(served)
        await client.request(type="tail", kinds=["rooms"])
        ann = await served.joined("ann")
        await served.advance(1)
        await said(client)
        for number in range(MOST_EVENTS + 20):
            await ann.request(type="room.send", room="lobby", body=number)
        (tail,) = [frame["data"] for frame in await seen(served, client) if frame["type"] == "tail"]
        assert len(tail["events"]) == MOST_EVENTS
        assert tail["skipped"] == 20
        for at in (0.0, 0.1, 0.2, 0.3):
            served.node.overload_monitor.measure(Load(lag_s=10.0), at)
        assert served.node.overload is None  # at this level only signals and the tail are shed
        await ann.request(type="room.send", room="lobby", body="taken all the same")
        (tail,) = [frame["data"] for frame in await seen(served, client) if frame["type"] == "tail"]
        assert (tail["events"], tail["skipped"]) == ([], 1)


async def test_typing_and_refused_commands_are_reported() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        client = await look(served)
        await client.request(type="tail", kinds=["typing", "errors"])
        await served.advance(1)
        ann = await served.joined("ann")
        for command in ("typing.start", "typing.stop", "nonsense"):
            ann.send(type=command, room="lobby")
        ann.send(type="room.send", room="nowhere", body=1)
        told = await events(served, client)
        assert [(event["kind"], event["what"], event.get("room"), event.get("detail")) for event in told] == [
            ("typing", "typing", "lobby", None),
            ("typing", "stopped typing", "lobby", None),
            ("errors", "unknown_type", None, "no command"),
            ("errors", "not_a_member", "nowhere", "room.send"),
        ]


async def test_events_of_one_user_room_node_or_tenant_are_sorted_out_where_they_happen() -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("acme", "lobby", open=True)
        await served.lobby()
        everything, some, elsewhere, acme = [await look(served) for _ in range(4)]
        await everything.request(type="tail", kinds=["rooms"])
        await some.request(type="tail", kinds=["rooms"], user="ann", room="lobby")
        await elsewhere.request(type="tail", kinds=["rooms"], node="Zzzz")
        await acme.request(type="tail", kinds=["rooms"], tenant="acme")
        await served.advance(1)
        await served.joined("ann")
        await served.joined("bob")
        await served.joined("carl", claims={"tenant": "acme"})
        for client in (everything, some, elsewhere, acme):
            await said(client)
        await served.advance(1)
        told = [
            [
                event.get("user")
                for frame in await said(client)
                if frame["type"] == "tail"
                for event in frame["data"]["events"]
            ]
            for client in (everything, some, elsewhere, acme)
        ]
        assert [{*users} - {None} for users in told] == [{"ann", "bob", "carl"}, {"ann"}, set(), {"carl"}]
        boss = await look(served, await make(served, "admin"))
        assert await refusal(boss, type="tail", kinds=["rooms"], tenant="default") == "forbidden"


async def test_a_tail_line_that_is_no_longer_read_ends_with_the_next_event() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        await client.request(type="tail", kinds=[*KINDS], user="ann")
        await served.advance(1)
        await client.end()
        await served.settle()
        served.clock.advance(HOLD_S + 1)
        await served.client("bob")
        assert not served.node.recorder.tail.open


async def test_a_slow_viewer_receives_the_number_of_skipped_events_and_no_other_client_is_affected() -> None:
    async with serving(admin=ON, limits={"enabled": False}, server={"dev": True}) as served:
        ann = await served.joined("ann")
        slow = await Peer.connect(served.port, "/admin/live")
        served._clients.append(slow)
        slow.send(type="hello", key=KEY)
        await served.settle()
        await slow.request(type="tail", kinds=["rooms"])
        await served.advance(1)
        (viewer,) = served.greendot.dashboard._views  # type: ignore[union-attr]
        slow.stop_reading()
        sent = 0
        while sent < 4_000 and not viewer.is_behind:
            for _ in range(MOST_EVENTS):
                ann.send(type="room.send", room="lobby", body="x" * 1_000)
            await ann.request(type="room.send", room="lobby", body="the last of these")
            sent += MOST_EVENTS + 1
            await served.advance(1)
        assert viewer.is_behind
        for _ in range(3):
            await ann.request(type="room.send", room="lobby", body="not for who does not read")
            sent += 1
            await served.advance(1)
        slow.go_on_reading()
        await until(lambda: not viewer.is_behind)
        await served.advance(1)
        told = [frame["data"] for frame in await said(slow) if frame["type"] == "tail"]
        shown = [event for tail in told for event in tail["events"] if event["what"] == "message"]
        skipped = sum(tail["skipped"] for tail in told)
        assert skipped > sent // (MOST_EVENTS + 1)  # in addition to events beyond the limit of a frame
        assert len(shown) + skipped == sent


# --- hot topics and slow connections ---


async def test_hot_topics_and_slow_clients_are_counted_only_while_a_dashboard_requests_them() -> None:
    async with serving(admin=ON, limits={"enabled": False}) as served:
        await served.lobby()
        ann, slow = await served.joined("ann"), await peer(served, "bob", "lobby")
        client, plain = await look(served), await look(served, await make(served, "operator", tenant=OPERATOR))
        assert "hot" not in await sample(served, client)
        assert served.node.hub._hot_topics is None
        for viewer in (client, plain):
            await viewer.request(type="top", most=5)
        await served.advance(1)
        slow.stop_reading()
        for _ in range(60):
            await ann.request(type="room.send", room="lobby", body="x" * 10_000)
        frames = [frame["data"] for frame in await seen(served, client) if frame["type"] == "sample"]
        (hot,) = frames[-1]["hot"]
        assert (hot["kind"], hot["name"], hot["listeners"]) == ("room", "lobby", 2)
        assert hot["per_s"] == 120
        (behind,) = frames[-1]["slow"]
        assert (behind["user"], behind["node"]) == ("bob", served.node.incarnation)
        assert behind["waiting"] > 10_000
        # The names belong to tenants: a key without rights for them does not get them.
        nameless = [frame["data"] for frame in await said(plain) if frame["type"] == "sample"]
        assert [frame["hot"] + frame["slow"] for frame in nameless if "hot" in frame][-2:] == [[], []]
        await client.request(type="top", most=0)
        await plain.request(type="top", most=0)
        served.clock.advance(HOLD_S + 1)
        await ann.request(type="room.send", room="lobby", body="nobody counts this")
        await served.settle()
        assert served.node.hub._hot_topics is None


# --- actions ---


async def test_nothing_is_done_before_it_is_confirmed_and_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "greendot")
    async with serving(admin=ON) as served:
        ann, phone = await served.client("ann"), await served.client("ann", device="phone")
        client = await look(served)
        offer = await client.request(type="act", do="disconnect", user="ann")
        assert offer["title"] == "Disconnect ann (default)?"
        assert offer["says"].startswith("2 sessions of ann will be closed with 4503")
        assert await ann.quiet() == []
        assert "audit" not in caplog.text
        answer = await client.request(type="confirm", number=offer["number"])
        assert answer["done"] == "2 sessions disconnected (4503)"
        for device in (ann, phone):
            assert (await device.closed()).code == 4503
        assert "audit: key admin.key performed disconnect on user ann of tenant default: 2 sessions" in caplog.text
        assert KEY not in caplog.text


async def test_a_confirmation_counts_once_for_the_last_offer_and_not_for_long() -> None:
    async with serving(admin=ON) as served:
        ann = await served.client("ann")
        client, another = await look(served), await look(served)
        first = await client.request(type="act", do="disconnect", user="ann")
        second = await client.request(type="act", do="notify", user="ann")
        assert await refusal(another, type="confirm", number=second["number"]) == "bad_field"
        assert await refusal(client, type="confirm", number=first["number"]) == "bad_field"
        third = await client.request(type="act", do="disconnect", user="ann")
        served.clock.advance(HOLDS_S + 1)
        assert await refusal(client, type="confirm", number=third["number"]) == "bad_field"
        assert await ann.quiet() == []
        await done(client, do="notify", user="ann")
        assert await refusal(client, type="confirm", number=third["number"] + 1) == "bad_field"


async def test_revoking_closes_4501_and_the_token_does_not_come_back() -> None:
    async with serving(admin=ON) as served:
        token = served.token("ann")
        ann = await served.socket()
        await ann.hello(token)
        served.clock.advance(1)
        client = await look(served)
        assert await done(client, do="revoke", user="ann") == "revoked; 1 socket closed (4501)"
        assert (await ann.closed()).code == 4501
        again = await served.socket()
        again.send(type="hello", token=token)
        assert (await again.closed()).code == 4501


async def test_a_test_notification_is_a_notification() -> None:
    async with serving(admin=ON) as served:
        ann = await served.client("ann")
        client = await look(served)
        assert await done(client, do="notify", user="ann", text="Is this on?") == "notification 1 added to the inbox"
        created = await ann.receive("notification.created")
        assert (created["data"]["kind"], created["data"]["body"]) == ("test", {"text": "Is this on?"})


async def test_users_are_muted_and_banned_and_the_audit_names_the_key() -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("default", "den", open=True)
        ann, bob = await served.joined("ann", "den"), await served.joined("bob", "den")
        client = await look(served)
        offer = await client.request(type="act", do="mute", user="ann")
        assert offer["title"] == "Mute ann (default)?"
        assert (await client.request(type="find.user", user="ann"))["restrictions"] == {}
        assert (await client.request(type="confirm", number=offer["number"]))["done"] == "user muted"
        assert (await ann.receive("room.changed"))["data"]["muted_until"] is None
        assert await refusal(ann, type="room.send", room="den", body="x") == "muted"
        assert (await client.request(type="find.user", user="ann"))["restrictions"] == {"mute": None}
        assert await done(client, do="unmute", user="ann") == "mute ended"
        await ann.request(type="room.send", room="den", body="x")
        assert await done(client, do="ban", user="bob", room="den") == "user banned"
        assert await refusal(bob, type="room.join", room="den") == "banned"
        assert await done(client, do="unban", user="bob", room="den") == "ban ended"
        offer = await client.request(type="act", do="ban", user="ann")
        assert offer["says"].endswith("1 session will be closed with 4501.")
        assert (await client.request(type="confirm", number=offer["number"]))["done"] == "user banned"
        assert (await ann.closed()).code == 4501
        assert (await client.request(type="find.user", user="ann"))["restrictions"] == {"ban": None}
        assert await done(client, do="unban", user="ann") == "ban ended"
        await served.client("ann")
        entries = (await client.request(type="list.audit"))["audits"]
        assert [(it["action"], it["user"], it["room"], it["actor"]) for it in reversed(entries)] == [
            ("user.muted", "ann", None, "admin.key"),
            ("user.unmuted", "ann", None, "admin.key"),
            ("user.banned", "bob", "den", "admin.key"),
            ("user.unbanned", "bob", "den", "admin.key"),
            ("user.banned", "ann", None, "admin.key"),
            ("user.unbanned", "ann", None, "admin.key"),
        ]


async def test_rooms_are_archived_and_deleted_and_another_tenants_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "greendot")
    async with serving(admin=ON) as served:
        for tenant in ("default", "acme"):
            await served.node.store.put_room(tenant, "den", open=True)
        ann = await served.joined("ann", "den")
        client = await look(served)
        assert await done(client, do="archive", room="den") == "room archived"
        assert (await ann.receive("room.changed"))["data"]["archived"]
        assert (await client.request(type="find.room", room="den"))["archived"]
        assert await done(client, do="unarchive", room="den") == "room reopened"
        offer = await client.request(type="act", do="delete", room="den")
        assert offer["title"] == "Delete room den (default)?"
        assert (await client.request(type="confirm", number=offer["number"]))["done"] == "room deleted"
        assert await refusal(client, type="act", do="delete", room="den") == "bad_field"
        assert await served.node.store.room("default", "den") is None
        assert await served.node.store.room("acme", "den") is not None
        assert "performed delete on room den of tenant default: room deleted" in caplog.text
        offer = await client.request(type="act", do="archive", room="den", tenant="acme")
        note = AuditNote("acme", served.clock.now_ms(), "app", "room.deleted", "den")
        assert await served.node.store.delete_room("acme", "den", note)  # before the confirmation
        assert await refusal(client, type="confirm", number=offer["number"]) == "bad_field"


@pytest.mark.parametrize(
    "act",
    [
        {"do": "disconnect"},
        {"do": "disconnect", "room": "den"},
        {"do": "revoke", "user": "ann", "room": "den"},
        {"do": "mute"},
        {"do": "mute", "room": "den"},
        {"do": "ban", "user": "ann", "session": "abcd-1"},
        {"do": "archive"},
        {"do": "delete", "user": "ann"},
        {"do": "delete", "user": "ann", "room": "den"},
        {"do": "delete", "node": "abcd"},
        {"do": "mute", "user": "ann", "room": "no-such-room"},
        {"do": "notify", "session": "abcd-1"},
        {"do": "revoke", "user": "ann", "session": "abcd-1"},
    ],
)
async def test_an_action_names_one_target(act: dict[str, Any]) -> None:
    async with serving(admin=ON) as served:
        assert await refusal(await look(served), type="act", **act) == "bad_field"


async def test_a_stopping_server_closes_dashboard_clients_with_4000() -> None:
    async with serving(admin=ON) as served:
        client = await look(served)
        served.greendot.dashboard.close()  # type: ignore[union-attr]
        assert await ends(client) == 4000
