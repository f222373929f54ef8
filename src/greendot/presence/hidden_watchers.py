"""Watchers who may not see the user they watch.

Hidden watchers are no listeners, so no frame for listeners can reach them. Hidden watchers get the state of an unknown
user. A watcher who saw the user before sees the user go offline at the time of the hiding, and stay offline. The node
stays subscribed to the user for hidden watchers, so that a further request of a hidden watcher takes as long as usual.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, structs

from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.subscriptions import Subscriptions
from greendot.presence.celebrities import Celebrities
from greendot.presence.model import NOBODY, entry, polled, with_profile, without_last_seen
from greendot.presence.watched_user import WatchedUser
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Presence


def unknown_presence(user: str, *, stale: bool = False) -> Presence:
    """Return the snapshot entry of an unknown user."""
    return entry(user, NOBODY, None, [], stale=stale)


def _has_seen(shown: Presence) -> bool:
    """Return whether the entry of a hidden watcher shows that the watcher saw the user before."""
    return shown.name is not None or shown.version > 0


class HiddenWatchers:
    """Hidden watchers of all users watched on this node. `now_ms` is the engine's time."""

    def __init__(
        self,
        context: NodeContext,
        watched: Subscriptions[WatchedUser],
        celebrities: Celebrities,
        now_ms: Callable[[], int],
    ) -> None:
        self._context = context
        self._watched = watched
        self._celebrities = celebrities
        self._now_ms = now_ms

    def bar(self, watched: WatchedUser, connection: Connection) -> None:
        """Hide the user from a watcher, from the start or from now on."""
        if connection in watched.barred:
            return
        watched.shows += 1
        if connection not in watched.channel.listeners:
            watched.barred[connection] = entry(watched.user, NOBODY, None)
            self._watched.keep(watched)
            return
        gone = self._gone(watched)
        watched.barred[connection] = gone
        self._watched.detach(watched.channel.topic, connection)  # also drops frames that wait for the connection
        self._celebrities.left(watched, connection)
        if watched.visible.state != "offline" and not watched.is_polled:
            watched.completed([connection])
            self._deliver(watched, connection, gone)

    def lift(self, watched: WatchedUser, connection: Connection) -> Presence | None:
        """Let a watcher see the user again; return the entry to send.

        Return None if the watcher was not hidden, or if the entry does not differ from the last one.
        """
        before = watched.barred.pop(connection, None)
        if before is None:
            return None
        watched.shows += 1
        self._watched.attach(watched, connection)
        self._celebrities.came(watched, connection)
        now = watched.shown(self._now_ms())
        if 0 < now.version <= before.version:  # clients would ignore a version below the last one
            watched.raised = max(watched.raised, before.version + 1)
            now = structs.replace(now, version=before.version + 1)
        return None if now == before else now

    def forget(self, watched: WatchedUser, connection: Connection) -> None:
        watched.barred.pop(connection, None)
        watched.completed([connection])

    def snapshot(self, watched: WatchedUser, connection: Connection | None, *, stale: bool) -> Presence:
        """Return the snapshot entry for a connection that may not see the user. Others get it with `stale`, too."""
        shown = None if connection is None else watched.barred.get(connection)
        if shown is None or not _has_seen(shown):
            # The usual case. It must take no longer than for an unknown user.
            return entry(watched.user, NOBODY, None, [], stale=stale)
        return structs.replace(self._current(watched, shown), devices=[], stale=stale or UNSET)

    def redeliver(self, watched: WatchedUser) -> None:
        """Send hidden watchers their entry after `stale` has changed: its absence would show that they are hidden."""
        marked = watched.marked
        for connection, shown in watched.barred.items():
            if connection not in marked:
                self._deliver(watched, connection, shown)
        watched.completed(watched.barred)

    def complete(self, watched: WatchedUser, connection: Connection) -> None:
        """Send a hidden watcher the entry without the mark of its snapshot, as to other watchers at this time."""
        shown = watched.barred[connection]
        if not (watched.is_polled and _has_seen(shown)):  # other watchers of a polled user get nothing, either
            self._deliver(watched, connection, shown)

    def _gone(self, watched: WatchedUser) -> Presence:
        """Return the entry for watchers who saw the user: the user appears to go offline now."""
        if watched.visible.state == "offline":
            visible = watched.visible
        else:
            now = self._now_ms()
            version = max(now, watched.visible.version + 1, watched.raised + 1)
            visible = structs.replace(NOBODY, since=now, last_seen=now, version=version)
        shown = with_profile(entry(watched.user, visible, watched.name), watched.profile)
        return without_last_seen(shown) if watched.discreet else shown

    def _current(self, watched: WatchedUser, shown: Presence) -> Presence:
        shown = structs.replace(shown, stale=watched.stale or UNSET)
        return polled(shown, self._now_ms()) if _has_seen(shown) and watched.is_polled else shown

    def _deliver(self, watched: WatchedUser, connection: Connection, shown: Presence) -> None:
        frame = encode_event(self._current(watched, shown), self._context.clock.now_ms())
        connection.send(frame, record=False, key=("presence", watched.user))
