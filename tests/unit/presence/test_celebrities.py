"""Users with very many watchers: changes in slices, polling, and the return to few watchers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import structs

from greendot.engine.messages import Topic
from greendot.ids import Key
from greendot.node.channel import Channel
from greendot.node.subscriptions import Subscriptions
from greendot.presence.celebrities import STEP_S, Celebrities
from greendot.presence.celebrity_model import LONGEST_S, SHORTEST_S, CelebrityThresholds
from greendot.presence.mode_model import ModeTable
from greendot.presence.model import VisibleState
from greendot.presence.watched_user import WatchedUser
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time, settle

SPREAD, POLL = 5, 10
FEW = 4  # 80 % of SPREAD: no longer spread
STAR = Topic("watch", "default", "star")


class Fans(Celebrities):
    """One watched user and the watchers."""

    def __init__(self, parts: NodeParts, forced: Collection[Key] = ()) -> None:
        thresholds = CelebrityThresholds(SPREAD, POLL)
        super().__init__(parts.context, parts.metrics, parts.engine.now_ms, thresholds, ModeTable(forced))
        self.parts = parts
        self.subscriptions = Subscriptions(parts.engine, parts.context, self._make, self._read, self.close)
        self.fans: list[Client] = []

    def _make(self, channel: Channel) -> WatchedUser:
        watched = WatchedUser(channel)
        self.opened(watched)
        return watched

    async def _read(self, fresh: Sequence[WatchedUser]) -> None:
        for watched in fresh:
            watched.visible = watched.own = VisibleState("online", version=1)

    async def watch(self, count: int) -> WatchedUser:
        """Let `count` more clients watch the user."""
        await self.subscriptions.open([STAR])
        watched = self.subscriptions.get(STAR)
        assert watched is not None
        for _ in range(count):
            fan = self.parts.session(f"fan{len(self.fans)}")
            self.fans.append(fan)
            self.subscriptions.attach(watched, fan.connection)
            self.came(watched, fan.connection)
        return watched

    def unwatch(self, watched: WatchedUser, fan: Client) -> None:
        self.fans.remove(fan)
        self.subscriptions.detach(STAR, fan.connection)
        self.left(watched, fan.connection)

    def change(self, watched: WatchedUser, state: str) -> bool:
        """Change the user's state. Return whether it is delivered in slices or by polling."""
        watched.visible = structs.replace(watched.visible, state=state, version=watched.visible.version + 1)
        return self.delivers(watched)

    async def told(self) -> list[list[int]]:
        """Return the versions that each watcher received since the last call."""
        return [[event["version"] for event in await fan.events("presence.changed")] for fan in self.fans]


@in_virtual_time
async def test_changes_of_a_user_with_few_watchers_are_left_to_immediate_delivery(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD)
    assert not fans.change(star, "idle")
    await pass_time(LONGEST_S)
    assert await fans.told() == [[]] * SPREAD


