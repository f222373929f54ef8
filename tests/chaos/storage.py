"""PostgreSQL with a streaming standby that gets every commit before it is confirmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from postgres_server import PostgresProcess

IN_STEP = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"
PATIENCE_S = 30.0


class Pair:
    """Primary and standby. After a failover the roles are swapped."""

    def __init__(self, folders: tuple[Path, Path]) -> None:
        settings = {"wal_sender_timeout": "5s", "wal_keep_size": "64MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}
        self.primary, self.standby = (PostgresProcess(folder=folder, **settings) for folder in folders)
        self.ports = (self.primary.port, self.standby.port)
        self._first = self.primary

    def start(self) -> None:
        self.primary.start()
        self.standby.copy(self.primary)
        self.standby.start()

    async def confirm_on_both(self) -> None:
        """Let a commit wait for the standby, so that a failover loses no confirmed record."""
        await self._set(self.primary, "*")
        await self._until_in_step()

    async def promote(self) -> None:
        """Make the standby the primary. The old one must be down."""
        link = await _connect(self.standby)
        try:
            assert await link.fetchval("SELECT pg_promote(true, 30)")
        finally:
            await link.close()
        self.primary, self.standby = self.standby, self.primary
        await self._set(self.primary, "")

    async def rebuild(self) -> None:
        """Make the old primary a standby of the new one, with a new copy of the data."""
        await asyncio.to_thread(self.standby.copy, self.primary)
        self.standby.launch()  # in this thread: the server ends with the thread that starts it
        await asyncio.to_thread(self.standby.ready)
        await self.confirm_on_both()

    async def _set(self, server: PostgresProcess, names: str) -> None:
        link = await _connect(server)
        try:
            await link.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await link.execute("SELECT pg_reload_conf()")
        finally:
            await link.close()

    async def _until_in_step(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            link = await _connect(self.primary)
            try:
                while not await link.fetchval(IN_STEP):  # noqa: ASYNC110  (another process)
                    await asyncio.sleep(0.1)
            finally:
                await link.close()

    def remove(self) -> None:
        for server in (self.primary, self.standby):
            server.remove()


async def _connect(server: PostgresProcess) -> asyncpg.Connection:
    url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    return await asyncpg.connect(url, timeout=PATIENCE_S)
