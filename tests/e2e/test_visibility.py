"""Visibility: each policy, hidden users, and changes while others watch. Real sockets, virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from e2e.processes import ask
from greendot.errors import StoreUnavailable
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY

UNKNOWN = {
    "name": None,
    "state": "offline",
    "since": None,
    "last_seen": None,
    "version": 0,
    "status_text": None,
    "mode": "live",
}
DAY_MS = 86_400_000


async def entry(client: WireClient, user: str, kind: str = "watch") -> dict[str, Any]:
    """Return the presence entry of one user in the client's reply."""
    (found,) = (await client.request(type=kind, users=[user]))["presence"]
    assert found["user"] == user
    shown: dict[str, Any] = found
    return shown


async def states(client: WireClient, *users: str) -> list[str]:
    """Return the states from `presence.get`, which must equal those from `watch`."""
    watched, asked = [
        [found["state"] for found in (await client.request(type=kind, users=[*users]))["presence"]]
        for kind in ("watch", "presence.get")
    ]
    assert watched == asked
    return watched


def changes(frames: list[dict[str, Any]], user: str = "ann") -> list[dict[str, Any]]:
    return [f["data"] for f in frames if f["type"] == "presence.changed" and f["data"]["user"] == user]


async def hide(client: WireClient, *users: str) -> None:
    reply = await client.request(type="privacy.set", hide_from=[*users])
    assert reply["hide_from"] == sorted(users)


@asynccontextmanager
async def contact(served: Served) -> AsyncIterator[Any]:
    """Yield a function that adds contacts."""

    async def put(user: str, other: str, at: int | None = None) -> None:
        at = served.clock.now_ms() if at is None else at
        await served.node.visibility_updates.put_contact(("default", user), other, at)

    yield put


# --- privacy settings ---


async def test_what_is_hidden_is_kept_and_answered() -> None:
    async with serving() as served:
        ann = await served.client("ann")
        assert await ann.request(type="privacy.set") == {"last_seen": "shown", "hide_from": []}
        assert await ann.request(type="privacy.set", last_seen="hidden", hide_from=["eve", "bob", "eve", "ann"]) == {
            "last_seen": "hidden",
            "hide_from": ["bob", "eve"],
        }
        assert await ann.request(type="privacy.set", hide_from=[]) == {"last_seen": "hidden", "hide_from": []}
        again = await served.client("ann", device="phone")
        assert await again.request(type="privacy.set") == {"last_seen": "hidden", "hide_from": []}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"last_seen": "maybe"}, "last_seen"),
        ({"hide_from": "bob"}, "hide_from"),
        ({"hide_from": ["b b"]}, "hide_from[0]"),
        ({"hide_from": ["bob"] * 1_001}, "hide_from"),
    ],
)
async def test_what_makes_no_sense_is_refused_whole(fields: dict[str, Any], named: str) -> None:
    async with serving() as served:
        ann = await served.client("ann")
        ann.send(type="privacy.set", **fields, id=1)
        error = await ann.receive("error")
        assert (error["code"], error["id"]) == ("bad_field", 1)
        assert named in error["message"]
        assert await ann.request(type="privacy.set") == {"last_seen": "shown", "hide_from": []}


async def test_a_hidden_user_appears_as_an_unknown_user() -> None:
    async with serving() as served:
        ann, bob, eve = [await served.client(user) for user in ("ann", "bob", "eve")]
        await hide(ann, "bob")
        for kind in ("watch", "presence.get"):
            stranger = await entry(bob, "nobody", kind)
            assert await entry(bob, "ann", kind) == stranger | {"user": "ann"}
            assert stranger == UNKNOWN | {"user": "nobody", "devices": []}
            assert (await entry(eve, "ann", kind))["state"] == (await entry(ann, "ann", kind))["state"] == "online"
            assert (await entry(ann, "bob", kind))["state"] == "online", "the hiding user must still see the other"
        await ann.request(type="status.set", status="busy", text="do not disturb")
        await ann.request(type="status.set", status="auto")
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
        assert await bob.quiet() == []
        assert [change["state"] for change in changes(await eve.quiet())] == ["busy", "online", "offline"]
        assert await entry(bob, "ann", "presence.get") == UNKNOWN | {"user": "ann", "devices": []}


