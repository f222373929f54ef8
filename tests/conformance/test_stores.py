"""The store suite of the package, for every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from greendot.auth.model import Revocation
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.testing import StoreSuite
from greendot.testing.job_suite import JobSuite
from greendot.testing.push_suite import PUSHED, PushSuite
from greendot.testing.webhook_suite import HOOKED, HookSuite
from postgres_server import PATIENT, migrated_schema


@asynccontextmanager
async def started(store: Store) -> AsyncIterator[Store]:
    await store.start()
    try:
        yield store
    finally:
        await store.close()


class TestSqlite(StoreSuite, HookSuite, PushSuite, JobSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        async with started(SqliteStore(str(self.path))) as store:
            yield store

    @asynccontextmanager
    async def pushing(self) -> AsyncIterator[tuple[Store, Store]]:
        one, two = (SqliteStore(str(self.path), pushed=PUSHED) for _ in range(2))
        async with started(one), started(two):
            yield one, two

    @asynccontextmanager
    async def hooked(self) -> AsyncIterator[Store]:
        async with started(SqliteStore(str(self.path), hooked=HOOKED)) as store:
            yield store

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[Store, Store]]:
        async with self.opened() as one, self.opened() as two:
            yield one, two


class TestSqliteInMemory(StoreSuite, HookSuite, PushSuite, JobSuite):
    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        async with started(SqliteStore(":memory:")) as store:
            yield store

    @asynccontextmanager
    async def pushing(self) -> AsyncIterator[tuple[Store, Store]]:
        async with started(SqliteStore(":memory:", pushed=PUSHED)) as store:
            yield store, store

    @asynccontextmanager
    async def hooked(self) -> AsyncIterator[Store]:
        async with started(SqliteStore(":memory:", hooked=HOOKED)) as store:
            yield store


class TestPostgres(StoreSuite, HookSuite, PushSuite, JobSuite):
    """PostgreSQL, with a schema per test in one shared server."""

    @pytest.fixture(autouse=True)
    def _server(self, postgres: str) -> None:
        self.url = postgres

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        async with (
            migrated_schema(self.url) as place,
            started(PostgresStore(place, migrate=True, limits=PATIENT)) as store,
        ):
            yield store

    @asynccontextmanager
    async def pushing(self) -> AsyncIterator[tuple[Store, Store]]:
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(migrated_schema(self.url))
            stores = [PostgresStore(place, migrate=True, limits=PATIENT, pushed=PUSHED) for _ in range(2)]
            one, two = [await stack.enter_async_context(started(store)) for store in stores]
            yield one, two

    @asynccontextmanager
    async def hooked(self) -> AsyncIterator[Store]:
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(migrated_schema(self.url))
            yield await stack.enter_async_context(
                started(PostgresStore(place, migrate=True, limits=PATIENT, hooked=HOOKED))
            )

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[Store, Store]]:
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(migrated_schema(self.url))
            one, two = [
                await stack.enter_async_context(started(PostgresStore(place, migrate=True, limits=PATIENT)))
                for _ in range(2)
            ]
            yield one, two


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_of_revocations_that_have_expired_only_the_latest_are_kept(
    kind: str, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"greendot.store.{kind}.revocations.MOST_KEPT", 2)
    async with migrated_schema(postgres) as place:
        made = (
            SqliteStore(str(tmp_path / "s.db"))
            if kind == "sqlite"
            else PostgresStore(place, migrate=True, limits=PATIENT)
        )
        async with started(made) as store:
            for number in range(5):
                await store.put_revocation(Revocation("t", "jti", f"j{number}", expires_at=100))
            assert await store.remove_revocations(99, limit=10) == 0
            assert await store.remove_revocations(100, limit=10) == 3
            assert [revocation.value for _, revocation in await store.revocations(0, 10)] == ["j3", "j4"]
