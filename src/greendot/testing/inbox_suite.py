"""Contract of every store for inboxes. After each change, the counters must equal a count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from greendot.errors import Unstorable
from greendot.store.inbox import Created, Inbox, Notice, Notification
from greendot.store.port import Store
from greendot.testing.store_harness import BAD_TEXTS, HUGE, NOW, StoreHarness, T, notice, recounted


async def filled(store: Store, count: int, user: str = "ann") -> list[str]:
    """Write `count` notifications for the user; return their ids."""
    created = await store.notify([notice(user, f"k{n}") for n in range(count)])
    return [made.notification.id for made in created]


def seqs(page: Sequence[Notification]) -> list[int]:
    return [notification.seq for notification in page]


def states(notification: Notification) -> tuple[int | None, ...]:
    return notification.seen_at, notification.read_at, notification.archived_at, notification.acked_at


class InboxSuite(StoreHarness):
    """Contract of `InboxStore`, as tests."""

    # --- creating ---

    async def test_notifications_are_numbered_in_their_inboxes(self) -> None:
        async with self.opened() as store:
            assert await store.inbox(T, "ann") == Inbox()
            assert await store.notify([]) == []
            created = await store.notify([notice("ann"), notice("bob", expires_at=NOW + 5), notice("ann", "k2")])
            assert [(made.notification.seq, made.new) for made in created] == [(1, True), (1, True), (2, True)]
            first = created[1].notification
            assert first == Notification(1, first.id, "greeting", b'{"text":"hi"}', NOW, NOW + 5)
            assert await store.notifications(T, "bob", limit=5) == [first]
            assert await store.inboxes([(T, "ann"), (T, "bob"), (T, "cy"), ("t2", "ann")]) == {
                (T, "ann"): Inbox(2, 2, 2),
                (T, "bob"): Inbox(1, 1, 1),
            }
            assert len({made.notification.id for made in created}) == 3

    async def test_the_same_key_is_the_same_notification_also_within_one_call(self) -> None:
        async with self.opened() as store:
            first, second = await store.notify([notice(), notice()])
            assert first == Created(second.notification, True)
            assert not second.new
            (again,) = await store.notify([notice()])
            assert again == second
            (other,) = await store.notify([notice("bob")])
            assert other.new
            assert await recounted(store) == Inbox(1, 1, 1)

    async def test_one_key_created_by_many_at_once_is_written_once(self) -> None:
        async with self.opened_twice() as (one, two):
            created = await asyncio.gather(*(store.notify([notice(), notice("bob")]) for store in (one, two) * 15))
            assert [sum(made[place].new for made in created) for place in (0, 1)] == [1, 1]
            assert await recounted(one) == Inbox(1, 1, 1)

    async def test_all_of_a_call_are_written_or_none_and_other_calls_are(self) -> None:
        async with self.opened() as store:
            bad = [notice("ann", "b1"), notice("bob", "b2", created_at=HUGE), notice("cy", "b3")]
            calls = [store.notify([notice("ann", f"k{n}")]) for n in range(5)]
            results = await asyncio.gather(*calls, store.notify(bad), return_exceptions=True)
            assert isinstance(results[-1], Unstorable)
            assert not any(isinstance(result, BaseException) for result in results[:-1])
            assert await recounted(store) == Inbox(5, 5, 5)
            assert await store.inbox(T, "cy") == Inbox()
            assert await store.notifications(T, "cy", limit=5) == []

    async def test_a_notification_with_text_that_no_store_keeps_fails_alone(self) -> None:
        async with self.opened() as store:
            for text in BAD_TEXTS:
                fields = ({"user": text}, {"key": text}, {"kind": text}, {"room": text}, {"collapse": text})
                bad = [structs.replace(notice(key=f"b{n}"), **field) for n, field in enumerate(fields)]
                good = (store.notify([notice("ann", f"{text!r}{n}")]) for n in range(5))
                calls = (store.notify([notice("bob", "of a call that fails"), one]) for one in bad)
                results = await asyncio.gather(*good, *calls, return_exceptions=True)
                assert [isinstance(result, Unstorable) for result in results] == [False] * 5 + [True] * 5
            assert await recounted(store) == Inbox(20, 20, 20)
            assert await store.inbox(T, "bob") == Inbox()

    async def test_ten_thousand_in_one_call(self) -> None:
        async with self.opened() as store:
            notices = [notice(f"u{n % 2_500}", f"k{n}") for n in range(10_000)]
            created = await store.notify(notices)
            assert [made.notification.seq for made in created] == [n // 2_500 + 1 for n in range(10_000)]
            again = await store.notify(notices)
            assert [made.notification for made in again] == [made.notification for made in created]
            assert not any(made.new for made in again)
            assert await recounted(store, "u77") == Inbox(4, 4, 4)

    async def test_two_nodes_that_each_create_one_notification_at_a_time_do_not_conflict(self) -> None:
        async with self.opened_twice() as (one, two):
            for turn in range(40):
                await asyncio.gather(
                    *(store.notify([notice("ann", f"{turn}-{n}"), notice()]) for n, store in enumerate((one, two)))
                )
            assert await recounted(one) == Inbox(81, 81, 81)

    async def test_nodes_that_notify_the_same_users_in_other_orders_do_not_block_each_other(self) -> None:
        async with self.opened_twice() as (one, two):
            users = [f"u{n}" for n in range(12)]
            calls = []
            for turn in range(8):
                calls.append(one.notify([notice(user, f"1-{turn}") for user in users]))
                calls.append(two.notify([notice(user, f"2-{turn}") for user in reversed(users)]))
            await asyncio.gather(*calls)
            for user in users:
                assert seqs(await one.notifications(T, user, after=0, limit=99)) == [*range(1, 17)]
            assert await recounted(two, "u3") == Inbox(16, 16, 16)

    async def test_what_one_node_creates_in_an_inbox_is_numbered_as_it_came(self) -> None:
        async with self.opened() as store:
            users = [[f"u{n % 3}", f"u{n % 5}"] for n in range(60)]
            await asyncio.gather(
                *(
                    store.notify([notice(u, f"{n:03}-{u}-{i}") for i, u in enumerate(pair)])
                    for n, pair in enumerate(users)
                )
            )
            for user in ("u0", "u1", "u4"):
                wanted = [f"{n:03}-{user}-{i}" for n, pair in enumerate(users) for i, u in enumerate(pair) if u == user]
                again = await store.notify([notice(user, key) for key in wanted])
                assert [made.notification.seq for made in again] == [*range(1, len(wanted) + 1)]

    # --- reading ---

    async def test_an_inbox_is_paged_in_order_by_what_is_wanted(self) -> None:
        async with self.opened() as store:
            ids = await filled(store, 8)
            await store.mark(T, "ann", "read", ids=[ids[1], ids[4]], at=NOW)
            await store.mark(T, "ann", "archive", ids=[ids[2], ids[7]], at=NOW)
            await store.mark(T, "ann", "seen", through=4, at=NOW)
            assert seqs(await store.notifications(T, "ann", limit=3)) == [5, 6, 7]
            assert seqs(await store.notifications(T, "ann", before=5, limit=2)) == [2, 4]
            assert seqs(await store.notifications(T, "ann", after=2, limit=2)) == [4, 5]
            assert seqs(await store.notifications(T, "ann", after=0, before=4, limit=9)) == [1, 2]
            assert seqs(await store.notifications(T, "ann", after=0, limit=9, only="unread")) == [1, 4, 6, 7]
            assert seqs(await store.notifications(T, "ann", limit=9, only="unseen")) == [6, 7]
            assert seqs(await store.notifications(T, "ann", limit=9, only="archived")) == [3, 8]
            assert await store.notifications("t2", "ann", limit=9) == []

    # --- marking ---

    async def test_a_mark_implies_the_lesser_ones_and_is_set_once(self) -> None:
        async with self.opened() as store:
            ids = await filled(store, 4)
            assert await store.mark(T, "ann", "seen", ids=ids[:1], at=NOW + 1) == (ids[:1], Inbox(4, 4, 3))
            assert await store.mark(T, "ann", "read", through=2, at=NOW + 2) == (ids[:2], Inbox(4, 2, 2))
            assert await store.mark(T, "ann", "archive", ids=[ids[2]], at=NOW + 3) == ([ids[2]], Inbox(4, 1, 1))
            assert await store.mark(T, "ann", "ack", through=9, at=NOW + 4) == (ids, Inbox(4, 0, 0))
            assert await store.mark(T, "ann", "ack", through=9, at=NOW + 5) == ([], Inbox(4, 0, 0))
            assert await store.mark(T, "ann", "read", ids=ids, at=NOW + 5) == ([], Inbox(4, 0, 0))
            kept = await store.notifications(T, "ann", after=0, limit=9)
            (archived,) = await store.notifications(T, "ann", after=0, limit=9, only="archived")
            assert [states(n) for n in kept] == [
                (NOW + 1, NOW + 2, None, NOW + 4),
                (NOW + 2, NOW + 2, None, NOW + 4),
                (NOW + 4, NOW + 4, None, NOW + 4),
            ]
            assert states(archived) == (NOW + 3, NOW + 3, NOW + 3, NOW + 4)
            assert await recounted(store) == Inbox(4, 0, 0)

    async def test_what_is_not_the_users_or_does_not_exist_is_passed_over(self) -> None:
        async with self.opened() as store:
            mine, theirs = await filled(store, 2), await filled(store, 2, "bob")
            strange = ["", "-", "1", "1-", "x-y", "²-1", f"{HUGE}-0", mine[0] + "0", "\0", *theirs]
            assert await store.mark(T, "ann", "read", ids=strange, at=NOW) == ([], Inbox(2, 2, 2))
            marked = await store.mark(T, "ann", "read", ids=[mine[1], *strange, mine[0], mine[1]], at=NOW)
            assert marked == (mine, Inbox(2, 0, 0))
            assert await store.mark(T, "nobody", "read", through=5, at=NOW) == ([], Inbox())
            assert await store.mark(T, "nobody", "read", ids=mine, at=NOW) == ([], Inbox())
            assert await store.mark(T, "bob", "seen", ids=[], at=NOW) == ([], Inbox(2, 2, 2))
            assert await recounted(store, "bob") == Inbox(2, 2, 2)

    async def test_marks_are_of_one_user_in_one_tenant(self) -> None:
        async with self.opened() as store:
            await store.notify([Notice(tenant, user, "k", b"1", "k", NOW) for tenant in (T, "t2") for user in "ab"])
            await store.mark(T, "a", "read", through=9, at=NOW)
            found = await store.inboxes([(tenant, user) for tenant in (T, "t2") for user in "ab"])
            counts = {key: inbox[1:] for key, inbox in found.items()}
            assert counts == {(T, "a"): (0, 0), (T, "b"): (1, 1), ("t2", "a"): (1, 1), ("t2", "b"): (1, 1)}

    async def test_very_many_are_marked_in_one_call(self) -> None:
        async with self.opened() as store:
            ids = await filled(store, 10_500)
            marked = await store.mark(T, "ann", "read", through=10_400, at=NOW)
            assert marked == (ids[:10_400], Inbox(10_500, 100, 100))
            assert await recounted(store) == Inbox(10_500, 100, 100)

    async def test_devices_that_mark_at_once_each_get_the_ids_they_changed(self) -> None:
        async with self.opened_twice() as (one, two):
            ids = await filled(one, 40)
            marks = await asyncio.gather(
                *(store.mark(T, "ann", "read", ids=ids, at=NOW) for store in (one, two)),
                *(store.mark(T, "ann", "read", through=25, at=NOW) for store in (one, two)),
            )
            assert sorted(marked for mark in marks for marked in mark.ids) == sorted(ids)
            assert await recounted(two) == Inbox(40, 0, 0)

    async def test_counts_are_right_whatever_happens_at_once(self) -> None:
        async with self.opened_twice() as (one, two):
            ids = await filled(one, 60)
            calls = []
            for n in range(20):
                store, other = (one, two) if n % 2 else (two, one)
                calls += [
                    store.notify([notice("ann", f"new-{n}"), notice("bob", f"new-{n}")]),
                    other.mark(T, "ann", "read", through=10_000, at=NOW),
                    store.mark(T, "ann", "archive", ids=ids[n * 3 : n * 3 + 2], at=NOW),
                    other.mark(T, "ann", "seen", through=60 - n, at=NOW),
                    store.delivered({(T, "bob"): [n], (T, "ann"): [n * 3 + 1, n * 3 + 2]}, "live", NOW),
                    other.prune(NOW, keep_ms=5 if n == 7 else 1_000, limit=3),
                    store.mark(T, "bob", "ack", through=n, at=NOW),
                ]
            await asyncio.gather(*calls)
            ann, bob = await recounted(one), await recounted(two, "bob")
            assert (ann.head, bob.head) == (80, 20)
            assert (await two.mark(T, "ann", "read", through=80, at=NOW)).inbox == Inbox(80, 0, 0)

    # --- delivery, expiry ---

    async def test_the_first_delivery_is_noted(self) -> None:
        async with self.opened() as store:
            await filled(store, 3)
            await filled(store, 1, "bob")
            await store.delivered({(T, "ann"): [1, 2, 99], (T, "bob"): [1]}, "live", NOW + 1)
            await store.delivered({(T, "ann"): [2, 3]}, "live", NOW + 2)
            await store.delivered({(T, "nobody"): [1], (T, "ann"): [3]}, "push", NOW + 3)
            await store.delivered({}, "push", NOW + 4)
            (bobs,) = await store.notifications(T, "bob", after=0, limit=9)
            assert (bobs.live_at, bobs.push_at) == (NOW + 1, None)
            kept = await store.notifications(T, "ann", after=0, limit=9)
            assert [(n.live_at, n.push_at) for n in kept] == [(NOW + 1, None), (NOW + 1, None), (NOW + 2, NOW + 3)]
            assert await recounted(store) == Inbox(3, 3, 3)

    async def test_what_is_to_be_acknowledged_is_found_until_it_is(self) -> None:
        async with self.opened() as store:
            made = await store.notify([notice("ann", f"k{n}", ack=n % 2 == 0) for n in range(7)])
            await store.notify([notice("bob", "k0", ack=True), notice("cy", "k0")])
            assert [of.notification.ack for of in made] == [True, False] * 3 + [True]
            users = [(T, "ann"), (T, "bob"), (T, "cy"), ("t2", "ann")]
            found = await store.pending(users, limit=3)
            assert {user: seqs(theirs) for user, theirs in found.items()} == {(T, "ann"): [1, 3, 5], (T, "bob"): [1]}
            assert found[T, "ann"][0] == made[0].notification
            await store.mark(T, "ann", "archive", ids=[made[0].notification.id], at=NOW)  # no acknowledgement
            await store.mark(T, "ann", "ack", ids=[made[2].notification.id], at=NOW)
            assert seqs((await store.pending(users, limit=9))[T, "ann"]) == [1, 5, 7]
            await store.mark(T, "bob", "ack", through=9, at=NOW)
            assert [*await store.pending(users, limit=1)] == [(T, "ann")]
            assert await store.pending([], limit=1) == {}
            assert await recounted(store) == Inbox(7, 5, 5)

    async def test_what_has_expired_or_is_old_is_removed_and_no_longer_counted(self) -> None:
        async with self.opened() as store:
            await store.notify([notice("ann", f"e{n}", expires_at=NOW + n) for n in range(6)])
            await store.notify(
                [notice("bob", "old", created_at=NOW - 1_000), notice("bob", "young", created_at=NOW - 10)]
            )
            await store.mark(T, "ann", "seen", through=1, at=NOW)
            assert await store.prune(NOW - 1, keep_ms=1_000, limit=10) == {}
            assert await store.prune(NOW + 1, keep_ms=1_000, limit=10) == {
                (T, "ann"): Inbox(6, 4, 4),
                (T, "bob"): Inbox(2, 1, 1),
            }
            assert seqs(await store.notifications(T, "ann", after=0, limit=9)) == [3, 4, 5, 6]
            assert len(await store.prune(NOW + 9, keep_ms=10**12, limit=3)) == 1
            assert await recounted(store) == Inbox(6, 1, 1)
            (again,) = await store.notify([notice("ann", "e0")])
            assert (again.new, again.notification.seq) == (True, 7)
            assert await recounted(store, "bob") == Inbox(2, 1, 1)

    async def test_a_number_no_inbox_can_have_is_refused(self) -> None:
        async with self.opened() as store:
            with pytest.raises(Unstorable):
                await store.notifications(T, "ann", before=HUGE, limit=1)
            await store.ping()
