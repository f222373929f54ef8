"""Reminders for absent users with unread notifications: at most one per interval, in pages, resumed after
interruption."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from greendot.errors import EngineUnavailable
from greendot.jobs.job import Planned
from greendot.jobs.model import Every, JobPlan
from greendot.jobs.runner import Runner
from greendot.jobs.unread_reminder import AT_ONCE, Reminding, UnreadReminder
from greendot.presence.model import Snapshot, VisibleState
from greendot.store.inbox import Notice, Notification
from greendot.store.jobs import JobEnd
from greendot.store.port import Store
from greendot.store.sqlite import SqliteStore
from greendot.testing import ManualClock
from greendot.testing.server import Served, serving

T = "default"
HOUR_S = 3_600.0
REMINDING = Reminding(lambda tenant: tenant == T, text="Unread: {unread}")


def reminder(served: Served) -> UnreadReminder:
    node = served.node
    return UnreadReminder(node.store, node.engine, node.inbox_service.notify, REMINDING)


async def remind(store: Store, job: UnreadReminder, clock: ManualClock) -> JobEnd:
    runner = Runner(store, clock)
    planned = Planned(job, JobPlan(Every(7_200_000)), "every 7200 s")
    await runner.plan([planned])
    ended = await runner.run(planned, early=True)
    assert ended is not None
    return ended


async def notify(served: Served, user: str, key: str = "k1", tenant: str = T) -> None:
    now = served.clock.now_ms()
    await served.node.inbox_service.notify([Notice(tenant, user, "greeting", b'{"text":"hi"}', key, now)])


async def reminders(served: Served, user: str, tenant: str = T) -> list[Notification]:
    found = await served.node.store.notifications(tenant, user, after=0, limit=100)
    return [notification for notification in found if notification.kind == "unread_reminder"]


async def test_who_is_away_with_something_unread_for_two_hours_is_reminded_once_in_two_hours() -> None:
    async with serving() as served:
        job, store = reminder(served), served.node.store
        await notify(served, "ann", "k1")
        await notify(served, "ann", "k2")
        await served.advance(2 * HOUR_S - 1)
        await remind(store, job, served.clock)
        assert await reminders(served, "ann") == [], "the user was not away long enough"
        await served.advance(1)
        ended = await remind(store, job, served.clock)
        assert ended.note == "1 of 1 users reminded"
        (first,) = await reminders(served, "ann")
        since = served.clock.now_ms() - 7_200_000
        assert msgspec.json.decode(first.body) == {"unread": 2, "since": since, "text": "Unread: 2"}
        await served.advance(2 * HOUR_S - 1)
        await remind(store, job, served.clock)
        assert len(await reminders(served, "ann")) == 1
        await served.advance(1)
        await remind(store, job, served.clock)
        (_, second) = await reminders(served, "ann")
        assert msgspec.json.decode(second.body)["unread"] == 2, "reminders must not count as unread"
        assert first.expires_at == served.clock.now_ms(), "the next reminder must expire the first"


async def test_who_is_here_or_has_read_everything_or_whose_tenant_does_not_push_is_not_reminded() -> None:
    async with serving() as served:
        for user in ("here", "read", "gone"):
            await notify(served, user)
        await notify(served, "gone", tenant="other")
        await served.node.store.mark(T, "read", "read", through=1, at=served.clock.now_ms())
        await served.advance(3 * HOUR_S)
        await served.client("here")
        await remind(served.node.store, reminder(served), served.clock)
        for user, count in (("here", 0), ("read", 0), ("gone", 1)):
            assert len(await reminders(served, user)) == count, user
        assert await reminders(served, "gone", "other") == []


async def test_who_is_idle_is_away_and_who_hides_is_not() -> None:
    async with serving(presence={"idle_s": 60}) as served:
        for user in ("idle", "hidden"):
            await notify(served, user)
        idle = await served.client("idle")
        await served.advance(3 * HOUR_S, [idle])
        hidden = await served.client("hidden")
        await hidden.request(type="status.set", status="invisible")
        await remind(served.node.store, reminder(served), served.clock)
        assert len(await reminders(served, "idle")) == 1
        assert await reminders(served, "hidden") == []


async def test_cut_short_before_it_is_noted_a_reminder_is_still_sent_once() -> None:
    async with serving() as served:
        store, job = served.node.store, reminder(served)
        await notify(served, "ann")
        await served.advance(2 * HOUR_S)
        noted = store.put_reminded

        async def dies(users: Sequence[tuple[str, str]], at: int) -> None:
            raise EngineUnavailable("cut short")

        store.put_reminded = dies  # type: ignore[method-assign]
        assert (await remind(store, job, served.clock)).outcome == "failed"
        store.put_reminded = noted  # type: ignore[method-assign]
        await served.advance(60)
        assert (await remind(store, job, served.clock)).outcome == "ok"
        assert len(await reminders(served, "ann")) == 1


async def test_the_engine_does_not_answer_and_it_is_tried_later() -> None:
    async with serving() as served:
        await notify(served, "ann")
        await served.advance(2 * HOUR_S)
        store = served.node.store
        away = UnreadReminder(store, Absent(away=True), served.node.inbox_service.notify, REMINDING)
        ended = await remind(store, away, served.clock)
        assert (ended.outcome, ended.note, ended.failures) == ("failed", "no Redis", 1)
        assert await reminders(served, "ann") == []


# --- many users ---


class Absent:
    """Engine in which every user is offline."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        if self.away:
            raise EngineUnavailable("no Redis")
        return [Snapshot(VisibleState(), VisibleState(), None, []) for _ in users]


