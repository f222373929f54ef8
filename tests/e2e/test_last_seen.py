"""Last seen after a restart, a kill and an erasure, with the memory engine and both stores."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import ask
from greendot.app.adapters import make_store
from greendot.auth.model import Revocation
from greendot.auth.revocation import EVERY_ALONE_S
from greendot.cli._revoked_sessions import revoke_and_end
from greendot.cli.user import _erase
from greendot.presence.last_seen import EVERY_S
from greendot.presence.last_seen_model import TURNS
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.clock import START_MS
from greendot.testing.server import API_KEY
from postgres_server import fresh_schema

T, DAY_MS = "default", 86_400_000
ANN = (T, "ann")
stores = pytest.mark.parametrize("store", ["sqlite", "postgres"])
Sections = dict[str, dict[str, Any]]


@asynccontextmanager
async def settings_on(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Sections]:
    """Yield settings of servers that follow each other on one store."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'greendot.db'}"
        if store == "postgres":
            url = await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres")))
        yield {"store": {"url": url, "migrate": True}}


async def leave(served: Served, client: WireClient) -> None:
    """End the user's session at once."""
    client.send(type="bye")
    await client.closed()
    await served.settle()


async def entries(served: Served, user: str = "ann") -> list[dict[str, Any]]:
    """Return the user's entry by a watch, a query and both HTTP routes, without the devices of snapshots."""
    bob = await served.client("bob")
    watched = (await bob.request(type="watch", users=[user]))["presence"]
    asked = (await bob.request(type="presence.get", users=[user]))["presence"]
    key = {"Authorization": f"Bearer {API_KEY}"}
    queried = await ask(served.port, "POST", "/v1/presence/query", {"users": [user]}, **key)
    alone = await ask(served.port, "GET", f"/v1/users/{user}/presence", **key)
    assert await bob.quiet() == [], "no event follows the answer of the store"
    await bob.end()
    return [*watched, *asked, *queried.json()["presence"], alone.json()]


async def last_seen(served: Served, user: str = "ann") -> int | None:
    """Return the last-seen time of an offline user, which all readers see."""
    found = await entries(served, user)
    assert {entry["state"] for entry in found} == {"offline"}
    (at,) = {entry["last_seen"] for entry in found}
    return at


async def stored(served: Served) -> int | None:
    return (await served.node.store.last_seen([ANN])).get(ANN)


