"""Facts about a real Redis server, read with the rights of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.engine.redis.facts import redis_facts
from redis_servers import RedisProcess, rights, until

USERS = [f"greendot on >hush {rights()}", "admin on nopass ~* &* +@all"]


async def snapshot_failed(redis: RedisProcess) -> bool:
    (server,) = await redis_facts(f"redis://greendot:hush@127.0.0.1:{redis.port}")
    assert server.trouble == ""
    return server.snapshot_failed


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_failed_snapshot_is_reported_until_the_server_accepts_writes_again(kind: str, tmp_path: Path) -> None:
    """The user has no right to read the configuration, and the status in INFO stays bad without snapshots."""
    settings = {"user": USERS, "save": "3600 1", "dbfilename": "dump"}
    with RedisProcess(kind, tmp_path, login=("admin", "x"), **settings) as redis:
        assert not await snapshot_failed(redis)
        (tmp_path / str(redis.port) / "dump").mkdir()  # a file cannot replace a folder, so each snapshot fails
        redis.command("BGSAVE")
        until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot has failed")
        assert await snapshot_failed(redis)
        redis.command("CONFIG", "SET", "save", "")
        assert redis.info("persistence")["rdb_last_bgsave_status"] == "err"
        assert not await snapshot_failed(redis)
        redis.command("CONFIG", "SET", "save", "3600 1")
        assert await snapshot_failed(redis)
        redis.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert not await snapshot_failed(redis)
