"""Changes that would show a user whom this node knows as invisible. They wait until the node knows the status for sure.

Such a change has two causes. After a failover to older data, the engine publishes states from before the user became
invisible, until the node has noticed the loss and restored the status. Or the user is visible again, and the change
arrives before the status.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from greendot.engine.messages import Topic
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.presence.model import Change
from greendot.presence.status import StatusService
from greendot.telemetry import log_events
from greendot.telemetry.log import log

ASK_S = 1.0  # time for the status to arrive; afterwards the node reads it from the store
LOOK_S = 30.0  # seconds between two reads of the status of a user who stays invisible


class ChangeReceiver(Protocol):
    """Service that shows changes to watchers (`WatchService`)."""

    def changed(self, topic: Topic, change: Change) -> None: ...

    async def refresh(self, key: Key) -> None: ...


class WithheldChanges:
    """Filter between the bus and the watchers of this node."""

    def __init__(self, statuses: StatusService, context: NodeContext, watching: ChangeReceiver) -> None:
        self._statuses = statuses
        self._context = context
        self._watching = watching
        self._withheld: dict[Key, Change] = {}  # the newest one of each user
        statuses.listeners.append(self._status_changed)

    def changed(self, topic: Topic, change: Change) -> None:
        """Pass a change from the bus on, unless it would show an invisible user."""
        key = topic.tenant, topic.name
        before = self._withheld.get(key)
        if not self._contradicts(key, change):
            if before is not None and change.own.version >= before.own.version:
                self._keep_newer(key, before, change)
            self._watching.changed(topic, change)
        elif before is None:
            self._withheld[key] = change
            self._context.timers.set(ASK_S, self._on_timer, key)
        elif change.own.version > before.own.version:
            self._withheld[key] = change

    def _keep_newer(self, key: Key, before: Change, change: Change) -> None:
        """Drop the withheld change if others see the state of `change` instead. Otherwise take name and devices."""
        if change.own.version > before.own.version and (change.public or change.own.status == "invisible"):
            del self._withheld[key]
        else:
            self._withheld[key] = structs.replace(before, name=change.name or before.name, devices=change.devices)

    def _contradicts(self, key: Key, change: Change) -> bool:
        is_shown = change.public and change.visible.state != "offline"
        return is_shown and change.own.status != "invisible" and self._statuses.is_invisible(key)

    def _status_changed(self, key: Key) -> None:
        if key in self._withheld and not self._statuses.is_invisible(key):
            self._watching.changed(Topic("watch", *key), self._withheld.pop(key))

    def _on_timer(self, key: Key) -> None:
        if key in self._withheld:
            self._context.tasks.spawn(self._decide(key))

    async def _decide(self, key: Key) -> None:
        """Read the status from the store. If the user is invisible, the engine may have older data: restore the user.

        The change stays withheld, because the node may also learn of the end of a status late. It is dropped when a
        newer one arrives: a restored user is published again.
        """
        again_s = ASK_S
        try:
            if self._statuses.is_invisible(key):
                await self._statuses.read_stored(key)  # calls `_status_changed` if the user is visible
            if self._statuses.is_invisible(key):
                self._statuses.restore_soon(key)
                again_s = LOOK_S
            elif (withheld := self._withheld.get(key)) is not None:  # the last session here has ended
                await self._watching.refresh(key)
                if self._withheld.get(key) is withheld:
                    del self._withheld[key]
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.WORK_LATER, work="reading the status of a user", reason=error)
        if key in self._withheld:
            self._context.timers.set(again_s, self._on_timer, key)
