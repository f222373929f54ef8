"""Redis server for each test, on which nodes have the documented rights only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redis_servers import RedisProcess, limited


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path / "redis", **limited("", "gd:")) as process:
        yield process
        assert not process.alive or process.command("ACL", "LOG") == []
