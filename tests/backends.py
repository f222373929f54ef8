"""Server in this process on each pair of engine and store, for tests that must pass on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greendot.testing import Served, serving
from postgres_server import migrated_schema
from redis_servers import redis_server

PAIRS = ("memory+sqlite", "redis+postgres")
on_each_pair = pytest.mark.parametrize("pair", PAIRS)


@asynccontextmanager
async def serving_on(pair: str, folder: Path, postgres: str, **sections: Any) -> AsyncIterator[Served]:
    """Run a server in this process on the engine and the store that `pair` names."""
    async with AsyncExitStack() as stack:
        engine, store = pair.split("+")
        if engine == "redis":
            port = stack.enter_context(redis_server("redis", folder / "redis"))
            sections["engine"] = {"url": f"redis://127.0.0.1:{port}"}
        if store == "postgres":
            place = await stack.enter_async_context(migrated_schema(postgres))
            sections["store"] = {"url": place, "migrate": True}
        yield await stack.enter_async_context(serving(**sections))
