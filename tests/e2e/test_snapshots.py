"""Replies with records and a head or counters are one consistent read, despite concurrent commits.

Each test holds the result of the first database read of a request, commits a change, and continues. The hold is below
the store's methods, so a reply from two reads fails for any combination of methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import ask
from greendot.inbox.badges import EVERY_S
from greendot.store.inbox import Notice
from greendot.store.postgres import PostgresStore
from greendot.store.rooms import Draft
from greendot.store.sqlite import SqliteStore
from greendot.testing import Served, hold, serving
from greendot.testing.server import API_KEY
from postgres_server import fresh_schema

T = "default"
NOW = 1_800_000_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Return a function that makes a store URL: an SQLite file, or a new schema in PostgreSQL."""

    @asynccontextmanager
    async def place() -> AsyncIterator[str]:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/store.db"
        else:
            async with fresh_schema(request.getfixturevalue("postgres")) as url:
                yield url

    if request.param == "postgres":
        request.getfixturevalue("postgres")
    return place


@asynccontextmanager
async def served_at(places: Callable[[], Any]) -> AsyncIterator[Served]:
    async with places() as url, serving(store={"url": url, "migrate": True}) as served:
        yield served


async def meanwhile(served: Served, request: Awaitable[Any], commit: Callable[[], Awaitable[Any]]) -> Any:
    """Return the response to `request` when `commit` runs right after its first database read."""
    store: Any = served.node.store
    assert isinstance(store, SqliteStore | PostgresStore)
    target, method = (store._thread, "do") if isinstance(store, SqliteStore) else (store._links, "fetch")
    reads = 0

    def is_first(*_: object) -> bool:
        nonlocal reads
        reads += 1
        return reads == 1

    async with hold(target, method, at="after", when=is_first) as held:
        asked = asyncio.ensure_future(request)
        await held.reached()
        await commit()
        held.release()
        return await asked


def notices(*keys: str) -> list[Notice]:
    return [Notice(T, "ann", "news", b"0", key, NOW) for key in keys]


async def get(served: Served, path: str) -> dict[str, Any]:
    answer = await ask(served.port, "GET", path, Authorization=f"Bearer {API_KEY}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def agrees(page: dict[str, Any]) -> None:
    """Check a page of a whole inbox without archived entries: all numbers up to the head, and matching counters."""
    assert [entry["seq"] for entry in page["notifications"]] == [*range(1, page["head"] + 1)]
    assert page["unread"] == sum(entry["read_at"] is None for entry in page["notifications"])
    assert page["unseen"] == sum(entry["seen_at"] is None for entry in page["notifications"])


@pytest.mark.parametrize("way", ["socket", "http"])
async def test_a_page_of_an_inbox_has_every_notification_up_to_its_head(places: Callable[[], Any], way: str) -> None:
    async with served_at(places) as served:
        store = served.node.store
        ann = await served.client("ann")
        await store.notify(notices("k1", "k2"))

        def page() -> Awaitable[Any]:
            return ann.request(type="inbox.list") if way == "socket" else get(served, "/v1/users/ann/inbox")

        agrees(await meanwhile(served, page(), lambda: store.notify(notices("k3"))))
        agrees(await meanwhile(served, page(), lambda: store.mark(T, "ann", "read", through=2, at=NOW)))
        agrees(await page())


async def test_a_page_of_messages_has_a_next_position_if_more_followed_when_it_was_read(
    places: Callable[[], Any],
) -> None:
    async with served_at(places) as served:
        store = served.node.store
        await served.lobby()

        async def said(*keys: str) -> None:
            for key in keys:
                await store.append(T, "lobby", Draft("ann", None, b"0", key, NOW))

        await said("k1", "k2")
        path = "/v1/rooms/lobby/messages?after=0&limit=3"
        page = await meanwhile(served, get(served, path), lambda: said("k3", "k4"))
        # A page read before the two new messages is the last page; with one of them it is not.
        assert ([message["seq"] for message in page["messages"]], page["next"]) in (([1, 2], None), ([1, 2, 3], 3))


@pytest.mark.parametrize("command", ["inbox.list", "inbox.read"])
async def test_counters_of_a_reply_that_a_newer_badge_overtook_are_sent_again(command: str) -> None:
    async with serving() as served:
        store = served.node.store
        ann = await served.client("ann")
        asked = {"type": command} if command == "inbox.list" else {"type": command, "ids": ["1-of-nobody"]}
        method = "inbox_page" if command == "inbox.list" else "mark"
        async with hold(store, method, at="after") as held:
            ann.send(**asked, id="a")
            await held.reached()
            await served.node.inbox_service.notify(notices("k1"))
            served.clock.advance(EVERY_S + 0.01)
            served.node.timers.tick()
            await ann.receive("notification.created")
            assert (await ann.receive("inbox.badge"))["data"] == {"unread": 1, "unseen": 1}
        reply = await ann.receive("reply")
        assert (reply["id"], reply["data"]["unread"]) == ("a", 0)
        ((frames),) = await served.advance(EVERY_S + 0.01, [ann])
        assert [frame["data"] for frame in frames if frame["type"] == "inbox.badge"] == [{"unread": 1, "unseen": 1}]


async def test_a_welcome_counts_what_it_brings() -> None:
    async with serving() as served:
        store = served.node.store
        await store.notify(notices("k1"))
        async with hold(served.node.inbox_delivery._heads, "_read", at="after") as held:
            laptop = await served.socket()
            laptop.send(type="hello", token=served.token("ann"), device="laptop", resume={"inbox": 0})
            await held.reached()
            await served.node.inbox_service.notify(notices("k2"))
        welcome = await laptop.receive("welcome")
        brought = [frame["data"]["seq"] for frame in await laptop.quiet() if frame["type"] == "notification.created"]
        assert (welcome["data"]["unread"], brought) == (2, [1, 2])
