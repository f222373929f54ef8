"""Server in this process, on a real socket, with time under the test's control."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from math import ceil
from typing import Any

import msgspec

from greendot.app.node import Node
from greendot.app.server import Greendot
from greendot.config import Kind, Limits, Settings, Tenant, Visibility
from greendot.config.centrifuge import Centrifuge
from greendot.config.push import Push, TenantPush
from greendot.config.pusher import Pusher
from greendot.config.webhooks import Hook
from greendot.testing.clock import ManualClock
from greendot.testing.wire import WireClient

SECRET = "a secret for tests, long enough to be taken"
API_KEY = "an API key for tests"
_BEAT_MS = 25_000
_STEPS = 200  # steps at one moment, at most: timers that set each other need a few
COMINGS = frozenset({"room.entered", "room.left", "room.count"})


class Served:
    """Running server: its port, its clock, and clients to test it with."""

    def __init__(self, greendot: Greendot, clock: ManualClock) -> None:
        self.greendot = greendot
        self.clock = clock
        self._clients: list[WireClient] = []
        self._own_timers = 0
        self.tls: ssl.SSLContext | None = None  # TLS context of clients, if the server uses TLS

    async def start(self) -> None:
        await self.greendot.start()
        self._own_timers = len(self.node.timers)

    @property
    def node(self) -> Node:
        return self.greendot.node

    @property
    def port(self) -> int:
        return self.greendot.server.port

    @property
    def timers(self) -> int:
        """Return the number of timers, not counting the timers of the node itself."""
        return len(self.node.timers) - self._own_timers

    def token(self, user: str, **claims: Any) -> str:
        claims.setdefault("name", user.capitalize())
        return self.node.tokens.make(user, self.clock.now_ms(), claims.pop("ttl_s", 86_400), **claims)

    async def client(self, user: str, *, claims: dict[str, Any] | None = None, **hello: Any) -> WireClient:
        """Return a client that is connected as `user`."""
        client = await self.socket()
        await client.hello(self.token(user, **(claims or {})), **hello)
        return client

    async def lobby(self) -> None:
        """Create the open room `lobby`."""
        await self.node.store.put_room("default", "lobby", open=True)

    async def joined(self, user: str, room: str = "lobby", *, comings: bool = False, **hello: Any) -> WireClient:
        """Return a client that is connected as `user` and has joined `room`. It ignores `COMINGS` unless `comings`."""
        client = await self.client(user, **hello)
        client.deaf_to = frozenset() if comings else COMINGS
        await client.request(type="room.join", room=room)
        return client

    async def socket(self, path: str = "/v1/connect", headers: dict[str, str] | None = None) -> WireClient:
        """Return a connected client before its hello. It is closed with the server."""
        client = await WireClient.connect(self.port, path, headers, self.tls)
        self._clients.append(client)
        return client

    async def advance(self, seconds: float, alive: Iterable[WireClient] = ()) -> list[list[dict[str, Any]]]:
        """Advance time, firing every timer at exactly its moment; return the frames of each `alive` client.

        `alive` clients send heartbeats meanwhile.
        """
        alive, end = [*alive], round(self.clock.monotonic() * 1000) + round(seconds * 1000)
        received: list[list[dict[str, Any]]] = [[] for _ in alive]
        standing = 0
        while True:
            now = round(self.clock.monotonic() * 1000)
            due = self.node.timers.next_due()
            # Whole milliseconds, rounded up: a timer must not be missed by a fraction of one.
            first = end if due is None else max(now, ceil(due * 1000 - 1e-6))
            step_ms = min(end, now + _BEAT_MS, first) - now
            standing = 0 if step_ms else standing + 1
            assert standing < _STEPS, "a timer is set again and again for the moment it fires at"
            self.clock.advance(step_ms / 1000)
            self.node.timers.tick()
            await self.settle()
            for frames, client in zip(received, alive, strict=True):
                frames += await client.quiet()
            if round(self.clock.monotonic() * 1000) >= end:
                return received

    async def settle(self) -> None:
        """Let all running work of the server finish."""
        await self.node.tasks.finish()
        for _ in range(5):
            await asyncio.sleep(0)
        await self.node.tasks.finish()

    async def job(self, name: str) -> None:
        """Run a job to its end, due or not."""
        await self.greendot.scheduler.run(name)
        await self.settle()

    async def until_gone(self, count: int = 0) -> None:
        """Wait until the server has noticed that all but `count` sockets are closed."""
        async with asyncio.timeout(10):
            while len(self.node.registry.connections) > count:  # noqa: ASYNC110  (no hook for tests in the node)
                await asyncio.sleep(0.001)
        await self.settle()

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.end()


def _tenant_push(given: dict[str, Any]) -> TenantPush:
    known = {field.name for field in msgspec.structs.fields(TenantPush)}
    return msgspec.convert({key: value for key, value in given.items() if key in known}, TenantPush)


@asynccontextmanager
async def serving(**sections: dict[str, Any]) -> AsyncIterator[Served]:
    """Run a server for a test; keyword arguments are sections of the settings, such as `typing={"ttl_s": 3}`."""
    settings = Settings(store=msgspec.convert({"url": "sqlite:///:memory:"}, type(Settings().store)))
    sections.setdefault("auth", {"secret": SECRET})
    sections.setdefault("api", {"key": API_KEY})
    sections["server"] = {"host": "127.0.0.1", "port": 0, "drain_s": 0.2} | sections.get("server", {})
    for name, values in sections.items():
        if name == "kinds":
            section: Any = msgspec.convert(values, dict[str, Kind])
        elif name == "tenants":
            section = {
                tenant: Tenant(
                    limits=msgspec.convert(sections.get("limits", {}) | own.get("limits", {}), Limits),
                    webhooks=msgspec.convert(own.get("webhooks", {}), Hook),
                    visibility=msgspec.convert(sections.get("visibility", {}) | own.get("visibility", {}), Visibility),
                    push=_tenant_push(sections.get("push", {}) | own.get("push", {})),
                    centrifuge=msgspec.convert(own.get("centrifuge", {}), Centrifuge),
                    pusher=msgspec.convert(own.get("pusher", {}), Pusher),
                )
                for tenant, own in values.items()
            }
        elif name == "push":
            section = msgspec.convert(values, Push)
        elif name == "centrifuge":
            section = msgspec.convert(values, Centrifuge)
        else:
            section = msgspec.structs.replace(getattr(settings, name), **values)
        settings = msgspec.structs.replace(settings, **{name: section})
    clock = ManualClock()
    served = Served(Greendot(settings, clock, driven=False), clock)
    await served.start()
    try:
        yield served
    finally:
        await served.close_clients()
        await served.greendot.stop()
