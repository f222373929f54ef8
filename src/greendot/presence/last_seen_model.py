"""Decisions about stored last-seen times: which time to write, which snapshots lack one, whom to write next.

The engine knows the last-seen time of an offline user until it restarts or is flushed. The store keeps a copy. A user
whom others see as offline with version 0 is unknown to the engine. An invisible user can be unknown, too: what others
see of this user must not differ from what they see of any unknown user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from greendot.ids import Key
from greendot.presence.model import Snapshot, VisibleState

TURNS = 20  # periods in which every user with sessions on the node is written once


def time_to_store(visible: VisibleState, now: int) -> int | None:
    """Return when others last saw the user, at `now`; None if the engine does not know."""
    return visible.last_seen if visible.state == "offline" else now


def is_unknown(snapshot: Snapshot) -> bool:
    """Return whether the engine has no last-seen time of a user whom others see as offline.

    While the engine restores lost sessions, the user may be online. A last-seen time would then mislead.
    """
    visible = snapshot.visible
    return not snapshot.stale and visible.state == "offline" and visible.version == 0


def with_stored(snapshot: Snapshot, at: int | None, now: int, keep_ms: int) -> Snapshot:
    """Return the snapshot with the stored time `at`, unless the time is too old to be shown.

    The version stays 0, because the stored time may be older than states that clients have seen. The state does not
    differ, so watchers get no change.
    """
    if at is None or at <= now - keep_ms or not is_unknown(snapshot):
        return snapshot
    # After a change of the clock, the time can be in the future.
    visible = structs.replace(snapshot.visible, last_seen=min(at, now))
    return snapshot._replace(visible=visible, own=visible if snapshot.own == snapshot.visible else snapshot.own)


class Rounds:
    """Rounds over all users with sessions on the node: each call of `take` returns one of `TURNS` parts."""

    def __init__(self) -> None:
        self._users: Sequence[Key] = ()
        self._turn = 0

    def take(self, users: Callable[[], Sequence[Key]]) -> Sequence[Key]:
        """Return the next part. `users` is called at the start of each round, and returns all users."""
        if self._turn == 0:
            self._users = users()
        size = -(-len(self._users) // TURNS)
        part = self._users[self._turn * size : (self._turn + 1) * size]
        self._turn = (self._turn + 1) % TURNS
        return part
