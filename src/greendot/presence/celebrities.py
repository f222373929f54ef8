"""Celebrities: users with very many watchers on this node.

Changes of a celebrity are delivered in slices, or not at all: then the watchers' clients poll. Each node decides by
its own watchers, unless the app has chosen a mode for the user. Slices and polling end only if the watchers are clearly
fewer than the threshold. The start and the end of polling are delivered to all watchers, in slices too. The user's own
devices are no watchers: they get every change at once.
"""

from __future__ import annotations

from collections.abc import Callable

from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.presence.celebrity_model import CelebrityFanout, CelebrityThresholds
from greendot.presence.mode_model import ModeTable
from greendot.presence.watched_user import CelebrityWatchers, WatchedUser
from greendot.protocol.codec import encode_event
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

STEP_S = 0.1  # seconds between two slices; of 10,000 watchers a slice has 34


def active_at(watcher: Connection) -> float:
    """Return the monotonic seconds of the last activity."""
    return watcher.session.active_at if watcher.session is not None else 0.0


class Celebrities:
    """Celebrities of this node. `modes` has the users for whom the app or the operator has chosen a mode."""

    def __init__(
        self,
        context: NodeContext,
        metrics: Metrics,
        now_ms: Callable[[], int],
        thresholds: CelebrityThresholds,
        modes: ModeTable,
    ) -> None:
        self._context = context
        self._metrics = metrics
        self._now_ms = now_ms  # of the engine's clock
        self._thresholds = thresholds
        self._modes = modes
        self._polled: set[Key] = set()  # watched users whose watchers poll

    def came(self, watched: WatchedUser, watcher: Connection) -> None:
        """Add a watcher, which is about to get the newest state."""
        count, celebrity = len(watched.channel.listeners), watched.celebrity
        if celebrity is None:
            if not self._thresholds.is_spread(count, was=False):
                return
            celebrity = watched.celebrity = CelebrityWatchers()
        if not celebrity.polled and self._is_to_poll(watched):
            self._switch(watched, celebrity, polled=True)
        if celebrity.spread is not None:
            celebrity.spread.came(watcher)

    def left(self, watched: WatchedUser, watcher: Connection) -> None:
        celebrity = watched.celebrity
        if celebrity is None:
            return
        if celebrity.spread is not None:
            celebrity.spread.left(watcher)
            self._end_if_done(watched, celebrity)
        if celebrity.polled and not self._is_to_poll(watched):
            self._switch(watched, celebrity, polled=False)
        self._forget_if_few(watched, celebrity)

    def delivers(self, watched: WatchedUser) -> bool:
        """Deliver a change in slices, or leave it to polling; return False if the caller has to deliver it at once."""
        celebrity = watched.celebrity
        if celebrity is None:
            return False
        if celebrity.polled:
            return True
        if not self._thresholds.is_spread(len(watched.channel.listeners), was=True):
            self.close(watched)  # the caller delivers to all watchers, also to those that waited for their slice
            return False
        self._spread(watched, celebrity)
        return True

    def close(self, watched: WatchedUser) -> None:
        """Stop the slices of a user."""
        if watched.celebrity is not None:
            self._context.timers.cancel(watched.celebrity.timer)
            watched.celebrity = None
            self._polled.discard(watched.key)

    # --- polling ---

    def polls_any(self, tenant: str) -> bool:
        """Return whether `is_polled` may be True for a user of the tenant."""
        return bool(self._polled) or self._modes.has_any(tenant)

    def is_polled(self, key: Key) -> bool:
        """Return whether watchers of the user poll, or would poll if there were any."""
        return key in self._polled or self._modes.of(key) == "poll"

    def opened(self, watched: WatchedUser) -> None:
        """Set a user whose mode is `poll` to polling, before the node reads the user's state for the first time."""
        if self._modes.of(watched.key) == "poll":
            watched.celebrity = CelebrityWatchers(polled=True)

    def mode_changed(self, watched: WatchedUser) -> None:
        """Start or end the polling of a user whose mode has changed."""
        polled, celebrity = self._is_to_poll(watched), watched.celebrity
        if polled and celebrity is None:
            celebrity = watched.celebrity = CelebrityWatchers()
        if celebrity is not None and celebrity.polled != polled:
            self._switch(watched, celebrity, polled=polled)

    def _is_to_poll(self, watched: WatchedUser) -> bool:
        mode = self._modes.of(watched.key)
        if mode == "auto":
            was = watched.celebrity is not None and watched.celebrity.polled
            return self._thresholds.is_polled(len(watched.channel.listeners), was=was)
        return mode == "poll"

    def _switch(self, watched: WatchedUser, celebrity: CelebrityWatchers, *, polled: bool) -> None:
        celebrity.polled = polled
        watched.shows += 1
        (self._polled.add if polled else self._polled.discard)(watched.key)
        (tenant, user), count = watched.key, len(watched.channel.listeners)
        what = (
            "they now poll, because changes are no longer sent to them" if polled else "changes are sent to them again"
        )
        log(log_events.WATCHERS_SWITCHED, tenant=tenant, user=user, outcome=what, watchers=count)
        self._spread(watched, celebrity)

    # --- slices ---

    def _spread(self, watched: WatchedUser, celebrity: CelebrityWatchers) -> None:
        if celebrity.spread is not None:
            celebrity.spread.changed()
        else:
            celebrity.spread = CelebrityFanout(watched.channel.listeners, active_at, self._context.timers.now())
            celebrity.timer = self._context.timers.set(STEP_S, self._slice, watched)

    def _slice(self, watched: WatchedUser) -> None:
        celebrity, now = watched.celebrity, self._context.timers.now()
        if celebrity is None or celebrity.spread is None:
            return
        if watched.channel.pending or watched.channel.queued:  # an earlier frame must not arrive after the slice
            celebrity.timer = self._context.timers.set(STEP_S, self._slice, watched)
            return
        due = celebrity.spread.due(now, self._thresholds.per_s(len(watched.channel.listeners)))
        if own := self._context.registry.connections_in(watched.channel, watched.user):
            due = [watcher for watcher in due if watcher not in own]
        if due:
            frame = encode_event(watched.shown(self._now_ms()), self._context.clock.now_ms())
            self._context.hub.send_each(due, frame, key=("presence", watched.user))
            self._metrics.presence_spread_total += len(due)
        celebrity.timer = self._context.timers.set(STEP_S, self._slice, watched)
        self._end_if_done(watched, celebrity)
        self._forget_if_few(watched, celebrity)

    def _end_if_done(self, watched: WatchedUser, celebrity: CelebrityWatchers) -> None:
        if celebrity.spread is not None and celebrity.spread.done:
            self._context.timers.cancel(celebrity.timer)
            celebrity.spread = celebrity.timer = None

    def _forget_if_few(self, watched: WatchedUser, celebrity: CelebrityWatchers) -> None:
        few = not self._thresholds.is_spread(len(watched.channel.listeners), was=True)
        if few and not celebrity.polled and celebrity.spread is None:
            watched.celebrity = None
