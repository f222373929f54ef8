"""Unread reminder end to end: created by the job, pushed like any notification, replacing the previous one."""

from __future__ import annotations

from pathlib import Path

from e2e.pushed import pushing

WINDOW_S = 7_200.0


async def test_who_stays_away_is_reminded_on_their_device(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        first = await there.notify()
        assert await there.work() == [f"{first}.phone"]
        await there.served.advance(WINDOW_S)
        await there.served.job("unread-reminder")
        await there.work()
        (_, reminder) = there.fcm.taken
        assert reminder.notification.body == "Unread: 1"
        assert reminder.android.collapse_key == "unread_reminder"
        await there.served.job("unread-reminder")
        await there.work()
        assert len(there.fcm.taken) == 2, "more than one reminder in the window"
        await there.served.advance(WINDOW_S)
        await there.served.job("unread-reminder")
        await there.work()
        assert [message.notification.body for message in there.fcm.taken[2:]] == ["Unread: 1"]


async def test_who_comes_back_and_reads_is_not_reminded(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        made = await there.notify()
        await there.work()
        ann = await there.served.client("ann")
        await ann.request(type="inbox.read", ids=[made])
        await there.served.advance(WINDOW_S, [ann])
        await there.served.job("unread-reminder")
        await there.work()
        assert len(there.fcm.taken) == 1
