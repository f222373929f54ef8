"""Receipts: delivery times, written in batches and kept while the store is away."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from greendot.inbox import receipts
from greendot.inbox.receipts import EVERY_S, Receipts
from unit.service_parts import TENANT, TICK_S, Parts, in_virtual_time

ANN, BOB = (TENANT, "ann"), (TENANT, "bob")


async def notified(parts: Parts, count: int, *users: str) -> Receipts:
    """Give each user `count` notifications, clear the list of the store's calls, and return the receipts."""
    await parts.store.notify([parts.notice(user) for user in users for _ in range(count)])
    parts.store.take_calls()
    return Receipts(parts.store, parts.context)


async def noted(parts: Parts, user: str = "ann") -> Sequence[int]:
    """Return the numbers of the user's notifications with a receipt."""
    found = await parts.store.notifications(TENANT, user, limit=100)
    return [notification.seq for notification in found if notification.live_at is not None]


@in_virtual_time
async def test_receipts_of_one_period_are_one_commit_for_all_users(parts: Parts) -> None:
    noting = await notified(parts, 3, "ann", "bob")
    noting.add(ANN, [1, 2])
    noting.add(BOB, range(2, 4))
    noting.add(ANN, [3])
    await parts.pass_s(EVERY_S + TICK_S)
    assert parts.store.take_calls() == ["delivered"]
    assert (await noted(parts), await noted(parts, "bob")) == ([1, 2, 3], [2, 3])


@in_virtual_time
async def test_without_receipts_nothing_is_written(parts: Parts) -> None:
    noting = await notified(parts, 1, "ann")
    noting.add(ANN, [])
    await parts.pass_s(2 * EVERY_S)
    await noting.flush()
    noting.add(ANN, [1])
    await parts.pass_s(EVERY_S + TICK_S)
    await parts.pass_s(5 * EVERY_S)
    assert parts.store.take_calls() == ["delivered"]


@in_virtual_time
async def test_receipts_wait_while_the_store_is_away(parts: Parts) -> None:
    noting = await notified(parts, 2, "ann")
    parts.store.thread.is_away = True
    noting.add(ANN, [1])
    await parts.pass_s(2 * EVERY_S + TICK_S)
    assert parts.store.take_calls() == ["delivered"] * 2
    async with parts.store.holding("delivered") as held:
        await held.reached()
        noting.add(ANN, [2])
    await parts.settle()
    parts.store.take_calls()
    parts.store.thread.is_away = False
    await parts.pass_s(EVERY_S)
    assert parts.store.take_calls() == ["delivered"]
    assert await noted(parts) == [1, 2]


@in_virtual_time
async def test_many_receipts_are_several_commits_and_a_failed_one_is_repeated_alone(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "AT_ONCE", 2)
    noting = await notified(parts, 5, "ann")
    noting.add(ANN, range(1, 6))
    async with parts.store.holding("delivered", "after") as held:
        await held.reached()  # the first two are written
        parts.store.thread.is_away = True
    await parts.settle()
    parts.store.thread.is_away = False
    assert await noted(parts) == [1, 2]
    parts.store.take_calls()
    await parts.pass_s(EVERY_S)
    assert parts.store.take_calls() == ["delivered"] * 2
    assert await noted(parts) == [1, 2, 3, 4, 5]


@in_virtual_time
async def test_receipts_that_come_during_a_commit_are_in_the_next(parts: Parts) -> None:
    noting = await notified(parts, 2, "ann")
    noting.add(ANN, [1])
    async with parts.store.holding("delivered") as held:
        await held.reached()
        noting.add(ANN, [2])
    await parts.settle()
    assert await noted(parts) == [1]
    await parts.pass_s(EVERY_S)
    assert await noted(parts) == [1, 2]


@in_virtual_time
async def test_no_more_receipts_wait_than_the_bound(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MOST", 2)
    noting = await notified(parts, 4, "ann")
    for seq in range(1, 5):
        noting.add(ANN, [seq])
    await parts.pass_s(EVERY_S + TICK_S)
    assert await noted(parts) == [1, 2]
    noting.add(ANN, [4])
    await noting.flush()  # as on shutdown of the node
    assert await noted(parts) == [1, 2, 4]
