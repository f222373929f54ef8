"""Jobs, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.ids import Key
from greendot.store.jobs import MOST_COUNTED, REMINDER, RUNS_KEPT, JobEnd, JobRun, JobState, JobStore, Unread
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool

_STATE = "name, schedule, next_at, fence, holder, until, failures, ran_at, cursor"
_RUN = "name, fence, holder, started_at, ended_at, outcome, done, note"
_PLAN = """
    INSERT INTO greendot_jobs AS j (name, schedule, next_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET schedule = $2, next_at = $3 WHERE j.schedule <> $2
"""
# A holder that repeats its claim, because the reply was lost, gets the next fence.
_CLAIM = f"""
    UPDATE greendot_jobs SET fence = fence + 1, holder = $2, until = $3::bigint + $4::bigint,
        failures = failures + (holder IS NOT NULL)::integer
    WHERE name = $1 AND (holder IS NULL OR holder = $2 OR until <= $3) AND ($5::boolean OR next_at <= $3)
    RETURNING {_STATE}
"""
_LOSE = """
    UPDATE greendot_job_runs SET outcome = 'lost', ended_at = $3, note = 'it was not heard of any more'
    WHERE name = $1 AND fence < $2 AND outcome = 'running'
"""
_END = """
    UPDATE greendot_jobs SET holder = NULL, until = 0, next_at = $3, failures = $4,
        cursor = CASE WHEN $5::boolean THEN NULL ELSE cursor END,
        ran_at = CASE WHEN $5::boolean
            THEN (SELECT started_at FROM greendot_job_runs WHERE name = $1 AND fence = $2) ELSE ran_at END
    WHERE name = $1 AND fence = $2 RETURNING 1
"""
_NOTE = """
    UPDATE greendot_job_runs SET ended_at = $3, outcome = $4, done = $5, note = $6 WHERE name = $1 AND fence = $2
"""
UNREAD = f"""
    SELECT i.tenant, i.user_id, i.unread,
        (SELECT at FROM greendot_reminders r WHERE r.tenant = i.tenant AND r.user_id = i.user_id),
        o.created_at, coalesce(c.counted, 0)
    FROM (
        SELECT tenant, user_id, unread FROM greendot_inboxes
        WHERE (tenant, user_id) > ($1, $2) ORDER BY tenant, user_id LIMIT $3
    ) i
    LEFT JOIN LATERAL (
        SELECT created_at FROM greendot_notifications n
        WHERE n.tenant = i.tenant AND n.user_id = i.user_id AND read_at IS NULL AND kind <> '{REMINDER}'
        ORDER BY seq LIMIT 1
    ) o ON i.unread > 0
    LEFT JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            SELECT 1 FROM greendot_notifications n
            WHERE n.tenant = i.tenant AND n.user_id = i.user_id AND read_at IS NULL AND kind <> '{REMINDER}'
            ORDER BY seq LIMIT {MOST_COUNTED + 1}
        ) first
    ) c ON i.unread > 0
    ORDER BY i.tenant, i.user_id
"""
_REMINDED = """
    INSERT INTO greendot_reminders AS r
    SELECT tenant, user_id, $3::bigint FROM unnest($1::text[], $2::text[]) AS u (tenant, user_id)
    ON CONFLICT (tenant, user_id) DO UPDATE SET at = greatest(r.at, $3::bigint)
"""


class PostgresJobs:
    """PostgreSQL adapter of `JobStore`."""

    _links: Pool

    async def job_time(self, own: int) -> int:
        rows = await self._links.fetch("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        found: int = rows[0][0]
        return found

    async def plan_job(self, name: str, schedule: str, next_at: int) -> None:
        await self._links.fetch(_PLAN, name, schedule, next_at)

    async def jobs(self) -> list[JobState]:
        rows = await self._links.fetch(f"SELECT {_STATE} FROM greendot_jobs ORDER BY name")
        return [JobState(*row) for row in rows]

    async def claim_job(
        self, name: str, holder: str, now: int, lease_ms: int, *, early: bool = False
    ) -> JobState | None:
        async def work(link: Link) -> JobState | None:
            rows = await link.fetch(_CLAIM, name, holder, now, lease_ms, early)
            if not rows:
                return None
            claimed = JobState(*rows[0])
            await link.execute(_LOSE, name, claimed.fence, now)
            begin = "INSERT INTO greendot_job_runs (name, fence, holder, started_at) VALUES ($1, $2, $3, $4)"
            await link.execute(begin, name, claimed.fence, holder, now)
            old = "DELETE FROM greendot_job_runs WHERE name = $1 AND fence <= $2"
            await link.execute(old, name, claimed.fence - RUNS_KEPT)
            return claimed

        return await self._links.transact(work)

    async def keep_job(self, name: str, fence: int, until: int, done: int, cursor: str | None) -> bool:
        keep = """
            UPDATE greendot_jobs SET until = $3, cursor = $4
            WHERE name = $1 AND fence = $2 AND holder IS NOT NULL RETURNING 1
        """

        async def work(link: Link) -> bool:
            if not await link.fetch(keep, name, fence, until, cursor):
                return False
            await link.execute(
                "UPDATE greendot_job_runs SET done = $3 WHERE name = $1 AND fence = $2", name, fence, done
            )
            return True

        return await self._links.transact(work)

    async def end_job(self, name: str, fence: int, ended: JobEnd) -> bool:
        async def work(link: Link) -> bool:
            if not await link.fetch(_END, name, fence, ended.next_at, ended.failures, ended.outcome == "ok"):
                return False
            await link.execute(_NOTE, name, fence, ended.at, ended.outcome, ended.done, ended.note)
            return True

        return await self._links.transact(work)

    async def job_runs(self, name: str | None, limit: int) -> list[JobRun]:
        sql = f"""
            SELECT {_RUN} FROM greendot_job_runs WHERE $1::text IS NULL OR name = $1
            ORDER BY started_at DESC, fence DESC, name LIMIT $2
        """
        return [JobRun(*row) for row in await self._links.fetch(sql, name, limit)]

    async def unread_users(self, after: Key, limit: int) -> list[Unread]:
        return [_unread(*row) for row in await self._links.fetch(UNREAD, *after, limit)]

    async def put_reminded(self, users: Sequence[Key], at: int) -> None:
        await self._links.fetch(_REMINDED, *columns(sorted({*users}), 2), at)


def _unread(
    tenant: str, user: str, unread: int, reminded_at: int | None, oldest_at: int | None, counted: int
) -> Unread:
    """Choose the exact count up to `MOST_COUNTED`, above it the counter of the inbox, which includes reminders."""
    return Unread(tenant, user, counted if counted <= MOST_COUNTED else unread, oldest_at, reminded_at)


_: type[JobStore] = PostgresJobs
