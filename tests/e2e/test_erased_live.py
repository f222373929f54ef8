"""Erasure of connected users and tenants: no data of their last commands remains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import greendot, running
from greendot.app.adapters import make_store
from greendot.auth.model import Revocation, RevocationKind
from greendot.auth.revocation import EVERY_ALONE_S
from greendot.cli._revoked_sessions import EndedSessions, revoke_and_end
from greendot.store.port import Store
from greendot.testing import Closed, Served, WireClient, hold, serving
from greendot.testing.user_data_suite import all_of
from postgres_server import fresh_schema
from redis_servers import redis_server

DAY_MS = 86_400_000
T = "default"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server("redis", tmp_path_factory.mktemp("redis")) as port:
        yield f"redis://127.0.0.1:{port}"


@asynccontextmanager
async def served_on(
    store: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Served, Store]]:
    """Yield a server and a second store object on the same database, as a CLI command opens it."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'greendot.db'}"
        if store == "postgres":
            url = await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres")))
        sections: dict[str, dict[str, Any]] = {"store": {"url": url, "migrate": True}}
        if engine == "redis":
            sections["engine"] = {"url": request.getfixturevalue("redis"), "prefix": f"{tmp_path.name}:"}
        served = await stack.enter_async_context(serving(**sections))
        beside = make_store(served.greendot.settings)
        await beside.start()
        stack.push_async_callback(beside.close)
        await served.lobby()
        yield served, beside


def until_now(served: Served, kind: RevocationKind, value: str) -> Revocation:
    now = served.clock.now_ms() + 1
    return Revocation(T, kind, value, now + DAY_MS, now)


places = pytest.mark.parametrize(
    ("store", "engine"), [("sqlite", "memory"), ("postgres", "memory"), ("sqlite", "redis"), ("postgres", "redis")]
)


@places
@pytest.mark.parametrize(("kind", "value"), [("user", "ann"), ("tenant", T)])
async def test_sessions_count_as_ended_when_their_last_command_is_done(
    store: str, engine: str, kind: RevocationKind, value: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Admit a message before the revocation and write it after the socket was closed."""
    async with served_on(store, engine, tmp_path, request) as (served, beside):
        ann = await served.joined("ann")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.send", room="lobby", body="late")
            await held.reached()
            work = revoke_and_end(served.greendot.settings, beside, until_now(served, kind, value))
            ending = asyncio.create_task(work)
            if engine == "memory":
                await have_it_read(served)
            assert (await ann.closed()).code == 4501
            done, _ = await asyncio.wait([ending], timeout=0.4)
            assert not done, "the session counted as ended while a message was being written"
        assert (await asyncio.wait_for(ending, 20)).sure
        assert [table for table, _ in await all_of(beside, "ann", T)] == ["messages"]


async def have_it_read(served: Served) -> None:
    """Wait for a revocation and make the node read it."""
    progress = await served.node.store.revocation_progress()
    while progress.confirmed == progress.given:
        await asyncio.sleep(0.01)
        progress = await served.node.store.revocation_progress()
    served.clock.advance(EVERY_ALONE_S)
    served.node.timers.tick()


async def test_where_no_server_runs_nothing_is_waited_for(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with served_on("sqlite", "memory", tmp_path, request) as (served, _):
        settings, revocation = served.greendot.settings, until_now(served, "user", "ann")
    store = make_store(settings)
    await store.start()
    try:
        assert await asyncio.wait_for(revoke_and_end(settings, store, revocation), 5) == EndedSessions(sure=True)
    finally:
        await store.close()


async def test_a_server_that_does_not_respond_is_not_reported_to_have_ended_its_sessions(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greendot.cli._revoked_sessions.CONFIRM_S", 0.3)
    async with served_on("sqlite", "memory", tmp_path, request) as (served, beside):
        ended = await revoke_and_end(served.greendot.settings, beside, until_now(served, "user", "ann"))
        assert ended == EndedSessions(sure=False)
        assert ended.exit_code == 1


async def test_a_node_that_does_not_acknowledge_is_not_reported_to_have_ended_its_sessions(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greendot.node.cluster_rpc.WITHIN_S", 0.3)
    async with served_on("sqlite", "redis", tmp_path, request) as (served, beside):
        monkeypatch.setattr(served.node.revocation_service, "receive", lambda message, node: None)
        for kind, value, left in (("user", "ann", 0), ("tenant", T, None)):
            revocation = until_now(served, kind, value)  # type: ignore[arg-type]
            ended = await revoke_and_end(served.greendot.settings, beside, revocation)
            assert (ended, ended.exit_code) == (EndedSessions(sure=False, left=left), 1)


@pytest.mark.timeout(120)
async def test_nothing_is_left_of_a_user_who_goes_on_writing_while_being_erased(tmp_path: Path) -> None:
    async with running(tmp_path, GREENDOT_LIMITS_ENABLED="false") as server:
        await server.ask("PUT", "/v1/rooms/lobby", {"open": True})
        bob, ann = await server.client("bob"), await server.client("ann")
        for person in (bob, ann):
            await person.request(type="room.join", room="lobby")
        talking = asyncio.create_task(_talk(ann))
        await asyncio.sleep(1.1)  # the issue time of tokens has whole seconds
        ended = await greendot(tmp_path, "user", "erase", "ann", "--yes")
        assert ended.code == 0, ended
        said = await asyncio.wait_for(talking, 20)
        page = (await bob.request(type="room.history", room="lobby", before=said + 1, limit=100))["messages"]
        assert {message["user"] for message in page} == {""}
        assert page[-1]["seq"] >= said
        left = await greendot(tmp_path, "user", "export", "ann")
        assert len(left.out.splitlines()) == 1, left.out
        await bob.end()


async def _talk(client: WireClient) -> int:
    """Send until the socket is closed and return the last acknowledged number."""
    said = 0
    try:
        while True:
            said = (await client.request(type="room.send", room="lobby", body="still here"))["seq"]
    except Closed:
        return said
    finally:
        await client.end()
