"""Rules of presence and records without a world: the simulation and runs with real processes check the same ones."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


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


def protected_until(contact: Ending, periods: Periods) -> float:
    """Return the time until which the connection's user must not be shown as offline."""
    if contact.ended_at is None:
        return contact.last_frame_at + periods.dead_s
    if contact.how in ("lost", "half_open"):
        return contact.ended_at + periods.grace_s
    if contact.how == "clean":
        return contact.ended_at + periods.clean_s - periods.slack_s
    if contact.how != "bye" and contact.closed_code in (1001, 1012, 1013):
        return contact.ended_at + periods.clean_s  # the node asks the client to return
    return contact.ended_at


def looks(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a presence entry that people see."""
    return tuple(entry.get(field) for field in ("state", "status_text", "name", "stale", "last_seen", "info"))


def wrong_change(before: dict[str, Any] | None, entry: dict[str, Any], *, is_event: bool) -> tuple[str, str] | None:
    """Return the broken invariant and its reason if this entry must not follow the other on one connection."""
    if before is None or not before["version"] or not entry["version"]:
        return None
    if entry["version"] < before["version"]:
        return "versions-rise", f"after version {before['version']}"
    if is_event and looks(entry) == looks(before):
        return "offline-once", "again"
    return None


def wrong_number(last: int | None, number: int) -> tuple[str, str] | None:
    """Return the broken invariant and its reason if record `number` must not follow record `last`."""
    if last is None or number == last + 1:
        return None
    return "records-in-order", f"after number {last}"
