"""Redelivery: notifications that require an acknowledgement are sent again, on a schedule, until a device
acknowledges."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greendot.inbox import redelivery
from greendot.inbox.kinds_model import LONGEST_S, RETRIED_S, TIMES
from greendot.inbox.local_inbox import LocalInbox
from greendot.inbox.redelivery import AGAIN_S, Redelivery
from unit.service_parts import TENANT, TICK_S, Parts, in_virtual_time

FIRST_S = 5.0 + TICK_S  # after the first redelivery


class Redelivered:
    """An inbox with a device, and the numbers that were sent again, each with the seconds since the start."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.local = LocalInbox((TENANT, "ann"))
        self.sent: list[tuple[int, int]] = []
        self.has_device = True
        self.redelivery = Redelivery(
            parts.store, parts.context, parts.metrics, self._send, lambda local: self.has_device
        )
        self._began = parts.now()

    def _send(self, local: LocalInbox, frame: bytes) -> int:
        seq = msgspec.json.decode(frame[frame.index(b"{") :])["data"]["seq"]
        self.sent.append((seq, round(self.parts.now() - self._began)))
        return 1

    @property
    def seqs(self) -> list[int]:
        return [seq for seq, _ in self.sent]

    async def notify(self, count: int = 1, **given: Any) -> None:
        """Write notifications and mark them as sent."""
        notices = [self.parts.notice("ann", ack=True, **given) for _ in range(count)]
        created = await self.parts.store.notify(notices)
        self.redelivery.sent(self.local, [made.notification.seq for made in created])
        self.parts.store.take_calls()

    async def acknowledge(self, through: int) -> None:
        """Acknowledge in the store only, as on another node."""
        await self.parts.store.mark(TENANT, "ann", "ack", through=through, at=1)


@in_virtual_time
async def test_a_notification_comes_again_after_longer_and_longer_waits(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    await parts.pass_s(100)
    assert inbox.sent == [(1, 5), (1, 15), (1, 35), (1, 75)]
    assert parts.metrics.inbox_redelivered_total == 4


@in_virtual_time
async def test_each_notification_has_times_of_its_own(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    await parts.pass_s(3)
    await inbox.notify()
    await parts.pass_s(16)
    assert inbox.sent == [(1, 5), (2, 8), (1, 15), (2, 18)]


@in_virtual_time
async def test_an_acknowledged_notification_does_not_come_again_and_is_not_read(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify(4)
    inbox.redelivery.acknowledged(inbox.local, [4], 2)
    await parts.pass_s(FIRST_S)
    assert inbox.seqs == [3]
    inbox.redelivery.acknowledged(inbox.local, [], 3)
    parts.store.take_calls()
    await parts.pass_s(RETRIED_S)
    assert (inbox.seqs, parts.store.take_calls()) == ([3], [])


@in_virtual_time
async def test_an_acknowledgement_that_only_the_store_has_counts(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify(2)
    await inbox.acknowledge(1)
    await parts.pass_s(FIRST_S)
    assert inbox.seqs == [2]
    await inbox.acknowledge(2)
    await parts.pass_s(RETRIED_S)
    assert inbox.seqs == [2]
    assert inbox.local.pending_acks is None


@in_virtual_time
async def test_an_acknowledgement_during_the_read_counts(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify(2)
    async with parts.store.holding("pending", "after") as held:
        await held.reached()
        inbox.redelivery.acknowledged(inbox.local, [1], 0)
    await parts.settle()
    assert inbox.seqs == [2]


@in_virtual_time
async def test_without_a_device_nothing_is_read_until_one_comes(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    inbox.has_device = False
    await parts.pass_s(RETRIED_S)
    assert (inbox.sent, parts.store.take_calls()) == ([], [])
    inbox.has_device = True
    inbox.redelivery.sent(inbox.local, [1])  # the notification was sent to the device that connected
    await parts.pass_s(FIRST_S)
    assert inbox.seqs == [1]


@in_virtual_time
async def test_a_device_that_comes_puts_off_the_next_time_and_does_not_begin_anew(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    await parts.pass_s(6)
    inbox.redelivery.sent(inbox.local, [1])
    await parts.pass_s(29)
    assert inbox.sent == [(1, 5), (1, 16)]  # ten seconds after the device connected, then twenty


@in_virtual_time
async def test_a_notification_comes_again_when_the_store_is_back(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    parts.store.thread.is_away = True
    await parts.pass_s(FIRST_S + AGAIN_S)
    assert (inbox.sent, parts.store.take_calls()) == ([], ["pending"] * 2)
    parts.store.thread.is_away = False
    await parts.pass_s(AGAIN_S)
    assert inbox.sent == [(1, 15)]


@in_virtual_time
async def test_after_the_last_time_a_notification_is_given_up_and_counted(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    await parts.pass_s(RETRIED_S - 1)
    assert (len(inbox.sent), parts.metrics.inbox_unacknowledged_total) == (TIMES, 0)
    await parts.pass_s(2)
    assert (len(inbox.sent), parts.metrics.inbox_unacknowledged_total) == (TIMES, 1)
    parts.store.take_calls()
    await parts.pass_s(RETRIED_S)
    assert (len(inbox.sent), parts.store.take_calls()) == (TIMES, [])


@in_virtual_time
async def test_an_expired_notification_does_not_come_again(parts: Parts) -> None:
    inbox = Redelivered(parts)
    await inbox.notify(expires_at=parts.clock.now_ms() + 10_000)
    await parts.pass_s(RETRIED_S)
    assert inbox.seqs == [1]
    assert await inbox.redelivery.pending((TENANT, "ann")) == []


@in_virtual_time
async def test_of_very_many_the_oldest_come_again_first_and_the_others_in_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redelivery, "MOST", 2)
    inbox = Redelivered(parts)
    await inbox.notify(3)
    await parts.pass_s(FIRST_S)
    assert inbox.seqs == [1, 2]
    inbox.redelivery.acknowledged(inbox.local, [1, 2], 0)
    await inbox.acknowledge(2)
    await parts.pass_s(LONGEST_S)
    assert inbox.seqs == [1, 2, 3]


@pytest.mark.parametrize("during", ["wait", "read"])
@in_virtual_time
async def test_nothing_comes_again_for_a_user_who_has_left(parts: Parts, during: str) -> None:
    inbox = Redelivered(parts)
    await inbox.notify()
    if during == "wait":
        inbox.redelivery.left(inbox.local)
    else:
        async with parts.store.holding("pending", "after") as held:
            await held.reached()
            inbox.redelivery.left(inbox.local)
    parts.store.take_calls()
    await parts.pass_s(RETRIED_S)
    assert (inbox.sent, parts.store.take_calls()) == ([], [])
