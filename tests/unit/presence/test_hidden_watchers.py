"""Watchers who may not see a user: they get an unknown user or an offline one, and later the real state again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greendot.engine.messages import Topic
from greendot.node.channel import Channel
from greendot.node.subscriptions import UNHEARD_S, Subscriptions
from greendot.presence.celebrities import Celebrities
from greendot.presence.celebrity_model import CelebrityThresholds
from greendot.presence.hidden_watchers import HiddenWatchers, unknown_presence
from greendot.presence.mode_model import ModeTable
from greendot.presence.model import VisibleState
from greendot.presence.watched_user import WatchedUser
from greendot.protocol.codec import encode_event
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time

BOB = Topic("watch", "default", "bob")


class Hidden(HiddenWatchers):
    """The hidden watchers of one user, who is online at first."""

    def __init__(self, parts: NodeParts, *, polled: bool = False) -> None:
        self.parts = parts
        thresholds, forced = CelebrityThresholds(1_000, 5_000), [("default", "bob")] if polled else []
        self.celebrities = Celebrities(parts.context, parts.metrics, parts.engine.now_ms, thresholds, ModeTable(forced))
        self.followed = Subscriptions(parts.engine, parts.context, self._make, self._read, self.celebrities.close)
        super().__init__(parts.context, self.followed, self.celebrities, parts.engine.now_ms)

    def _make(self, channel: Channel) -> WatchedUser:
        watched = WatchedUser(channel)
        self.celebrities.opened(watched)
        return watched

    async def _read(self, fresh: Sequence[WatchedUser]) -> None:
        for watched in fresh:
            watched.name = "Bob"
            watched.visible = VisibleState("online", since=5, version=self.parts.engine.now_ms())

    async def bob(self) -> WatchedUser:
        await self.followed.open([BOB])
        watched = self.followed.get(BOB)
        assert watched is not None
        return watched

    def watcher(self, watched: WatchedUser) -> Client:
        """Make a client that sees the user."""
        client = self.parts.session("ann")
        self.followed.attach(watched, client.connection)
        return client

    def offer(self, watched: WatchedUser) -> None:
        """Offer the state to all listeners."""
        frame = encode_event(watched.shown(self.parts.engine.now_ms()), self.parts.clock.now_ms())
        self.parts.context.hub.offer(watched.channel, frame, key=("presence", watched.user))


def seen(event: dict[str, Any]) -> tuple[str, str | None]:
    return event["state"], event["name"]


@in_virtual_time
async def test_a_watcher_who_never_saw_the_user_gets_what_is_shown_of_an_unknown_user(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob, ann = await hidden.bob(), parts.session("ann")
    hidden.bar(bob, ann.connection)
    hidden.offer(bob)
    assert await ann.frames() == []
    for connection in (ann.connection, None):
        assert hidden.snapshot(bob, connection, stale=False) == unknown_presence("bob")


@in_virtual_time
async def test_a_user_with_hidden_watchers_only_stays_followed(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob, ann = await hidden.bob(), parts.session("ann")
    hidden.bar(bob, ann.connection)
    await pass_time(3 * UNHEARD_S)
    assert hidden.followed.get(BOB) is bob
    hidden.forget(bob, ann.connection)
    hidden.followed.detach(BOB, ann.connection)
    await pass_time(UNHEARD_S + 0.1)
    assert hidden.followed.get(BOB) is None


@in_virtual_time
async def test_a_user_is_followed_for_a_while_after_the_last_hidden_watcher(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob, ann = await hidden.bob(), parts.session("ann")
    hidden.bar(bob, ann.connection)
    await pass_time(UNHEARD_S / 2)
    hidden.forget(bob, ann.connection)
    hidden.followed.detach(BOB, ann.connection)
    await pass_time(UNHEARD_S - 0.1)
    assert hidden.followed.get(BOB) is bob


@in_virtual_time
async def test_a_barred_watcher_of_an_online_user_receives_offline_and_no_pending_change(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    ann, other = hidden.watcher(bob), hidden.watcher(bob)
    hidden.offer(bob)
    hidden.bar(bob, ann.connection)
    (told,) = await ann.events()
    assert (seen(told), told["last_seen"]) == (("offline", "Bob"), parts.engine.now_ms() - 1)
    assert told["version"] > bob.visible.version
    assert [seen(event) for event in await other.events()] == [("online", "Bob")]


@in_virtual_time
async def test_a_barred_watcher_of_an_offline_user_receives_no_event(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    bob.visible = VisibleState("offline", since=7, last_seen=6, version=7)
    ann = hidden.watcher(bob)
    hidden.bar(bob, ann.connection)
    assert await ann.frames() == []
    assert hidden.snapshot(bob, ann.connection, stale=False).last_seen == 6


@in_virtual_time
async def test_a_hidden_user_looks_the_same_however_it_changes(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    ann = hidden.watcher(bob)
    hidden.bar(bob, ann.connection)
    before = hidden.snapshot(bob, ann.connection, stale=False)
    await pass_time(60)
    bob.visible = VisibleState("busy", version=parts.engine.now_ms())
    hidden.bar(bob, ann.connection)
    assert hidden.snapshot(bob, ann.connection, stale=False) == before
    assert before.devices == []
    assert len(await ann.events()) == 1


@in_virtual_time
async def test_a_discreet_user_goes_offline_without_a_time(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    bob.discreet = True
    ann = hidden.watcher(bob)
    hidden.bar(bob, ann.connection)
    (told,) = await ann.events()
    assert (told["state"], told["last_seen"], told["since"], told["version"]) == ("offline", None, None, 0)


@in_virtual_time
async def test_a_watcher_allowed_again_gets_the_state_with_a_higher_version_and_later_changes(
    parts: NodeParts,
) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    ann = hidden.watcher(bob)
    hidden.bar(bob, ann.connection)
    (gone,) = await ann.events()
    back = hidden.lift(bob, ann.connection)
    assert back is not None
    assert (back.state, back.version > gone["version"]) == ("online", True)
    hidden.offer(bob)
    assert [seen(event) for event in await ann.events()] == [("online", "Bob")]
    assert hidden.lift(bob, ann.connection) is None


@in_virtual_time
async def test_versions_grow_for_a_watcher_who_is_hidden_from_again_and_again(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    bob.visible = VisibleState("online", version=parts.engine.now_ms() + 1_000)  # a version of a faster clock
    ann = hidden.watcher(bob)
    versions = [bob.visible.version]
    for _ in range(3):
        hidden.bar(bob, ann.connection)
        versions += [event["version"] for event in await ann.events()]
        back = hidden.lift(bob, ann.connection)
        assert back is not None
        versions.append(back.version)
    assert versions == sorted({*versions})
    assert len(versions) == 7


@in_virtual_time
async def test_a_watcher_for_whom_nothing_changes_receives_no_event(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob, ann = await hidden.bob(), parts.session("ann")
    bob.visible, bob.name = VisibleState(), None
    hidden.bar(bob, ann.connection)
    assert hidden.lift(bob, ann.connection) is None
    assert ann.connection in bob.channel.listeners


@in_virtual_time
async def test_hidden_watchers_are_notified_too_that_a_user_is_stale(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob, ann = await hidden.bob(), parts.session("ann")
    hidden.bar(bob, ann.connection)
    bob.stale = True
    hidden.redeliver(bob)
    (told,) = await ann.events()
    assert (seen(told), told["stale"]) == (("offline", None), True)
    assert hidden.snapshot(bob, None, stale=True).stale is True
    hidden.forget(bob, ann.connection)
    hidden.redeliver(bob)
    assert await ann.frames() == []


@in_virtual_time
async def test_watchers_of_a_polled_user_are_not_notified_that_the_user_is_hidden(parts: NodeParts) -> None:
    hidden = Hidden(parts, polled=True)
    bob = await hidden.bob()
    ann, stranger = hidden.watcher(bob), parts.session("eve")
    hidden.bar(bob, ann.connection)
    hidden.bar(bob, stranger.connection)
    assert await ann.frames() == []
    assert hidden.snapshot(bob, ann.connection, stale=False).mode == "poll"
    assert hidden.snapshot(bob, stranger.connection, stale=False).mode == "live"


@in_virtual_time
async def test_entries_that_were_made_before_are_outdated_by_hiding_and_showing(parts: NodeParts) -> None:
    hidden = Hidden(parts)
    bob = await hidden.bob()
    ann = hidden.watcher(bob)
    before = bob.shows
    hidden.bar(bob, ann.connection)
    hidden.bar(bob, ann.connection)
    assert bob.shows == before + 1
    hidden.lift(bob, ann.connection)
    assert bob.shows == before + 2
