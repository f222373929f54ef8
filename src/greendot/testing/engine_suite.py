"""Contract of every engine. Subclass `EngineSuite`, define `harness`, and run it with pytest."""

from __future__ import annotations

from greendot.engine.messages import Deliver, Topic, Typing
from greendot.engine.port import Fenced
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.testing.engine_harness import AUTO, EngineHarness, T
from greendot.testing.occupancy_suite import OccupantSuite
from greendot.testing.session_suite import LifeSuite
from greendot.testing.transition_suite import TurnSuite
from greendot.testing.used_name_suite import UsedNameSuite


class EngineSuite(LifeSuite, OccupantSuite, TurnSuite, UsedNameSuite):
    """Contract of `greendot.engine.port`, as tests."""

    # --- presence ---

    async def test_an_unknown_user_is_offline_in_version_zero(self) -> None:
        async with self.harness() as h:
            snapshot = await self.see(h, "nobody")
            assert (snapshot.visible.state, snapshot.visible.version, snapshot.visible.last_seen) == (
                "offline",
                0,
                None,
            )

    async def test_a_session_is_shown_to_no_user_until_the_status_is_known(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([Topic("watch", T, "ann")])
            touched = await h.engine.touch(T, "ann", SessionEpoch("s1", h.incarnation, 1), "d1", False, "Ann")
            assert not touched.status_known
            assert (await self.see(h, "ann")).visible.state == "offline"
            assert await self.changes(h, "ann") == []
            await h.engine.set_status(T, "ann", AUTO)
            assert await self.changes(h, "ann") == ["online"]
            assert (await self.see(h, "ann")).name == "Ann"

    async def test_the_best_of_the_live_sessions_is_shown(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([Topic("watch", T, "ann")])
            phone = await self.come(h, "ann", "phone", device="phone")
            laptop = await self.come(h, "ann", "laptop", device="laptop", conn=2)
            assert (await self.see(h, "ann")).devices == ["laptop", "phone"]
            assert await self.changes(h, "ann") == ["online"]
            for idle in (True, False, True, False):
                await h.engine.touch(T, "ann", phone, "phone", idle, None)
            assert await self.changes(h, "ann") == []
            await h.engine.touch(T, "ann", phone, "phone", True, None)
            await h.engine.touch(T, "ann", laptop, "laptop", True, None)
            assert await self.changes(h, "ann") == ["idle"]

    async def test_one_device_leaving_changes_nothing_while_another_lives(self) -> None:
        async with self.harness() as h:
            phone = await self.come(h, "ann", "phone", device="phone")
            await self.come(h, "ann", "laptop", device="laptop", conn=2)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            assert await h.engine.linger(T, "ann", phone, 0, 0) == 0
            assert await self.changes(h, "ann") == []
            assert (await self.see(h, "ann")).devices == ["laptop"]

    async def test_a_lingering_session_counts_until_its_grace_ends_and_offline_is_published_once(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.subscribe([Topic("watch", T, "ann")])
            before = await self.see(h, "ann")
            assert await h.engine.linger(T, "ann", ref, 2_000, 500) == 2_000
            await h.advance(1.0)
            assert (await self.see(h, "ann")).visible.state == "online"
            remaining = await h.engine.leave(T, "ann", ref)
            assert remaining is not None
            assert 0 < remaining <= 1_000
            await h.advance(1.1)
            assert await h.engine.leave(T, "ann", ref) is None
            assert await h.engine.leave(T, "ann", ref) is None
            after = await self.see(h, "ann")
            assert await self.changes(h, "ann") == ["offline"]
            assert after.visible.version > before.visible.version
            assert after.visible.last_seen is not None

    async def test_last_seen_is_the_time_of_the_last_frame_of_the_client(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            since = (await self.see(h, "ann")).visible.since
            assert since is not None
            await h.advance(3.0)
            await h.engine.linger(T, "ann", ref, 0, 2_000)
            last_seen = (await self.see(h, "ann")).visible.last_seen
            assert last_seen is not None
            assert abs(last_seen - (since + 1_000)) < 300

    async def test_an_expired_linger_does_not_count_even_if_no_node_ends_it(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.advance(1.1)
            assert (await self.see(h, "ann")).visible.state == "offline"
            assert await self.changes(h, "ann") == ["offline"]

    async def test_a_return_within_the_grace_is_invisible(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            touched = await h.engine.touch(T, "ann", ref._replace(conn=2), "d1", None, None)
            assert touched.resumed
            await h.advance(2.0)
            assert await h.engine.leave(T, "ann", ref) is None
            assert (await self.see(h, "ann")).visible.state == "online"
            assert await self.changes(h, "ann") == []

    async def test_a_new_session_of_the_same_device_ends_the_linger(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann", "old")
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            new = await self.come(h, "ann", "new", conn=2)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.advance(2.0)
            await h.engine.leave(T, "ann", ref)
            assert await self.changes(h, "ann") == []
            await h.engine.linger(T, "ann", new, 0, 0)
            assert await self.changes(h, "ann") == ["offline"]

    async def test_activity_of_one_session_does_not_end_the_linger_of_another(self) -> None:
        async with self.harness() as h:
            lost = await self.come(h, "ann", "lost")
            active = await self.come(h, "ann", "active", conn=2)
            await h.engine.linger(T, "ann", lost, 2_000, 0)
            await h.engine.touch(T, "ann", active, "d1", True, None)
            await h.engine.touch(T, "ann", active, "d1", False, None)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.engine.linger(T, "ann", active, 0, 0)
            assert (await self.see(h, "ann")).visible.state == "online"
            assert await self.changes(h, "ann") == []

    async def test_the_same_device_twice_is_two_sessions(self) -> None:
        async with self.harness() as h:
            first = await self.come(h, "ann", "one")
            await self.come(h, "ann", "two", conn=2)
            await h.engine.linger(T, "ann", first, 0, 0)
            assert (await self.see(h, "ann")).visible.state == "online"

    async def test_a_late_close_of_an_old_connection_cannot_end_a_resumed_session(self) -> None:
        async with self.harness() as h:
            old = await self.come(h, "ann")
            await h.engine.touch(T, "ann", old._replace(conn=2), "d1", None, None)
            assert await h.engine.linger(T, "ann", old, 0, 0) is None
            assert await h.engine.leave(T, "ann", old) is None
            assert (await self.see(h, "ann")).visible.state == "online"

    async def test_a_session_ends_although_the_touch_of_its_last_connection_was_lost(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            last = ref._replace(conn=3)
            assert await h.engine.linger(T, "ann", last, 1_000, 0) is None
            assert await h.engine.linger(T, "ann", last._replace(incarnation="other"), 0, 0) is None
            assert (await self.see(h, "ann")).visible.state == "online"
            assert await h.engine.linger(T, "ann", last, 0, 0) == 0
            assert (await self.see(h, "ann")).visible.state == "offline"

    async def test_a_late_touch_of_a_connection_that_is_gone_does_not_bring_it_back(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            await h.engine.touch(T, "ann", ref, "d1", True, None)
            await h.advance(1.1)
            assert (await self.see(h, "ann")).visible.state == "offline"

    async def test_a_return_does_not_make_an_idle_session_active(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.touch(T, "ann", ref, "d1", True, None)
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            await h.engine.touch(T, "ann", ref._replace(conn=2), "d1", None, None)
            assert (await self.see(h, "ann")).visible.state == "idle"

    async def test_a_session_of_an_unknown_node_is_refused(self) -> None:
        async with self.harness() as h:
            try:
                await h.engine.touch(T, "ann", SessionEpoch("s1", "gone", 1), "d1", False, None)
            except Fenced:
                return
            raise AssertionError("a write of an incarnation that is not live was taken")

    async def test_versions_only_grow(self) -> None:
        async with self.harness() as h:
            seen = [0]
            for number in range(1, 6):
                ref = await self.come(h, "ann", f"s{number}", conn=number)
                seen.append((await self.see(h, "ann")).visible.version)
                await h.engine.linger(T, "ann", ref, 0, 0)
                seen.append((await self.see(h, "ann")).visible.version)
            assert seen == sorted(set(seen))

    # --- manual status ---

    async def test_busy_is_shown_until_its_end(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            await h.engine.subscribe([Topic("watch", T, "ann")])
            since = (await self.see(h, "ann")).visible.since
            assert since is not None
            until = since + 2_000
            snapshot = await h.engine.set_status(T, "ann", ManualStatus("busy", until, "in a meeting", 2))
            assert (snapshot.visible.state, snapshot.visible.text, snapshot.own.status) == (
                "busy",
                "in a meeting",
                "busy",
            )
            await h.advance(2.5)
            assert (await self.see(h, "ann")).visible.state == "online"
            assert await self.changes(h, "ann") == ["busy", "online"]

    async def test_an_older_revision_of_a_status_is_ignored(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            await h.engine.set_status(T, "ann", ManualStatus("busy", None, None, 5))
            await h.engine.set_status(T, "ann", ManualStatus("auto", None, None, 4))
            assert (await self.see(h, "ann")).visible.state == "busy"

    async def test_no_session_means_offline_whatever_the_status(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.set_status(T, "ann", ManualStatus("busy", None, None, 2))
            await h.engine.linger(T, "ann", ref, 0, 0)
            assert (await self.see(h, "ann")).visible.state == "offline"

    async def test_invisible_shows_offline_and_stays_frozen_through_the_real_leave(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.subscribe([Topic("watch", T, "ann")])
            hidden = (await h.engine.set_status(T, "ann", ManualStatus("invisible", None, None, 2))).visible
            assert (hidden.state, hidden.text) == ("offline", None)
            assert (await self.see(h, "ann")).own.state == "online"
            assert await self.changes(h, "ann") == ["offline"]
            await h.advance(1.0)
            await h.engine.touch(T, "ann", ref, "d1", True, None)
            await h.engine.linger(T, "ann", ref, 0, 0)
            await h.advance(1.0)
            again = await h.engine.touch(T, "ann", SessionEpoch("s2", h.incarnation, 9), "d1", False, None)
            assert not again.status_known
            await h.engine.set_status(T, "ann", ManualStatus("invisible", None, None, 2))
            shown = (await self.see(h, "ann")).visible
            assert (shown.version, shown.since, shown.last_seen) == (hidden.version, hidden.since, hidden.last_seen)
            assert await self.changes(h, "ann") == []
            await h.engine.set_status(T, "ann", ManualStatus("auto", None, None, 3))
            assert await self.changes(h, "ann") == ["online"]

    # --- reading ---

    async def test_reading_keeps_order_and_tenants_apart(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            snapshots = await h.engine.read(T, ["bob", "ann", "bob"])
            assert [s.visible.state for s in snapshots] == ["offline", "online", "offline"]
            (other,) = await h.engine.read("t2", ["ann"])
            assert other.visible.state == "offline"
            assert (await h.engine.online("t2", None, 10)).total == 0

    async def test_ten_thousand_users_are_read_in_one_call(self) -> None:
        async with self.harness() as h:
            await self.come(h, "u7777")
            snapshots = await h.engine.read(T, [f"u{n}" for n in range(10_000)])
            assert [n for n, s in enumerate(snapshots) if s.visible.state == "online"] == [7777]

    async def pages(self, h: EngineHarness, after: str | None, limit: int) -> list[list[str]]:
        """Return all pages of the online users from `after` on."""
        found = []
        while True:
            page = await h.engine.online(T, after, limit)
            assert page.users == sorted(page.users)
            assert len(page.users) <= limit
            found.append(page.users)
            after = page.next
            if after is None:
                return found

    async def test_users_online_are_counted_and_paged(self) -> None:
        async with self.harness() as h:
            for number in range(5):
                await self.come(h, f"u{number}", f"s{number}", conn=number + 1)
            await h.engine.set_status(T, "u2", ManualStatus("invisible", None, None, 2))
            first = await h.engine.online(T, None, 3)
            assert (first.users, first.total, first.next) == (["u0", "u1", "u3"], 4, "u3")
            second = await h.engine.online(T, first.next, 3)
            assert (second.users, second.next) == (["u4"], None)

    async def test_following_the_pages_finds_every_user_once(self) -> None:
        async with self.harness() as h:
            users = [f"u{number}" for number in range(60)]
            for number, user in enumerate(users):
                await self.come(h, user, f"s{number}", conn=number + 1)
            for limit in (7, 20, 100):
                for start in (None, "~0000"):  # by id, and as in pages of large tenants
                    pages = await self.pages(h, start, limit)
                    assert sorted(user for page in pages for user in page) == sorted(users)

    async def test_a_page_goes_on_behind_a_user_who_may_be_gone(self) -> None:
        async with self.harness() as h:
            refs = {}
            for number in range(12):
                refs[f"u{number}"] = await self.come(h, f"u{number}", f"s{number}", conn=number + 1)
            order = sorted(refs)
            gone = order[5]
            await h.engine.linger(T, gone, refs[gone], 0, 0)
            assert await self.pages(h, gone, 100) == [order[6:]]
            assert await self.pages(h, order[4], 100) == [order[6:]]
            assert (await h.engine.online(T, None, 100)).total == 11

    async def test_the_users_online_of_one_tenant_are_not_in_pages_of_another(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            page = await h.engine.online(T[:-1] or "x", None, 10)
            assert (page.users, page.next, page.total) == ([], None, 0)

    # --- typing ---

    async def test_typing_is_held_then_over(self) -> None:
        async with self.harness() as h:
            topic = Topic("room", T, "r1")
            await h.engine.subscribe([topic])
            h.engine.typing_start(T, "r1", "ann", "Ann")
            (typer,) = await h.engine.typers(T, "r1")
            assert (typer.user, typer.name) == ("ann", "Ann")
            assert 4_000 < typer.remaining <= 5_000
            await h.settle()
            assert h.heard == [(topic, Typing("ann", "Ann", 5_000))]
            await h.advance(5.1)
            assert await h.engine.typers(T, "r1") == []

    async def test_start_stop_start_does_not_bypass_the_throttle(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([Topic("room", T, "r1")])
            for _ in range(20):
                h.engine.typing_start(T, "r1", "ann", "Ann")
                h.engine.typing_stop(T, "r1", "ann")
            assert await h.engine.typers(T, "r1") == []
            await h.settle()
            assert [m.expires_in_ms for _, m in h.heard if isinstance(m, Typing)] == [5_000, 0]
            await h.advance(2.1)
            h.engine.typing_start(T, "r1", "ann", "Ann")
            assert [typer.user for typer in await h.engine.typers(T, "r1")] == ["ann"]

    async def test_the_throttle_is_per_user_and_room(self) -> None:
        async with self.harness() as h:
            for room, user in (("r1", "ann"), ("r1", "bob"), ("r2", "ann")):
                h.engine.typing_start(T, room, user, None)
            assert [typer.user for typer in await h.engine.typers(T, "r1")] == ["ann", "bob"]
            assert [typer.user for typer in await h.engine.typers(T, "r2")] == ["ann"]
            assert await h.engine.typers("t2", "r1") == []

    async def test_devices_with_different_names_are_one_typist(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([Topic("room", T, "r1")])
            h.engine.typing_start(T, "r1", "ann", "Ann")
            h.engine.typing_start(T, "r1", "bob", "Bob")
            await h.advance(2.1)
            h.engine.typing_start(T, "r1", "ann", "Ann P.")
            assert [typer[:2] for typer in await h.engine.typers(T, "r1")] == [("bob", "Bob"), ("ann", "Ann P.")]
            h.engine.typing_stop(T, "r1", "ann")
            assert [typer.user for typer in await h.engine.typers(T, "r1")] == ["bob"]
            await h.settle()
            stops = [m for _, m in h.heard if isinstance(m, Typing) and not m.expires_in_ms]
            assert stops == [Typing("ann", None, 0)]

    # --- bus ---

    async def test_messages_arrive_in_order_where_subscribed_and_nowhere_else(self) -> None:
        async with self.harness() as h:
            here, elsewhere = Topic("room", T, "here"), Topic("room", T, "elsewhere")
            await h.engine.subscribe([here])
            sent = [Deliver(b"%d" % number) for number in range(50)]
            for message in sent:
                h.engine.publish(here, message)
                h.engine.publish(elsewhere, message)
                h.engine.publish(here._replace(tenant="t2"), message)
            await h.settle()
            assert h.heard == [(here, message) for message in sent]

    async def test_nothing_arrives_after_unsubscribing(self) -> None:
        async with self.harness() as h:
            topic = Topic("room", T, "r1")
            await h.engine.subscribe([topic])
            await h.engine.unsubscribe([topic])
            h.engine.publish(topic, Deliver(b"x"))
            await h.settle()
            assert h.heard == []

    async def test_a_message_to_a_user_reaches_the_node_of_its_sessions(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            await h.settle()
            h.heard.clear()
            # Its key comes back hashable: slow clients keep only the latest signal of a key.
            signal = Deliver(b"x", key=("ann", "cursor", "1"))
            h.engine.publish(Topic("user", T, "ann"), signal)
            await h.settle()
            assert h.heard == [(Topic("user", T, "ann"), signal)]
