"""Users whom the app mutes or bans, in a room or in the tenant, and rooms in slow mode."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import until
from e2e.test_api_keys import make
from e2e.test_moderated import ask, furnished, hear, removed, say
from greendot.engine.messages import Topic
from greendot.store.audit import AuditNote
from greendot.store.restrictions import EVERYWHERE, FOREVER, Restriction, RestrictionKind
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.wire import Closed

DEN = Topic("room", "default", "den")
SENDING: tuple[dict[str, Any], ...] = (
    {"type": "room.send", "room": "den", "body": "x"},
    {"type": "room.edit", "room": "den", "ref": 1, "body": "x"},
    {"type": "room.delete", "room": "den", "ref": 1},
    {"type": "room.react", "room": "den", "ref": 1, "reaction": "+"},
    {"type": "typing.start", "room": "den"},
    {"type": "signal.send", "room": "den", "kind": "cursor"},
)
READING: tuple[dict[str, Any], ...] = (
    {"type": "room.join", "room": "den"},
    {"type": "room.history", "room": "den"},
    {"type": "room.present", "room": "den"},
    {"type": "room.read", "room": "den", "seq": 1},
)


async def error(client: WireClient, **command: Any) -> dict[str, Any]:
    client.send(**command, id="refused")
    return await hear(client, "error")


async def codes(client: WireClient, *commands: dict[str, Any]) -> set[str]:
    """Return the code of each refusal; "" for a command that was carried out."""
    found = set()
    for command in commands:
        client.send(**command, id="c")
        while (frame := await client.receive()).get("id") != "c":
            pass
        found.add(frame.get("code", ""))
    return found


async def pass_time(served: Served, seconds: float) -> None:
    """Let time pass in steps, also while a task of the server waits for a timer, as the comparison of rooms does."""
    for _ in range(round(seconds * 5)):
        served.clock.advance(0.2)
        served.node.timers.tick()
        await asyncio.sleep(0.001)


async def removed_in_time(served: Served, client: WireClient) -> dict[str, Any]:
    """Return the removal of a client's member. Time passes until it arrives: engine and store take real time."""
    waiting = asyncio.ensure_future(removed(client))
    while not waiting.done():
        await pass_time(served, 0.2)
    return await waiting


async def head(served: Served) -> int:
    room = await served.node.store.room("default", "den")
    assert room is not None
    return room.head


async def missed(served: Served, kind: RestrictionKind, room: str, user: str, until: int = FOREVER) -> None:
    """Restrict a user as another node does it whose messages to this node are lost."""
    at = served.clock.now_ms()
    note = AuditNote("default", at, "desk", "user.muted" if kind == "mute" else "user.banned", room or None, user)
    assert await served.node.store.restrict(Restriction("default", room, user, kind, until, at, "desk"), note)


async def refused_hello(served: Served, user: str) -> tuple[dict[str, Any], Closed]:
    """Return the error and the close that a hello gets."""
    client = await served.socket()
    client.send(type="hello", token=served.token(user), id=7)
    frame = await client.receive()
    return frame, await client.closed()


# --- mutes ---


@on_each_pair
@pytest.mark.parametrize("path", ["/v1/rooms/den/mutes/ann", "/v1/mutes/ann"])
async def test_a_muted_user_can_read_and_send_nothing_until_the_end(
    pair: str, path: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "hello")
        end = served.clock.now_ms() + 60_000
        made = await ask(served, "PUT", path, {"until": end, "by": "mod", "reason": "rude"})
        room = "den" if "rooms" in path else None
        assert made.json() == {
            "user": "ann",
            "room": room,
            "until": end,
            "at": end - 60_000,
            "by": "mod",
            "reason": "rude",
        }
        assert (await ask(served, "GET", path.removesuffix("/ann"))).json() == {"users": [made.json()], "next": None}
        assert (await hear(ann, "room.changed"))["data"]["muted_until"] == end
        if room:
            await until(lambda: served.node.rooms.local(DEN).roles["ann"].muted == end)  # type: ignore[union-attr]
        await served.advance(1, [ann, bob])
        assert await codes(ann, *SENDING) == {"muted"}
        refused = await error(ann, **SENDING[0])
        assert (refused["retry_in_ms"], refused["retry"]) == (59_000, False)
        assert await codes(ann, *READING) == {""}
        other = await served.client("ann")  # not in the room: decided by the store
        assert await codes(other, *SENDING) == {"muted"}
        assert (await other.request(type="room.join", room="den"))["muted_until"] == end
        assert await codes(bob, *SENDING[:1]) == {""}
        posted = await ask(served, "POST", "/v1/rooms/den/messages", {"user": "ann", "body": "by the app"})
        assert (posted.status, await head(served)) == (201, 3)
        await served.advance(59, [ann, bob, other])
        assert await say(ann, "I am back") == 4
        assert "muted_until" not in await other.request(type="room.join", room="den")
        assert (await ask(served, "GET", path.removesuffix("/ann"))).json()["users"] == []