@in_virtual_time
async def test_very_many_watchers_are_notified_in_slices_and_once_each(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    assert fans.change(star, "idle")
    await settle()
    assert await fans.told() == [[]] * (SPREAD + 1)
    await pass_time(SHORTEST_S / 2)
    early = await fans.told()
    assert 1 <= sum(map(len, early)) <= SPREAD
    await pass_time(LONGEST_S)
    assert [one + other for one, other in zip(early, await fans.told(), strict=True)] == [[2]] * (SPREAD + 1)
    assert parts.metrics.presence_spread_total == SPREAD + 1


@in_virtual_time
async def test_a_recently_active_watcher_is_notified_first(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    for fan in fans.fans:
        fan.session.active_at = parts.clock.monotonic() - 7_200
    fans.fans[3].session.active_at = parts.clock.monotonic() - 1
    fans.change(star, "idle")
    while not any(told := await fans.told()):
        await pass_time(STEP_S)
    assert told == [[], [], [], [2], [], []]


@in_virtual_time
async def test_a_change_during_a_spread_reaches_all_watchers_and_none_receives_an_older_state_later(
    parts: NodeParts,
) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    fans.change(star, "idle")
    await pass_time(SHORTEST_S / 2)
    fans.change(star, "busy")
    await pass_time(3 * LONGEST_S)
    told = await fans.told()
    assert all(versions in ([3], [2, 3]) for versions in told)
    assert [3] in told
    assert [2, 3] in told


@in_virtual_time
async def test_a_new_watcher_with_the_newest_state_does_not_receive_it_again(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    fans.change(star, "idle")
    await fans.watch(1)
    await pass_time(LONGEST_S)
    assert await fans.told() == [[2]] * (SPREAD + 1) + [[]]


@in_virtual_time
async def test_a_watcher_that_left_is_not_notified(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 2)
    fans.change(star, "idle")
    gone = fans.fans[0]
    fans.unwatch(star, gone)
    await pass_time(LONGEST_S)
    assert (await gone.events(), await fans.told()) == ([], [[2]] * (SPREAD + 1))


@in_virtual_time
async def test_own_devices_among_the_watchers_receive_no_delayed_changes(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    own = parts.session("star")
    fans.subscriptions.attach(star, own.connection)
    fans.came(star, own.connection)
    fans.change(star, "idle")
    await pass_time(LONGEST_S)
    assert (await own.events(), await fans.told()) == ([], [[2]] * (SPREAD + 1))


@in_virtual_time
async def test_a_slice_waits_for_frames_that_were_offered_at_once_before(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    fans.change(star, "idle")
    star.channel.queued = True  # as while the hub writes to a large channel
    await pass_time(LONGEST_S)
    assert await fans.told() == [[]] * (SPREAD + 1)
    star.channel.queued = False
    await pass_time(LONGEST_S)
    assert await fans.told() == [[2]] * (SPREAD + 1)


@in_virtual_time
async def test_watchers_are_notified_at_once_again_when_their_number_falls(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(SPREAD + 1)
    fans.change(star, "idle")
    for fan in fans.fans[FEW:]:
        fans.unwatch(star, fan)
    assert not fans.change(star, "busy")
    assert star.celebrity is None
    await pass_time(LONGEST_S)
    assert await fans.told() == [[]] * FEW


@in_virtual_time
async def test_far_too_many_watchers_receive_the_poll_mode_and_then_nothing(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(POLL + 1)
    assert fans.is_polled(("default", "star"))
    await pass_time(2 * LONGEST_S)
    modes = [[event["mode"] for event in await fan.events()] for fan in fans.fans]
    assert modes == [["poll"]] * POLL + [[]]  # the last one got the mode in its snapshot
    assert fans.change(star, "idle")
    await pass_time(2 * LONGEST_S)
    assert await fans.told() == [[]] * (POLL + 1)


@in_virtual_time
async def test_polling_ends_when_clearly_fewer_watch_and_watchers_are_notified(parts: NodeParts) -> None:
    fans = Fans(parts)
    star = await fans.watch(POLL + 1)
    await pass_time(2 * LONGEST_S)
    await fans.told()
    fans.unwatch(star, fans.fans[0])
    fans.unwatch(star, fans.fans[0])
    assert star.is_polled
    fans.unwatch(star, fans.fans[0])
    assert (star.is_polled, fans.is_polled(("default", "star"))) == (False, False)
    await pass_time(2 * LONGEST_S)
    assert [[event["mode"] for event in await fan.events()] for fan in fans.fans] == [["live"]] * 8


@in_virtual_time
async def test_a_user_of_the_settings_is_polled_however_few_watch(parts: NodeParts) -> None:
    fans = Fans(parts, forced=[("default", "star")])
    star = await fans.watch(2)
    assert (star.is_polled, fans.change(star, "idle")) == (True, True)
    fans.unwatch(star, fans.fans[0])
    assert star.is_polled
    fans.close(star)
    assert fans.is_polled(("default", "star"))
