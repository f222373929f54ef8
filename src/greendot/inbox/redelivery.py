"""Redelivery of notifications to the devices on this node until one of them acknowledges.

Pending notifications are read from the store before each redelivery, because another node may have received the
acknowledgement. After the last redelivery the node gives up, and the notification may be sent by push. The node sends
no message to the push workers: each worker computes when the redeliveries are over (`push.policy_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.inbox.kinds_model import LONGEST_S, TIMES, wait_s
from greendot.inbox.local_inbox import LocalInbox, PendingAck
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.node.timer_model import has_come
from greendot.store.inbox import Notification
from greendot.store.port import Store
from greendot.store.wire import created_frame, is_over
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

MOST = 100  # notifications of one user that are redelivered at a time, those with the lowest numbers first
AGAIN_S = 5.0  # seconds until the next attempt after the store failed


class Redelivery:
    """Redelivery for all local inboxes. `send` sends a frame to the devices of a user and returns their number."""

    def __init__(
        self,
        store: Store,
        context: NodeContext,
        metrics: Metrics,
        send: Callable[[LocalInbox, bytes], int],
        hears: Callable[[LocalInbox], bool],
    ) -> None:
        self._context = context
        self._metrics = metrics
        self._send = send
        self._has_devices = hears  # returns whether the user has an attached device
        self._pending: BatchedReads[Key, list[Notification]] = BatchedReads(
            context, lambda keys: store.pending(keys, limit=MOST), []
        )

    async def pending(self, key: Key) -> list[Notification]:
        """Return the notifications that wait for an acknowledgement, without expired ones."""
        now = self._context.clock.now_ms()
        return [notification for notification in await self._pending.get(key) if not is_over(notification, now)]

    def sent(self, local: LocalInbox, seqs: Iterable[int]) -> None:
        """Record notifications as sent, to a new device or to all devices. The wait for acknowledgements starts now."""
        now, acks = self._context.timers.now(), local.pending_acks or {}
        for seq in seqs:
            times = acks[seq].times if seq in acks else 0
            acks[seq] = PendingAck(times, now + wait_s(times))
        local.pending_acks = acks or None
        self._arm(local)

    def acknowledged(self, local: LocalInbox, seqs: Iterable[int], through: int) -> None:
        if local.pending_acks is not None:
            done = {*seqs}
            local.pending_acks = {
                s: ack for s, ack in local.pending_acks.items() if s not in done and s > through
            } or None
            self._arm(local)

    def left(self, local: LocalInbox) -> None:
        """Stop the redelivery for a user without sessions on this node."""
        if local.redelivery_timer is not None:
            self._context.timers.cancel(local.redelivery_timer)
        local.pending_acks = None

    # --- redelivery ---

    def _arm(self, local: LocalInbox) -> None:
        self._context.timers.cancel(local.redelivery_timer)
        local.redelivery_timer = None
        if local.pending_acks is not None:
            due = min(ack.due for ack in local.pending_acks.values())
            delay_s = max(0.0, due - self._context.timers.now())
            local.redelivery_timer = self._context.timers.set(delay_s, self._on_timer, local)

    def _on_timer(self, local: LocalInbox) -> None:
        local.redelivery_timer = None
        if self._has_devices(local):  # otherwise `InboxDelivery.attach` sends the notifications to the next device
            self._context.tasks.spawn(self._redeliver(local))

    async def _redeliver(self, local: LocalInbox) -> None:
        try:
            pending = await self.pending(local.key)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="redelivery of notifications", reason=error)
            if local.pending_acks is not None:
                local.redelivery_timer = self._context.timers.set(AGAIN_S, self._on_timer, local)
            return
        if local.pending_acks is None:
            return
        later, waiting = self._context.timers.now() + LONGEST_S, {notification.seq for notification in pending}
        known = pending[-1].seq if len(pending) >= MOST else inf  # higher numbers were not read, and wait
        local.pending_acks = {
            seq: ack if seq in waiting else ack._replace(due=later)
            for seq, ack in local.pending_acks.items()
            if seq in waiting or seq > known
        }
        given_up = [
            n for n in pending if n.seq in local.pending_acks and self._send_again(local, local.pending_acks, n)
        ]
        local.pending_acks = local.pending_acks or None
        self._arm(local)
        self._metrics.inbox_unacknowledged_total += len(given_up)

    def _send_again(self, local: LocalInbox, pending_acks: dict[int, PendingAck], notification: Notification) -> bool:
        """Send a notification again if due. Return True if its redeliveries are used up and the node gives up."""
        now, ack = self._context.timers.now(), pending_acks[notification.seq]
        if not has_come(ack.due, now):
            return False
        if ack.times >= TIMES:
            del pending_acks[notification.seq]
            return True
        frame = created_frame(notification, self._context.clock.now_ms())
        self._metrics.inbox_redelivered_total += self._send(local, frame) > 0
        pending_acks[notification.seq] = PendingAck(ack.times + 1, now + wait_s(ack.times + 1))
        return False
