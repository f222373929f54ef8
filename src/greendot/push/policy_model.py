"""The push gate: whether a notification goes to a device now, later, or never.

It is asked again whenever what it waited for has come. Who is here is not disturbed unless it stays unseen, so being
here only ever delays: a session that is still counted though nobody holds it any more can make a push late, and no
later than its lease, the grace and the hold. Only being seen or read, or what the user or the operator chose, ends it.
Where nothing is known of somebody, it is pushed.

A notification that is to be acknowledged is done when it is, not when it is seen. Devices that are here get it again
for a while (`inbox.kinds_model`); if none has acknowledged it by then, it is pushed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Literal, NamedTuple

from msgspec import Struct

from greendot.inbox.kinds_model import RETRIED_S

Importance = Literal["low", "normal", "high", "critical"]
PushAction = Literal["now", "later", "never"]
Reason = Literal[
    "seen",  # or read, archived, acknowledged
    "expired",
    "no_device",
    "kind_off",
    "importance_low",
    "in_the_room",
    "awaiting_ack",  # seen, and still sent again to the devices that are here
    "active",
    "idle",
    "busy",
    "quiet_hours",
    "over_the_cap",
    "unseen",  # somebody was here, and the hold has ended
    "unacknowledged",  # somebody was here, and it was sent again often enough
    "offline",
    "presence_unknown",
    "critical",  # the user is busy, or has quiet hours, or had many: it passes
]

HOUR_MS = 3_600_000
CHECK_AGAIN_MS = 60_000  # busy without a known end is looked at so often
RETRIED_MS = round(RETRIED_S * 1000)
CHECK_ROOM_MS = 15_000  # and the room somebody is in, or after the hold if that is shorter: who is in it may be a ghost


class PushPolicy(Struct, frozen=True):
    """What holds for a kind of notification of a tenant."""

    enabled: bool = True
    active_hold_s: float = 60.0
    idle_hold_s: float = 30.0
    per_hour: int = 0  # for a user; 0: no cap
    least: Importance = "normal"  # what is less important is shown in the inbox only


class QueuePolicy(Struct, frozen=True):
    """Which notifications of a tenant are queued for push when they are written: none that is never pushed."""

    pushes: bool = False  # the tenant has a provider
    kinds_off: frozenset[str] = frozenset()

    def queues(self, kind: str) -> bool:
        return self.pushes and kind not in self.kinds_off


class RecipientState(Struct, frozen=True):
    """How the user stands. `state` None: the engine does not answer."""

    state: Literal["online", "idle", "offline"] | None
    rooms: Collection[str] = ()  # joined by a device that is active now
    busy: bool = False
    busy_until: int | None = None


class PushCandidate(Struct, frozen=True):
    """The notification."""

    created_at: int
    importance: Importance = "normal"
    room: str | None = None  # it is about a message of this room
    expires_at: int | None = None
    done: bool = False  # seen, read, archived or acknowledged; with `must_ack` acknowledged only
    must_ack: bool = False
    seen: bool = False  # or read or archived


class Decision(NamedTuple):
    """What to do, why, and for `later` when to ask again."""

    action: PushAction
    reason: Reason
    at: int = 0


_RANK: dict[Importance, int] = {"low": 0, "normal": 1, "high": 2, "critical": 3}


def decide(
    matter: PushCandidate,
    seen: RecipientState,
    policy: PushPolicy,
    now: int,
    *,
    quiet_until: int | None = None,
    recent: Sequence[int] = (),
) -> Decision:
    """`quiet_until`: when the user's quiet hours end, if these are some. `recent`: when the user's pushes of the last
    hour were made."""
    over = _over(matter, policy, now)
    if over is not None:
        return Decision("never", over)
    here, waits = _here(matter, seen, policy, now), _waits(seen, policy, now, quiet_until, recent)
    passes = matter.importance == "critical" and bool(waits)
    if passes:
        waits = []
    if here.action == "later":
        waits.append(here)
    if waits:  # all of them must have ended; the last to end says why
        return max(waits, key=lambda wait: wait.at)
    return Decision("now", "critical") if passes else here


def _over(matter: PushCandidate, policy: PushPolicy, now: int) -> Reason | None:
    """Why it is never pushed."""
    if matter.done:
        return "seen"
    if matter.expires_at is not None and matter.expires_at <= now:
        return "expired"
    if not policy.enabled:
        return "kind_off"
    return "importance_low" if _RANK[matter.importance] < _RANK[policy.least] else None


def _here(matter: PushCandidate, seen: RecipientState, policy: PushPolicy, now: int) -> Decision:
    """What being here means for it."""
    if seen.state is None:
        return Decision("now", "presence_unknown")
    if seen.state == "offline":
        return Decision("now", "offline")
    retried_at = matter.created_at + RETRIED_MS
    if matter.must_ack and now >= retried_at:
        return Decision("now", "unacknowledged")
    if matter.room is not None and matter.room in seen.rooms:
        held_ms = max(1_000, round(policy.active_hold_s * 1000))
        return Decision("later", "in_the_room", now + min(CHECK_ROOM_MS, held_ms))
    if matter.must_ack and matter.seen:
        return Decision("later", "awaiting_ack", min(retried_at, now + CHECK_AGAIN_MS))  # they may leave
    is_active = seen.state == "online"
    until = matter.created_at + round((policy.active_hold_s if is_active else policy.idle_hold_s) * 1000)
    if now < until:
        return Decision("later", "active" if is_active else "idle", until)
    return Decision("now", "unseen")


def _waits(
    seen: RecipientState, policy: PushPolicy, now: int, quiet_until: int | None, recent: Sequence[int]
) -> list[Decision]:
    """What the user chose, and the cap: critical ones pass them."""
    waits = []
    if seen.busy and (seen.busy_until is None or seen.busy_until > now):
        # It may be ended before its time.
        until = now + CHECK_AGAIN_MS if seen.busy_until is None else min(seen.busy_until, now + CHECK_AGAIN_MS)
        waits.append(Decision("later", "busy", until))
    if quiet_until is not None and quiet_until > now:
        waits.append(Decision("later", "quiet_hours", quiet_until))
    made = sorted(at for at in recent if at > now - HOUR_MS)
    if policy.per_hour and len(made) >= policy.per_hour:
        waits.append(Decision("later", "over_the_cap", made[-policy.per_hour] + HOUR_MS))
    return waits


def divide(due: Mapping[str, int], free: int, held: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return how many of each tenant's `due` items to take into `free` slots.

    `held`: slots each tenant occupies already. Without it nothing is kept free for others.
    """
    taken: dict[str, int] = {}
    heap = [((held or {}).get(tenant, 0), tenant) for tenant, count in due.items() if count > 0]
    heapify(heap)
    while heap and free > 0:
        count, tenant = heap[0]
        if held is not None and count >= free:
            break  # the other tenants hold at least as many
        taken[tenant] = taken.get(tenant, 0) + 1
        free -= 1
        if taken[tenant] < due[tenant]:
            heapreplace(heap, (count + 1, tenant))
        else:
            heappop(heap)
    return taken