async def test_who_is_watched_and_hides_seems_to_leave_and_to_come_back() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        before = await entry(bob, "ann")
        served.clock.advance(5)
        await hide(ann, "bob")
        (gone,) = changes(await bob.quiet())
        now = served.clock.now_ms()
        assert gone == UNKNOWN | {"user": "ann", "name": "Ann", "since": now, "last_seen": now, "version": now}
        assert gone["version"] > before["version"]
        served.clock.advance(5)
        await ann.request(type="status.set", status="busy")
        for kind in ("watch", "presence.get"):
            assert await entry(bob, "ann", kind) == gone | {"devices": []}, "the hidden user's entry changed"
        assert await bob.quiet() == []
        await hide(ann)
        (back,) = changes(await bob.quiet())
        assert back["state"] == "busy"
        assert back["version"] > gone["version"]
        await ann.request(type="status.set", status="auto")
        (again,) = changes(await bob.quiet())
        assert again["version"] > back["version"]


async def test_a_version_never_decreases_however_often_a_user_hides() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        seen = [(await entry(bob, "ann"))["version"]]
        for _ in range(5):
            for users in (["bob"], [], ["eve"], ["bob", "eve"], []):
                await hide(ann, *users)
                seen += [change["version"] for change in changes(await bob.quiet())]
        assert len(seen) == 1 + 5 * 4
        assert seen == sorted({*seen})


async def test_hiding_while_offline_is_visible_to_no_other_user() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
        before = await entry(bob, "ann")
        assert before["last_seen"] is not None
        await served.node.visibility_updates.set_privacy(("default", "ann"), None, ["bob"])
        assert await bob.quiet() == []
        assert await entry(bob, "ann") == before
        served.clock.advance(60)
        ann = await served.client("ann")
        assert await bob.quiet() == []
        assert await entry(bob, "ann") == before
        fresh = await served.client("bob", device="phone")
        assert await entry(fresh, "ann") == UNKNOWN | {"user": "ann", "devices": []}


async def test_the_last_seen_can_be_hidden_and_no_other_field_reveals_it() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        await ann.request(type="privacy.set", last_seen="hidden")
        assert (await entry(bob, "ann"))["since"] is not None, "an online user must have `since`"
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
        (gone,) = changes(await bob.quiet())
        expected = UNKNOWN | {"user": "ann", "name": "Ann"}
        assert gone == expected
        for kind in ("watch", "presence.get"):
            assert await entry(bob, "ann", kind) == expected | {"devices": []}
        again = await served.client("ann")
        (back,) = changes(await bob.quiet())
        assert (back["state"], back["version"] > 0) == ("online", True)
        own = await entry(again, "ann")
        assert own["state"] == "online"


async def test_watchers_are_notified_when_the_last_seen_is_hidden_or_shown() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
        before = await entry(bob, "ann")
        await served.node.visibility_updates.set_privacy(("default", "ann"), "hidden", None)
        (hidden,) = changes(await bob.quiet())
        assert (hidden["last_seen"], hidden["since"], hidden["version"]) == (None, None, 0)
        await served.node.visibility_updates.set_privacy(("default", "ann"), "shown", None)
        (shown,) = changes(await bob.quiet())
        assert shown | {"devices": []} == before


async def test_no_privacies_are_read_while_no_user_hides() -> None:
    async with serving() as served:
        reads: list[Any] = []
        store, read = served.node.store, served.node.store.privacies
        store.privacies = lambda keys: (reads.append(keys), read(keys))[1]  # type: ignore[method-assign]
        await served.lobby()
        clients = [await served.joined(f"u{number}") for number in range(5)]
        for client in clients:
            await client.request(type="watch", users=[f"u{number}" for number in range(100)])
            await client.request(type="presence.get", users=[f"u{number}" for number in range(100)])
            client.send(type="typing.start", room="lobby")
        served.node.watching.in_use = reads.append  # type: ignore[method-assign, assignment]
        await served.advance(120, alive=clients)
        assert reads == []
        del served.node.watching.in_use
        await hide(clients[0], "u1")
        assert reads


# --- policies ---


async def test_members_of_a_room_see_each_other_until_the_last_room_they_share() -> None:
    async with serving(visibility={"policy": "shared_rooms"}) as served:
        store, room_messages = served.node.store, served.node.room_messages
        for room in ("r1", "r2"):
            await store.put_room("default", room)
            for user in ("ann", "bob"):
                await room_messages.put_member("default", room, user, "member")
        _, bob, eve = [await served.client(user) for user in ("ann", "bob", "eve")]
        assert await states(bob, "ann", "eve", "bob") == ["online", "offline", "online"]
        assert await states(eve, "ann", "bob") == ["offline", "offline"]
        rooms = await store.heads([("default", "r1"), ("default", "r2")])
        await room_messages.remove_member("default", rooms["default", "r1"], "ann")
        assert changes(await bob.quiet()) == []
        await room_messages.remove_member("default", rooms["default", "r2"], "ann")
        assert [change["state"] for change in changes(await bob.quiet())] == ["offline"]
        assert await states(bob, "ann") == ["offline"]
        await room_messages.put_member("default", "r1", "eve", "reader")
        assert [change["state"] for change in changes(await eve.quiet(), "bob")] == ["online"]
        assert [change["state"] for change in changes(await bob.quiet(), "eve")] == ["online"]


