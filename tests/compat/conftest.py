"""Redis server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redis_servers import RedisProcess


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path / "redis") as process:
        yield process
