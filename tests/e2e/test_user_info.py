"""Names and info of users: set by tokens and over HTTP, shown with presence and in rooms. Real sockets."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import Answer, ask
from e2e.test_erased_live import places, redis, served_on  # noqa: F401  (a fixture)
from greendot.errors import StoreUnavailable
from greendot.presence.profiles import EVERY_S
from greendot.testing import Closed, Served, WireClient, hold, serving
from greendot.testing.server import API_KEY

BLUE, RED = {"avatar": "/ann.png", "colour": "#06f"}, {"avatar": "/ann.png", "colour": "#f00"}
LARGEST = {"text": "x" * (1_024 - len('{"text":""}'))}


async def http(served: Served, method: str, path: str, body: Any = None) -> Answer:
    return await ask(served.port, method, f"/v1{path}", body, Authorization=f"Bearer {API_KEY}")


async def put(served: Served, user: str = "ann", **body: Any) -> dict[str, Any]:
    """Set the name or info of a user over HTTP, and wait until the node has shown it."""
    answer = await http(served, "PUT", f"/users/{user}/info", body)
    assert answer.status == 200, answer
    await served.settle()
    kept: dict[str, Any] = answer.json()
    return kept


async def renew(served: Served, client: WireClient, user: str = "ann", **claims: Any) -> None:
    await client.request(type="token.refresh", token=served.token(user, **claims))
    await served.settle()


def shown(entry: dict[str, Any]) -> tuple[str | None, Any]:
    return entry["name"], entry.get("info")


async def watch(client: WireClient, *users: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await client.request(type="watch", users=[*users]))["presence"]
    return entries


async def changes(client: WireClient, kind: str = "presence.changed") -> list[dict[str, Any]]:
    """Return the data of the events of this type since the last time."""
    return [frame["data"] for frame in await client.quiet() if frame["type"] == kind]


async def event(client: WireClient, kind: str, **wanted: Any) -> dict[str, Any]:
    """Return the data of the next event of this type with these values. Other frames are dropped."""
    while True:
        frame = await client.receive()
        data: dict[str, Any] = frame.get("data", {})
        if frame["type"] == kind and all(data.get(name) == value for name, value in wanted.items()):
            return data


@places
async def test_the_info_of_a_token_is_shown_everywhere_and_kept(
    store: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with served_on(store, engine, tmp_path, request) as (served, _):
        bob = await served.joined("bob", comings=True)
        assert shown((await watch(bob, "ann"))[0]) == (None, None)
        ann = await served.client("ann", claims={"info": BLUE})
        await event(bob, "presence.changed", user="ann", name="Ann", info=BLUE)
        await ann.request(type="room.join", room="lobby")
        entered = await event(bob, "room.entered")
        assert entered == {"room": "lobby", "user": "ann", "name": "Ann", "info": BLUE}
        page = await bob.request(type="room.present", room="lobby")
        assert page["users"] == ["ann", "bob"]
        assert page["profiles"] == {"ann": {"name": "Ann", "info": BLUE}, "bob": {"name": "Bob"}}
        ann.send(type="typing.start", room="lobby")
        assert shown(await event(bob, "typing.started")) == ("Ann", BLUE)
        await ann.request(type="room.send", room="lobby", body="hi")
        assert shown(await event(bob, "room.message")) == ("Ann", BLUE)
        history = await bob.request(type="room.history", room="lobby")
        assert [shown(message) for message in history["messages"]] == [("Ann", BLUE)]
        joined = await (await served.client("carl")).request(type="room.join", room="lobby", after=0)
        assert [shown(message) for message in joined["messages"]] == [("Ann", BLUE)]
        assert (await http(served, "GET", "/users/ann/info")).json() == {"name": "Ann", "info": BLUE}
        assert shown((await http(served, "GET", "/users/ann/presence")).json()) == ("Ann", BLUE)
        (message,) = (await http(served, "GET", "/rooms/lobby/messages")).json()["messages"]
        assert shown(message) == ("Ann", BLUE)
        own = await ann.request(type="status.set", status="busy")
        assert shown(own["presence"]) == ("Ann", BLUE)


@places
async def test_a_change_is_sent_to_watchers_and_occupants_at_once_with_the_version_of_the_state(
    store: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with served_on(store, engine, tmp_path, request) as (served, _):
        ann, bob = await served.joined("ann"), await served.joined("bob")
        (before,) = await watch(bob, "ann")
        (own,) = await watch(ann, "ann")
        del before["devices"], own["devices"]
        assert await put(served, info=BLUE) == {"name": None, "info": BLUE}
        for client, entry in ((ann, own), (bob, before)):
            assert await event(client, "presence.changed") == entry | {"info": BLUE}
            profile = await event(client, "room.profile")
            assert profile == {"room": "lobby", "user": "ann", "name": "Ann", "info": BLUE}
        assert await put(served, name="Anne") == {"name": "Anne", "info": BLUE}
        assert await event(bob, "presence.changed") == before | {"name": "Anne", "info": BLUE}
        assert shown(await event(bob, "room.profile")) == ("Anne", BLUE)
        assert await put(served, name="Anne") == {"name": "Anne", "info": BLUE}, "nothing has changed"
        assert await put(served, info=None) == {"name": "Anne"}
        assert await event(bob, "presence.changed") == before | {"name": "Anne"}
        answer = await http(served, "DELETE", "/users/ann/info")
        assert answer.status == 204
        assert await event(bob, "presence.changed") == before


async def test_a_new_token_shows_its_name_and_info_at_once() -> None:
    async with serving() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        (entry,) = await watch(bob, "ann")
        await renew(served, ann, name="Anne")
        (told,) = await changes(bob)
        assert (told["name"], told["version"], told["state"]) == ("Anne", entry["version"], "online")
        await renew(served, ann, name="Anne", info=BLUE)
        assert [shown(one) for one in await changes(bob)] == [("Anne", BLUE)]
        await renew(served, ann, name="Anna", info=RED)
        assert [shown(one) for one in await changes(bob)] == [("Anna", RED)]
        await renew(served, ann, name="Anna", info={})
        assert [shown(one) for one in await changes(bob)] == [("Anna", None)]


async def test_a_token_from_before_a_change_over_http_does_not_undo_it() -> None:
    async with serving() as served:
        old = served.token("ann", info=BLUE)
        bob = await served.client("bob")
        await watch(bob, "ann")
        served.clock.advance(0.001)
        await put(served, info=RED, name="Anne")
        await (await served.socket()).hello(old)
        await served.settle()
        assert [shown(one) for one in await changes(bob)][-1] == ("Anne", RED)
        assert (await http(served, "DELETE", "/users/ann/info")).status == 204
        await (await served.socket()).hello(old)
        assert (await http(served, "GET", "/users/ann/info")).json() == {"name": None}
        served.clock.advance(0.001)
        await served.client("ann", claims={"info": BLUE})
        assert (await http(served, "GET", "/users/ann/info")).json() == {"name": "Ann", "info": BLUE}


async def test_tenants_are_apart() -> None:
    async with serving() as served:
        await served.client("ann", claims={"info": BLUE, "tenant": "acme"})
        ann = await served.client("ann")
        assert shown((await watch(ann, "ann"))[0]) == ("Ann", None)


@pytest.mark.parametrize("info", [LARGEST, {"é": "x" * (1_024 - len('{"é":""}'.encode()))}])
async def test_info_may_have_1024_bytes(info: dict[str, Any]) -> None:
    async with serving() as served:
        await served.client("ann", claims={"info": info})
        assert (await http(served, "GET", "/users/ann/info")).json()["info"] == info
        assert (await put(served, "bob", info=info))["info"] == info


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"text": LARGEST["text"] + "x"}, "at most 1024 bytes"),
        ("blue", "Expected `object"),
        ([BLUE], "Expected `object"),
        ({"a": json.loads("[" * 70 + "]" * 70)}, "levels deep"),
    ],
)
async def test_a_token_with_wrong_info_is_refused_with_the_reason(info: Any, reason: str) -> None:
    async with serving() as served:
        with pytest.raises(Closed, match=reason) as closed:
            await served.client("ann", claims={"info": info})
        assert closed.value.code == 4500
        assert "`info`" in closed.value.reason
        ann = await served.client("ann")
        ann.send(type="token.refresh", token=served.token("ann", info=info), id=1)
        error = await ann.receive("error")
        assert (error["code"], reason in error["message"], "`info`" in error["message"]) == ("bad_field", True, True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"info": {"text": LARGEST["text"] + "x"}}, "field `info` may have at most 1024 bytes"),
        ({"info": "blue"}, "`info`"),
        ({"info": {"n": 10**400}}, "`info`"),
        ({"name": "x" * 201}, "`name`"),
        ({"name": 5}, "`name`"),
        ({"infos": {}}, "did you mean `info`"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_field(body: dict[str, Any], reason: str) -> None:
    async with serving() as served:
        answer = await http(served, "PUT", "/users/ann/info", body)
        assert answer.status == 400
        assert reason in answer.json()["detail"], answer.json()
        assert (await http(served, "GET", "/users/ann/info")).json() == {"name": None}


async def test_an_empty_name_is_none() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await served.client("ann", claims={"name": ""})
        (shown,) = await watch(bob, "ann")
        assert shown["name"] is None
        assert (await http(served, "PUT", "/users/ann/info", {"name": "Ann"})).json() == {"name": "Ann"}
        assert (await http(served, "PUT", "/users/ann/info", {"name": ""})).json() == {"name": None}


async def test_the_token_of_an_invisible_user_changes_nothing_until_the_user_is_visible() -> None:
    async with serving() as served:
        bob, ann = await served.client("bob"), await served.client("ann", claims={"info": BLUE})
        await watch(bob, "ann")
        await ann.request(type="status.set", status="invisible")
        await bob.quiet()
        served.clock.advance(1)
        await renew(served, ann, name="Anne", info=RED)
        await served.client("ann", claims={"name": "Anne", "info": RED}, device="phone")
        await served.settle()
        assert await bob.quiet() == [], "the time of a change would show that the user is here"
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert entry["info"] == BLUE
        await ann.request(type="status.set", status="auto")
        await served.settle()
        assert shown((await changes(bob))[-1]) == ("Anne", RED)


async def test_a_change_over_http_of_an_invisible_user_keeps_the_user_offline() -> None:
    async with serving() as served:
        bob, ann = await served.client("bob"), await served.client("ann")
        await ann.request(type="status.set", status="invisible")
        (before,) = await watch(bob, "ann")
        await put(served, info=RED)
        (told,) = await changes(bob)
        assert told["info"] == RED
        del before["devices"]
        assert told == before | {"info": RED}


async def test_a_hidden_user_shows_no_change_and_the_current_info_when_no_longer_hidden() -> None:
    async with serving() as served:
        bob, ann = await served.client("bob"), await served.client("ann", claims={"info": BLUE})
        await watch(bob, "ann")
        await ann.request(type="privacy.set", hide_from=["bob"])
        await served.settle()
        (gone,) = await changes(bob)
        assert (gone["state"], gone["info"]) == ("offline", BLUE)
        await put(served, info=RED)
        assert await bob.quiet() == []
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert entry["info"] == BLUE, "as it was when the user was hidden"
        eve = await served.client("eve")
        await ann.request(type="privacy.set", hide_from=["bob", "eve"])
        assert shown((await watch(eve, "ann"))[0]) == (None, None)
        await ann.request(type="privacy.set", hide_from=[])
        await served.settle()
        assert shown((await changes(bob))[-1]) == shown((await changes(eve))[-1]) == ("Ann", RED)


async def test_a_tenant_without_info_causes_no_read_of_profiles() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await served.joined("ann")
        async with hold(served.node.store, "profiles") as held:
            bob = await served.joined("bob")
            await watch(bob, "ann")
            await bob.request(type="presence.get", users=["ann"])
            ann.send(type="typing.start", room="lobby")
            await ann.request(type="room.send", room="lobby", body="hi")
            await bob.request(type="room.history", room="lobby")
            page = await bob.request(type="room.present", room="lobby")
            assert page["profiles"] == {"ann": {"name": "Ann"}, "bob": {"name": "Bob"}}
            await served.settle()
            assert held.calls == 0


@pytest.mark.parametrize("kind", ["presence.get", "watch"])
async def test_the_last_that_a_watcher_gets_is_the_newest_info_whenever_it_changes(kind: str) -> None:
    async with serving() as served:
        await put(served, info=BLUE)
        bob = await served.client("bob")
        await watch(bob, "ann")
        async with hold(served.node.store, "profiles", at="after") as held:
            bob.send(type=kind, users=["ann", "eve"], id=9)
            await held.reached()  # read, but not shown yet
            await http(served, "PUT", "/users/ann/info", {"info": RED})
        reply = None
        seen = []
        while reply is None or seen[-1] == BLUE:
            frame = await bob.receive()
            if frame["type"] == "reply":
                reply = next(entry["info"] for entry in frame["data"]["presence"] if entry["user"] == "ann")
            seen.append(reply if frame["type"] == "reply" else frame["data"]["info"])
        await served.settle()
        seen += [told["info"] for told in await changes(bob)]
        assert seen in ([RED], [RED, RED], [BLUE, RED])
        assert kind == "watch" or reply == RED, "a reply is not older than the changes before it"


async def test_an_entry_that_was_read_before_a_change_is_read_again_before_the_reply() -> None:
    async with serving() as served:
        await put(served, info=BLUE)
        bob = await served.client("bob")
        await watch(bob, "ann")
        calls = count()
        # The third look at who sees whom follows the read of presence and profiles.
        async with hold(served.node._visibility, "learn", when=lambda *_: next(calls) == 2) as held:
            bob.send(type="presence.get", users=["ann"], id=9)
            await held.reached()
            await http(served, "PUT", "/users/ann/info", {"info": RED})
            assert (await event(bob, "presence.changed"))["info"] == RED
        (entry,) = (await bob.receive("reply"))["data"]["presence"]
        assert entry["info"] == RED


@pytest.mark.parametrize("change", ["before", "after"])
async def test_a_page_of_occupants_is_not_older_than_the_changes_before_it(change: str) -> None:
    async with serving() as served:
        await served.lobby()
        await put(served, info=BLUE)
        await served.joined("ann")
        bob = await served.joined("bob")
        await served.settle()
        bob.send(type="room.present", room="lobby", id=9)
        async with hold(served.node.rooms.people, "named", at="after" if change == "after" else "before") as held:
            await held.reached()
            await http(served, "PUT", "/users/ann/info", {"info": RED})
            assert (await event(bob, "room.profile"))["info"] == RED
        while (frame := await bob.receive())["type"] != "reply":
            pass
        assert frame["data"]["profiles"]["ann"]["info"] == RED


async def test_a_page_of_many_large_profiles_is_complete() -> None:
    async with serving() as served:
        await served.lobby()
        users = [f"u{number:03}" for number in range(150)]
        for user in users:
            await put(served, user, info=LARGEST, name="n" * 200)
        clients = [await served.joined(user, claims={"name": "n" * 200}) for user in users]
        await served.settle()
        page = await clients[0].request(type="room.present", room="lobby", limit=300)
        assert page["users"] == users
        assert page["profiles"] == {user: {"name": "n" * 200, "info": LARGEST} for user in users}


async def test_the_info_of_authors_counts_for_the_size_of_a_page() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        await put(served, info=LARGEST)
        for number in range(300):
            sent = await http(served, "POST", "/rooms/lobby/messages", {"user": "ann", "body": "x" * 4_000})
            assert sent.status == 201, number
        bob = await served.client("bob")
        messages = (await bob.request(type="room.history", room="lobby", limit=300))["messages"]
        size = sum(len(message["body"]) + 2 + 1_024 for message in messages)
        assert 1_024 * 1_024 - 6_000 < size <= 1_024 * 1_024


async def test_erased_info_is_shown_no_longer_although_no_node_was_told() -> None:
    async with serving() as served:
        bob = await served.client("bob")
        await put(served, info=BLUE, name="Ann")
        assert shown((await watch(bob, "ann"))[0]) == ("Ann", BLUE)
        place = None
        while True:
            step = await served.node.store.erase_user("default", "ann", place, limit=10)
            if (place := step.next) is None:
                break
        (frames,) = await served.advance(EVERY_S, alive=[bob])
        told = [frame["data"] for frame in frames if frame["type"] == "presence.changed"]
        assert [shown(entry) for entry in told] == [(None, None)]


async def _away(keys: Any) -> Any:
    raise StoreUnavailable("away")


async def test_watchers_get_the_info_when_the_store_is_back() -> None:
    async with serving() as served:
        await put(served, info=BLUE)
        bob = await served.client("bob")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(served.node.store, "profiles", _away)
            assert shown((await watch(bob, "ann"))[0]) == (None, None)
        (frames,) = await served.advance(2, alive=[bob])
        told = [frame["data"] for frame in frames if frame["type"] == "presence.changed"]
        assert [shown(entry) for entry in told] == [(None, BLUE)]
