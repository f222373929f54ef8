"""Changes during a large watch that is answered in groups, step by step on each engine and store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from greendot.engine.messages import Topic
from greendot.errors import EngineUnavailable
from greendot.node.time_slices import STEP
from greendot.testing import Served, WireClient, hold, serving

USERS = ["alice", *(f"user{number}" for number in range(STEP + 50))]  # two groups; alice is in the first
ALICE = Topic("watch", "default", "alice")


def second_group(tenant: str, users: Any) -> bool:
    """Return whether a read of the engine is for the second group."""
    return USERS[-1] in users


async def until_reply(client: WireClient) -> list[dict[str, Any]]:
    """Return all frames up to the reply."""
    frames = [await client.receive()]
    while frames[-1]["type"] != "reply":
        frames.append(await client.receive())
    return frames


def listens(served: Served, client: WireClient) -> bool:
    watched = served.node.watching.watched(ALICE)
    sessions = {connection.session for connection in watched.channel.listeners} if watched is not None else ()
    return client.welcome["session"] in {session.id for session in sessions if session is not None}


@on_each_pair
@pytest.mark.parametrize("last_seen", ["shown", "hidden"])
async def test_the_reply_is_not_older_than_a_change_before_it(
    pair: str, last_seen: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.node.store.put_privacy("default", "alice", last_seen=last_seen)
        bob = await served.client("bob")
        async with hold(served.node.engine, "read", when=second_group) as held:
            bob.send(type="watch", users=USERS, id="w")
            await held.reached()
            await served.client("alice")
            change = await bob.receive("presence.changed")
            assert change["data"]["state"] == "online"
        *more, reply = await until_reply(bob)
        assert [frame["data"]["state"] for frame in more] in ([], ["online"])
        shown = reply["data"]["presence"][0]
        assert (shown["user"], shown["state"], shown["version"]) == ("alice", "online", change["data"]["version"])


@on_each_pair
@pytest.mark.parametrize("command", ["watch", "presence.get"])
async def test_who_hides_meanwhile_is_not_in_the_reply(pair: str, command: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice, bob = await served.client("alice"), await served.client("bob")
        async with hold(served.node.engine, "read", when=second_group) as held:
            bob.send(type=command, users=USERS, id="w")
            await held.reached()
            await alice.request(type="privacy.set", hide_from=["bob"])  # from this reply on, Bob must see nothing more
        shown = (await until_reply(bob))[-1]["data"]["presence"][0]
        assert (shown["user"], shown["state"], shown["devices"]) == ("alice", "offline", [])


async def test_who_is_shown_again_meanwhile_is_in_the_reply_of_a_watch() -> None:
    async with serving() as served:
        alice, bob = await served.client("alice"), await served.client("bob")
        await alice.request(type="privacy.set", hide_from=["bob"])
        async with hold(served.node.engine, "read", when=second_group) as held:
            bob.send(type="watch", users=USERS, id="w")
            await held.reached()
            await alice.request(type="privacy.set", hide_from=[])
        assert (await until_reply(bob))[-1]["data"]["presence"][0]["state"] == "online"
        assert listens(served, bob)


@on_each_pair
async def test_one_who_goes_meanwhile_leaves_no_watch_behind(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.client("alice")
        bob = await served.client("bob")
        async with hold(served.node.engine, "read", when=second_group) as held:
            bob.send(type="watch", users=USERS, id="w")
            await held.reached()
            assert listens(served, bob)
            await bob.reset()
            held.release()
            await served.until_gone(1)
        for user in USERS:
            watched = served.node.watching.watched(Topic("watch", "default", user))
            assert watched is None or not watched.is_wanted


async def test_a_watch_that_fails_half_way_adds_no_watched_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        await served.client("alice")
        bob, read = await served.client("bob"), served.node.engine.read
        await bob.request(type="watch", users=["user7"])

        async def failing(tenant: str, users: list[str]) -> Any:
            if second_group(tenant, users):
                raise EngineUnavailable("gone")
            return await read(tenant, users)

        monkeypatch.setattr(served.node.engine, "read", failing)
        bob.send(type="watch", users=USERS, id="w")
        assert (await bob.receive("error"))["code"] == "unavailable"
        assert not listens(served, bob)
        monkeypatch.undo()
        assert (await served.client("user7")).welcome["user"] == "user7"
        assert [frame["data"]["user"] for frame in await bob.quiet()] == ["user7"]
