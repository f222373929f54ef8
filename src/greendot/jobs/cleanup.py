"""Jobs that remove data that is no longer needed: `retention`, `cleanup-tokens`, `sweep`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from greendot.engine.messages import InboxChanged, Topic
from greendot.engine.port import Bus
from greendot.engine.results import Swept
from greendot.jobs.job import RunningJob
from greendot.store.port import Store
from greendot.store.push import PushStore

AT_ONCE = 500  # maximum number of rows that one commit removes
PAUSE_S = 0.02  # pause after each commit; during the pause, other processes can write to the same SQLite file
DAY_MS = 86_400_000
KEEP_HOOKS_MS = 30 * DAY_MS  # retention of dead letters: webhook events that Greendot no longer tries to send


class RetentionPeriods(NamedTuple):
    """Times in milliseconds for which the store keeps data, from the settings."""

    notifications: int
    pushes: int
    last_seen: int
    audit: int


class Retention:
    """Job that removes old data from the store.

    The data are notifications, pushes, last-seen times, audit entries and dead letters (webhook events that Greendot
    no longer tries to send). The job also removes revocations, mutes and bans that have ended. The job removes a
    notification when the notification has expired, or when the retention period of notifications has passed. After
    each commit that removes notifications, the job calls `pruned` with the number of inboxes that the commit changed.
    """

    name = "retention"

    def __init__(
        self, store: Store, bus: Bus, periods: RetentionPeriods, pruned: Callable[[int], None] | None = None
    ) -> None:
        self._store = store
        self._bus = bus
        self._periods = periods
        self._pruned = pruned

    async def work(self, run: RunningJob) -> str:
        inboxes = await self._prune_inboxes(run)
        store, periods, now = self._store, self._periods, run.now_ms()
        removed = {
            "revocations": await little_by_little(run, lambda: store.remove_revocations(now, limit=AT_ONCE)),
            "dead letters": await little_by_little(run, lambda: store.prune_hooks(now - KEEP_HOOKS_MS, AT_ONCE)),
            "pushes": await little_by_little(run, lambda: store.prune_pushes(now - periods.pushes, AT_ONCE)),
            "last-seen times": await little_by_little(
                run, lambda: store.prune_last_seen(now - periods.last_seen, AT_ONCE)
            ),
            "audit entries": await little_by_little(run, lambda: store.prune_audit(now - periods.audit, AT_ONCE)),
            "mutes and bans": await little_by_little(run, lambda: store.prune_restrictions(now, AT_ONCE)),
        }
        counted = ", ".join(f"{count} {what}" for what, count in removed.items())
        return f"removed: notifications from {inboxes} inboxes, {counted}"

    async def _prune_inboxes(self, run: RunningJob) -> int:
        """Remove old notifications in small commits, and publish the change of each inbox to the user's devices.

        Return the number of changed inboxes. If two commits remove notifications from one inbox, this inbox counts
        twice.
        """
        inboxes = 0
        while changed := await self._store.prune(run.now_ms(), keep_ms=self._periods.notifications, limit=AT_ONCE):
            for tenant, user in changed:
                self._bus.publish(Topic("user", tenant, user), InboxChanged())
            if self._pruned is not None:
                self._pruned(len(changed))
            inboxes += len(changed)
            await run.step(len(changed))
            await asyncio.sleep(PAUSE_S)
        return inboxes


class CleanupTokens:
    """Job that removes a device and its push token after `unused_ms` milliseconds without use.

    If a push provider reports that a device no longer exists, this job is not needed: the sender of pushes removes
    the device at once.
    """

    name = "cleanup-tokens"

    def __init__(self, store: PushStore, unused_ms: int) -> None:
        self._store = store
        self._unused_ms = unused_ms

    async def work(self, run: RunningJob) -> str:
        before = run.now_ms() - self._unused_ms
        removed = await little_by_little(run, lambda: self._store.drop_unused_devices(before, AT_ONCE))
        return f"{removed} devices removed"


class Sweeping(Protocol):
    """Part of the engine that the job `sweep` needs."""

    async def sweep(self) -> Swept: ...


class Sweep:
    """Job that ends leftover sessions in the engine, such as the sessions of dead nodes.

    The job also removes old last-seen times from the engine. The job `retention` removes the last-seen times in the
    store.
    """

    name = "sweep"

    def __init__(self, engine: Sweeping) -> None:
        self._engine = engine

    async def work(self, run: RunningJob) -> str:
        swept = await self._engine.sweep()
        await run.step(sum(swept))
        return f"{swept.sessions} leftover sessions ended, {swept.users} users went offline"


async def little_by_little(run: RunningJob, remove: Callable[[], Awaitable[int]]) -> int:
    """Call `remove`, which returns the number of removed rows, until no row is left. Return the total.

    After each call that removed rows, report the progress to `run`, and pause.
    """
    total = 0
    while removed := await remove():
        total += removed
        await run.step(removed)
        await asyncio.sleep(PAUSE_S)
    return total
