"""Notifications that are to be acknowledged: sent again to the devices that are there until one of them does.

What waits is looked up in the store before it is sent again: an acknowledgement that was not heard of here counts too.
Who has not acknowledged after the last time, or is not there at all, is left to whoever `unacknowledged` is: it may be
told of the same one more than once, and by several nodes (`push_at` says what was handed on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from greendot.core.kinds import LONGEST_S, TIMES, wait_s
from greendot.core.wheel import has_come
from greendot.engine.base import Engine
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.gateway.batched import Batched
from greendot.gateway.inbox import LocalInbox, Urged
from greendot.gateway.shared import Shared
from greendot.logs import events
from greendot.logs.telling import tell
from greendot.metrics import Metrics
from greendot.store.base import Key, Notification, Store
from greendot.store.events import created_frame, is_over

MOST = 100  # of one user that are sent again; the others' turn comes when these are acknowledged
AGAIN_S = 5.0  # after the store could not be read
Unacknowledged = Callable[[Key, Sequence[Notification]], None]


class Urging:
    """Of all local inboxes. `send` gives a frame to the devices of a user and says how many there were."""

    def __init__(
        self,
        store: Store,
        shared: Shared,
        metrics: Metrics,
        send: Callable[[LocalInbox, bytes], int],
        hears: Callable[[LocalInbox], bool],
    ) -> None:
        self.unacknowledged: Unacknowledged = lambda key, notifications: None
        self._shared = shared
        self._metrics = metrics
        self._send = send
        self._hears = hears  # whether a device is there
        self._pending: Batched[Key, list[Notification]] = Batched(
            shared, lambda keys: store.pending(keys, limit=MOST), []
        )

    async def pending(self, key: Key) -> list[Notification]:
        """What the user is to acknowledge still; what has expired is left out."""
        now = self._shared.clock.now_ms()
        return [notification for notification in await self._pending.get(key) if not is_over(notification, now)]

    def sent(self, local: LocalInbox, seqs: Iterable[int]) -> None:
        """These were sent, to a device that has just come or to all: each has its time from now on."""
        now, urged = self._shared.timers.now(), local.urged or {}
        for seq in seqs:
            times = urged[seq].times if seq in urged else 0
            urged[seq] = Urged(times, now + wait_s(times))
        local.urged = urged or None
        self._arm(local)

    def acknowledged(self, local: LocalInbox, seqs: Iterable[int], through: int) -> None:
        if local.urged is not None:
            done = {*seqs}
            local.urged = {s: u for s, u in local.urged.items() if s not in done and s > through} or None
            self._arm(local)

    def left(self, local: LocalInbox) -> None:
        """The user has no session here any more."""
        self._shared.timers.cancel(local.urge_timer)
        if local.urged is not None:
            self._shared.tasks.spawn(self._hand_over(local.key))
            local.urged = None

    def absent(self, engine: Engine, created: dict[Key, list[Notification]]) -> None:
        """These are new. Who has no session anywhere is left to somebody else at once."""
        if created:
            self._shared.tasks.spawn(self._look_for(engine, created))

    # --- sending again ---

    def _arm(self, local: LocalInbox) -> None:
        self._shared.timers.cancel(local.urge_timer)
        local.urge_timer = None
        if local.urged is not None:
            due = min(urged.due for urged in local.urged.values())
            delay_s = max(0.0, due - self._shared.timers.now())
            local.urge_timer = self._shared.timers.set(delay_s, self._due, local)

    def _due(self, local: LocalInbox) -> None:
        local.urge_timer = None
        if self._hears(local):  # else it is sent when a device comes
            self._shared.tasks.spawn(self._again(local))

    async def _again(self, local: LocalInbox) -> None:
        try:
            pending = await self.pending(local.key)
        except StoreUnavailable as error:
            tell(events.WORK_LATER, work="sending again what is not acknowledged", reason=error)
            if local.urged is not None:
                local.urge_timer = self._shared.timers.set(AGAIN_S, self._due, local)
            return
        if local.urged is None:
            return
        later, waiting = self._shared.timers.now() + LONGEST_S, {notification.seq for notification in pending}
        known = pending[-1].seq if len(pending) >= MOST else inf  # those beyond have their turn later
        local.urged = {
            seq: urged if seq in waiting else urged._replace(due=later)
            for seq, urged in local.urged.items()
            if seq in waiting or seq > known
        }
        given_up = [n for n in pending if n.seq in local.urged and self._urge(local, local.urged, n)]
        local.urged = local.urged or None
        self._arm(local)
        if given_up:
            self._hand(local.key, given_up)

    def _urge(self, local: LocalInbox, all_urged: dict[int, Urged], notification: Notification) -> bool:
        """Send one again if its time has come. True if that was done often enough, and it is given up."""
        now, urged = self._shared.timers.now(), all_urged[notification.seq]
        if not has_come(urged.due, now):
            return False
        if urged.times >= TIMES:
            del all_urged[notification.seq]
            return True
        frame = created_frame(notification, self._shared.clock.now_ms())
        self._metrics.inbox_redelivered_total += self._send(local, frame) > 0
        all_urged[notification.seq] = Urged(urged.times + 1, now + wait_s(urged.times + 1))
        return False

    # --- handing over ---

    def _hand(self, key: Key, notifications: Sequence[Notification]) -> None:
        self._metrics.inbox_unacknowledged_total += len(notifications)
        self.unacknowledged(key, notifications)

    async def _hand_over(self, key: Key) -> None:
        try:
            pending = await self.pending(key)
        except StoreUnavailable as error:
            tell(events.INBOX_NOT_HANDED, tenant=key[0], user=key[1], reason=error)
            return
        if pending:
            self._hand(key, pending)

    async def _look_for(self, engine: Engine, created: dict[Key, list[Notification]]) -> None:
        for tenant in {tenant for tenant, _ in created}:
            users = [user for of, user in created if of == tenant]
            try:
                there = [bool(snapshot.devices) for snapshot in await engine.read(tenant, users)]
            except EngineUnavailable:
                there = [False] * len(users)  # told twice is better than never
            for user, is_there in zip(users, there, strict=True):
                if not is_there:
                    self._hand((tenant, user), created[tenant, user])