@stores
async def test_last_seen_is_there_after_a_restart(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann = await served.client("ann")
            await leave(served, ann)
            left = served.clock.now_ms()
            await served.advance(1)
        async with serving(**sections) as served:
            await served.advance(8 * 60)
            assert await last_seen(served) == left
            ann = await served.client("ann")
            assert {entry["state"] for entry in await entries(served)} == {"online"}


@stores
async def test_a_user_who_was_online_at_the_stop_was_last_seen_then(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann = await served.client("ann")
            await served.advance(100, alive=[ann])
            stopped = served.clock.now_ms()
        async with serving(**sections) as served:
            await served.advance(8 * 60)
            assert await last_seen(served) == stopped


async def kill(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server write nothing when it stops, as a killed one."""

    async def nothing() -> None:
        pass

    monkeypatch.setattr(served.node.last_seen, "close", nothing)


@stores
@pytest.mark.parametrize("online_s", [EVERY_S + 1, 3 * TURNS * EVERY_S])
async def test_a_user_who_was_online_at_a_kill_was_seen_at_most_ten_minutes_before(
    store: str, online_s: float, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann = await served.client("ann")
            await served.advance(online_s, alive=[ann])
            killed = served.clock.now_ms()
            await kill(served, monkeypatch)
        async with serving(**sections) as served:
            await served.advance(online_s + 8 * 60)
            at = await last_seen(served)
            assert at is not None
            assert killed - TURNS * EVERY_S * 1000 - 1_000 <= at <= killed


KILLED = """
import asyncio, os, signal, sys
from greendot.testing import serving

async def main():
    async with serving(store={"url": sys.argv[1]}) as served:
        ann, eve = await served.client("ann"), await served.client("eve")
        ann.send(type="bye")
        await ann.closed()
        await served.advance(float(sys.argv[2]), alive=[eve])
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_last_seen_is_in_the_file_of_a_process_that_was_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'greendot.db'}"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url, str(EVERY_S + 1))
    assert await process.wait() == -signal.SIGKILL
    async with serving(store={"url": url}) as served:
        await served.advance(8 * 60)
        assert await last_seen(served) == START_MS
        assert await last_seen(served, "eve") == START_MS + EVERY_S * 1000


@stores
async def test_a_kill_loses_only_the_departures_of_the_last_period(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann, eve = await served.client("ann"), await served.client("eve")
            await served.advance(EVERY_S - 1, alive=[ann, eve])
            await leave(served, ann)
            left = served.clock.now_ms()
            await served.advance(2, alive=[eve])
            written = served.clock.now_ms()
            await leave(served, eve)
            await served.advance(EVERY_S - 5)
            await kill(served, monkeypatch)
        async with serving(**sections) as served:
            await served.advance(8 * 60)
            assert await last_seen(served) == left
            at = await last_seen(served, "eve")
            assert at is not None
            assert left <= at <= written


@stores
async def test_a_hidden_last_seen_stays_hidden_after_a_restart(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann = await served.client("ann")
            await ann.request(type="privacy.set", last_seen="hidden")
            await leave(served, ann)
            await served.advance(1)
        async with serving(**sections) as served:
            await served.advance(60)
            assert await stored(served) is not None
            bob = await served.client("bob")
            for command in ("watch", "presence.get"):
                (entry,) = (await bob.request(type=command, users=["ann"]))["presence"]
                assert (entry["last_seen"], entry["since"], entry["version"]) == (None, None, 0)


@stores
async def test_after_a_restart_an_invisible_user_was_last_seen_when_becoming_invisible(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        async with serving(**sections) as served:
            ann = await served.client("ann")
            await served.advance(50, alive=[ann])
            hidden = served.clock.now_ms()
            await ann.request(type="status.set", status="invisible")
            await served.advance(2 * TURNS * EVERY_S, alive=[ann])
        async with serving(**sections) as served:
            await served.advance(2 * TURNS * EVERY_S + 100)
            ann = await served.client("ann")
            assert await last_seen(served) == hidden
            await served.advance(TURNS * EVERY_S, alive=[ann])
            await leave(served, ann)
            await served.advance(EVERY_S)
            assert await last_seen(served) == hidden
            assert await stored(served) == hidden


@stores
@pytest.mark.parametrize("late", [False, True], ids=["written before", "written after"])
async def test_nothing_is_stored_of_a_user_who_was_erased_while_online(
    store: str, late: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Erase a user while the node writes the user's last-seen time, which the node read before."""
    async with settings_on(store, tmp_path, request) as sections, serving(**sections) as served:
        beside = make_store(served.greendot.settings)
        await beside.start()
        ann = await served.client("ann")
        async with hold(served.node.store, "put_last_seen", at="before" if late else "after") as writing:
            served.clock.advance(EVERY_S)
            served.node.timers.tick()
            await writing.reached()
            assert await stored(served) is None or not late
            now = served.clock.now_ms()
            erased = Revocation(T, "user", "ann", now + DAY_MS, now)
            ending = asyncio.create_task(revoke_and_end(served.greendot.settings, beside, erased))
            while not ending.done():
                await asyncio.sleep(0.01)
                served.clock.advance(EVERY_ALONE_S)
                served.node.timers.tick()
            assert (await asyncio.wait_for(ending, 20)).sure
            assert (await ann.closed()).code == 4501
            await _erase(beside, T, "ann")
        await served.advance(2 * EVERY_S)
        await served.node.last_seen.close()
        assert await stored(served) is None
        await beside.close()


@stores
async def test_retention_removes_old_last_seen_times(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with settings_on(store, tmp_path, request) as sections:
        sections["presence"] = {"last_seen_days": 2.0}
        async with serving(**sections) as served:
            now = served.clock.now_ms()  # jobs on PostgreSQL use the clock of PostgreSQL
            await served.node.store.put_last_seen({ANN: now - 1_000 * DAY_MS, (T, "eve"): now - 1})
            assert (await last_seen(served), await last_seen(served, "eve")) == (None, now - 1)
            await served.job("retention")
            assert await served.node.store.last_seen([ANN, (T, "eve")]) == {(T, "eve"): now - 1}
            (run,) = await served.node.store.job_runs("retention", 1)
            assert ", 1 last-seen times" in run.note