async def test_contacts_see_each_other_when_both_have_the_other() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        visibility_updates = served.node.visibility_updates
        ann, bob = await served.client("ann"), await served.client("bob")
        assert await states(ann, "bob") == await states(bob, "ann") == ["offline"]
        await visibility_updates.put_contact(("default", "ann"), "bob", 1)
        assert await ann.quiet() == await bob.quiet() == []
        await visibility_updates.put_contact(("default", "bob"), "ann", 1)
        assert [change["state"] for change in changes(await bob.quiet())] == ["online"]
        assert [change["state"] for change in changes(await ann.quiet(), "bob")] == ["online"]
        await visibility_updates.remove_contact(("default", "ann"), "bob")
        assert [change["state"] for change in changes(await bob.quiet())] == ["offline"]
        assert [change["state"] for change in changes(await ann.quiet(), "bob")] == ["offline"]
        assert await states(ann, "bob") == await states(bob, "ann") == ["offline"]


async def test_a_contact_is_recent_for_the_configured_days_and_then_expires_without_a_call() -> None:
    async with serving(visibility={"policy": "recent_contacts", "recent_days": 2}) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        async with contact(served) as put:
            await put("ann", "bob", served.clock.now_ms() - 2 * DAY_MS + 60_000)
            assert await states(bob, "ann") == ["online"]
            assert await states(ann, "bob") == ["offline"], "a contact entry must not show the other user to its owner"
            _, frames = await served.advance(59, alive=[ann, bob])
            assert changes(frames) == []
            _, frames = await served.advance(31, alive=[ann, bob])
            assert [change["state"] for change in changes(frames)] == ["offline"]
            await put("ann", "bob")
            assert [change["state"] for change in changes(await bob.quiet())] == ["online"]


async def test_tenants_have_policies_of_their_own() -> None:
    async with serving(
        visibility={"policy": "contacts"}, tenants={"acme": {"visibility": {"policy": "tenant"}}}
    ) as served:
        for tenant, state in (("acme", "online"), ("other", "offline")):
            await served.client("ann", claims={"tenant": tenant})
            bob = await served.client("bob", claims={"tenant": tenant})
            assert await states(bob, "ann") == [state]


async def test_what_is_hidden_in_one_tenant_is_not_in_another() -> None:
    async with serving() as served:
        pairs = {}
        for tenant in ("t1", "t2"):
            pairs[tenant] = [await served.client(user, claims={"tenant": tenant}) for user in ("ann", "bob")]
            await states(pairs[tenant][1], "ann")
        await hide(pairs["t1"][0], "bob")
        assert [change["state"] for change in changes(await pairs["t1"][1].quiet())] == ["offline"]
        assert await pairs["t2"][1].quiet() == []
        assert await states(pairs["t2"][1], "ann") == ["online"]


async def test_a_token_may_allow_less_than_the_policy_never_more() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        await served.client("ann")
        async with contact(served) as put:
            await put("ann", "bob")
            await put("bob", "ann")
        narrow = await served.client("bob", claims={"watch": ["team-*"]})
        assert await states(narrow, "ann") == ["offline"]
        wide = await served.client("eve", claims={"watch": ["*"]})
        assert await states(wide, "ann") == ["offline"]


# --- lost messages ---


async def test_a_privacy_change_without_a_message_is_found_by_the_periodic_check() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        await entry(bob, "ann")
        await served.node.store.put_privacy("default", "ann", hide_from=frozenset({"bob"}))
        assert (await entry(bob, "ann"))["state"] == "online"
        _, frames = await served.advance(30, alive=[ann, bob])
        assert [change["state"] for change in changes(frames)] == ["offline"]
        await served.node.store.put_privacy("default", "ann", hide_from=frozenset())
        _, frames = await served.advance(30, alive=[ann, bob])
        assert [change["state"] for change in changes(frames)] == ["online"]


async def test_tenants_without_sessions_are_forgotten_and_all_others_are_read_in_one_call() -> None:
    async with serving() as served:
        reads: list[Any] = []
        store, read = served.node.store, served.node.store.changes
        clients = []
        for number in range(20):
            clients.append(await served.client("bob", claims={"tenant": f"t{number}"}))
            await entry(clients[-1], "ann")
        store.changes = lambda since: (reads.append([*since]), read(since))[1]  # type: ignore[method-assign]
        await served.advance(30, alive=clients)
        assert sorted(kind for since in reads for kind in {kind for _, kind, _ in since}) == ["info", "mode", "privacy"]
        assert [len(since) for since in reads] == [20, 20, 20]
        for client in clients[5:]:
            client.send(type="bye")
            await client.closed()
        await served.advance(35, alive=clients[:5])
        assert sorted(tenant for tenant, _, _ in reads[-1]) == [f"t{number}" for number in range(5)]


