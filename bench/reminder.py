"""Unread reminder over many users: duration, memory, and recovery after SIGKILL.

    python bench/reminder.py [--users 1000000]

Every tenth user has unread notifications. A run over 1 % of the users measures the base memory. The run over all users
is killed halfway with SIGKILL, and the next run continues. The engine is a fake in which all users are offline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from greendot.clock import SystemClock
from greendot.jobs.job import Planned
from greendot.jobs.model import Every, JobPlan
from greendot.jobs.runner import Runner
from greendot.jobs.unread_reminder import Reminding, UnreadReminder
from greendot.presence.model import Snapshot, VisibleState
from greendot.store.sqlite import SqliteStore

HOUR_MS = 3_600_000
LEASE_S = 1.0
COLUMNS = "tenant, user, seq, id, kind, body, key, created_at, seen_at, ack"


class Nobody:
    """Fake engine in which all users are offline."""

    async def read(self, tenant, users):
        nobody = Snapshot(VisibleState(), VisibleState(), None, [])
        return [nobody for _ in users]


def fill(path: Path, count: int) -> None:
    asyncio.run(SqliteStore(str(path)).migrate())
    at = SystemClock().now_ms() - 3 * HOUR_MS
    db = sqlite3.connect(path)
    inboxes = (("default", f"u{n:07}", 1, int(n % 10 == 0), 0) for n in range(count))
    db.executemany("INSERT INTO inboxes VALUES (?, ?, ?, ?, ?)", inboxes)
    waiting = (("default", f"u{n:07}", 1, f"1-{n}", "k", b"1", "k", at, at, 0) for n in range(0, count, 10))
    db.executemany(f"INSERT INTO notifications ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", waiting)
    db.commit()
    db.close()


async def run(path: str) -> None:
    """Run the job once and print its cost. For a separate process."""
    store = SqliteStore(path)
    await store.start()
    reminding = Reminding(lambda tenant: True)
    planned = Planned(
        UnreadReminder(store, Nobody(), store.notify, reminding), JobPlan(Every(2 * HOUR_MS)), "every 7200 s"
    )
    runner, begin = Runner(store, SystemClock(), LEASE_S), time.monotonic()
    await runner.plan([planned])
    while (ended := await runner.run(planned, early=True)) is None:
        await asyncio.sleep(0.1)  # until the lease of the killed run has expired
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.monotonic() - begin, "done": ended.done, "rss": most, "outcome": ended.outcome}))
    await store.close()


def begun(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "--run", str(path)], stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = process.communicate()
    return json.loads(out)


def progress(path: Path) -> int:
    db = sqlite3.connect(path, timeout=60)
    row = db.execute("SELECT max(done) FROM job_runs").fetchone()
    db.close()
    return row[0] or 0


def told_twice(path: Path) -> tuple[int, int]:
    """Return the number of reminded users, and of users reminded more than once."""
    db = sqlite3.connect(path)
    each = "SELECT count(*) AS times FROM notifications WHERE kind = 'unread_reminder' GROUP BY user"
    reminded, twice = db.execute(f"SELECT count(*), total(times > 1) FROM ({each})").fetchone()
    db.close()
    return reminded, int(twice)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        asyncio.run(run(given.run))
        return
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.db", Path(folder) / "many.db"
        fill(few, given.users // 100)
        fill(many, given.users)
        small = ended(begun(few))
        first = begun(many)
        while progress(many) < given.users / 2:
            time.sleep(0.1)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        whole = ended(begun(many))
        reminded, twice = told_twice(many)
    print(f"{given.users // 100:,} users: {small['seconds']:.1f} s, {small['rss'] / 1e6:.1f} MB")
    print(f"the second half of {given.users:,} after SIGKILL: {whole['done']:,} checked in {whole['seconds']:.1f} s, ")
    print(f"  {whole['done'] / whole['seconds']:,.0f} users/s, {whole['rss'] / 1e6:.1f} MB")
    print(f"reminded: {reminded:,}, more than once: {twice}")
    held = reminded == -(-given.users // 10) and not twice and whole["rss"] < small["rss"] + 8_000_000
    print("held" if held else "BROKEN")
    sys.exit(not held)


if __name__ == "__main__":
    main()
