"""The part of the store port for webhooks: what happened to records and the apps have still to be told.

An event is queued in the transaction that makes it true, for tenants that have a hook: nobody can be told of what was
not written, and nothing that was written can be missed. The queue names the record; its content is read when it is
sent, so what was removed meanwhile is told no more.

One process at a time works on a tenant's queue, by a lease. Who stood still and goes on after its lease may send what
another has sent: events keep their ids, and ids are never used again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from greendot.protocol.events import MarkedAs

if TYPE_CHECKING:  # the whole port includes this part of it
    from greendot.store.inbox import Mark, Notification
    from greendot.store.rooms import Record

Hooked = Mapping[str, Collection[str]]  # tenant → the types of events its app wants to be told of

MOST_IDS = 500  # of notifications in one event
STATES: dict[Mark, MarkedAs] = {"seen": "seen", "read": "read", "archive": "archived", "ack": "acked"}


class Queued(Struct, frozen=True, gc=False):
    """An event that waits to be sent. Of a record that is gone, `record` and `notification` are None."""

    id: int
    tenant: str
    type: str
    stream: str  # the room, or the user
    at: int
    state: MarkedAs | None = None  # what was done with notifications
    ids: list[str] = []  # to which ones
    attempts: int = 0
    first_at: int | None = None  # when it first failed
    record: Record | None = None
    notification: Notification | None = None


class Failed(NamedTuple):
    """An event that could not be sent."""

    id: int
    next_at: int | None  # None: it is not tried again
    reason: str


class DeadEvent(NamedTuple):
    """An event that is not tried any more."""

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
    """What came of claiming a queue."""

    held: bool
    stopped: str  # the place its hook was stopped at; empty: it was not


class HookState(NamedTuple):
    """How it stands with a tenant's hook."""

    tenant: str
    waiting: int  # events not yet sent
    failing: int  # of those, how many have failed before
    dead: int
    oldest_at: int | None  # when the oldest that waits happened
    stopped_at: int | None
    reason: str | None  # why it was stopped


class HookDepth(NamedTuple):
    """What is in a tenant's queue, counted up to a limit."""

    tenant: str
    waiting: int
    dead: int
    oldest_at: int | None  # when the first that waits happened


class HookStore(Protocol):
    """The queue of every tenant, and who works on it."""

    async def claim_hooks(self, holder: str, tenants: Sequence[str], now: int, lease_ms: int) -> dict[str, Claim]:
        """Hold these tenants' queues for so long, those that no other holds."""
        ...

    async def release_hooks(self, holder: str) -> None:
        """Others need not wait for the leases to end."""
        ...

    async def waiting_hooks(self, tenants: Sequence[str], now: int) -> list[str]:
        """Those of the tenants with something to send now, in one read."""
        ...

    async def take_hooks(self, tenant: str, now: int, limit: int, *, again: bool) -> list[Queued]:
        """The first events to send, in the order they were written: those never tried, or those that failed and may be
        tried `again`. They stay where they are until they are settled."""
        ...

    async def settle_hooks(self, tenant: str, done: Sequence[int], failed: Sequence[Failed], now: int) -> None:
        """Remove what was sent; note what was not."""
        ...

    async def stop_hook(self, tenant: str, place: str, reason: str, now: int) -> None:
        """The app wants nothing more at this place."""
        ...

    async def hook_depths(self, tenants: Sequence[str], most: int) -> list[HookDepth]:
        """Of these tenants only. It counts up to `most` of each, so that a backlog holds up nobody else."""
        ...

    async def hook_states(self, tenants: Sequence[str]) -> list[HookState]:
        """For operators: it counts. These tenants', and those with anything in their queues."""
        ...

    async def dead_hooks(self, tenant: str | None, limit: int) -> list[DeadEvent]:
        """The oldest, of one tenant or of all."""
        ...

    async def replay_hooks(self, tenant: str | None, ids: Sequence[int] | None) -> list[int]:
        """Have dead events sent as if they were new, all if None; their hooks go on if they were stopped. Answers
        which there were."""
        ...

    async def prune_hooks(self, before: int, limit: int) -> int:
        """Forget at most `limit` events that were last tried before this. Answers how many."""
        ...
