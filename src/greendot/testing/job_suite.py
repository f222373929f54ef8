"""Contract of every store for jobs."""

from __future__ import annotations

import asyncio

from msgspec import structs

from greendot.store.jobs import MOST_COUNTED, REMINDER, RUNS_KEPT, JobEnd, JobState, Unread
from greendot.store.port import Store
from greendot.testing.store_harness import NOW, StoreHarness, T, notice

LEASE_MS = 60_000
EVERY = "every 600 s"


async def claim(store: Store, holder: str = "n1", now: int = NOW, *, early: bool = False) -> JobState | None:
    return await store.claim_job("sweep", holder, now, LEASE_MS, early=early)


async def begun(store: Store, holder: str = "n1", now: int = NOW) -> JobState:
    claimed = await claim(store, holder, now)
    assert claimed is not None
    return claimed


def well(at: int = NOW + 5, next_at: int = NOW + 600_000) -> JobEnd:
    return JobEnd("ok", at, next_at, done=7, note="all of it")


class JobSuite(StoreHarness):
    """Contract of the store for jobs, as tests; used beside `StoreSuite`."""

    async def test_a_job_is_planned_once_and_again_when_its_schedule_is_another(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.plan_job("sweep", EVERY, NOW)
            await two.plan_job("sweep", EVERY, NOW + 9)
            await two.plan_job("retention", EVERY, NOW + 1)
            assert [(job.name, job.next_at) for job in await one.jobs()] == [("retention", NOW + 1), ("sweep", NOW)]
            await two.plan_job("sweep", "every 5 s", NOW + 9)
            assert (await one.jobs())[1] == JobState("sweep", "every 5 s", NOW + 9)

    async def test_a_job_is_claimed_when_it_is_due_and_by_one(self) -> None:
        async with self.opened_twice() as (one, two):
            assert await claim(one) is None, "nobody planned it"
            await one.plan_job("sweep", EVERY, NOW)
            assert await claim(one, now=NOW - 1) is None
            found = await asyncio.gather(
                *(claim(store, f"{name}{n}") for n in range(10) for name, store in (("one", one), ("two", two)))
            )
            (claimed,) = [job for job in found if job is not None]
            assert (claimed.fence, claimed.until) == (1, NOW + LEASE_MS)
            assert await claim(two, "late", early=True) is None, "somebody runs it"

    async def test_a_job_can_be_run_before_it_is_due(self) -> None:
        async with self.opened() as store:
            await store.plan_job("sweep", EVERY, NOW + 600_000)
            assert await claim(store) is None
            assert await claim(store, early=True) is not None

    async def test_a_run_that_succeeded_is_noted_and_begins_anew_when_it_is_due_again(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.plan_job("sweep", EVERY, NOW)
            claimed = await begun(one)
            assert await one.keep_job("sweep", claimed.fence, NOW + LEASE_MS + 9, 3, "t1/bob")
            (kept,) = await two.jobs()
            assert (kept.until, kept.cursor, kept.holder) == (NOW + LEASE_MS + 9, "t1/bob", "n1")
            assert await one.end_job("sweep", claimed.fence, well())
            assert await one.end_job("sweep", claimed.fence, well()), "said again, it is the same"
            assert await two.jobs() == [JobState("sweep", EVERY, NOW + 600_000, 1, ran_at=NOW)]
            (run,) = await two.job_runs("sweep", 9)
            assert structs.astuple(run) == ("sweep", 1, "n1", NOW, NOW + 5, "ok", 7, "all of it")
            assert await claim(two, "n2", NOW + 599_999) is None
            assert (await begun(two, "n2", NOW + 600_000)).fence == 2

    async def test_what_one_job_has_done_is_no_other_jobs(self) -> None:
        async with self.opened() as store:
            for name in ("retention", "sweep"):
                await store.plan_job(name, EVERY, NOW)
                assert await store.claim_job(name, "n1", NOW, LEASE_MS) is not None
            assert await store.keep_job("sweep", 1, NOW + LEASE_MS, 3, "t1/bob")
            assert {run.name: run.done for run in await store.job_runs(None, 9)} == {"retention": 0, "sweep": 3}
            assert {job.name: job.cursor for job in await store.jobs()} == {"retention": None, "sweep": "t1/bob"}

    async def test_a_run_that_failed_or_was_stopped_goes_on_where_it_was(self) -> None:
        async with self.opened() as store:
            await store.plan_job("sweep", EVERY, NOW)
            claimed = await begun(store)
            await store.keep_job("sweep", claimed.fence, NOW + LEASE_MS, 3, "t1/bob")
            failed = JobEnd("failed", NOW + 5, NOW + 30_000, failures=1, done=4, note="no engine")
            assert await store.end_job("sweep", claimed.fence, failed)
            (job,) = await store.jobs()
            assert (job.failures, job.cursor, job.ran_at, job.next_at) == (1, "t1/bob", None, NOW + 30_000)
            again = await begun(store, now=NOW + 30_000)
            assert (again.fence, again.cursor, again.failures) == (2, "t1/bob", 1)
            assert [(run.outcome, run.note) for run in await store.job_runs(None, 9)] == [
                ("running", ""),
                ("failed", "no engine"),
            ]

    async def test_who_was_silent_for_a_lease_has_lost_the_run_and_changes_nothing_any_more(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.plan_job("sweep", EVERY, NOW)
            first = await begun(one)
            await one.keep_job("sweep", first.fence, NOW + LEASE_MS, 3, "t1/bob")
            assert await claim(two, "n2", NOW + LEASE_MS - 1) is None
            second = await begun(two, "n2", NOW + LEASE_MS)
            assert (second.fence, second.cursor, second.failures) == (2, "t1/bob", 1)
            assert not await one.keep_job("sweep", first.fence, NOW + 10 * LEASE_MS, 9, "t1/zoe")
            assert not await one.end_job("sweep", first.fence, well())
            (job,) = await two.jobs()
            assert (job.fence, job.holder, job.until, job.cursor) == (2, "n2", NOW + 2 * LEASE_MS, "t1/bob")
            assert [(run.holder, run.outcome, run.done) for run in await two.job_runs("sweep", 9)] == [
                ("n2", "running", 0),
                ("n1", "lost", 3),
            ]
            assert await two.end_job("sweep", second.fence, well())

    async def test_who_was_silent_and_is_not_missed_goes_on(self) -> None:
        async with self.opened() as store:
            await store.plan_job("sweep", EVERY, NOW)
            claimed = await begun(store)
            assert await store.keep_job("sweep", claimed.fence, NOW + 9 * LEASE_MS, 1, None)
            assert await store.end_job("sweep", claimed.fence, well())
            assert not await store.keep_job("sweep", claimed.fence, NOW + 9 * LEASE_MS, 1, "t1/bob"), "it is over"

    async def test_history_is_bounded(self) -> None:
        async with self.opened() as store:
            await store.plan_job("sweep", EVERY, NOW)
            for number in range(RUNS_KEPT + 3):
                claimed = await begun(store, now=NOW + number)
                await store.end_job("sweep", claimed.fence, well(next_at=NOW))
            runs = await store.job_runs("sweep", 10_000)
            assert [run.fence for run in runs] == [*range(RUNS_KEPT + 3, 3, -1)]
            assert [run.fence for run in await store.job_runs(None, 2)] == [RUNS_KEPT + 3, RUNS_KEPT + 2]
            assert await store.job_runs("retention", 9) == []

    async def test_the_time_of_jobs_goes_on(self) -> None:
        async with self.opened() as store:
            first = await store.job_time(NOW)
            assert await store.job_time(NOW + 1) >= first

    # --- reminders ---

    async def test_who_has_something_unread_is_found_page_by_page(self) -> None:
        async with self.opened() as store:
            users = [f"u{number}" for number in range(7)]
            for user in users:
                await store.notify([notice(user, "k1", NOW), notice(user, "k2", NOW + 5)])
            await store.mark(T, "u3", "read", through=1, at=NOW)
            await store.mark(T, "u4", "read", through=2, at=NOW)
            await store.notify([structs.replace(notice("ann"), tenant="t2")])
            found: list[Unread] = []
            after = ("", "")
            while page := await store.unread_users(after, 3):
                found += page
                after = page[-1][:2]
            assert [one[:2] for one in found] == [*((T, user) for user in users), ("t2", "ann")]
            assert found[0] == Unread(T, "u0", 2, NOW, None)
            assert found[3] == Unread(T, "u3", 1, NOW + 5, None)
            assert found[4][:4] == (T, "u4", 0, None)
            assert [one.tenant for one in await store.unread_users((T, "~"), 9)] == ["t2"]

    async def test_a_reminder_reminds_of_others_and_not_of_itself(self) -> None:
        async with self.opened() as store:
            reminder = structs.replace(notice("ann", "r1", NOW - 9), kind=REMINDER)
            await store.notify([reminder])
            assert await store.unread_users(("", ""), 9) == [Unread(T, "ann", 0, None, None)]
            await store.notify([notice("ann", "k1", NOW)])
            await store.put_reminded([(T, "ann"), (T, "bob"), (T, "ann")], NOW + 1)
            await store.put_reminded([(T, "ann")], NOW)
            assert await store.unread_users(("", ""), 9) == [Unread(T, "ann", 1, NOW, NOW + 1)]

    async def test_very_many_are_not_counted_one_by_one(self) -> None:
        async with self.opened() as store:
            await store.notify([notice("ann", f"k{number}") for number in range(MOST_COUNTED + 20)])
            assert (await store.unread_users(("", ""), 9))[0].unread == MOST_COUNTED + 20
