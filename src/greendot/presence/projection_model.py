"""From what is known of a user to what a reader is shown."""

from __future__ import annotations

from msgspec import UNSET, structs

from greendot.presence.model import Face, Snapshot
from greendot.protocol.events import Presence

RECENTLY_MS = 300_000


def entry(
    user: str,
    face: Face,
    name: str | None,
    devices: list[str] | None = None,
    *,
    own: bool = False,
    stale: bool = False,
) -> Presence:
    """The wire's presence entry; `devices` for snapshots, `own` for the user's own devices."""
    return Presence(
        user=user,
        name=name,
        state=face.state,
        since=face.since,
        last_seen=face.last_seen,
        version=face.version,
        status_text=face.text,
        devices=UNSET if devices is None else devices if own or face.state != "offline" else [],
        status=face.status if own else UNSET,
        until=face.until if own else UNSET,
        stale=stale or UNSET,
    )


def without_last_seen(shown: Presence) -> Presence:
    """The same for those who are not to know when the user was last seen.

    Of somebody offline that is also in `since`, and in the version, which is a time: 0 may replace any.
    """
    return structs.replace(shown, since=None, last_seen=None, version=0) if shown.state == "offline" else shown


def polled(shown: Presence, now: int) -> Presence:
    """The same, of a user whose changes are not told: whether they were active lately, in its place.

    It is made of nothing but what this reader is shown anyway, so it tells nothing that is hidden from them.
    """
    at = {"idle": shown.since, "offline": shown.last_seen}.get(shown.state, now)
    return structs.replace(shown, mode="poll", recently_active=at is not None and now - at <= RECENTLY_MS)


def project(user: str, snapshot: Snapshot, *, own: bool = False) -> Presence:
    """A snapshot as a reader may see it."""
    face = snapshot.own if own else snapshot.face
    return entry(user, face, snapshot.name, snapshot.devices, own=own, stale=snapshot.stale)
