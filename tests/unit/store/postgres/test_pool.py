"""PostgreSQL that restarts, is cut off or freezes: no call hangs, nothing is lost, and the pool recovers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from greendot.errors import ConfigError, StoreUnavailable, Unstorable
from greendot.store.inbox import Inbox
from greendot.store.postgres import PostgresStore
from greendot.testing.store_harness import NOW, T, draft, notice, numbers, recounted, seq
from postgres_server import PostgresProcess, fresh_schema, postgres_server
from waited import Lap

from .places import QUICK, opened, started, wired


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    """Start a server that these tests may stop."""
    with postgres_server() as server:
        yield server


async def terminate_all(url: str) -> None:
    """Terminate all backends of Greendot, as an operator does."""
    link = await asyncpg.connect(url)
    try:
        await link.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'greendot' AND pid <> pg_backend_pid()"
        )
    finally:
        await link.close()


async def restart(server: PostgresProcess, how: signal.Signals) -> None:
    await asyncio.to_thread(server.end, how)
    server.launch()
    await asyncio.to_thread(server.ready)


# --- under load ---


class Load:
    """Writers that send with keys, and repeat unacknowledged writes."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._acknowledged = asyncio.Condition()
        self.written: dict[str, int] = {}
        self.retried = 0
        self.over = False

    async def write(self, writer: int) -> None:
        count = 0
        while not self.over:
            key = f"{writer}-{count}"
            count += 1
            self.written[key] = seq(await self._sent(lambda key=key: self.store.append(T, "r1", draft(key=key))))
            await self._sent(lambda key=key: self.store.notify([notice("ann", key), notice(f"u{writer}", key)]))
            async with self._acknowledged:
                self._acknowledged.notify_all()

    async def _sent(self, send: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await send()
            except StoreUnavailable:
                self.retried += 1

    async def more(self, count: int) -> None:
        """Wait until `count` more writes are acknowledged."""
        until = len(self.written) + count
        async with self._acknowledged:
            await self._acknowledged.wait_for(lambda: len(self.written) >= until)


async def test_nothing_acknowledged_is_lost_when_postgres_is_restarted_or_its_backends_are_killed(
    server: PostgresProcess,
) -> None:
    async with opened(server.url) as store:
        await store.put_room(T, "r1", open=True)
        load = Load(store)
        writers = [asyncio.ensure_future(load.write(n)) for n in range(20)]
        try:
            for _ in range(4):
                await load.more(100)
                await terminate_all(server.url)
            for how in (signal.SIGQUIT, signal.SIGINT):
                await load.more(100)
                await restart(server, how)
            await load.more(100)
        finally:
            load.over = True
            await asyncio.gather(*writers)
        assert await numbers(store) == [*range(1, len(load.written) + 1)]
        assert sorted(load.written.values()) == [*range(1, len(load.written) + 1)]
        count = len(load.written)
        assert await recounted(store) == Inbox(count, count, count)


# --- a commit whose answer is lost ---


async def test_a_commit_whose_answer_is_lost_is_made_once_and_known_to_be_new(postgres: str) -> None:
    async with fresh_schema(postgres) as place, wired(place) as (by_wire, wire), started(by_wire) as store:
        await store.put_room(T, "r1", open=True)
        for kept in range(3):
            wire.cut_commits = kept
            keys = [f"{kept}-{n}" for n in range(10)]
            written = await asyncio.gather(*(store.append(T, "r1", draft(key=key)) for key in keys))
            assert [result is not None and result.new for result in written] == [True] * 10
            wire.cut_commits = kept
            created = await store.notify([notice("ann", key) for key in (*keys, keys[0])])
            assert [made.new for made in created] == [True] * 10 + [False]
        assert wire.cut == 6
        assert await numbers(store) == [*range(1, 31)]
        assert await recounted(store) == Inbox(30, 30, 30)


# --- silence ---


async def test_a_frozen_server_is_given_up_in_time_and_used_again_when_it_is_back(server: PostgresProcess) -> None:
    async with opened(server.url, QUICK) as store:
        await store.put_room(T, "r1", open=True)
        await store.append(T, "r1", draft())
        server.freeze(True)
        try:
            lap = Lap()
            calls = (
                store.append(T, "r1", draft(key="k2")),
                store.notify([notice()]),
                store.room(T, "r1"),
                store.mark(T, "ann", "read", through=5, at=NOW),
                store.ping(),
            )
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(result, StoreUnavailable)
            assert lap.seconds < 6
        finally:
            server.freeze(False)
        assert seq(await store.append(T, "r1", draft(key="k2"))) == 2
        await store.ping()


async def test_a_locked_stream_does_not_delay_other_streams(postgres: str) -> None:
    async with fresh_schema(postgres) as place, started(place, QUICK) as store:
        for room in ("r1", "r2", "r3"):
            await store.put_room(T, room, open=True)
        holder = await asyncpg.connect(place)
        try:
            await holder.execute("BEGIN; SELECT 1 FROM greendot_rooms WHERE room = 'r2' FOR UPDATE")
            calls = [store.append(T, room, draft()) for room in ("r1", "r2", "r3")]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(results[1], StoreUnavailable)
            assert not isinstance(results[0], BaseException)
            assert not isinstance(results[2], BaseException)
            await holder.execute("ROLLBACK")
        finally:
            await holder.close()
        assert seq(await store.append(T, "r2", draft())) == 1


async def test_a_node_that_stalls_between_preparing_and_executing_a_statement_frees_its_locks(postgres: str) -> None:
    """PostgreSQL ends a session that is idle in a transaction, but this one is active for the server."""
    async with fresh_schema(postgres) as place, started(place, QUICK) as store:
        await store.put_room(T, "r1", open=True)
        for name, table in (("greendot", "greendot_rooms"), ("app", "greendot_rooms"), ("greendot", "pg_class")):
            stalled = await asyncpg.connect(place, server_settings={"application_name": name, **QUICK.settings()})
            try:
                await stalled.execute("BEGIN; SELECT 1 FROM greendot_rooms WHERE room = 'r1' FOR UPDATE")
                await stalled.prepare(f"SELECT 2 FROM {table}")  # asyncpg sends no Sync after this
                if (name, table) == ("greendot", "greendot_rooms"):
                    assert seq(await store.append(T, "r1", draft())) == 1
                else:  # sessions of other applications are left alone, also with the same URL
                    with pytest.raises(StoreUnavailable):
                        await store.append(T, "r1", draft())
            finally:
                stalled.terminate()


async def test_calls_beyond_the_pool_wait_for_their_turn(postgres: str) -> None:
    async with opened(postgres, pool=1) as store:
        await store.put_room(T, "r1", open=True)
        calls = [store.append(T, "r1", draft(key=f"k{n}")) for n in range(50)]
        await asyncio.gather(*calls, *(store.room(T, "r1") for _ in range(50)), store.notify([notice()]))
        assert await numbers(store) == [*range(1, 51)]


# --- opening and closing ---


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hush@127.0.0.1:1/db",
        "postgresql://ann:hush@no-such-host.invalid/db",
        "postgresql://ann:hush@127.0.0.1:70000/db",
        "postgresql://ann:hush@127.0.0.1:1/db?sslmode=perhaps",
    ],
)
async def test_a_place_that_cannot_be_used_is_refused_by_name_without_the_password(url: str) -> None:
    for start in (PostgresStore(url, limits=QUICK).start, PostgresStore(url, limits=QUICK).migrate):
        with pytest.raises(ConfigError) as caught:
            await start()
        assert str(caught.value).startswith("cannot use the store postgresql://")
        assert "hush" not in str(caught.value)