@on_each_pair
@pytest.mark.parametrize("path", ["/v1/rooms/den/mutes/ann", "/v1/mutes/ann"])
async def test_a_mute_without_end_lasts_until_it_is_lifted(pair: str, path: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        for _ in range(2):
            assert (await ask(served, "PUT", path)).json()["until"] is None
        refused = await error(ann, **SENDING[0])
        assert (refused["code"], "retry_in_ms" in refused) == ("muted", False)
        for _ in range(2):
            assert (await ask(served, "DELETE", f"{path}?by=mod")).status == 204
        assert await say(ann, "hello") == 1
        assert (await ask(served, "DELETE", path.replace("mutes", "bans"))).status == 204
        found = (await ask(served, "GET", "/v1/audit")).json()["entries"]
        room = "den" if "rooms" in path else None
        assert [(e["action"], e["actor"], e["room"], e["user"]) for e in found] == [
            ("user.muted", "settings", room, "ann"),
            ("user.unmuted", "mod", room, "ann"),
        ]
        assert re.search(r"room_moderations_total{.*} 2\.0", (await ask(served, "GET", "/metrics")).body.decode())


@on_each_pair
async def test_a_client_gets_the_later_end_of_a_mute_in_the_room_and_one_in_the_tenant(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        soon = served.clock.now_ms() + 60_000

        async def told() -> int | None:
            changed = (await hear(ann, "room.changed"))["data"]
            assert changed["room"] == "den"
            return changed["muted_until"]  # type: ignore[no-any-return]

        await ask(served, "PUT", "/v1/mutes/ann", {"until": soon + 60_000})
        assert await told() == soon + 60_000
        await ask(served, "PUT", "/v1/rooms/den/mutes/ann", {"until": soon})
        assert await told() == soon + 60_000
        await ask(served, "DELETE", "/v1/mutes/ann")
        assert await told() == soon
        await ask(served, "PUT", "/v1/mutes/ann")
        assert await told() is None
        await ask(served, "DELETE", "/v1/rooms/den/mutes/ann")
        assert await told() is None
        await ask(served, "DELETE", "/v1/mutes/ann")
        assert await told() == 0
        await missed(served, "mute", EVERYWHERE, "ann", soon)
        await served.advance(15, [bob])
        assert await told() == soon
        assert [frame for frame in await bob.quiet() if frame["type"] == "room.changed"] == []


@on_each_pair
@pytest.mark.parametrize("room_first", [True, False])
async def test_the_last_end_is_right_if_two_mutes_are_lifted_while_the_node_reads_the_member(
    pair: str, room_first: bool, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, _ = await furnished(served, "ann", "bob")
        paths = ["/v1/rooms/den/mutes/ann", "/v1/mutes/ann"]
        for path in paths:
            await ask(served, "PUT", path)
            assert (await hear(ann, "room.changed"))["data"]["muted_until"] is None
        async with hold(served.node.store, "member_states") as held:
            for path in paths if room_first else reversed(paths):
                await ask(served, "DELETE", path)
            await held.reached()
            assert (await hear(ann, "room.changed"))["data"]["muted_until"] is None  # the room's mute, as known here
        assert (await hear(ann, "room.changed"))["data"]["muted_until"] == 0


@on_each_pair
async def test_a_device_learns_of_a_mute_that_a_second_device_has_read_before_the_announcement(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        await missed(served, "mute", "den", "ann")
        second = await served.client("ann")
        reply = await second.request(type="room.join", room="den")
        assert reply["muted_until"] is None
        assert (await hear(ann, "room.changed"))["data"]["muted_until"] is None


@on_each_pair
@pytest.mark.parametrize("path", ["rooms/den/mutes/ann", "mutes/ann", "rooms/den/bans/ann", "bans/ann"])
async def test_a_message_under_way_when_the_answer_is_sent_is_not_committed(
    pair: str, path: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.send", room="den", body="late", id="s")
            await held.reached()
            assert (await ask(served, "PUT", f"/v1/{path}")).status == 200
        await until(lambda: held.calls > 0)
        if path != "bans/ann":
            assert (await hear(ann, "error"))["code"] == ("muted" if "mutes" in path else "banned")
        await served.settle()
        assert await head(served) == 0
        assert [frame for frame in await bob.quiet() if frame["type"] == "room.message"] == []


@on_each_pair
@pytest.mark.parametrize("room", ["den", EVERYWHERE])
async def test_a_node_that_missed_a_mute_refuses_messages_at_once_and_signals_soon(
    pair: str, room: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "hello")
        await missed(served, "mute", room, "ann")
        assert await codes(ann, *SENDING[:4]) == {"muted"}
        for _ in range(10):  # the node compares its rooms with the store every 15 s; the store takes real time
            await pass_time(served, 4)
            if await codes(ann, *SENDING[4:]) == {"muted"}:
                break
        assert await codes(ann, *SENDING[4:]) == {"muted"}
        assert await head(served) == 1


async def test_a_mute_ends_typing_and_covers_signals_to_users() -> None:
    async with serving() as served:
        ann, bob = await furnished(served, "ann", "bob")
        ann.send(type="typing.start", room="den")
        await hear(bob, "typing.started")
        await ask(served, "PUT", "/v1/rooms/den/mutes/ann")
        assert (await hear(bob, "typing.stopped"))["data"]["user"] == "ann"
        await ann.request(type="signal.send", user="bob", kind="wave")
        await ask(served, "PUT", "/v1/mutes/ann")
        assert await codes(ann, {"type": "signal.send", "user": "bob", "kind": "wave"}) == {"muted"}


# --- bans from a room ---


@on_each_pair
@pytest.mark.parametrize("way", ["member", "open", "token"])
async def test_a_user_banned_from_a_room_is_removed_and_gets_nothing_more_of_it(
    pair: str, way: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        store = served.node.store
        await store.put_room("default", "den", open=way == "open")
        if way == "member":
            await store.put_member("default", "den", "ann")
        await store.put_member("default", "den", "bob")
        claims = {"rooms": ["d*"]} if way == "token" else {}
        ann = await served.client("ann", claims=claims)
        await ann.request(type="room.join", room="den")
        bob = await served.joined("bob", "den")
        await say(ann, "hello")
        end = served.clock.now_ms() + 60_000
        assert (await ask(served, "PUT", "/v1/rooms/den/bans/ann", {"until": end})).status == 200
        await say(bob, "she is gone")
        bob.send(type="typing.start", room="den")
        assert await removed(ann) | {"ts": 0} == {
            "room": "den",
            "removed": True,
            "reason": "banned by the app",
            "ts": 0,
        }
        assert await ann.quiet() == []
        assert await codes(ann, *READING, *SENDING) == {"banned"}
        assert (await error(ann, **READING[0]))["retry_in_ms"] == 60_000
        assert (await ann.request(type="room.list"))["rooms"] == []
        again = await served.client(
            "ann", claims=claims, resume={"session": ann.welcome["session"], "rooms": {"den": 0}}
        )
        assert again.welcome["rooms"] == {}
        assert [frame for frame in await again.quiet() if frame["type"] == "room.message"] == []
        members = (await ask(served, "GET", "/v1/rooms/den/members")).json()["members"]
        assert ("ann" in members) == (way == "member")
        await served.advance(60, [again, bob])
        assert (await again.request(type="room.join", room="den", after=1))["messages"][0]["body"] == "she is gone"
        assert await say(again, "back") == 3


@on_each_pair
async def test_a_join_or_a_read_admitted_before_a_ban_is_refused(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await furnished(served, "ann", "bob")
        bob = await served.client("bob")  # another device
        async with hold(served.node.rooms.membership._user_rooms, "get", at="after") as held:
            bob.send(type="room.join", room="den", id="j")
            await held.reached()
            assert (await ask(served, "PUT", "/v1/rooms/den/bans/bob")).status == 200
        assert (await hear(bob, "error"))["code"] == "banned"
        await ask(served, "DELETE", "/v1/rooms/den/bans/bob")
        async with hold(served.node.store, "room_page", at="after") as held:
            bob.send(type="room.history", room="den", id="h")
            await held.reached()
            assert (await ask(served, "PUT", "/v1/rooms/den/bans/bob")).status == 200
        assert (await hear(bob, "error"))["code"] == "banned"
        await ask(served, "DELETE", "/v1/rooms/den/bans/bob")
        await bob.request(type="room.join", room="den")


@on_each_pair
async def test_a_node_that_missed_a_ban_delivers_no_later_message(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await missed(served, "ban", "den", "ann")
        await say(bob, "she must not see this")
        assert (await removed_in_time(served, ann))["removed"]  # the node waits for the announcement
        assert [frame for frame in await ann.quiet() if frame["type"] == "room.message"] == []
        cid = await served.client("cid")
        await served.node.store.put_member("default", "den", "cid")
        await cid.request(type="room.join", room="den")
        await missed(served, "ban", "den", "cid")
        assert (await removed_in_time(served, cid))["removed"]  # the node compares its rooms with the store


# --- bans from the tenant ---


@on_each_pair
async def test_a_user_banned_from_the_tenant_is_disconnected_and_cannot_return_until_the_end(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        phone = await served.client("ann")
        elsewhere = await served.client("ann", claims={"tenant": "other"})
        end = served.clock.now_ms() + 60_000
        assert (await ask(served, "PUT", "/v1/bans/ann", {"until": end, "reason": "spam"})).status == 200
        for client in (ann, phone):
            closed = await client.closed()
            assert (closed.code, closed.reason) == (4501, "the app has banned this user")
        frame, closed = await refused_hello(served, "ann")
        assert (frame["type"], frame["code"], frame["retry_in_ms"]) == ("error", "banned", 60_000)
        assert frame["id"] == 7
        assert (closed.code, closed.reason) == (4501, "the app has banned this user for 60 s; the app can end this")
        assert await elsewhere.request(type="room.list") == {"rooms": []}
        await served.advance(60, [bob, elsewhere])
        back = await served.joined("ann", "den")
        assert await say(back, "I am back") == 1
        await ask(served, "PUT", "/v1/bans/ann")
        frame, closed = await refused_hello(served, "ann")
        assert ("retry_in_ms" in frame, closed.reason) == (False, "the app has banned this user; the app can end this")
        assert (await ask(served, "DELETE", "/v1/bans/ann")).status == 204
        await served.client("ann")


@on_each_pair
async def test_a_node_that_missed_a_ban_from_the_tenant_ends_the_session(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await missed(served, "ban", EVERYWHERE, "ann")
        assert await codes(ann, *SENDING[:1]) == {"banned"}
        await served.advance(15, [bob])
        assert (await ann.closed()).code == 4501
        at = served.clock.now_ms()
        lifted = AuditNote("default", at, "desk", "user.unbanned", None, "ann")
        assert await served.node.store.lift("default", EVERYWHERE, "ann", "ban", lifted)
        await served.advance(15, [bob])
        await served.client("ann")


async def test_a_banned_user_cannot_refresh_a_token() -> None:
    async with serving() as served:
        ann = await served.client("ann")
        token = served.token("ann")
        async with hold(served.node.tokens, "verify") as held:
            ann.send(type="token.refresh", token=token, id="t")
            await held.reached()
            served.node.revocation_service._known.put(  # as known a moment before the connection is closed
                await banned_entry(served, "ann")
            )
        assert (await hear(ann, "error"))["code"] == "banned"


async def banned_entry(served: Served, user: str) -> Any:
    await missed(served, "ban", EVERYWHERE, user)
    return (await served.node.store.revocations(0, 10))[-1].revocation


# --- slow mode ---


@on_each_pair
async def test_slow_mode_admits_one_message_per_user_and_period(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        phone = await served.joined("ann", "den")
        mod = await served.client("mod")
        await served.node.store.put_member("default", "den", "mod", "admin")
        shown = (await ask(served, "PUT", "/v1/rooms/den", {"slow_mode_s": 30})).json()
        assert (shown["slow_mode_s"], shown["archived"]) == (30, False)
        assert (await hear(ann, "room.changed"))["data"]["slow_mode_s"] == 30
        assert (await mod.request(type="room.join", room="den"))["slow_mode_s"] == 30
        assert (await ann.request(type="room.send", room="den", body="one", key="k"))["seq"] == 1
        await served.advance(10, [ann, bob, phone, mod])
        refused = await error(phone, type="room.send", room="den", body="two")
        assert (refused["code"], refused["retry"], refused["retry_in_ms"]) == ("slow_mode", False, 20_000)
        assert (await ann.request(type="room.send", room="den", body="one", key="k"))["seq"] == 1
        assert await say(bob, "mine") == 2
        assert await say(mod, "a", "b") == 4, "admins of the room are exempt"
        await ann.request(type="room.edit", room="den", ref=1, body="edited")
        await ann.request(type="room.react", room="den", ref=2, reaction="+")
        posted = await ask(served, "POST", "/v1/rooms/den/messages", {"user": "ann", "body": "by the app"})
        assert posted.json()["seq"] == 7
        await served.advance(20, [ann, bob, phone, mod])
        assert await say(phone, "two") == 8
        assert (await ask(served, "PUT", "/v1/rooms/den", {"slow_mode_s": 0})).json()["slow_mode_s"] == 0
        assert await say(phone, "three", "four") == 10
        assert "slow_mode_s" not in await mod.request(type="room.join", room="den")
        found = (await ask(served, "GET", "/v1/audit")).json()["entries"]
        assert [(e["action"], e["room"], e["user"]) for e in found] == [("room.slow_mode", "den", None)] * 2


# --- requests ---


async def test_wrong_requests_about_restrictions_are_answered_with_the_reason() -> None:
    async with serving() as served:
        await furnished(served, "ann")
        now = served.clock.now_ms()
        for path in ("rooms/den/mutes", "rooms/den/bans", "mutes", "bans"):
            for body, words in (
                ({"until": now}, "in the past"),
                ({"until": now // 1000 + 60}, "not seconds"),
                ({"until": -1}, "until"),
                ({"until": 2**60}, "until"),
                ({"until": "tomorrow"}, "until"),
                ({"untill": now + 1}, "until"),
                ({"reason": "x" * 501}, "reason"),
                ({"by": "a b"}, "by"),
                ([], "object"),
            ):
                answer = await ask(served, "PUT", f"/v1/{path}/ann", body)
                assert (answer.status, words in answer.json()["detail"]) == (400, True), (path, body, answer.json())
            for query in ("limit=0", "limit=1001", "after=a%20b", "user=ann"):
                assert (await ask(served, "GET", f"/v1/{path}?{query}")).status == 400, query
            assert (await ask(served, "DELETE", f"/v1/{path}/ann?until=1")).status == 400
            assert (await ask(served, "PUT", f"/v1/{path}/a%20b")).status == 400
        for method, path in (
            ("GET", "mutes"),
            ("GET", "bans"),
            ("PUT", "mutes/ann"),
            ("PUT", "bans/ann"),
            ("DELETE", "mutes/ann"),
            ("DELETE", "bans/ann"),
        ):
            answer = await ask(served, method, f"/v1/rooms/attic/{path}")
            assert (answer.status, answer.json()["code"]) == (404, "no_such_room")
        for slow in (-1, 86_401, 1.5, "30"):
            answer = await ask(served, "PUT", "/v1/rooms/den", {"slow_mode_s": slow})
            assert (answer.status, "slow_mode_s" in answer.json()["detail"]) == (400, True)
        assert (await ask(served, "GET", "/v1/audit")).json()["entries"] == []


async def test_restrictions_are_listed_one_page_at_a_time_and_belong_to_the_tenant_of_the_key() -> None:
    async with serving() as served:
        await furnished(served, "ann")
        for user in ("cid", "ann", "bob"):
            for path in ("rooms/den/bans", "bans"):
                await ask(served, "PUT", f"/v1/{path}/{user}", {"reason": user})
        for path in ("rooms/den/bans", "bans"):
            page = (await ask(served, "GET", f"/v1/{path}?limit=2")).json()
            assert ([entry["user"] for entry in page["users"]], page["next"]) == (["ann", "bob"], "bob")
            page = (await ask(served, "GET", f"/v1/{path}?limit=2&after=bob")).json()
            assert ([entry["reason"] for entry in page["users"]], page["next"]) == (["cid"], None)
        key = await make(served, "rooms:write", "rooms:read", name="desk")
        assert (await ask(served, "GET", "/v1/bans", None, key)).json()["users"] == []
        assert (await ask(served, "GET", "/v1/rooms/den/bans", None, key)).status == 404
        assert (await ask(served, "PUT", "/v1/mutes/ann", None, key)).status == 200
        assert (await ask(served, "PUT", "/v1/bans/ann", None, key)).status == 403, "needs the scope `sessions`"
        assert [entry["user"] for entry in (await ask(served, "GET", "/v1/mutes")).json()["users"]] == []
