"""Contract of every engine for sessions that move, are lost, or differ from what a node holds."""

from __future__ import annotations

from msgspec import structs

from greendot.engine.messages import Part, Topic
from greendot.engine.results import Known
from greendot.presence.model import Change, ManualStatus, SessionEpoch
from greendot.testing.engine_harness import AUTO, EngineTests, T

KNOWN = Known("d1", False, "Ann", 60_000, AUTO)


class LifeSuite(EngineTests):
    """Part of `EngineSuite`: lives of sessions."""

    # --- restoring ---

    async def test_restoring_what_is_there_changes_nothing(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            before = await self.see(h, "ann")
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.engine.restore(T, "ann", ref, KNOWN)
            assert await self.see(h, "ann") == before
            await h.settle()
            assert h.heard == []

    async def test_where_nothing_was_lost_absence_is_a_fact(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            snapshots = await h.engine.read(T, ["ann", "nobody"])
            assert [(snapshot.visible.state, snapshot.stale) for snapshot in snapshots] == [
                ("online", False),
                ("offline", False),
            ]
            assert not h.engine.is_restoring(T, "ann")
            assert not await h.engine.is_any_restoring()
            await h.engine.restored(Part(), h.engine.records_state(Part()))  # there is no other node to wait for

    async def test_a_restored_state_keeps_its_start_time_and_is_published_as_restored(self) -> None:
        async with self.harness() as h:
            await h.engine.subscribe([Topic("watch", T, "ann")])
            busy = structs.replace(KNOWN, manual=ManualStatus("busy", None, "meeting", 3))
            await h.engine.restore(T, "ann", SessionEpoch("s1", h.incarnation, 1), busy)
            visible = (await self.see(h, "ann")).visible
            assert (visible.state, visible.text) == ("busy", "meeting")
            assert visible.since is not None
            assert 59_000 < visible.version - visible.since < 61_000
            await h.settle()
            (change,) = [message for _, message in h.heard if isinstance(message, Change)]
            assert change.restored

    async def test_restoring_does_not_end_a_linger(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.linger(T, "ann", ref, 1_000, 0)
            await h.engine.restore(T, "ann", ref, KNOWN)
            await h.advance(1.1)
            assert (await self.see(h, "ann")).visible.state == "offline"

    async def test_restoring_an_old_session_does_not_end_a_newer_one_of_its_device(self) -> None:
        async with self.harness() as h:
            newer = await self.come(h, "ann", "s2", device="d1")
            await h.engine.linger(T, "ann", newer, 3_000, 0)
            old = SessionEpoch("s1", h.incarnation, 7)
            await h.engine.restore(T, "ann", old, KNOWN)
            await h.engine.linger(T, "ann", old, 0, 0)
            assert [entry.session for entry in await h.engine.sessions(T, "ann")] == ["s2"]
            assert (await self.see(h, "ann")).visible.state == "online"
            await h.advance(3.1)
            assert (await self.see(h, "ann")).visible.state == "offline"

    async def test_restoring_with_an_older_status_leaves_the_newer_one(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            await h.engine.set_status(T, "ann", ManualStatus("invisible", None, None, 5))
            await h.engine.restore(T, "ann", ref, structs.replace(KNOWN, manual=ManualStatus(rev=4)))
            assert (await self.see(h, "ann")).own.status == "invisible"

    async def test_after_a_loss_a_restored_state_from_before_gets_a_newer_version(self) -> None:
        """After a failover, clients may know a newer state than the data, and they ignore lower versions."""
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            before = (await self.see(h, "ann")).visible
            await h.advance(2.0)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            for _ in range(2):  # the second restore finds a state from after the loss
                await h.engine.restore(T, "ann", ref, structs.replace(KNOWN, lost_ms=500))
            snapshot = await self.see(h, "ann")
            assert snapshot.visible == snapshot.own
            assert before.version + 1_900 < snapshot.visible.version
            assert structs.replace(snapshot.visible, version=before.version) == before
            await h.settle()
            (change,) = [message for _, message in h.heard]
            assert isinstance(change, Change)
            assert (change.visible, change.own, change.restored) == (snapshot.visible, snapshot.own, True)
            assert (change.public, change.private) == (True, True)

    async def test_after_a_loss_others_see_no_new_version_of_an_invisible_user(self) -> None:
        async with self.harness() as h:
            ref = await self.come(h, "ann")
            invisible = ManualStatus("invisible", None, None, 5)
            await h.engine.set_status(T, "ann", invisible)
            before = await self.see(h, "ann")
            await h.advance(2.0)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            await h.engine.restore(T, "ann", ref, structs.replace(KNOWN, manual=invisible, lost_ms=500))
            after = await self.see(h, "ann")
            assert after.visible == before.visible
            assert before.own.version < after.own.version
            assert await self.changes(h, "ann") == []

    # --- moving ---

    async def test_a_session_continues_under_another_id_without_a_published_change(self) -> None:
        async with self.harness() as h:
            old = await self.come(h, "ann")
            await h.engine.touch(T, "ann", old, "d1", True, None)
            await h.engine.linger(T, "ann", old, 1_000, 0)
            await h.engine.subscribe([Topic("watch", T, "ann")])
            new = SessionEpoch("s2", h.incarnation, 7)
            adopted = await h.engine.adopt(T, "ann", "s1", new)
            assert adopted == (h.incarnation, True)
            assert [entry.session for entry in await h.engine.sessions(T, "ann")] == ["s2"]
            assert await h.engine.linger(T, "ann", old, 0, 0) is None
            await h.advance(2.0)
            assert (await self.see(h, "ann")).visible.state == "idle"
            assert await self.changes(h, "ann") == []

    async def test_a_device_that_continues_a_session_leaves_no_other_one_lingering(self) -> None:
        async with self.harness() as h:
            newer = await self.come(h, "ann", "s3", device="d1", conn=3)
            other = await self.come(h, "ann", "s4", device="d2", conn=4)
            await h.engine.linger(T, "ann", newer, 60_000, 0)
            await h.engine.linger(T, "ann", other, 60_000, 0)
            old = SessionEpoch("s1", h.incarnation, 1)
            await h.engine.restore(T, "ann", old, KNOWN)
            assert await h.engine.adopt(T, "ann", "s1", SessionEpoch("s2", h.incarnation, 7)) is not None
            assert {entry.session for entry in await h.engine.sessions(T, "ann")} == {"s2", "s4"}

    async def test_only_a_session_of_the_same_user_can_be_taken_over(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann")
            assert await h.engine.adopt(T, "bob", "s1", SessionEpoch("s2", h.incarnation, 7)) is None
            assert await h.engine.adopt(T, "ann", "s9", SessionEpoch("s2", h.incarnation, 7)) is None
            assert (await self.see(h, "bob")).visible.state == "offline"
            assert [entry.session for entry in await h.engine.sessions(T, "ann")] == ["s1"]

    # --- reading and comparing ---

    async def test_the_sessions_of_a_user_are_listed_with_what_is_left_of_them(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann", "s1", device="phone")
            lingering = await self.come(h, "ann", "s2", device="laptop", conn=2)
            await h.engine.touch(T, "ann", lingering, "laptop", True, None)
            await h.engine.linger(T, "ann", lingering, 5_000, 0)
            phone, laptop = await h.engine.sessions(T, "ann")
            assert (phone.session, phone.device, phone.node, phone.state) == ("s1", "phone", h.incarnation, "online")
            assert (laptop.session, laptop.state, phone.ends_in_ms) == ("s2", "idle", None)
            assert laptop.ends_in_ms is not None
            assert 4_000 < laptop.ends_in_ms <= 5_100
            assert await h.engine.sessions(T, "nobody") == []

    async def test_a_sweep_ends_what_has_run_out_and_counts_it(self) -> None:
        async with self.harness() as h:
            stays = await self.come(h, "ann")
            for number in range(3):
                user = f"u{number}"
                await h.engine.linger(T, user, await self.come(h, user, conn=number + 2), 1_000, 0)
            await h.engine.subscribe([Topic("watch", T, "u1")])
            await h.advance(1.5)
            swept = await h.engine.sweep()
            assert (swept.sessions, swept.users) == (3, 3)
            assert await self.changes(h, "u1") == ["offline"]
            assert await h.engine.leave(T, "ann", stays) is None
            assert (await self.see(h, "ann")).visible.state == "online"
            assert (await h.engine.sweep())[:2] == (0, 0)

    async def test_sessions_a_node_does_not_hold_are_ended(self) -> None:
        async with self.harness() as h:
            held = await self.come(h, "ann", "held")
            await self.come(h, "ann", "ghost", device="d2", conn=2)
            await self.come(h, "bob", "ghost", conn=3)
            assert await h.engine.audit(lambda ref: ref == held) == 2
            assert [entry.session for entry in await h.engine.sessions(T, "ann")] == ["held"]
            assert (await self.see(h, "bob")).visible.state == "offline"

    async def test_an_ended_session_that_is_not_held_was_heard_when_the_node_says(self) -> None:
        async with self.harness() as h:
            await self.come(h, "ann", "ghost")
            await self.come(h, "bob", "ghost", conn=2)
            ages = {1: 20_000, 2: 0}
            assert await h.engine.audit(lambda ref: False, None, None, lambda ref: ages[ref.conn]) == 2
            ann, bob = (await self.see(h, "ann")).visible, (await self.see(h, "bob")).visible
            assert ann.last_seen is not None
            assert bob.last_seen is not None
            assert 19_000 < bob.last_seen - ann.last_seen < 21_000

    async def test_a_node_lists_itself_among_the_living(self) -> None:
        async with self.harness() as h:
            (node,) = await h.engine.nodes()
            assert (node.node, node.state, node.ends_at) == (h.incarnation, "live", None)
            assert node.renewed_at is not None
            assert {*h.engine.live_nodes()} == {h.incarnation}
            assert h.engine.trouble is None
