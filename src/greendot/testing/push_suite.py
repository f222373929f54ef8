"""Contract of every store for push."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AbstractAsyncContextManager
from hashlib import sha256

import pytest
from msgspec import structs

from greendot.errors import Unstorable
from greendot.store.inbox import Mark
from greendot.store.port import Store
from greendot.store.push import Choices, Device, Push, PushCounts, PushResult, Settled
from greendot.store.user_data import ExportCursor
from greendot.testing.store_harness import BAD_TEXTS, NOW, StoreHarness, T, notice

OTHER = "t3"  # second tenant that pushes
PUSHED = (T, OTHER)
LEASE_MS = 10_000
HOUR_MS = 3_600_000
MARKS: tuple[Mark, ...] = ("seen", "read", "archive", "ack")
PHONE = Device(T, "ann", "phone", "fcm", "token-1", NOW, NOW)


async def claim(store: Store, holder: str = "w1", now: int = NOW, limit: int = 100) -> list[Push]:
    return await store.claim_pushes(holder, now, LEASE_MS, limit, since=now - HOUR_MS)


def sent(push: Push, device: str = "phone", at: int = NOW) -> Settled:
    return Settled(push.id, "offline", results=[PushResult(device, "fcm", "sent", at)], tried=True, sent=[device])


class PushSuite(StoreHarness):
    """Contract of the store for push, as tests; used beside `StoreSuite`. Subclasses define `pushing`."""

    def pushing(self) -> AbstractAsyncContextManager[tuple[Store, Store]]:
        """Return two empty stores on the same records that queue pushes for `PUSHED`."""
        raise NotImplementedError

    # --- devices ---

    async def test_a_device_is_registered_replaced_listed_and_removed(self) -> None:
        async with self.pushing() as (store, _):
            laptop = PHONE._replace(device="laptop", provider="webpush", token="https://push.example/1")
            assert await store.put_device(PHONE)
            assert await store.put_device(laptop)
            assert not await store.put_device(PHONE._replace(created_at=NOW + 5, used_at=NOW + 5)), "it is the same"
            assert await store.devices(T, "ann") == [laptop, PHONE._replace(used_at=NOW + 5)]
            newer = PHONE._replace(token="token-2", created_at=NOW + 6, used_at=NOW + 6)
            assert await store.put_device(newer)
            assert await store.devices(T, "ann") == [laptop, newer]
            assert await store.devices("t2", "ann") == []
            assert await store.drop_device(T, "ann", "phone")
            assert not await store.drop_device(T, "ann", "phone")
            assert await store.devices(T, "ann") == [laptop]

    async def test_a_phone_that_changes_hands_rings_for_its_new_owner_only(self) -> None:
        async with self.pushing() as (store, _):
            await store.put_device(PHONE)
            elsewhere = PHONE._replace(tenant="t2")
            await store.put_device(elsewhere)
            await store.put_device(PHONE._replace(user="bob", device="bobs"))
            assert await store.devices(T, "ann") == []
            assert [device.user for device in await store.devices(T, "bob")] == ["bob"]
            assert await store.devices("t2", "ann") == [elsewhere], "another tenant's tokens are its own"

    async def test_the_name_an_app_chose_for_a_device_is_not_taken_from_another_user(self) -> None:
        async with self.pushing() as (store, _):
            mine = PHONE._replace(provider="webhook", token="home")
            theirs = mine._replace(user="bob", device="bobs")
            for device in (mine, theirs):
                assert await store.put_device(device)
            assert not await store.put_device(mine._replace(used_at=NOW + 1)), "it is the same"
            assert await store.devices(T, "ann") == [mine._replace(used_at=NOW + 1)]
            assert await store.devices(T, "bob") == [theirs]
            moved = mine._replace(device="tablet")
            assert await store.put_device(moved), "one name, one device of a user"
            assert await store.devices(T, "ann") == [moved]
            assert await store.drop_device(T, "bob", "bobs")
            assert await store.devices(T, "ann") == [moved]

    async def test_of_two_users_who_register_one_phone_at_once_one_has_it(self) -> None:
        async with self.pushing() as (one, two):
            for number in range(10):
                phone = PHONE._replace(token=f"t{number}")
                await asyncio.gather(one.put_device(phone), two.put_device(phone._replace(user="bob")))
                found = [device for user in ("ann", "bob") for device in await one.devices(T, user)]
                assert [device.token for device in found] == [phone.token]

    async def test_a_token_may_be_long(self) -> None:
        async with self.pushing() as (store, _):
            token = "".join(sha256(str(number).encode()).hexdigest() for number in range(64))
            for user in ("ann", "bob"):
                assert await store.put_device(PHONE._replace(user=user, token=token))
            assert await store.devices(T, "ann") == []
            assert [device.token for device in await store.devices(T, "bob")] == [token]

    async def test_a_device_or_a_choice_with_text_that_no_store_keeps_is_refused(self) -> None:
        async with self.pushing() as (store, _):
            for text in BAD_TEXTS:
                for device in (PHONE._replace(token=text), PHONE._replace(device=text)):
                    with pytest.raises(Unstorable):
                        await store.put_device(device)
                with pytest.raises(Unstorable):
                    await store.put_choices(T, "ann", Choices(text))
            assert await store.devices(T, "ann") == []

    async def test_devices_unused_for_long_are_removed_a_few_at_a_time(self) -> None:
        async with self.pushing() as (store, _):
            for number in range(5):
                await store.put_device(PHONE._replace(device=f"d{number}", token=f"t{number}", used_at=NOW + number))
            assert await store.drop_unused_devices(NOW + 4, 3) == 3
            assert await store.drop_unused_devices(NOW + 4, 3) == 1
            assert [device.device for device in await store.devices(T, "ann")] == ["d4"]

    async def test_the_time_of_use_of_a_device_never_goes_back(self) -> None:
        async with self.pushing() as (store, _):
            for used_at in (NOW + 5, NOW + 9, NOW + 1):
                await store.put_device(PHONE._replace(used_at=used_at))
            assert [device.used_at for device in await store.devices(T, "ann")] == [NOW + 9]

    async def test_what_a_user_chose_is_kept(self) -> None:
        async with self.pushing() as (store, _):
            assert await store.choices(T, "ann") == Choices()
            for chosen in (Choices("Europe/Berlin", 1320, 420), Choices("UTC", 0, 60)):
                await store.put_choices(T, "ann", chosen)
                assert await store.choices(T, "ann") == chosen
            assert await store.choices(T, "bob") == Choices()

    async def test_who_is_erased_is_reached_nowhere(self) -> None:
        async with self.pushing() as (store, _):
            for user in ("ann", "bob"):
                await store.put_device(PHONE._replace(user=user, token=user))
                await store.put_choices(T, user, Choices("Europe/Berlin", 1, 2))
                await store.notify([notice(user, key=f"k{number}") for number in range(5)])
            place = (await store.erase_user(T, "ann", None, limit=2)).next
            while place is not None:
                place = (await store.erase_user(T, "ann", place, limit=2)).next
            assert await store.devices(T, "ann") == []
            assert await store.choices(T, "ann") == Choices()
            assert [push.user for push in await claim(store)] == ["bob"] * 5
            assert len(await store.devices(T, "bob")) == 1

    # --- the queue ---

    async def test_what_is_written_is_queued_once_with_all_that_decides(self) -> None:
        async with self.pushing() as (store, _):
            await store.put_device(PHONE)
            await store.put_choices(T, "ann", Choices("Europe/Berlin", 1320, 420))
            about = structs.replace(notice(), importance="high", room="r1", collapse="c1")
            for _ in range(2):  # the same key is the same notification
                await store.notify([about])
            await store.notify([structs.replace(notice("bob"), push=False), structs.replace(notice(), tenant="t2")])
            (push,) = await claim(store)
            assert (push.tenant, push.user, push.seq, push.created_at) == (T, "ann", 1, NOW)
            assert (push.importance, push.room, push.collapse) == ("high", "r1", "c1")
            assert (push.attempts, push.results, push.recent) == (0, [], [])
            assert push.notification == (await store.notifications(T, "ann", limit=1))[0]
            assert push.devices == [PHONE]
            assert push.choices == Choices("Europe/Berlin", 1320, 420)

    async def test_a_push_without_its_notification_is_claimed_with_none(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice(expires_at=NOW + 1)])
            await store.prune(NOW + 1, keep_ms=HOUR_MS, limit=10)
            (push,) = await claim(store, now=NOW + 1)
            assert push.notification is None

    async def test_no_two_hold_the_same_and_a_lease_that_ends_is_anothers(self) -> None:
        async with self.pushing() as (one, two):
            await one.notify([notice(f"u{number}") for number in range(40)])
            first, second = await asyncio.gather(claim(one, "w1", limit=25), claim(two, "w2", limit=25))
            assert len(first) + len(second) == 40
            assert {push.id for push in first}.isdisjoint({push.id for push in second})
            assert await claim(two, "w3", NOW + LEASE_MS - 1) == []
            again = await claim(two, "w3", NOW + LEASE_MS)
            assert {push.id for push in again} == {push.id for push in first + second}
            late = await one.settle_pushes("w1", [sent(push) for push in first], [], NOW + LEASE_MS)
            assert late == set(), "who stood still for too long has nothing to say"
            assert (await two.push_counts(NOW)).waiting == 40

    async def test_the_longest_due_come_first_and_no_more_than_were_asked_for(self) -> None:
        async with self.pushing() as (store, _):
            for number in (3, 1, 2):
                await store.notify([notice(f"u{number}", created_at=NOW + number)])
            claimed = await claim(store, now=NOW + 3, limit=2)
            assert {push.user for push in claimed} == {"u1", "u2"}
            assert await claim(store, now=NOW + 2) == []

    async def test_tenants_get_equal_shares_whatever_the_backlog_of_one(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice(f"u{number}") for number in range(100)])
            later = [structs.replace(notice(f"u{number}", created_at=NOW + 1), tenant=OTHER) for number in range(10)]
            await store.notify(later)
            assert Counter(push.tenant for push in await claim(store, now=NOW + 1, limit=12)) == {T: 6, OTHER: 6}
            assert Counter(push.tenant for push in await claim(store, now=NOW + 1, limit=12)) == {T: 8, OTHER: 4}
            assert {push.tenant for push in await claim(store, now=NOW, limit=12)} == {T}

    async def test_a_tenant_that_holds_much_leaves_the_rest_to_others(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice(f"u{number}") for number in range(100)])

            async def tenants(limit: int, **held: int) -> dict[str, int]:
                found = await store.claim_pushes("w1", NOW, LEASE_MS, limit, since=0, held=held)
                return Counter(push.tenant for push in found)

            assert await tenants(20) == {T: 10}
            assert await tenants(10, **{T: 10}) == {}
            await store.notify([structs.replace(notice(f"u{number}"), tenant=OTHER) for number in range(3)])
            assert await tenants(10, **{T: 10}) == {OTHER: 3}

    async def test_a_sent_push_is_settled_and_recorded(self) -> None:
        async with self.pushing() as (store, _):
            await store.put_device(PHONE)
            await store.notify([notice()])
            (push,) = await claim(store, now=NOW + 5)
            assert await store.settle_pushes("w1", [sent(push, at=NOW + 5)], [], NOW + 5) == {push.id}
            assert await claim(store, now=NOW + 10 * HOUR_MS) == []
            (notification,) = await store.notifications(T, "ann", limit=1)
            assert notification.push_at == NOW + 5
            assert [device.used_at for device in await store.devices(T, "ann")] == [NOW + 5]
            (record,) = await store.push_of(T, notification.id)
            assert (record.reason, record.over_at, record.due_at, record.attempts) == ("offline", NOW + 5, None, 1)
            assert record.results == [PushResult("phone", "fcm", "sent", NOW + 5)]
            assert await store.push_of("t2", notification.id) == []

    async def test_what_is_held_comes_again_when_it_is_due_with_what_was_tried(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice()])
            (push,) = await claim(store)
            await store.settle_pushes("w1", [Settled(push.id, "active", due_at=NOW + 60_000)], [], NOW)
            assert await claim(store, now=NOW + 59_999) == []
            (push,) = await claim(store, now=NOW + 60_000)
            assert push.attempts == 0, "it was not tried"
            failed = PushResult("phone", "fcm", "failed", NOW + 60_000, reason="answered 500")
            again = Settled(push.id, "offline", due_at=NOW + 61_000, results=[failed], tried=True)
            await store.settle_pushes("w1", [again], [], NOW + 60_000)
            (push,) = await claim(store, now=NOW + 61_000)
            assert (push.attempts, push.results) == (1, [failed])

    async def test_pushes_held_for_busy_are_due_when_their_user_sets_a_status(self) -> None:
        async with self.pushing() as (one, two):
            await one.notify(
                [notice(key="k1"), notice(key="k2"), notice("bob"), structs.replace(notice(), tenant=OTHER)]
            )
            busy, active, *others = sorted(await claim(one), key=lambda push: push.id)
            held = [Settled(push.id, "busy", due_at=NOW + 60_000) for push in (busy, *others)]
            await one.settle_pushes("w1", [*held, Settled(active.id, "active", due_at=NOW + 60_000)], [], NOW)
            assert await two.recheck_pushes(T, "ann", NOW + 5)
            assert await claim(two, now=NOW + 4) == []
            assert [push.id for push in await claim(two, now=NOW + 5)] == [busy.id]

    async def test_a_push_that_is_due_before_is_not_delayed_by_a_status(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice()])
            (push,) = await claim(store)
            await store.settle_pushes("w1", [Settled(push.id, "busy", due_at=NOW + 10)], [], NOW)
            assert await store.recheck_pushes(T, "ann", NOW + 99)
            assert len(await claim(store, now=NOW + 10)) == 1

    async def test_a_status_set_while_a_worker_decides_is_checked_after_the_decision(self) -> None:
        """The worker may have read the old status. Only a push held for `busy` is due at once, and only once."""
        async with self.pushing() as (one, two):
            await one.notify([notice(key="k1"), notice(key="k2"), notice(key="k3")])
            busy, failed, done = sorted(await claim(one), key=lambda push: push.id)
            assert await two.recheck_pushes(T, "ann", NOW + 1)
            retry = Settled(failed.id, "offline", due_at=NOW + 9_000, tried=True)
            held = Settled(busy.id, "busy", due_at=NOW + 60_000)
            assert len(await one.settle_pushes("w1", [held, retry, sent(done)], [], NOW + 2)) == 3
            assert [push.id for push in await claim(two, "w2", NOW + 2)] == [busy.id]
            await two.settle_pushes("w2", [held], [], NOW + 3)
            assert await claim(two, now=NOW + 8_999) == []

    async def test_no_push_is_due_again_that_is_over_or_was_never_held(self) -> None:
        async with self.pushing() as (store, _):
            assert not await store.recheck_pushes(T, "ann", NOW)
            await store.notify([notice()])
            (push,) = await claim(store)
            await store.settle_pushes("w1", [Settled(push.id, "busy")], [], NOW)
            assert not await store.recheck_pushes(T, "ann", NOW)
            assert await claim(store, now=NOW + HOUR_MS) == []

    async def test_a_device_that_is_gone_is_removed_unless_it_has_another_token(self) -> None:
        async with self.pushing() as (store, _):
            await store.put_device(PHONE)
            laptop = PHONE._replace(device="laptop", token="token-9")
            await store.put_device(laptop)
            await store.put_device(laptop._replace(token="token-10"))
            await store.settle_pushes("w1", [], [PHONE, laptop], NOW)
            assert [device.token for device in await store.devices(T, "ann")] == ["token-10"]

    async def test_a_claimed_push_lists_the_recent_pushes_of_its_user(self) -> None:
        async with self.pushing() as (store, _):
            for number in range(3):
                await store.notify([notice(key=f"k{number}"), notice("bob", key=f"k{number}")])
                claimed = await claim(store, now=NOW + number)
                made = [sent(push, at=NOW + number) for push in claimed if push.user == "ann"]
                await store.settle_pushes("w1", made, [], NOW + number)
            await store.notify([notice(key="k9")])
            (push,) = [push for push in await claim(store, now=NOW + 9) if push.user == "ann"]
            assert push.recent == [NOW, NOW + 1, NOW + 2]
            assert await store.claim_pushes("w2", NOW + 9, LEASE_MS, 10, since=NOW) == []

    async def test_dead_ones_are_listed_and_tried_again(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice(f"u{number}") for number in range(3)])
            claimed = await claim(store)
            refused = PushResult("phone", "fcm", "refused", NOW, reason="answered 403")
            dead = [Settled(push.id, "offline", results=[refused], tried=True, is_dead=True) for push in claimed]
            await store.settle_pushes("w1", dead, [], NOW)
            assert await store.push_counts(NOW) == PushCounts(0, 0, None, 3)
            listed = await store.dead_pushes(None, 2)
            assert [record.results for record in listed] == [[refused]] * 2
            assert [record.id for record in listed] == sorted(push.id for push in claimed)[:2]
            assert await store.dead_pushes("t2", 10) == []
            assert await store.replay_pushes("t2", None, NOW + 1) == []
            first = listed[0].id
            assert await store.replay_pushes(T, [first, 10**9], NOW + 1) == [first]
            (push,) = await claim(store, now=NOW + 1)
            assert (push.id, push.attempts, push.results) == (first, 0, [refused]), "who got it is not to get it again"
            assert len(await store.replay_pushes(None, None, NOW + 1)) == 2

    async def test_the_queue_is_counted(self) -> None:
        async with self.pushing() as (store, _):
            assert await store.push_counts(NOW) == PushCounts(0, 0, None, 0)
            await store.notify([notice(), notice("bob", created_at=NOW + 10)])
            assert await store.push_counts(NOW + 5) == PushCounts(2, 1, NOW, 0)
            assert await store.push_counts(NOW + 10) == PushCounts(2, 2, NOW, 0)

    async def test_what_is_over_is_forgotten_after_a_while(self) -> None:
        async with self.pushing() as (store, _):
            await store.notify([notice(f"u{number}") for number in range(5)])
            await store.settle_pushes("w1", [sent(push) for push in await claim(store, limit=4)], [], NOW)
            assert await store.prune_pushes(NOW, 10) == 0
            assert await store.prune_pushes(NOW + 1, 3) == 3
            assert await store.prune_pushes(NOW + 1, 3) == 1
            assert (await store.push_counts(NOW)).waiting == 1

    async def test_counts_are_right_whatever_is_marked_pruned_or_erased_while_pushes_settle(self) -> None:
        async with self.pushing() as (one, two):
            for round in range(8):
                users = [f"u{n}" for n in range(12)]
                await one.notify([notice(user, f"{round}-{n}") for user in users for n in range(4)])
                pushes = await claim(one, limit=100)
                assert len(pushes) == 48
                settling = [one.settle_pushes("w1", [sent(push)], [], NOW) for push in pushes]
                marking = [
                    two.mark(T, user, mark, through=4 * round + 3, at=NOW)
                    for user, mark in zip(users, MARKS * 3, strict=True)
                ]
                # The order differs each round, so that each call is first in some round.
                calls = [*settling, *marking, two.prune(NOW + 1, keep_ms=0, limit=3)]
                random.Random(round).shuffle(calls)
                await asyncio.gather(*calls)
                assert await one.recount(fix=False) == []
                assert not await erase_quickly(one, f"u{round}"), "nothing of the user stays"


async def erase_quickly(store: Store, user: str) -> list[object]:
    """Erase the user's notifications while pushes settle; return the notifications that are left."""
    await store.notify([notice(user, f"last-{n}") for n in range(10)])
    pushes = await claim(store, "w2", limit=100)
    settling = [store.settle_pushes("w2", [sent(push)], [], NOW) for push in pushes]
    await asyncio.gather(*settling, store.erase_user(T, user, ExportCursor("notifications"), limit=1_000))
    return [*await store.notifications(T, user, limit=1_000)]
