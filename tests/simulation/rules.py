"""Rules of presence and records without a world: the simulation and runs with real processes check the same ones."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

HEARTBEAT_LOST = 4002


class Periods(Struct, frozen=True):
    """Times of a server that decide how long a session lasts, in seconds."""

    grace_s: float = 30.0
    clean_s: float = 5.0
    silent_s: float = 15.0
    dead_s: float = 75.0
    slack_s: float = 1.5  # delays of the network


class Ending(Protocol):
    """End of a connection, as far as the client knows."""

    last_frame_at: float
    ended_at: float | None
    how: str
    closed_code: int
    closed_at: float | None  # when the node closed the connection, if it did


def protected_until(contact: Ending, periods: Periods) -> float:
    """Return the time until which the connection's user must not be shown as offline."""
    if contact.ended_at is None:
        end = contact.last_frame_at + periods.dead_s
    elif contact.how in ("lost", "half_open"):
        end = contact.ended_at + periods.grace_s
    elif contact.how == "clean":
        end = contact.ended_at + periods.clean_s - periods.slack_s
    elif contact.how != "bye" and 4000 <= contact.closed_code < 4500:  # the node asks the client to return
        grace_s = periods.silent_s if contact.closed_code == HEARTBEAT_LOST else periods.grace_s
        end = (contact.closed_at or contact.ended_at) + grace_s - periods.slack_s
    else:
        end = contact.ended_at
    # A node closes the connection of a silent client before it may notice that the socket is lost.
    return min(end, contact.last_frame_at + periods.dead_s + periods.silent_s - periods.slack_s)


def looks(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a presence entry that people see."""
    return tuple(entry.get(field) for field in ("state", "status_text", "name", "stale", "last_seen", "info"))


def wrong_change(before: dict[str, Any] | None, entry: dict[str, Any], *, is_event: bool) -> tuple[str, str] | None:
    """Return the broken invariant and its reason if this entry must not follow the other on one connection."""
    if before is None or not before["version"] or not entry["version"]:
        return None
    if entry["version"] < before["version"] and looks(entry) != looks(before):
        return "versions-rise", f"after version {before['version']}"
    if is_event and looks(entry) == looks(before):
        return "offline-once", "again"
    return None


def wrong_number(last: int | None, number: int) -> tuple[str, str] | None:
    """Return the broken invariant and its reason if record `number` must not follow record `last`."""
    if last is None or number == last + 1:
        return None
    return "records-in-order", f"after number {last}"
