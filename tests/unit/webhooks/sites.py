"""A store, webhooks on it, and apps that receive them. Only the clock is not real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from greendot.protocol.webhooks import TYPES
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.store.sqlite import SqliteStore
from greendot.testing import ManualClock
from greendot.transport.address_model import networks
from greendot.transport.http_client import Caller, Terms
from greendot.webhooks.hook import Hook
from greendot.webhooks.records import DeliveryPace, RecordQueues
from receiver import SECRET, Receiver

PATIENCE_S = 10.0
POLL_S = 0.005
GIVE_UP_S = 3600


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  (the condition has no event)
            await asyncio.sleep(0.002)


async def until_so(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Site:
    """One store with a room `r1` for each tenant with a webhook."""

    def __init__(self, store: SqliteStore, clock: ManualClock, apps: dict[str, Receiver]) -> None:
        self.store = store
        self.clock = clock
        self.apps = apps
        self._said = 0

    def hook(self, tenant: str, *, secrets: tuple[str, ...] = (SECRET,), timeout_s: float = 1.0) -> Hook:
        url = self.apps[tenant].url
        caller = Caller(url, Terms(allowed=networks(["127.0.0.0/8"]), timeout_s=timeout_s))
        return Hook(tenant, url, secrets, TYPES, caller, self.clock)

    async def say(self, count: int = 1, tenant: str = "t1") -> None:
        for _ in range(count):
            self._said += 1
            body = b'{"n":%d}' % self._said
            await self.store.append(tenant, "r1", Draft("ann", "Ann", body, f"k{self._said}", self.clock.now_ms()))

    async def notify(self, user: str = "ann", tenant: str = "t1") -> None:
        self._said += 1
        await self.store.notify([Notice(tenant, user, "news", b'"hi"', f"k{self._said}", self.clock.now_ms())])

    def numbers(self, tenant: str = "t1") -> list[int]:
        """Return the numbers of the messages that the tenant's app accepted."""
        return [event["data"]["body"]["n"] for event in self.apps[tenant].of("room.message")]

    async def later(self, seconds: float, steps: int = 20) -> None:
        """Advance the clock in steps, so that due deliveries are tried."""
        for _ in range(steps):
            self.clock.advance(seconds / steps)
            await asyncio.sleep(2 * POLL_S)

    @asynccontextmanager
    async def lanes(self, *hooks: Hook, batch_max: int = 100) -> AsyncIterator[RecordQueues]:
        lanes = RecordQueues(
            self.store,
            {hook.tenant: hook for hook in hooks},
            self.clock,
            DeliveryPace(batch_max, POLL_S, GIVE_UP_S * 1000),
        )
        lanes.start()
        try:
            yield lanes
        finally:
            await lanes.close()
            for hook in hooks:
                await hook.close()


@asynccontextmanager
async def site(make: type[SqliteStore] = SqliteStore, **apps: Receiver) -> AsyncIterator[Site]:
    store, clock = make(":memory:", hooked=dict.fromkeys(apps, TYPES)), ManualClock()
    await store.start()
    try:
        for tenant in apps:
            await store.put_room(tenant, "r1", open=True)
        yield Site(store, clock, apps)
    finally:
        await store.close()