def fill(path: Path, count: int, at: int) -> None:
    """Insert `count` users, every tenth with an unread notification."""
    db = sqlite3.connect(path)
    inboxes = ((T, f"u{number:07}", 1, int(number % 10 == 0), 0) for number in range(count))
    db.executemany("INSERT INTO inboxes VALUES (?, ?, ?, ?, ?)", inboxes)
    columns = "tenant, user, seq, id, kind, body, key, created_at, seen_at, ack"
    waiting = ((T, f"u{number:07}", 1, f"1-{number}", "k", b"1", "k", at, at, 0) for number in range(0, count, 10))
    db.executemany(f"INSERT INTO notifications ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", waiting)
    db.commit()
    db.close()


async def peak(path: Path, count: int) -> int:
    """Return the peak memory, in bytes, of a run over `count` users."""
    clock, store = ManualClock(), SqliteStore(str(path))
    await store.start()
    try:
        fill(path, count, clock.now_ms() - 7_200_000)
        job = UnreadReminder(store, Absent(), store.notify, REMINDING)
        tracemalloc.start()
        ended = await remind(store, job, clock)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert ended.note == f"{count // 10} of {count} users reminded"
        return most
    finally:
        await store.close()


async def test_ten_times_as_many_users_take_no_more_memory(tmp_path: Path) -> None:
    few = await peak(tmp_path / "few.db", 4 * AT_ONCE)
    many = await peak(tmp_path / "many.db", 40 * AT_ONCE)
    assert many < 1.3 * few + 100_000, (few, many)


@pytest.mark.parametrize("pages", [1, 3])
async def test_an_interrupted_run_continues_where_it_stopped_and_no_user_is_reminded_twice(
    tmp_path: Path, pages: int
) -> None:
    path, count, clock = tmp_path / "store.db", 6 * AT_ONCE, ManualClock()
    store = SqliteStore(str(path))
    await store.start()
    written: list[str] = []
    try:
        fill(path, count, clock.now_ms() - 7_200_000)
        runner = Runner(store, clock)

        async def notify(notices: Sequence[Notice]) -> None:
            written.extend(notice.user for notice in notices)
            await store.notify(notices)
            if len(written) == pages * AT_ONCE // 10:
                runner.runs["unread-reminder"].stop()

        planned = Planned(UnreadReminder(store, Absent(), notify, REMINDING), JobPlan(Every(7_200_000)), "every 7200 s")
        await runner.plan([planned])
        first = await runner.run(planned, early=True)
        assert first is not None
        assert (first.outcome, first.done) == ("stopped", pages * AT_ONCE)
        (state,) = await store.jobs()
        assert state.cursor == f"{T}/u{pages * AT_ONCE - 1:07}"
        second = await runner.run(planned)
        assert second is not None, "a stopped run must be due at once"
        assert (second.outcome, second.done) == ("ok", count - pages * AT_ONCE)
        assert written == [f"u{number:07}" for number in range(0, count, 10)]
    finally:
        await store.close()
