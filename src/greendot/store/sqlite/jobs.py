"""Jobs, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greendot.ids import Key
from greendot.store.jobs import MOST_COUNTED, REMINDER, RUNS_KEPT, JobEnd, JobRun, JobState, JobStore, Unread
from greendot.store.sqlite.thread import DatabaseThread

_STATE = "name, schedule, next_at, fence, holder, until, failures, ran_at, cursor"
_RUN = "name, fence, holder, started_at, ended_at, outcome, done, note"
_PLAN = """
    INSERT INTO jobs (name, schedule, next_at) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET schedule = ?2, next_at = ?3 WHERE schedule <> ?2
"""
_CLAIM = f"""
    UPDATE jobs SET fence = fence + 1, holder = ?2, until = ?3 + ?4, failures = failures + (holder IS NOT NULL)
    WHERE name = ?1 AND (holder IS NULL OR holder = ?2 OR until <= ?3) AND (?5 OR next_at <= ?3) RETURNING {_STATE}
"""
_LOSE = """
    UPDATE job_runs SET outcome = 'lost', ended_at = ?3, note = 'it was not heard of any more'
    WHERE name = ?1 AND fence < ?2 AND outcome = 'running'
"""
_END = """
    UPDATE jobs SET holder = NULL, until = 0, next_at = ?3, failures = ?4,
        cursor = CASE WHEN ?5 THEN NULL ELSE cursor END,
        ran_at = CASE WHEN ?5 THEN (SELECT started_at FROM job_runs WHERE name = ?1 AND fence = ?2) ELSE ran_at END
    WHERE name = ?1 AND fence = ?2
"""
UNREAD = f"""
    SELECT i.tenant, i.user, i.unread, r.at,
        CASE WHEN i.unread THEN (
            SELECT created_at FROM notifications n INDEXED BY notifications_unread
            WHERE n.tenant = i.tenant AND n.user = i.user AND read_at IS NULL AND kind <> '{REMINDER}'
            ORDER BY seq LIMIT 1
        ) END,
        CASE WHEN i.unread THEN (
            SELECT count(*) FROM (
                SELECT 1 FROM notifications n INDEXED BY notifications_unread
                WHERE n.tenant = i.tenant AND n.user = i.user AND read_at IS NULL AND kind <> '{REMINDER}'
                LIMIT {MOST_COUNTED + 1}
            )
        ) ELSE 0 END
    FROM inboxes i LEFT JOIN reminders r ON r.tenant = i.tenant AND r.user = i.user
    WHERE (i.tenant, i.user) > (?, ?) ORDER BY i.tenant, i.user LIMIT ?
"""


class SqliteJobs:
    """SQLite adapter of `JobStore`."""

    _thread: DatabaseThread

    async def job_time(self, own: int) -> int:
        return own

    async def plan_job(self, name: str, schedule: str, next_at: int) -> None:
        await self._thread.do(lambda db: db.execute(_PLAN, (name, schedule, next_at)))

    async def jobs(self) -> list[JobState]:
        sql = f"SELECT {_STATE} FROM jobs ORDER BY name"
        return await self._thread.do(lambda db: [JobState(*row) for row in db.execute(sql)])

    async def claim_job(
        self, name: str, holder: str, now: int, lease_ms: int, *, early: bool = False
    ) -> JobState | None:
        def work(db: sqlite3.Connection) -> JobState | None:
            row = db.execute(_CLAIM, (name, holder, now, lease_ms, early)).fetchone()
            if row is None:
                return None
            claimed = JobState(*row)
            db.execute(_LOSE, (name, claimed.fence, now))
            begin = "INSERT INTO job_runs (name, fence, holder, started_at) VALUES (?, ?, ?, ?)"
            db.execute(begin, (name, claimed.fence, holder, now))
            db.execute("DELETE FROM job_runs WHERE name = ? AND fence <= ?", (name, claimed.fence - RUNS_KEPT))
            return claimed

        return await self._thread.do(work)

    async def keep_job(self, name: str, fence: int, until: int, done: int, cursor: str | None) -> bool:
        keep = "UPDATE jobs SET until = ?, cursor = ? WHERE name = ? AND fence = ? AND holder IS NOT NULL"

        def work(db: sqlite3.Connection) -> bool:
            if not db.execute(keep, (until, cursor, name, fence)).rowcount:
                return False
            db.execute("UPDATE job_runs SET done = ? WHERE name = ? AND fence = ?", (done, name, fence))
            return True

        return await self._thread.do(work)

    async def end_job(self, name: str, fence: int, ended: JobEnd) -> bool:
        note = "UPDATE job_runs SET ended_at = ?, outcome = ?, done = ?, note = ? WHERE name = ? AND fence = ?"

        def work(db: sqlite3.Connection) -> bool:
            values = (name, fence, ended.next_at, ended.failures, ended.outcome == "ok")
            if not db.execute(_END, values).rowcount:
                return False
            db.execute(note, (ended.at, ended.outcome, ended.done, ended.note, name, fence))
            return True

        return await self._thread.do(work)

    async def job_runs(self, name: str | None, limit: int) -> list[JobRun]:
        sql = f"""
            SELECT {_RUN} FROM job_runs WHERE ?1 IS NULL OR name = ?1
            ORDER BY started_at DESC, fence DESC, name LIMIT ?2
        """
        return await self._thread.do(lambda db: [JobRun(*row) for row in db.execute(sql, (name, limit))])

    async def unread_users(self, after: Key, limit: int) -> list[Unread]:
        def work(db: sqlite3.Connection) -> list[Unread]:
            return [_unread(*row) for row in db.execute(UNREAD, (*after, limit))]

        return await self._thread.do(work)

    async def put_reminded(self, users: Sequence[Key], at: int) -> None:
        sql = "INSERT INTO reminders VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET at = max(at, ?3)"
        await self._thread.do(lambda db: db.executemany(sql, [(*user, at) for user in users]))


def _unread(
    tenant: str, user: str, unread: int, reminded_at: int | None, oldest_at: int | None, counted: int
) -> Unread:
    """Choose the exact count up to `MOST_COUNTED`, above it the counter of the inbox, which includes reminders."""
    return Unread(tenant, user, counted if counted <= MOST_COUNTED else unread, oldest_at, reminded_at)


_: type[JobStore] = SqliteJobs
