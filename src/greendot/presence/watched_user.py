"""A user with local watchers, as last heard."""

from __future__ import annotations

from typing import NamedTuple

from greendot.node.channel import Channel
from greendot.node.session import Connection
from greendot.node.subscriptions import TopicSubscription
from greendot.node.timer_model import Timer
from greendot.presence.celebrity_model import CelebrityFanout
from greendot.presence.model import NOBODY, entry, polled, without_last_seen
from greendot.protocol.events import Presence


class CelebrityWatchers:
    """The watchers of a user whom very many watch."""

    __slots__ = ("polled", "spread", "timer")

    def __init__(self, *, polled: bool = False) -> None:
        self.polled = polled  # they are told nothing, but ask
        self.spread: CelebrityFanout[Connection] | None = None  # set while something is being told
        self.timer: Timer | None = None  # set at the same time, for those who are next


class WatchedUser(TopicSubscription):
    """See the module."""

    __slots__ = (
        "barred",
        "celebrity",
        "devices",
        "discreet",
        "held",
        "held_until",
        "name",
        "own",
        "raised",
        "shows",
        "stale",
        "visible",
    )

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.visible = self.own = NOBODY
        self.name: str | None = None
        self.devices: list[str] = []
        self.held = False  # after a loss: what is heard means nothing until everybody's sessions are restored
        self.held_until = 0.0  # monotonic seconds: what is read before says nothing either
        self.stale = False  # the engine has been away for a while, and watchers know it
        self.celebrity: CelebrityWatchers | None = None  # set while very many watch, or watchers are to ask anyway
        self.discreet = False  # others are not shown when the user was last seen
        # Who watches and may not see. They hear nothing, and are shown this, which stays as it is.
        self.barred: dict[Connection, Presence] = {}
        self.shows = 0  # how often watchers were to be shown something else: an entry encoded before is out of date
        self.raised = 0  # the highest version given to any who were barred and are no more

    @property
    def is_wanted(self) -> bool:
        return bool(self.channel.listeners or self.barred)

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and user."""
        return self.channel.topic.tenant, self.channel.topic.name

    @property
    def user(self) -> str:
        return self.channel.topic.name

    def shown(self, now_ms: int, *, devices: bool = False) -> Presence:
        """What others see at `now_ms` of the engine's clock; `devices` for a snapshot."""
        shown = entry(self.user, self.visible, self.name, self.devices if devices else None, stale=self.stale)
        if self.discreet:
            shown = without_last_seen(shown)
        return polled(shown, now_ms) if self.is_polled else shown

    @property
    def is_polled(self) -> bool:
        return self.celebrity is not None and self.celebrity.polled

    def shown_own(self, *, devices: bool = False) -> Presence:
        """What the user's own devices see: always live."""
        return entry(self.user, self.own, self.name, self.devices if devices else None, own=True, stale=self.stale)


class WatchEntry(NamedTuple):
    """An entry of the reply to `watch`, encoded."""

    watched: WatchedUser | None  # None if the session may not watch the user
    shows: int  # of `watched`, when the entry was made
    data: bytes

    @property
    def is_outdated(self) -> bool:
        """Whether watchers were shown something else since."""
        return self.watched is not None and self.watched.shows != self.shows
