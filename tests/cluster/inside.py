"""Nodes in this process on a real Redis. Tests can hold any of their calls (`greendot.testing.hold`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import structs

from cluster.nodes import Listener
from e2e.processes import API_KEY, SECRET, Answer, ask, until
from greendot.app.node import Node
from greendot.app.server import Greendot
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.testing import WireClient

# Long leases: no lease expires within the seconds of a test.
SECTIONS: dict[str, dict[str, Any]] = {
    "auth": {"secret": SECRET},
    "api": {"key": API_KEY},
    "server": {"host": "127.0.0.1", "port": 0, "drain_s": 0.1},
    "store": {"url": "sqlite:///:memory:"},
    "limits": {"enabled": False},
    "node": {"lease_s": 15.0, "renew_s": 0.5},
    "overload": {"lag_s": 10.0, "bus_lag_s": 10.0},
}


class Inside:
    """Node in this process, with clients for it."""

    def __init__(self, greendot: Greendot) -> None:
        self.greendot = greendot
        self._stack = AsyncExitStack()
        self._is_closed = False

    @property
    def node(self) -> Node:
        return self.greendot.node

    @property
    def port(self) -> int:
        return self.greendot.server.port

    def token(self, user: str) -> str:
        return Tokens(SECRET).make(user, SystemClock().now_ms(), 3600, name=user.capitalize())

    async def join(self, user: str, **hello: Any) -> Listener:
        """Connect as `user` and return a client that reads continuously."""
        client = await WireClient.connect(self.port)
        await client.hello(self.token(user), **hello)
        return await self._stack.enter_async_context(Listener(client))

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await ask(self.port, method, path, body, Authorization=f"Bearer {API_KEY}")

    async def query(self, *users: str) -> dict[str, dict[str, Any]]:
        """Return the reply of `POST /v1/presence/query`, by user."""
        answer = await self.ask("POST", "/v1/presence/query", {"users": [*users]})
        return {entry["user"]: entry for entry in answer.json()["presence"]}

    async def close(self) -> None:
        """Close the clients, then the node. Later calls have no effect."""
        if not self._is_closed:
            self._is_closed = True
            await self._stack.aclose()
            await self.greendot.stop()


@asynccontextmanager
async def inside(*engines: str, **sections: dict[str, Any]) -> AsyncIterator[list[Inside]]:
    """Run a node for each of these engine URLs. Keyword arguments are sections of the settings."""
    async with AsyncExitStack() as stack:
        nodes = []
        for url in engines:
            settings = Settings()
            for name in {**SECTIONS, **sections, "engine": {}}:
                values = SECTIONS.get(name, {}) | sections.get(name, {}) | ({"url": url} if name == "engine" else {})
                settings = structs.replace(settings, **{name: structs.replace(getattr(settings, name), **values)})
            node = Inside(Greendot(settings, SystemClock()))
            await node.greendot.start()
            stack.push_async_callback(node.close)
            nodes.append(node)
        yield nodes


async def passing(condition: Any, within_s: float = 15.0) -> None:
    """Poll until the condition is true; raise TimeoutError after `within_s`."""
    await until(condition, within_s)
