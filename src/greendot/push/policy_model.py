"""Push gate: whether a notification goes to a device now, later, or never.

The gate decides again when the time that it waited for has come. A connected user is not disturbed unless the
notification stays unseen, so presence only delays a push. A session that still counts although its client is gone can
delay a push, but no longer than its lease, the grace and the hold. A critical notification that the user has not seen
waits for nothing. A push ends only if the notification is seen, read or expired, or by a choice of the user or the
operator. If the presence of a user is unknown, the notification is pushed.

A notification that needs an acknowledgement is done when acknowledged, not when seen. Connected devices get it again
for a while (`inbox.kinds_model`). If no device has acknowledged it by then, it is pushed.
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
    "awaiting_ack",  # seen, and still redelivered to the connected devices
    "active",
    "idle",
    "busy",
    "quiet_hours",
    "over_the_cap",
    "unseen",  # the user is connected, and the hold has ended
    "unacknowledged",  # the user is connected, and the redeliveries are over
    "offline",
    "presence_unknown",
    "critical",  # pushed although the user is here, is busy, has quiet hours or reached the cap
]

HOUR_MS = 3_600_000
CHECK_AGAIN_MS = 60_000  # longest time until a busy user, or a missing acknowledgement, is checked again
RETRIED_MS = round(RETRIED_S * 1000)
CHECK_ROOM_MS = 15_000  # same for a user in the room, unless the hold is shorter: the session may be dead


class PushPolicy(Struct, frozen=True):
    """Push policy for a kind of notification of a tenant."""

    enabled: bool = True
    active_hold_s: float = 60.0
    idle_hold_s: float = 30.0
    per_hour: int = 0  # maximum number of pushes to a user in an hour; 0: no limit
    least: Importance = "normal"  # less important notifications are in the inbox only


class QueuePolicy(Struct, frozen=True):
    """Policy that keeps notifications of a tenant out of the push queue if they are never pushed."""

    pushes: bool = False  # whether the tenant has a provider
    kinds_off: frozenset[str] = frozenset()

    def queues(self, kind: str) -> bool:
        return self.pushes and kind not in self.kinds_off


class RecipientState(Struct, frozen=True):
    """State of the recipient. `state` None: the engine does not answer."""

    state: Literal["online", "idle", "offline"] | None
    rooms: Collection[str] = ()  # rooms joined by a device that is active now
    busy: bool = False
    busy_until: int | None = None


class PushCandidate(Struct, frozen=True):
    """Notification, as far as the gate needs it."""

    created_at: int
    importance: Importance = "normal"
    room: str | None = None  # room of the message that the notification is about
    expires_at: int | None = None
    done: bool = False  # seen, read, archived or acknowledged; with `must_ack` acknowledged only
    must_ack: bool = False
    seen: bool = False  # or read or archived


class Decision(NamedTuple):
    """Decision of the gate, with its reason, and for `later` the time of the next decision."""

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
    """Decide about a push.

    `quiet_until` is the end of the user's current quiet hours, or None. `recent` has the times of the user's pushes of
    the last hour.
    """
    over = _over(matter, policy, now)
    if over is not None:
        return Decision("never", over)
    here, waits = _here(matter, seen, policy, now), _waits(seen, policy, now, quiet_until, recent)
    if here.action == "later":
        waits.append(here)
    if not waits:
        return here
    if matter.importance == "critical":  # if it was seen, only the acknowledgement is missing
        return here if matter.seen and here.action == "later" else Decision("now", "critical")
    return max(waits, key=lambda wait: wait.at)  # all waits must have ended; the last one to end is the reason


def _over(matter: PushCandidate, policy: PushPolicy, now: int) -> Reason | None:
    """Return the reason for which the notification is never pushed; None if there is none."""
    if matter.done:
        return "seen"
    if matter.expires_at is not None and matter.expires_at <= now:
        return "expired"
    if not policy.enabled:
        return "kind_off"
    return "importance_low" if _RANK[matter.importance] < _RANK[policy.least] else None


def _here(matter: PushCandidate, seen: RecipientState, policy: PushPolicy, now: int) -> Decision:
    """Return the decision by the recipient's presence alone."""
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
        return Decision("later", "awaiting_ack", min(retried_at, now + CHECK_AGAIN_MS))  # the user may disconnect
    is_active = seen.state == "online"
    until = matter.created_at + round((policy.active_hold_s if is_active else policy.idle_hold_s) * 1000)
    if now < until:
        return Decision("later", "active" if is_active else "idle", until)
    return Decision("now", "unseen")


def _waits(
    seen: RecipientState, policy: PushPolicy, now: int, quiet_until: int | None, recent: Sequence[int]
) -> list[Decision]:
    """Return the waits for the user's choices and the cap."""
    waits = []
    if seen.busy and (seen.busy_until is None or seen.busy_until > now):
        # The user may end the status before its time.
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

    `held` has the slots that each tenant occupies already. Without it no slot is kept free for other tenants.
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
