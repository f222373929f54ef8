"""Contract of every store for webhooks."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from greendot.protocol.webhooks import RECORDS
from greendot.store.audit import AuditNote
from greendot.store.inbox import Notice
from greendot.store.port import Store
from greendot.store.restrictions import EVERYWHERE, Restriction
from greendot.store.user_data import ExportCursor
from greendot.store.webhooks import MOST_IDS, Claim, DeadEvent, Failed, HookDepth, Queued
from greendot.testing.store_harness import NOW, StoreHarness, T, draft, notice
from greendot.testing.user_data_suite import erase

OTHER = "t2"  # tenant with a webhook for messages only
LEASE_MS = 10_000
ALIKE = "t4"  # tenant with a webhook for all records
HOOKED = {T: RECORDS, OTHER: ("room.message",), ALIKE: RECORDS}


async def queue(
    store: Store, tenant: str = T, *, again: bool = False, now: int = NOW, limit: int = 100
) -> list[Queued]:
    return await store.take_hooks(tenant, now, limit, again=again)


class HookSuite(StoreHarness):
    """Contract of the store for webhooks, as tests; used beside `StoreSuite`. Subclasses define `hooked`."""

    def hooked(self) -> AbstractAsyncContextManager[Store]:
        """Return an empty store that queues webhooks for `HOOKED`."""
        raise NotImplementedError

    async def test_what_is_written_is_queued_once_with_its_content(self) -> None:
        async with self.hooked() as store:
            await store.put_room(T, "r1", open=True)
            for _ in range(2):  # the same key is the same message
                await store.append(T, "r1", draft())
                await store.notify([notice("bob"), notice("cid")])
            await store.append(T, "nowhere", draft())
            message, bob, cid = await queue(store)
            assert (message.type, message.stream, message.at) == ("room.message", "r1", NOW)
            assert message.record is not None
            assert (message.record.seq, message.record.user, message.record.body) == (1, "ann", b'{"text":"hi"}')
            assert [(e.type, e.stream, e.record) for e in (bob, cid)] == [
                ("notification.created", user, None) for user in ("bob", "cid")
            ]
            assert bob.notification is not None
            assert bob.notification == (await store.notifications(T, "bob", limit=1))[0]
            assert await queue(store) == [message, bob, cid], "they stay until they are settled"

    async def test_what_users_do_with_notifications_is_queued_as_far_as_it_changed_something(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}") for n in range(3)])
            ids = [n.id for n in await store.notifications(T, "ann", limit=3)]
            await store.settle_hooks(T, [event.id for event in await queue(store)], [], NOW)
            await store.mark(T, "ann", "read", ids=ids[:2], at=NOW + 1)
            await store.mark(T, "ann", "read", through=3, at=NOW + 2)
            await store.mark(T, "ann", "read", through=3, at=NOW + 3)
            await store.mark(T, "ann", "archive", ids=[ids[0], "5-unknown"], at=NOW + 4)
            assert [(e.type, e.stream, e.state, e.ids, e.at) for e in await queue(store)] == [
                ("notification.updated", "ann", "read", ids[:2], NOW + 1),
                ("notification.updated", "ann", "read", ids[2:], NOW + 2),
                ("notification.updated", "ann", "archived", ids[:1], NOW + 4),
            ]

    async def test_each_entry_of_the_audit_is_queued_with_its_change(self) -> None:
        async with self.hooked() as store:
            for tenant in (T, OTHER):
                note = AuditNote(tenant, NOW, "mod", "user.muted", "r1", "ann", reason="rude", until=NOW + 9)
                await store.put_room(tenant, "r1", open=True)
                mute = Restriction(tenant, "r1", "ann", "mute", NOW + 9, NOW, "mod", "rude")
                for _ in range(2):  # the same again changes nothing
                    await store.restrict(mute, note)
                await store.lift(tenant, "r1", "ann", "mute", note._replace(action="user.unmuted", until=None))
                everywhere = note._replace(action="user.banned", room=None)
                await store.restrict(mute._replace(room=EVERYWHERE, kind="ban"), everywhere)
                await store.archive_room(tenant, "r1", True, note._replace(action="room.archived", user=None))
                await store.set_slow_mode(tenant, "r1", 5, note._replace(action="room.slow_mode", user=None))
                await store.delete_room(tenant, "r1", note._replace(action="room.deleted", user=None))
            events = await queue(store)
            assert [(e.type, e.stream, e.at, e.record, e.notification) for e in events] == [
                ("audit.created", "" if place == 2 else "r1", NOW, None, None) for place in range(6)
            ]
            assert [event.audit for event in events] == await store.audit(T, after=0, limit=100)
            assert await queue(store, OTHER) == [], "its hook wants messages only"
            await erase(store, "ann")
            assert [e.audit.user for e in await queue(store) if e.audit is not None] == [None] * 6
            await store.prune_audit(NOW + 1, 100)
            assert [event.audit for event in await queue(store)] == [None] * 6, "an entry that is gone is not sent"

    async def test_events_of_an_erased_user_are_removed_and_those_of_other_users_are_kept(self) -> None:
        async with self.hooked() as store:
            await store.put_room(T, "ann", open=True)
            await store.append(T, "ann", draft("bob"))
            await store.notify([notice("ann"), notice("bob"), Notice(ALIKE, "ann", "k", b"1", "k", NOW)])
            await store.erase_user(T, "ann", ExportCursor("notifications"), limit=100)
            assert [(e.type, e.stream) for e in await queue(store, ALIKE)] == [("notification.created", "ann")]
            assert [(e.type, e.stream) for e in await queue(store)] == [
                ("room.message", "ann"),
                ("notification.created", "bob"),
            ]

    async def test_many_that_are_marked_at_once_are_several_events(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}") for n in range(MOST_IDS + 7)])
            marked = await store.mark(T, "ann", "seen", through=MOST_IDS + 7, at=NOW)
            events = [e for e in await queue(store, limit=10_000) if e.type == "notification.updated"]
            assert [len(event.ids) for event in events] == [MOST_IDS, 7]
            assert events[0].ids + events[1].ids == marked.ids

    async def test_nothing_is_queued_for_tenants_without_a_hook_or_of_no_interest(self) -> None:
        async with self.hooked() as store:
            for tenant in (OTHER, "t3"):
                await store.put_room(tenant, "r1", open=True)
                await store.append(tenant, "r1", draft())
                await store.notify([Notice(tenant, "ann", "greeting", b"1", "k", NOW)])
                await store.mark(tenant, "ann", "read", through=1, at=NOW)
            assert [event.type for event in await queue(store, OTHER)] == ["room.message"]
            assert await queue(store, "t3") == await queue(store) == []
            assert await store.waiting_hooks([T, OTHER, "t3"], NOW) == [OTHER]

    async def test_what_failed_comes_again_when_it_is_due_and_what_was_sent_is_gone(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}") for n in range(3)])
            sent, failed, later = await queue(store)
            await store.settle_hooks(
                T, [sent.id], [Failed(failed.id, NOW + 50, "no answer"), Failed(later.id, NOW + 90, "no")], NOW + 1
            )
            assert await queue(store) == await queue(store, again=True, now=NOW + 49) == []
            assert await store.waiting_hooks([T], NOW + 49) == []
            assert await store.waiting_hooks([T], NOW + 50) == [T]
            (again,) = await queue(store, again=True, now=NOW + 50)
            assert (again.id, again.attempts, again.first_at) == (failed.id, 1, NOW + 1)
            assert again.notification == failed.notification
            await store.settle_hooks(T, [], [Failed(again.id, NOW + 99, "no answer")], NOW + 51)
            (_, again) = sorted(await queue(store, again=True, now=NOW + 99), key=lambda event: event.attempts)
            assert (again.attempts, again.first_at) == (2, NOW + 1), "when it first failed is kept"

    async def test_dead_events_are_listed_and_sent_again_when_asked(self) -> None:
        async with self.hooked() as store:
            await store.put_room(T, "r1", open=True)
            for n in range(3):
                await store.append(T, "r1", draft(key=f"k{n}"))
            events = await queue(store)
            await store.settle_hooks(T, [], [Failed(event.id, None, "the app answered 500") for event in events], NOW)
            dead = DeadEvent(events[0].id, T, "room.message", "r1", 1, NOW, 1, NOW, "the app answered 500")
            assert await store.dead_hooks(T, 1) == [dead]
            assert [event.seq for event in await store.dead_hooks(None, 9)] == [1, 2, 3]
            assert await store.dead_hooks(OTHER, 9) == []
            assert await store.waiting_hooks([T], NOW * 2) == []
            assert await store.replay_hooks(OTHER, None) == []
            assert await store.replay_hooks(OTHER, [events[1].id]) == [], "another tenant's id"
            await store.stop_hook(T, "place", "gone", NOW)
            assert await store.replay_hooks(None, [events[1].id, 10**12]) == [events[1].id]
            assert (await store.hook_states([T]))[0].stopped_at is None, "its hook goes on"
            assert await queue(store) == [events[1]]
            assert await store.replay_hooks(None, None) == [events[0].id, events[2].id]
            assert await queue(store) == events

    async def test_a_late_word_about_a_dead_event_does_not_revive_it(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice()])
            (event,) = await queue(store)
            await store.settle_hooks(T, [], [Failed(event.id, None, "no")], NOW)
            await store.settle_hooks(T, [], [Failed(event.id, NOW, "late")], NOW)
            assert [dead.reason for dead in await store.dead_hooks(T, 9)] == ["no"]

    async def test_ids_are_never_used_again(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key="k1")])
            (first,) = await queue(store)
            await store.settle_hooks(T, [first.id], [], NOW)
            await store.notify([notice(key="k2")])
            (second,) = await queue(store)
            assert second.id > first.id, "a late settling of the first would remove the second unsent"

    async def test_a_record_that_is_gone_has_no_content(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(expires_at=NOW + 1)])
            assert await store.prune(NOW + 2, keep_ms=10**9, limit=9)
            (event,) = await queue(store)
            assert (event.type, event.notification) == ("notification.created", None)

    async def test_one_holds_a_queue_until_its_lease_ends_or_is_given_up(self) -> None:
        async with self.hooked() as store:

            async def claim(holder: str, tenants: list[str], now: int) -> list[str]:
                claims = await store.claim_hooks(holder, tenants, now, LEASE_MS)
                assert sorted(claims) == sorted(tenants)
                return sorted(tenant for tenant, claim in claims.items() if claim.held)

            assert await claim("a", [T, OTHER], NOW) == [T, OTHER]
            assert await claim("b", [T, "t3"], NOW + LEASE_MS - 1) == ["t3"]
            assert await claim("a", [T], NOW + LEASE_MS - 1) == [T]
            assert await claim("b", [T, OTHER], NOW + LEASE_MS) == [OTHER]
            await store.release_hooks("a")
            assert await claim("b", [T], NOW + LEASE_MS) == [T]
            assert await claim("a", [T, OTHER], NOW + LEASE_MS) == []
            assert await claim("a", [], NOW) == []

    async def test_of_many_who_claim_at_once_one_holds(self) -> None:
        async with self.hooked() as store:
            found = await asyncio.gather(*(store.claim_hooks(str(n), [T, OTHER], NOW, LEASE_MS) for n in range(8)))
            holds = sorted(tenant for claims in found for tenant, claim in claims.items() if claim.held)
            assert holds == [T, OTHER]

    async def test_a_hook_that_was_stopped_stays_so_until_it_is_replayed(self) -> None:
        async with self.hooked() as store:
            await store.claim_hooks("a", [T], NOW, LEASE_MS)
            await store.stop_hook(T, "place", "the app answered 410", NOW)
            assert await store.claim_hooks("b", [T, OTHER], NOW, LEASE_MS) == {
                T: Claim(False, "place"),
                OTHER: Claim(True, ""),
            }
            (state,) = await store.hook_states([T])
            assert (state.stopped_at, state.reason) == (NOW, "the app answered 410")
            await store.replay_hooks(OTHER, None)
            await store.replay_hooks(None, [10**12])
            assert await store.claim_hooks("a", [T], NOW, LEASE_MS) == {T: Claim(True, "place")}
            await store.replay_hooks(T, None)
            assert await store.claim_hooks("a", [T], NOW, LEASE_MS) == {T: Claim(True, "")}
            (state,) = await store.hook_states([T])
            assert state[1:] == (0, 0, 0, None, None, None)

    async def test_operators_see_how_it_stands(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}", created_at=NOW + n) for n in range(4)])
            one, two, *_ = await queue(store)
            await store.settle_hooks(T, [], [Failed(one.id, None, "no"), Failed(two.id, NOW, "no")], NOW)
            (other, state) = sorted(await store.hook_states([OTHER]), key=lambda state: state.waiting)
            assert (other.tenant, *other[1:5]) == (OTHER, 0, 0, 0, None)
            assert (state.tenant, *state[1:5]) == (T, 3, 1, 1, NOW + 1)

    async def test_what_waits_is_counted_up_to_a_limit_for_the_tenants_asked_for(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}", created_at=NOW + n) for n in range(9)])
            rows = await queue(store)
            dead, failing = rows[:3], rows[3:5]
            await store.settle_hooks(T, [], [Failed(row.id, None, "no") for row in dead], NOW)
            await store.settle_hooks(T, [], [Failed(row.id, NOW, "no") for row in failing], NOW)
            assert await store.hook_depths([T], 100) == [HookDepth(T, 6, 3, NOW + 3)]
            assert await store.hook_depths([T], 2) == [HookDepth(T, 2, 2, NOW + 3)]
            assert await store.hook_depths([OTHER], 100) == [HookDepth(OTHER, 0, 0, None)], "no other's"
            await store.settle_hooks(T, [row.id for row in failing], [], NOW)
            assert {*await store.hook_depths([OTHER, T], 100)} == {
                HookDepth(OTHER, 0, 0, None),
                HookDepth(T, 4, 3, NOW + 5),
            }
            assert await store.hook_depths([], 100) == []

    async def test_what_failed_long_ago_is_forgotten_and_what_was_never_tried_is_not(self) -> None:
        async with self.hooked() as store:
            await store.notify([notice(key=f"k{n}", created_at=n) for n in range(5)])
            one, two, three, four, five = await queue(store)
            await store.settle_hooks(T, [], [Failed(one.id, None, "no"), Failed(two.id, NOW, "no")], NOW)
            await store.settle_hooks(T, [], [Failed(three.id, None, "no")], NOW + 1)
            await store.settle_hooks(T, [], [Failed(four.id, None, "no")], NOW + 2)
            assert await store.prune_hooks(NOW + 2, 2) == 2
            assert await store.prune_hooks(NOW + 2, 2) == 1
            assert await store.prune_hooks(NOW + 2, 2) == 0
            assert [event.id for event in await store.dead_hooks(T, 9)] == [four.id]
            assert await queue(store) == [five]
