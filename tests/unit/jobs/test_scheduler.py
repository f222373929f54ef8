"""Scheduler: each due job runs on one node only, and continues after an interruption."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from greendot.jobs.job import LEASE_S
from greendot.jobs.scheduler import Scheduler
from greendot.testing import ManualClock

from .sites import EVERY_S, planned, site


async def test_a_job_runs_once_in_each_interval_however_many_nodes_look() -> None:
    async with site() as s:
        await s.pass_time(5 * EVERY_S + 30)
        assert s.job.begun == 5
        runs = [run.started_at for run in await s.store.job_runs("counting", 10)][::-1]
        assert all(later - earlier >= EVERY_S * 1000 for earlier, later in pairwise(runs))
        assert await s.outcomes() == ["ok"] * 5


async def test_what_was_missed_is_made_up_for_once() -> None:
    async with site() as s:
        await s.pass_time(5)
        s.clock.advance(100 * EVERY_S)
        await s.pass_time(EVERY_S)
        assert s.job.begun == 1
        await s.pass_time(20)
        assert s.job.begun == 2


async def test_a_restart_forgets_nothing() -> None:
    async with site() as s:
        await s.pass_time(EVERY_S / 2)
        await s.one.close()
        await s.two.close()
        again = Scheduler(s.store, [planned(s.job)], s.clock)
        await s.pass_time(EVERY_S / 2 - 5, again)
        assert s.job.begun == 0
        await s.pass_time(15, again)
        assert s.job.begun == 1


async def test_another_schedule_counts_from_the_last_run() -> None:
    async with site() as s:
        await s.pass_time(EVERY_S + 5)
        assert s.job.begun == 1
        sooner = Scheduler(s.store, [planned(s.job, 60)], s.clock)
        await s.pass_time(50, sooner)
        assert s.job.begun == 1
        await s.pass_time(15, sooner)
        assert s.job.begun == 2


async def test_a_failed_run_does_not_count_and_is_tried_again_less_and_less_often() -> None:
    async with site() as s:
        await s.pass_time(EVERY_S - 5)
        s.job.fails = True
        await s.pass_time(400)
        tried = s.job.begun
        assert 3 <= tried <= 6
        (state,) = await s.store.jobs()
        assert state.failures == tried
        assert state.ran_at is None
        (last, *_) = await s.store.job_runs("counting", 1)
        assert (last.outcome, last.note) == ("failed", "nobody answers")
        s.job.fails = False
        await s.pass_time(EVERY_S)
        (state,) = await s.store.jobs()
        assert state.failures == 0
        assert (await s.outcomes()).count("ok") == 1


async def test_a_failed_run_goes_on_where_it_failed() -> None:
    async with site(steps=5) as s:

        def fail_at_the_third(number: int) -> None:
            s.job.fails = number == 2 and s.job.begun == 1

        s.job.before = fail_at_the_third
        await s.pass_time(EVERY_S + 60)
        assert s.job.made == [0, 1, 2, 3, 4]
        assert await s.outcomes() == ["failed", "ok"]


async def begin(scheduler: Scheduler, clock: ManualClock) -> None:
    """Start the job and let it reach its first step."""
    await scheduler.turn()
    clock.advance(EVERY_S + 1)
    await scheduler.turn()
    for _ in range(100):
        await asyncio.sleep(0.001)


async def test_who_stood_still_for_longer_than_its_lease_stops_at_its_next_step() -> None:
    async with site(steps=5) as s:
        paused = s.job.held = asyncio.Event()
        await begin(s.one, s.clock)
        assert s.job.begun == 1
        s.clock.advance(LEASE_S - 1)
        await s.two.turn()
        await s.two.settle()
        assert s.job.begun == 1, "the lease has not expired yet"
        s.job.held = None
        s.clock.advance(2)
        await s.two.turn()
        await s.two.settle()
        assert s.job.made == [0, 1, 2, 3, 4]
        paused.set()  # the first node resumes and finds that it lost its run
        await s.one.settle()
        assert s.job.made == [0, 1, 2, 3, 4, 0], "the first node must stop after one step"
        assert (s.job.begun, s.job.ended) == (2, 1)
        assert await s.outcomes() == ["lost", "ok"]
        (state,) = await s.store.jobs()
        assert state.next_at >= s.clock.now_ms() + (EVERY_S - 10) * 1000, "the second run must plan the next one"


async def test_a_run_is_stopped_with_its_node_and_another_goes_on_with_it_at_once() -> None:
    async with site(steps=5) as s:
        s.job.held = asyncio.Event()
        await begin(s.one, s.clock)
        held, s.job.held = s.job.held, None
        closing = asyncio.create_task(s.one.close())
        await asyncio.sleep(0)
        held.set()
        await closing
        assert s.job.made == [0]
        await s.pass_time(5, s.two)
        assert s.job.made == [0, 1, 2, 3, 4]
        assert await s.outcomes() == ["stopped", "ok"]
        (state,) = await s.store.jobs()
        assert state.failures == 0


async def test_a_run_that_goes_on_for_long_is_kept_and_so_is_how_far_it_is() -> None:
    async with site(steps=20) as s:
        s.job.before = lambda number: s.clock.advance(LEASE_S / 4)
        seen: list[int] = []
        keep = s.store.keep_job

        async def noted(name: str, fence: int, until: int, done: int, cursor: str | None) -> bool:
            seen.append(done)
            return await keep(name, fence, until, done, cursor)

        s.store.keep_job = noted  # type: ignore[method-assign]
        await s.pass_time(EVERY_S + 5)
        assert s.job.made == [*range(20)], "the lease must be renewed during the run"
        assert len(seen) >= 18
        assert await s.outcomes() == ["ok"]


async def test_by_hand_a_job_runs_early_and_not_beside_another_run() -> None:
    async with site(steps=2) as s:
        ended = await s.one.run("counting")
        assert ended is not None
        assert ended.outcome == "ok"
        s.job.held = asyncio.Event()
        running = asyncio.create_task(s.one.run("counting"))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert await s.two.run("counting") is None
        s.job.held.set()
        assert await running is not None
        await s.pass_time(EVERY_S - 5)
        assert s.job.ended == 2, "a manual run must count as a run"


async def test_the_scheduler_runs_by_itself() -> None:
    async with site() as s:
        quick = Scheduler(s.store, [planned(s.job, 0.05)], _Real())
        quick.start()
        try:
            async with asyncio.timeout(10):
                while s.job.ended < 3:  # noqa: ASYNC110  (the job has no event)
                    await asyncio.sleep(0.01)
        finally:
            await quick.close()
        assert quick.items()["jobs_ok_total"] >= 3


class _Real(ManualClock):
    """Clock that follows the loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return round(self.monotonic() * 1000)


async def test_the_delay_of_a_due_job_that_no_node_runs_is_reported() -> None:
    async with site() as s:
        await s.pass_time(5)
        assert s.one.items()["jobs_overdue_s"] == 0
        s.clock.advance(EVERY_S + 100)  # no node runs due jobs meanwhile
        assert 90 <= s.one.items()["jobs_overdue_s"] <= 110
        await s.pass_time(20)
        assert (s.job.begun, s.one.items()["jobs_overdue_s"], s.one.items()["jobs_failing"]) == (1, 0, 0)