async def test_what_cannot_be_read_is_hidden_until_it_can() -> None:
    async with serving() as served:
        ann, bob, eve = [await served.client(user) for user in ("ann", "bob", "eve")]
        for watcher in (bob, eve):
            await entry(watcher, "ann")
            await entry(watcher, "zoe")
        store, read = served.node.store, served.node.store.privacies

        async def away(keys: Any) -> Any:
            raise StoreUnavailable("away")

        store.privacies = away  # type: ignore[method-assign]
        await ann.request(type="privacy.set", hide_from=["bob"])
        for watcher in (bob, eve):
            assert [change["state"] for change in changes(await watcher.quiet())] == ["offline"]
        store.privacies = read  # type: ignore[method-assign]
        frames = await served.advance(1, alive=[ann, bob, eve])
        assert changes(frames[1]) == []
        assert [change["state"] for change in changes(frames[2])] == ["online"]


# --- over HTTP ---


async def test_contacts_are_put_and_removed_by_the_app() -> None:
    async with serving(visibility={"policy": "contacts"}) as served:
        call = partial(ask, served.port, Authorization=f"Bearer {API_KEY}")
        now = served.clock.now_ms()
        put = await call("PUT", "/v1/users/ann/contacts/bob")
        assert (put.status, put.json()) == (200, {"user": "ann", "contact": "bob", "last_contact_at": now})
        put = await call("PUT", "/v1/users/bob/contacts/ann", {"last_contact_at": now + DAY_MS})
        assert put.json()["last_contact_at"] == now, "a future time must become the current time"
        await served.client("ann")
        bob = await served.client("bob")
        assert await states(bob, "ann") == ["online"]
        for _ in range(2):
            assert (await call("DELETE", "/v1/users/ann/contacts/bob")).status == 204
        assert await states(bob, "ann") == ["offline"]
        assert (await call("GET", "/v1/users/ann/presence")).json()["state"] == "online", "an app must see all users"
        assert (await call("POST", "/v1/presence/query", {"users": ["ann"]})).json()["presence"][0]["state"] == "online"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/users/ann/contacts/ann", None, 400),
        ("/v1/users/a%20b/contacts/ann", None, 400),
        ("/v1/users/ann/contacts/b%00b", None, 400),
        ("/v1/users/ann/contacts/" + "x" * 129, None, 400),
        ("/v1/users/ann/contacts/bob", {"last_contact_at": -1}, 400),
        ("/v1/users/ann/contacts/bob", {"last_contact_at": "now"}, 400),
        ("/v1/users/ann/contacts/bob", {"last_contact_at": 2**60}, 400),
        ("/v1/users/ann/contacts/bob", b"{", 400),
    ],
)
async def test_bad_contacts_are_refused(path: str, body: Any, status: int) -> None:
    async with serving() as served:
        answer = await ask(served.port, "PUT", path, body, Authorization=f"Bearer {API_KEY}")
        assert answer.status == status
        assert await served.node.store.contacts([("default", "ann")]) == {}


async def test_a_key_is_needed_for_contacts() -> None:
    async with serving() as served:
        for method in ("PUT", "DELETE"):
            assert (await ask(served.port, method, "/v1/users/ann/contacts/bob")).status == 401


async def test_a_contact_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.visibility.updates.MOST_CONTACTS", 2)
    async with serving() as served:
        call = partial(ask, served.port, Authorization=f"Bearer {API_KEY}")
        codes = [(await call("PUT", f"/v1/users/ann/contacts/u{number}")).status for number in range(3)]
        assert codes[:2] == [200, 200]
        refused = await call("PUT", "/v1/users/ann/contacts/u2")
        assert refused.status == codes[2] == 400
        assert refused.json()["code"] == "too_many"


# --- presence.get without a watch ---


async def test_who_is_only_asked_for_is_seen_by_those_who_may() -> None:
    async with serving() as served:
        ann, bob, eve = [await served.client(user) for user in ("ann", "bob", "eve")]
        await ann.request(type="privacy.set", hide_from=["bob"])
        for _ in range(2):
            assert (await entry(eve, "ann", "presence.get"))["state"] == "online"
            assert await entry(bob, "ann", "presence.get") == UNKNOWN | {"user": "ann", "devices": []}
            await served.advance(61, alive=[ann, bob, eve])
