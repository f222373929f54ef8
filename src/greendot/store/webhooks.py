"""Port for webhooks: queues of events about records that apps have not received yet.

An event is queued in the transaction that writes its record, for tenants that have a hook. So no event is sent for a
record that was not written, and no written record is missed. A queued event names its record; the content is read when
the event is sent. An event whose record was removed in the meantime is not sent.

One process at a time works on a tenant's queue, by a lease. A process that stalls and continues after its lease may
send an event that another process has sent. Such an event has the same id, and ids are never reused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from greendot.protocol.events import MarkedAs

if TYPE_CHECKING:  # `port` imports this module
    from greendot.store.audit import AuditEntry
    from greendot.store.inbox import Mark, Notification
    from greendot.store.rooms import Record

Hooked = Mapping[str, Collection[str]]  # tenant → event types that its hook wants

MOST_IDS = 500  # notifications in one event
AUDITED = "audit.created"  # type of the event of an entry of the audit
STATES: dict[Mark, MarkedAs] = {"seen": "seen", "read": "read", "archive": "archived", "ack": "acked"}


class Queued(Struct, frozen=True, gc=False):
    """Event in the queue. It has one of `record`, `notification`, `audit` and `state`, or none if that was removed."""

    id: int
    tenant: str
    type: str
    stream: str  # room or user; for the audit: its room, or empty
    at: int
    state: MarkedAs | None = None  # new state of the notifications in `ids`
    ids: list[str] = []
    attempts: int = 0
    first_at: int | None = None  # time of the first failure
    record: Record | None = None
    notification: Notification | None = None
    audit: AuditEntry | None = None


class Failed(NamedTuple):
    """Event that could not be sent."""

    id: int
    next_at: int | None  # time of the next attempt; None: the event is dead
    reason: str


class DeadEvent(NamedTuple):
    """Event that is not retried any more."""

    id: int
    tenant: str
    type: str
    stream: str
    seq: int | None
    at: int
    attempts: int
    failed_at: int
    reason: str


class Claim(NamedTuple):
    """Result of claiming a queue."""

    held: bool
    stopped: str  # place at which the hook was stopped; empty: not stopped


class HookState(NamedTuple):
    """State of a tenant's hook, for operators."""

    tenant: str
    waiting: int  # events not yet sent
    failing: int  # waiting events that have failed before
    dead: int
    oldest_at: int | None  # time of the oldest waiting event
    stopped_at: int | None
    reason: str | None  # of the stop


class HookDepth(NamedTuple):
    """Counts of a tenant's queue, up to a limit."""

    tenant: str
    waiting: int
    dead: int
    oldest_at: int | None  # time of the first waiting event


class HookStore(Protocol):
    """Port for the event queues of tenants and their leases."""

    async def claim_hooks(self, holder: str, tenants: Sequence[str], now: int, lease_ms: int) -> dict[str, Claim]:
        """Claim or renew the queues of these tenants for `lease_ms`, except queues that another process holds."""
        ...

    async def release_hooks(self, holder: str) -> None:
        """End the leases of `holder`, so that other processes need not wait for them."""
        ...

    async def waiting_hooks(self, tenants: Sequence[str], now: int) -> list[str]:
        """Return the tenants that have events to send now, in one read."""
        ...

    async def take_hooks(self, tenant: str, now: int, limit: int, *, again: bool) -> list[Queued]:
        """Return the first events to send, in the order they were written. They stay queued until `settle_hooks`.

        With `again`, failed events that are due for a retry; otherwise events that were never tried.
        """
        ...

    async def settle_hooks(self, tenant: str, done: Sequence[int], failed: Sequence[Failed], now: int) -> None:
        """Remove the events in `done` and record the failures in `failed`."""
        ...

    async def stop_hook(self, tenant: str, place: str, reason: str, now: int) -> None:
        """Record that the app wants no more events at this place."""
        ...

    async def hook_depths(self, tenants: Sequence[str], most: int) -> list[HookDepth]:
        """Count the queues of these tenants, up to `most` events each, so that a backlog does not delay other calls."""
        ...

    async def hook_states(self, tenants: Sequence[str]) -> list[HookState]:
        """Return the states of these tenants' hooks and of all tenants with queued events.

        For operators only: counting is slow.
        """
        ...

    async def dead_hooks(self, tenant: str | None, limit: int) -> list[DeadEvent]:
        """Return the oldest dead events, of one tenant or of all."""
        ...

    async def replay_hooks(self, tenant: str | None, ids: Sequence[int] | None) -> list[int]:
        """Queue dead events as if they were new, all if `ids` is None; return the ids found.

        Stopped hooks of their tenants are resumed.
        """
        ...

    async def prune_hooks(self, before: int, limit: int) -> int:
        """Remove at most `limit` events whose last attempt failed before `before`; return how many."""
        ...
