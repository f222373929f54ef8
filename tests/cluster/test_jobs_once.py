"""Jobs on several nodes: each runs once in its interval, though clocks are apart and a node stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import time
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

EVERY_S, LEASE_S = 3.0, 2.0
APART_MS = 30_000
OLD = 150_000  # notifications that have expired: removing them takes seconds
LATE_S = 2.0  # a busy machine
SEEN_S = 0.5  # how exactly runs are seen to begin

FILL = f"""
    INSERT INTO greendot_inboxes SELECT 'default', 'u' || n, {OLD} / 1000, 0, 0 FROM generate_series(1, 1000) n;
    INSERT INTO greendot_notifications
        (tenant, user_id, seq, id, kind, body, key, created_at, expires_at, seen_at, read_at)
        SELECT 'default', 'u' || n % 1000 + 1, n / 1000 + 1, n || '-x', 'k', '1', 'k' || n, 1, 2, 1, 1
        FROM generate_series(0, {OLD - 1}) n;
"""


def jobs(place: str, **further: str) -> dict[str, str]:
    settings = {
        "GREENDOT_STORE_URL": place,
        "GREENDOT_STORE_MIGRATE": "true",
        "GREENDOT_JOBS_LEASE_S": f"{LEASE_S:g}",
    }
    for job in ("SWEEP", "RETENTION"):
        settings |= {f"GREENDOT_JOBS_{job}_EVERY_S": f"{EVERY_S:g}", f"GREENDOT_JOBS_{job}_JITTER_S": "0"}
    return settings | further


def holder(run: JobRun) -> int:
    """The process that ran it."""
    return int(run.holder.split("-")[-2])


class Watch:
    """Sees runs begin, by the clock of the test: those of the nodes are apart."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.runs: dict[str, list[JobRun]] = {"sweep": [], "retention": []}  # the first first
        self._seen: dict[tuple[str, int], float] = {}

    async def look(self) -> None:
        for name in self.runs:
            self.runs[name] = (await self._store.job_runs(name, 500))[::-1]
            for run in self.runs[name]:
                self._seen.setdefault((name, run.fence), time.monotonic())

    async def on(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.05)

    def seen(self, run: JobRun) -> float:
        return self._seen[run.name, run.fence]

    def assert_once_in_each_interval(self, name: str) -> None:
        """What was lost does not count, and nothing ran beside anything else."""
        runs = self.runs[name]
        for one, two in pairwise(run for run in runs if run.outcome == "ok"):
            assert two.started_at - one.started_at >= EVERY_S * 1000, (one, two)
            assert self.seen(two) - self.seen(one) >= EVERY_S - SEEN_S, (one, two)
        for one, two in pairwise(runs):
            assert two.fence == one.fence + 1
            assert one.ended_at is not None
            assert two.started_at >= one.ended_at, (one, two)
            longest = max(EVERY_S, (one.ended_at - one.started_at) / 1000) + LEASE_S + LATE_S
            assert self.seen(two) - self.seen(one) < longest, ("none was left out", one, two)
        assert {run.outcome for run in runs[:-1]} <= {"ok", "lost"}


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
        await execute(place, FILL)
        store = PostgresStore(place)
        await store.start()
        stack.push_async_callback(store.close)
        url, watch = redis_url(redis.port), Watch(store)
        one = await stack.enter_async_context(node(tmp_path, url, **jobs(place)))
        two = await stack.enter_async_context(node(tmp_path, url, **jobs(place, **ahead)))
        watching = asyncio.create_task(watch.on())
        stack.callback(watching.cancel)
        await until(lambda: any(run.done for run in watch.runs["retention"]), "the long run goes on", 30)
        (first,) = watch.runs["retention"]
        still = holder(first)
        assert still in (one.pid, two.pid)
        os.kill(still, signal.SIGSTOP)
        begin = time.monotonic()
        await until(lambda: watch.runs["retention"][-1].outcome == "ok", "another goes on with it", 40)
        removed = sum(run.done for run in watch.runs["retention"])
        os.kill(still, signal.SIGCONT)
        await asyncio.sleep(3 * EVERY_S)
        lost, taken, *_ = watch.runs["retention"]
        assert (lost.outcome, holder(lost)) == ("lost", still)
        assert (taken.outcome, holder(taken) == still) == ("ok", False)
        assert watch.seen(taken) - begin < LEASE_S + LATE_S, "as soon as the lease was over"
        assert lost.done + taken.done == removed, "who stood still wrote nothing any more"
        watch.assert_once_in_each_interval("sweep")
        assert not watching.done()
