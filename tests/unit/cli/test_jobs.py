"""`greendot jobs`, on a store that is in use."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.clock import SystemClock
from greendot.store.jobs import JobEnd


@both_stores
async def test_when_jobs_run_and_what_became_of_them_is_shown(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        first = await said("jobs", "list", "--store", url)
        assert first.count("not scheduled by a server") == 5
        assert await said("jobs", "history", "--store", url) == "No runs yet.\n"
        now = SystemClock().now_ms()
        await store.plan_job("sweep", "every 600 s", now - 70_000)
        claimed = await store.claim_job("sweep", "host-1-x", now - 70_000, 60_000)
        assert claimed is not None
        ended = JobEnd("failed", now - 65_000, now + 90_500, failures=1, done=3, note="no \x1b[31mengine")
        await store.end_job("sweep", claimed.fence, ended)
        (_, *rows) = (await said("jobs", "list", "--store", url)).splitlines()
        (row,) = [row for row in rows if row.startswith("sweep")]
        assert row.split("  ")[0] == "sweep"
        assert [part in row for part in ("every 600 s", "in 1 min", "1 min ago", "5 s", "failed")] == [True] * 5
        assert "\x1b" not in row
        assert "failed" in await said("jobs", "history", "sweep", "--limit", "1", "--store", url)
        (job,) = msgspec.json.decode(await said("jobs", "list", "--json", "--store", url))["jobs"]
        assert (job["name"], job["failures"], job["last"]["outcome"]) == ("sweep", 1, "failed")
        (run,) = msgspec.json.decode(await said("jobs", "history", "--json", "--store", url))["runs"]
        assert (run["fence"], run["done"], run["holder"]) == (1, 3, "host-1-x")


def test_an_unknown_job_is_refused_with_the_valid_names() -> None:
    for command in ("run", "history"):
        assert "There is no job 'swepe'. Valid names: unread-reminder" in complaint("jobs", command, "swepe")
    assert "is not in the range" in complaint("jobs", "history", "--limit", "0")


async def test_with_the_memory_engine_only_the_server_knows_who_is_there(tmp_path: Path, postgres: str) -> None:
    async with opened("sqlite", tmp_path, postgres) as (url, _):
        assert "is inside the server process" in complaint("jobs", "run", "sweep", "--store", url)


def test_a_timetable_that_is_none_is_refused_when_settings_are_checked() -> None:
    said_ = complaint("check-config", GREENDOT_JOBS_SWEEP_CRON="every day")
    assert "jobs.sweep.cron is 'every day'" in said_
    assert "Write minute, hour, day, month and weekday" in said_
