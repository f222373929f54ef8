"""`greendot jobs run` in its own process while others use the store."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path

from e2e.processes import PATIENCE_S, greendot, start
from greendot.clock import SystemClock
from greendot.store.jobs import JobEnd
from greendot.store.sqlite import SqliteStore

MANY = 100_000


def fill(path: Path) -> None:
    """Add expired notifications; removing them takes a while."""
    db = sqlite3.connect(path)
    db.execute("INSERT INTO inboxes VALUES ('default', 'ann', ?, 0, 0)", (MANY,))
    columns = "tenant, user, seq, id, kind, body, key, created_at, expires_at, seen_at, read_at, ack"
    rows = (("default", "ann", n, f"{n}-x", "k", b"1", f"k{n}", 1, 2, 1, 1, 0) for n in range(1, MANY + 1))
    db.executemany(f"INSERT INTO notifications ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.commit()
    db.close()


def has_begun(path: Path) -> bool:
    """Return whether the run has recorded progress.

    Reads the file only: a request to the store would wait for the run.
    """
    db = sqlite3.connect(path)
    try:
        return bool(db.execute("SELECT max(done) FROM job_runs").fetchone()[0])
    finally:
        db.close()


async def test_ctrl_c_stops_a_run_cleanly_and_the_next_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "greendot.db"
    store = SqliteStore(str(path))
    await store.start()
    try:
        fill(path)
        process = await start(tmp_path, "jobs", "run", "retention", GREENDOT_JOBS_LEASE_S="1")
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not has_begun(path):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        assert process.returncode == 130, err.decode()
        assert out.decode().startswith("retention: stopped. Stopped after ")
        assert "The next run continues from there." in out.decode()
        assert err.decode() == "Stopping …\n"
        (stopped,) = await store.job_runs("retention", 9)
        assert stopped.done > 0
        assert stopped.outcome == "stopped"
        (state,) = await store.jobs()
        assert state.holder is None
        assert state.next_at <= SystemClock().now_ms(), "the next run must be due at once"
        other = await store.claim_job("retention", "another", SystemClock().now_ms(), 60_000)
        assert other is not None
        refused = await greendot(tmp_path, "jobs", "run", "retention")
        assert (refused.code, refused.out) == (1, "")
        assert "is already running" in refused.err
        await store.end_job("retention", other.fence, JobEnd("stopped", 1, 1))
        ended = await greendot(tmp_path, "jobs", "run", "retention")
        assert ended.code == 0, ended.err
        assert all(line.endswith(" done …") for line in ended.err.splitlines())  # progress lines of a longer run
        assert ended.out.startswith("retention: ok. Removed: notifications from ")
        assert await store.notifications("default", "ann", after=0, limit=1) == []
    finally:
        await store.close()
