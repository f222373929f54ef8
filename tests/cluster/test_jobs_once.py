"""Jobs on several nodes: each runs once per interval, although clocks differ and a node hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.engines import until
from cluster.nodes import node, redis_url
from greendot.store.jobs import JobRun
from greendot.store.postgres import PostgresStore
from postgres_server import execute, fresh_schema
from redis_servers import RedisProcess
from redis_servers import clock as shim

EVERY_S, LEASE_S = 2.0, 2.0
APART_MS = 30_000
SETTLED = 10  # polls, after which PostgreSQL has executed the statements of a stopped process
OLD = 50_000  # expired notifications; removing them takes a second or more

FILL = f"""
    INSERT INTO greendot_inboxes SELECT 'default', 'u' || n, {OLD} / 1000, 0, 0 FROM generate_series(1, 1000) n
        ON CONFLICT DO NOTHING;
    INSERT INTO greendot_notifications
        (tenant, user_id, seq, id, kind, body, key, created_at, expires_at, seen_at, read_at)
        SELECT 'default', 'u' || n % 1000 + 1, n / 1000 + 1, n || '-x', 'k', '1', 'k' || n, 1, 2, 1, 1
        FROM generate_series(0, {OLD - 1}) n ON CONFLICT DO NOTHING;
"""


def jobs(place: str, **further: str) -> dict[str, str]:
    settings = {
        "GREENDOT_STORE_URL": place,
        "GREENDOT_STORE_MIGRATE": "true",
        "GREENDOT_JOBS_LEASE_S": f"{LEASE_S:g}",
        "GREENDOT_JOBS_SWEEP_ENABLED": "false",  # a pass over all keys every two seconds would be most of the work
    }
    for job in ("CLEANUP_TOKENS", "RETENTION"):
        settings |= {f"GREENDOT_JOBS_{job}_EVERY_S": f"{EVERY_S:g}", f"GREENDOT_JOBS_{job}_JITTER_S": "0"}
    return settings | further


def holder(run: JobRun) -> int:
    """Return the id of the process that ran the job."""
    return int(run.holder.split("-")[-2])


class Watch:
    """Observer of job runs. Their times are the store's, because the clocks of the nodes differ."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.runs: dict[str, list[JobRun]] = {"cleanup-tokens": [], "retention": []}  # oldest first
        self.looks = 0

    async def on(self) -> None:
        while True:
            for name in self.runs:
                self.runs[name] = (await self._store.job_runs(name, 500))[::-1]
            self.looks += 1
            await asyncio.sleep(0.02)

    def done(self, name: str) -> int:
        """Return the number of successful runs."""
        return [run.outcome for run in self.runs[name]].count("ok")

    def assert_once_in_each_interval(self, name: str) -> None:
        """Check that runs do not overlap and succeed at most once per interval. Lost runs do not count."""
        runs = self.runs[name]
        for one, two in pairwise(run for run in runs if run.outcome == "ok"):
            assert two.started_at - one.started_at >= EVERY_S * 1000, (one, two)
        for one, two in pairwise(runs):
            assert two.fence == one.fence + 1, "a run is missing"
            assert one.ended_at is not None
            assert two.started_at >= one.ended_at, (one, two)
        assert {run.outcome for run in runs[:-1]} <= {"ok", "lost"}


def is_at_work(run: JobRun) -> bool:
    return run.outcome == "running" and run.done > 0


async def stopped_at_work(watch: Watch, place: str) -> JobRun:
    """Stop a process in the middle of a long run with SIGSTOP, and return the run."""
    while True:
        await execute(place, FILL)
        await until(lambda: any(map(is_at_work, watch.runs["retention"])), "a long run is in progress", 30)
        run = watch.runs["retention"][-1]
        os.kill(holder(run), signal.SIGSTOP)
        looks = watch.looks + SETTLED
        await until(lambda looks=looks: watch.looks >= looks, "the statements of the stopped process are executed", 30)
        # On a slow machine the lease has ended meanwhile, and the latest run is that of the other process.
        (stopped,) = (it for it in watch.runs["retention"] if it.fence == run.fence)
        if stopped.outcome != "ok" and stopped.done > 0:
            return stopped
        os.kill(holder(run), signal.SIGCONT)  # the run had already ended, or had not begun to work; try again


@pytest.mark.timeout(120)
async def test_each_job_runs_once_in_its_interval_though_clocks_are_apart_and_one_node_stands_still(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    file = tmp_path / "clock"
    ahead = shim.environment(file, shim.compiler() or "")
    shim.jump(file, APART_MS)
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(fresh_schema(postgres))
        await PostgresStore(place).migrate()
        store = PostgresStore(place)
        await store.start()
        stack.push_async_callback(store.close)
        url, watch = redis_url(redis.port), Watch(store)
        one = await stack.enter_async_context(node(tmp_path, url, **jobs(place)))
        two = await stack.enter_async_context(node(tmp_path, url, **jobs(place, **ahead)))
        watching = asyncio.create_task(watch.on())
        stack.callback(watching.cancel)
        held = await stopped_at_work(watch, place)
        still = holder(held)
        assert still in (one.pid, two.pid)
        await until(lambda: taken_over(watch, held)[-1].outcome == "ok", "another node takes the job over", 40)
        removed = sum(run.done for run in taken_over(watch, held))
        cleaned = watch.done("cleanup-tokens")
        os.kill(still, signal.SIGCONT)
        await until(lambda: watch.done("cleanup-tokens") >= cleaned + 2, "the jobs continue", 30)
        lost, *tried, taken = taken_over(watch, held)
        assert (lost.outcome, holder(lost)) == ("lost", still)
        # On a slow machine the other node may also lose its lease and take it again.
        assert {run.outcome for run in tried} <= {"lost"}
        assert still not in {holder(run) for run in (*tried, taken)}
        assert taken.started_at - lost.started_at >= LEASE_S * 1000, (
            "the job was taken over before the end of the lease"
        )
        assert sum(run.done for run in (lost, *tried, taken)) == removed, (
            "the stopped process wrote after it had lost the lease"
        )
        watch.assert_once_in_each_interval("cleanup-tokens")
        assert not watching.done()


def taken_over(watch: Watch, held: JobRun) -> list[JobRun]:
    """Return the stopped run and all later runs up to the first successful one."""
    runs = [run for run in watch.runs["retention"] if run.fence >= held.fence]
    ended = [number for number, run in enumerate(runs) if number and run.outcome == "ok"]
    return runs[: ended[0] + 1] if ended else runs
