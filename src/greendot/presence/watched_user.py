"""State of a user with watchers on this node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from greendot.node.channel import Channel
from greendot.node.session import Connection
from greendot.node.subscriptions import TopicSubscription
from greendot.node.timer_model import Timer
from greendot.presence.celebrity_model import CelebrityFanout
from greendot.presence.model import NOBODY, entry, polled, with_profile, without_last_seen
from greendot.presence.profile_model import NO_PROFILE
from greendot.protocol.events import Presence


class CelebrityWatchers:
    """Delivery state for the watchers of a celebrity."""

    __slots__ = ("polled", "spread", "timer")

    def __init__(self, *, polled: bool = False) -> None:
        self.polled = polled  # watchers get no changes, but poll
        self.spread: CelebrityFanout[Connection] | None = None  # set while a change is being delivered
        self.timer: Timer | None = None  # set at the same time, for the next slice


class WatchedUser(TopicSubscription):
    """User with watchers on this node, with the last state received."""

    __slots__ = (
        "barred",
        "celebrity",
        "devices",
        "discreet",
        "held",
        "held_until",
        "name",
        "owed",
        "own",
        "profile",
        "raised",
        "shows",
        "stale",
        "visible",
    )

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.visible = self.own = NOBODY
        self.name: str | None = None
        self.profile = NO_PROFILE
        self.devices: list[str] = []
        self.held = False  # after a loss: only confirmed changes are shown until all sessions are restored
        self.held_until = 0.0  # monotonic seconds: reads are ignored before this time too
        # Connections that got a snapshot marked as stale only because the user was held: the end of the mark is due.
        self.owed: dict[Connection, None] | None = None  # None: no connection, as usual
        self.stale = False  # watchers see the state as possibly out of date
        self.celebrity: CelebrityWatchers | None = None  # set if the user has very many watchers or is polled
        self.discreet = False  # others do not see when the user was last seen
        # Hidden watchers, each with the entry that the watcher sees. Changes of the user do not change this entry.
        self.barred: dict[Connection, Presence] = {}
        self.shows = 0  # grows with each change of what watchers see, so that outdated entries are recognised
        self.raised = 0  # highest version given to a watcher who is no longer hidden

    @property
    def is_wanted(self) -> bool:
        return bool(self.channel.listeners or self.barred)

    @property
    def key(self) -> tuple[str, str]:
        """Return tenant and user."""
        return self.channel.topic.tenant, self.channel.topic.name

    @property
    def user(self) -> str:
        return self.channel.topic.name

    def shown(self, now_ms: int, *, devices: bool = False) -> Presence:
        """Return the entry for others at `now_ms` of the engine's clock, with `devices` for a snapshot."""
        listed, stale = (self.devices, self.is_doubtful) if devices else (None, self.stale)
        shown = entry(self.user, self.visible, self.name, listed, stale=stale)
        shown = with_profile(shown, self.profile)
        if self.discreet:
            shown = without_last_seen(shown)
        return polled(shown, now_ms) if self.is_polled else shown

    def owe(self, connection: Connection) -> None:
        self.owed = self.owed or {}
        self.owed[connection] = None

    @property
    def marked(self) -> Collection[Connection]:
        """Return the connections whose snapshot had the mark, while all watchers get it."""
        return (self.owed or ()) if self.stale else ()

    def completed(self, connections: Iterable[Connection]) -> None:
        """Record that these connections got the state without the mark of their snapshots."""
        if owed := self.owed:
            for connection in connections:
                owed.pop(connection, None)

    @property
    def is_doubtful(self) -> bool:
        """Return whether the state may be older than one that a new watcher knows from another node."""
        return self.stale or self.held

    @property
    def is_polled(self) -> bool:
        return self.celebrity is not None and self.celebrity.polled

    def shown_own(self, *, devices: bool = False) -> Presence:
        """Return the entry for the user's own devices, which is never polled."""
        listed, stale = (self.devices, self.is_doubtful) if devices else (None, self.stale)
        return with_profile(entry(self.user, self.own, self.name, listed, own=True, stale=stale), self.profile)


class WatchEntry(NamedTuple):
    """Entry of the reply to `watch`, encoded."""

    watched: WatchedUser | None  # None if the session may not watch the user
    shows: int  # `watched.shows` when the entry was made
    data: bytes

    @property
    def is_outdated(self) -> bool:
        """Return whether watchers see another state since the entry was made."""
        return self.watched is not None and self.watched.shows != self.shows