async def test_a_database_that_does_not_exist_is_named(postgres: str) -> None:
    with pytest.raises(ConfigError, match=r'database "nowhere" does not exist'):
        await PostgresStore(postgres.removesuffix("postgres") + "nowhere").start()


async def test_a_closed_store_raises_store_unavailable_after_it_has_written_pending_work(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        store = PostgresStore(place, migrate=True)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.start()
        await store.put_room(T, "r1", open=True)
        writes = [asyncio.ensure_future(store.append(T, "r1", draft(key=f"k{n}"))) for n in range(700)]
        await asyncio.sleep(0)
        await store.close()
        assert sorted(map(seq, await asyncio.gather(*writes))) == [*range(1, 701)]
        for call in (store.ping(), store.room(T, "r1"), store.append(T, "r1", draft()), store.notify([notice()])):
            with pytest.raises(StoreUnavailable):
                await call
        await store.close()


async def test_text_that_postgres_cannot_hold_is_refused(postgres: str) -> None:
    async with opened(postgres) as store:
        await store.put_room(T, "r1", open=True)
        for user in ("\0", "\ud800"):
            with pytest.raises(Unstorable):
                await store.append(T, "r1", draft(user=user))
            with pytest.raises(Unstorable):
                await store.room(T, user)
        assert await numbers(store) == []
