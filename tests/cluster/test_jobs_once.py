"""Jobs on several nodes: each runs once in its interval, though clocks are apart and a node stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.nodes import eventually, node, redis_url
from greendot.store.jobs import JobRun
from greendot.store.postgres import PostgresStore
from postgres_server import execute, fresh_schema
from redis_servers import RedisProcess
from redis_servers import clock as shim

EVERY_S, LEASE_S = 3.0, 2.0
APART_MS = 30_000
OLD = 150_000  # notifications that have expired: removing them takes seconds
LATE_S = 2.0  # a busy machine

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


def assert_once_in_each_interval(runs: list[JobRun]) -> None:
    """The first first. What failed or was lost does not count, and nothing ran beside anything else."""
    well = [run for run in runs if run.outcome == "ok"]
    for one, two in pairwise(well):
        assert two.started_at - one.started_at >= EVERY_S * 1000, (one, two)
    for one, two in pairwise(runs):
        assert two.fence == one.fence + 1
        assert one.ended_at is not None
        assert two.started_at >= one.ended_at, (one, two)
    assert {run.outcome for run in runs} <= {"ok", "lost", "running", "stopped"}


@pytest.mark.timeout(120)
async def test_each_job_runs_once_in_its_interval_though_clocks_are_apart_and_one_node_stands_still(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    file = tmp_path / "clock"
    ahead = shim.environment(file, shim.compiler() or "")
    shim.jump(file, APART_MS)
    async with fresh_schema(postgres) as place:
        await PostgresStore(place).migrate()
        await execute(place, FILL)
        store = PostgresStore(place)
        await store.start()

        async def runs(name: str) -> list[JobRun]:
            return (await store.job_runs(name, 500))[::-1]

        async def begun() -> bool:
            return any(run.outcome == "running" and run.done for run in await runs("retention"))

        try:
            url = redis_url(redis.port)
            async with node(tmp_path, url, **jobs(place)) as one, node(tmp_path, url, **jobs(place, **ahead)) as two:
                await eventually(begun, "the long run goes on", 30)
                (first,) = await runs("retention")
                still = holder(first)
                assert still in (one.pid, two.pid)
                os.kill(still, signal.SIGSTOP)
                begin = time.monotonic()

                async def taken_over() -> bool:
                    return any(run.outcome == "ok" for run in await runs("retention"))

                await eventually(taken_over, "another goes on with it", 40)
                assert time.monotonic() - begin >= LEASE_S * 0.8
                removed = sum(run.done for run in await runs("retention"))
                os.kill(still, signal.SIGCONT)
                await asyncio.sleep(3 * EVERY_S)
                kept = await runs("retention")
                assert (kept[0].outcome, holder(kept[0])) == ("lost", still)
                assert kept[1].outcome == "ok"
                assert holder(kept[1]) != still
                assert kept[0].done + kept[1].done == removed, "who stood still wrote nothing any more"
                assert_once_in_each_interval(kept)
                swept = await runs("sweep")
                assert_once_in_each_interval(swept)
                assert len(swept) >= 3
                for run, following in pairwise(run for run in swept if run.outcome == "ok"):
                    late = following.started_at - run.started_at - EVERY_S * 1000
                    assert late < (LEASE_S + LATE_S) * 1000 + EVERY_S * 1000, "none was left out"
        finally:
            await store.close()
