"""Push endpoints of a tenant or host that hang delay no other tenant's pushes. On both stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from greendot.ids import Key
from greendot.push.payload import PushPayload, SendResult
from greendot.push.policy_model import PushPolicy, RecipientState
from greendot.push.provider_channel import ChannelLimits, ProviderChannel, SharedChannels
from greendot.push.worker import PushWorker, TenantPushConfig, WorkerPace
from greendot.store.inbox import Notice
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.push import Device
from greendot.store.sqlite import SqliteStore
from greendot.testing.clock import START_MS, ManualClock
from postgres_server import fresh_schema

TENANTS = ("a", "b", "c")


class HangingHosts:
    """Push provider with endpoints `host/user`, like Web Push. Calls to the hosts in `silent` never end."""

    def __init__(self, *silent: str) -> None:
        self.silent = {*silent}
        self.under_way: Counter[str] = Counter()  # by tenant
        self.sent: Counter[str] = Counter()  # by host
        self.changed = asyncio.Event()

    def place(self, device: Device) -> str:
        return device.token.partition("/")[0]

    def is_known(self, place: str) -> bool:
        return False

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        host = self.place(device)
        self.under_way[device.tenant] += 1
        self.changed.set()
        try:
            if host in self.silent or "*" in self.silent:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            self.sent[host] += 1
            return SendResult("sent")
        finally:
            self.under_way[device.tenant] -= 1
            self.changed.set()

    async def close(self) -> None: ...

    async def until(self, holds: Callable[[], bool], clock: ManualClock) -> None:
        """Wait while the clock advances: a push without a free slot is retried after a pause."""
        while not holds():
            self.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 0.5)
                continue
            clock.advance(1.0)


class Bench:
    """Push worker with few slots, on a store."""

    def __init__(self, store: Store, sender: HangingHosts, bounds: ChannelLimits, at_once: int) -> None:
        self.store = store
        self.sender = sender
        self.clock = ManualClock()
        self.channels = SharedChannels(
            lambda tenant: ProviderChannel(sender, tenant, "webpush", self.clock, bounds), sender
        )
        tenant_config = TenantPushConfig({"webpush": self.channels}, lambda kind: PushPolicy(), lambda kind: False)
        self.worker = PushWorker(
            store, lambda tenant: tenant_config, _offline, self.clock, WorkerPace(at_once, poll_s=0.01)
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        await self.sender.until(holds, self.clock)

    async def notify(self, tenant: str, host: str, count: int) -> None:
        """Queue pushes to `count` users of a tenant, each with an endpoint at the host (`*`: each at its own host)."""
        users = [f"{host.strip('*')}{number}" for number in range(count)]
        for user in users:
            token = f"{user if host == '*' else host}/{user}"
            await self.store.put_device(Device(tenant, user, "phone", "webpush", token, START_MS, START_MS))
        await self.store.notify([Notice(tenant, user, "ping", b"{}", "k", START_MS) for user in users])
        self.worker.wake()


async def _offline(keys: object) -> dict[Key, RecipientState]:
    return {}


Opened = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def sqlite() -> AsyncIterator[Store]:
        yield SqliteStore(str(tmp_path / "greendot.db"), pushed=TENANTS)

    @asynccontextmanager
    async def postgres() -> AsyncIterator[Store]:
        async with fresh_schema(request.getfixturevalue("postgres")) as place:
            yield PostgresStore(place, migrate=True, pushed=TENANTS)

    return sqlite if request.param == "sqlite" else postgres


@asynccontextmanager
async def benched(
    opened: Opened, sender: HangingHosts, bounds: ChannelLimits | None = None, at_once: int = 40
) -> AsyncIterator[Bench]:
    async with opened() as store:
        await store.start()
        wide = ChannelLimits(at_once=at_once, unproven=at_once, unproven_each=at_once)
        bench = Bench(store, sender, bounds or wide, at_once)
        try:
            yield bench
        finally:
            await bench.worker.close(0.0)
            await store.close()


async def test_one_tenants_hanging_endpoints_do_not_delay_anothers_pushes(opened: Opened) -> None:
    async with benched(opened, HangingHosts("hangs")) as bench:
        await bench.notify("a", "hangs", 200)
        bench.worker.start()
        await bench.until(lambda: bench.sender.under_way["a"] == 20)
        await bench.notify("b", "answers", 60)
        await bench.until(lambda: bench.sender.sent["answers"] == 60)
        assert bench.sender.under_way["a"] == 20, "the hanging tenant must keep half of the slots"
        bench.sender.silent.add("hangs-too")
        await bench.notify("b", "hangs-too", 60)
        await bench.until(lambda: bench.sender.under_way["b"] == 10)
        await bench.notify("c", "answers", 70)
        await bench.until(lambda: bench.sender.sent["answers"] == 130)


async def test_a_backlog_of_one_tenant_is_not_served_before_anothers_first(opened: Opened) -> None:
    async with benched(opened, HangingHosts("*")) as bench:
        await bench.notify("a", "slow", 100)
        await bench.notify("b", "quick", 10)
        bench.worker.start()
        await bench.until(lambda: bench.sender.under_way["b"] == 10)
        assert bench.sender.under_way["a"] <= 15


async def test_a_hanging_host_delays_no_other_host_of_its_tenant(opened: Opened) -> None:
    bounds = ChannelLimits(at_once=5, unproven=10, patience_s=0.02)
    async with benched(opened, HangingHosts("hangs"), bounds) as bench:
        await bench.notify("a", "hangs", 100)
        bench.worker.start()
        await bench.until(lambda: bench.sender.under_way["a"] == 5)
        await bench.notify("a", "answers", 50)
        await bench.until(lambda: bench.sender.sent["answers"] == 50)
        assert bench.sender.under_way["a"] == 5


async def test_hosts_that_never_answered_leave_room_for_those_that_did(opened: Opened) -> None:
    bounds = ChannelLimits(at_once=5, unproven=6, patience_s=0.02)
    async with benched(opened, HangingHosts("*"), bounds) as bench:
        bench.sender.silent.clear()
        await bench.notify("a", "answers", 1)
        bench.worker.start()
        await bench.until(lambda: bench.sender.sent["answers"] == 1)
        await bench.notify("a", "*", 100)
        bench.sender.silent |= {str(number) for number in range(100)}
        await bench.until(lambda: bench.sender.under_way["a"] == 6)
        await bench.notify("a", "answers", 50)
        await bench.until(lambda: bench.sender.sent["answers"] >= 50)
        assert bench.sender.under_way["a"] == 6, "at most 6 hanging calls at once"
