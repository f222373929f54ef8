"""Badges: counts of unread and unseen notifications, sent to all devices of a user when the counts may have changed.

The inboxes of such users are read from the store together, after a short wait. A badge therefore always carries counts
of the store, whatever the number and the order of the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.timer_model import Timer
from greendot.protocol.codec import encode_event
from greendot.protocol.events import InboxBadge
from greendot.store.inbox import Inbox
from greendot.store.port import Store
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

EVERY_S = 0.25  # seconds between two badges of a user
AGAIN_S = 1.0  # seconds until the next read after the store failed
AT_ONCE = 1_000  # inboxes in one read
KEY = ("badge",)  # the latest badge replaces queued ones


class Badges:
    """Queue of users whose counts may have changed. `read` is called with the inboxes after each read."""

    def __init__(
        self, store: Store, context: NodeContext, metrics: Metrics, read: Callable[[Mapping[Key, Inbox]], None]
    ) -> None:
        self._store = store
        self._context = context
        self._metrics = metrics
        self._read = read
        self._changed: dict[Key, None] = {}
        self._timer: Timer | None = None  # set while a read is scheduled or under way

    def changed(self, keys: Iterable[Key]) -> None:
        self._changed.update(dict.fromkeys(keys))
        if self._changed and self._timer is None:
            self._timer = self._context.timers.set_next(EVERY_S, self._on_timer)

    def _on_timer(self, _: None) -> None:
        self._context.tasks.spawn(self._deliver())

    async def _deliver(self) -> None:
        # One read at a time: of two reads of the same inbox, the older must not be sent last.
        changed, self._changed = [*self._changed], {}
        wait_s = EVERY_S
        try:
            while changed:
                keys = changed[:AT_ONCE]
                inboxes = await self._store.inboxes(keys)
                for key in keys:
                    self._send(key, inboxes.get(key, Inbox()))
                self._read(inboxes)
                del changed[:AT_ONCE]
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="sending badges", reason=error)
            self._changed.update(dict.fromkeys(changed))
            wait_s = AGAIN_S
        finally:
            self._timer = self._context.timers.set_next(wait_s, self._on_timer) if self._changed else None

    def _send(self, key: Key, inbox: Inbox) -> None:
        frame = encode_event(InboxBadge(inbox.unread, inbox.unseen), self._context.clock.now_ms())
        # A device gets the badge during its hello, too: the counts in its welcome may have been read before.
        for connection in self._context.registry.connections_of(*key):
            connection.send(frame, record=False, key=KEY)
            self._metrics.inbox_badges_total += 1
