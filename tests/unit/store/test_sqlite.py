"""Promises of the SQLite store beyond the suite that every store passes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from greendot.errors import ConfigError, StoreUnavailable, Unstorable
from greendot.presence.model import ManualStatus
from greendot.store.inbox import Inbox, Notice
from greendot.store.rooms import Draft, Record, Room
from greendot.store.schema import steps
from greendot.store.sqlite import SqliteStore

T = "t1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "greendot.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path))
    await store.start()
    try:
        async with asyncio.timeout(20):  # an unanswered call must fail the test, not hang it
            yield store
    finally:
        await store.close()


def draft(key: str, user: str | None = "ann") -> Draft:
    return Draft(user, None, b'"hi"', key, 1_800_000_000_000)  # type: ignore[arg-type]  # None: refused by the table


async def numbers(store: SqliteStore, room: str = "lobby") -> list[int]:
    """Return the numbers of all messages of a room."""
    found: list[int] = []
    while page := await store.messages(T, room, after=found[-1] if found else 0, limit=300):
        found += [message.seq for message in page]
    return found


def rights(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_a_new_file_is_for_its_owner_only_and_one_that_is_there_stays_as_it_is(path: Path) -> None:
    async with opened(path):
        assert rights(path.parent) == dict.fromkeys(["greendot.db", "greendot.db-shm", "greendot.db-wal"], 0o600)
    os.chmod(path, 0o640)
    async with opened(path):
        assert rights(path.parent)["greendot.db"] == 0o640


# --- durability ---


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=False)
        await store.put_member(T, "lobby", "ann")
        written = await store.append(T, "lobby", draft("k1"))
        status = await store.put_status(T, "ann", ManualStatus("busy", 5, "lunch"))
        room = await store.room(T, "lobby")
    async with opened(path) as store:
        assert await store.room(T, "lobby") == room
        assert await store.members(T, "lobby", None, 10) == [("ann", "member")]
        assert written is not None
        assert await store.messages(T, "lobby", limit=10) == [written[0]]
        assert await store.statuses([(T, "ann")]) == {(T, "ann"): status}


async def test_numbers_and_keys_go_on_after_reopening(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        await store.append(T, "lobby", draft("k1"))
    async with opened(path) as store:
        again = await store.append(T, "lobby", draft("k1"))
        new = await store.append(T, "lobby", draft("k2"))
        assert [(result[0].seq, result[1]) for result in (again, new) if result] == [(1, False), (2, True)]


async def test_a_closed_store_is_one_file(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
    assert [*path.parent.iterdir()] == [path]


async def test_a_store_in_memory_keeps_nothing() -> None:
    for _ in range(2):
        async with opened(Path(":memory:")) as store:
            assert await store.room(T, "lobby") is None
            await store.put_room(T, "lobby", open=True)


WRITER = """
import asyncio, sys
from greendot.store.rooms import Draft
from greendot.store.sqlite import SqliteStore

async def write(store, writer):
    for number in range(10**9):
        record, *_ = await store.append("t1", "lobby", Draft("ann", None, b'"hi"', f"{writer}-{number}", 0))
        print(record.seq, record.id, flush=True)

async def main():
    store = SqliteStore(sys.argv[1])
    await store.start()
    await store.put_room("t1", "lobby", open=True)
    await asyncio.gather(*(write(store, writer) for writer in range(5)))

asyncio.run(main())
"""


def killed_while_writing(path: Path, count: int) -> list[tuple[int, str]]:
    """Return number and id of every message that a server acknowledged before it was killed; at least `count`."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(count)]
        server.send_signal(signal.SIGKILL)
        # Lines printed before the kill count too. The last line may be incomplete.
        lines += server.stdout.read().rpartition("\n")[0].splitlines()
    assert server.returncode == -signal.SIGKILL
    return [(int(seq), message_id) for seq, message_id in map(str.split, lines)]


@pytest.mark.parametrize("count", [1, 40, 400])
async def test_every_acknowledged_message_survives_the_kill_of_its_server(path: Path, count: int) -> None:
    acknowledged = killed_while_writing(path, count)
    async with opened(path) as store:
        found = await numbers(store)
        assert found == [*range(1, len(found) + 1)]
        room = await store.room(T, "lobby")
        assert room is not None
        assert room.head == len(found)
        for seq, message_id in acknowledged:
            (message,) = await store.messages(T, "lobby", after=seq - 1, limit=1)
            assert (message.seq, message.id) == (seq, message_id)
        new = await store.append(T, "lobby", draft("after"))
        assert new is not None
        assert new[0].seq == len(found) + 1


# --- batches ---


async def test_a_call_that_fails_undoes_nothing_but_itself(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        calls = [store.append(T, "lobby", draft(f"k{n}", user=None if n % 3 == 1 else "ann")) for n in range(60)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        failed = [n for n, result in enumerate(results) if isinstance(result, Unstorable)]
        assert failed == [*range(1, 60, 3)]
        assert await numbers(store) == [*range(1, 41)]


async def test_a_value_the_database_cannot_hold_fails_its_call_and_no_other(path: Path) -> None:
    async with opened(path) as store:
        calls = [store.put_status(T, f"u{n}", ManualStatus("busy", 2**70 if n == 5 else n)) for n in range(10)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, result in enumerate(results) if isinstance(result, Exception)] == [5]
        found = await store.statuses([(T, f"u{n}") for n in range(10)])
        assert sorted(manual.until or 0 for manual in found.values()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        with pytest.raises(Unstorable):
            await store.messages(T, "lobby", after=2**70, limit=1)
        await store.ping()


async def test_calls_that_wait_together_share_one_commit(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        before = commits(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other, other:
            # While another connection holds the file, the first call waits for it and the others for the first.
            other.execute("BEGIN IMMEDIATE")
            writes = [asyncio.ensure_future(store.append(T, "lobby", draft(f"k{n}"))) for n in range(300)]
            asyncio.get_running_loop().call_soon(other.execute, "ROLLBACK")
            await asyncio.gather(*writes)
        other.close()
        assert await numbers(store) == [*range(1, 301)]
        assert 1 <= commits(path) - before <= 2


def commits(path: Path) -> int:
    """Return the number of commits since the file was opened, from SQLite's write-ahead log.

    The last frame of each transaction carries the size of the database
    (https://www.sqlite.org/fileformat2.html#the_write_ahead_log).
    """
    log = path.with_name(path.name + "-wal").read_bytes()
    page, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = [log[at : at + 24] for at in range(32, len(log), 24 + page)]
    return sum(frame[4:8] != bytes(4) for frame in frames if frame[8:16] == salts)


async def test_a_burst_larger_than_a_batch_is_written_whole(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        await asyncio.gather(*(store.append(T, "lobby", draft(f"k{n}")) for n in range(2_000)))
        assert await numbers(store) == [*range(1, 2_001)]


async def test_a_cancelled_caller_does_not_block_other_writes(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        writes = [asyncio.ensure_future(store.append(T, "lobby", draft(f"k{n}"))) for n in range(10)]
        asyncio.get_running_loop().call_soon(writes[3].cancel)
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)] == [3]
        assert await numbers(store) == [*range(1, 11)]


# --- opening ---


async def test_a_file_of_a_newer_greendot_is_refused_with_what_to_do(path: Path) -> None:
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    with pytest.raises(ConfigError, match=r"greendot\.db: the file was written by a newer Greendot; upgrade Greendot"):
        await SqliteStore(str(path)).start()
    with closing(sqlite3.connect(path)) as untouched, untouched:
        assert untouched.execute("PRAGMA user_version").fetchone() == (999,)
        assert untouched.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    untouched.close()


def a_folder(path: Path) -> str:
    path.mkdir()
    return str(path)


def a_text(path: Path) -> str:
    path.write_text("this is not a database, and long enough for SQLite to notice. " * 10)
    return str(path)


@pytest.mark.parametrize(
    "make",
    [a_folder, a_text, lambda path: str(path / "no" / "such" / "folder.db"), lambda path: f"{path}\0"],
    ids=["folder", "text", "no folder", "no path"],
)
async def test_a_place_that_cannot_be_used_is_refused_by_name(path: Path, make: Callable[[Path], str]) -> None:
    place = make(path)
    store = SqliteStore(place)
    with pytest.raises(ConfigError) as caught:
        await store.start()
    assert str(caught.value).startswith(f"cannot use the store {place}: ")
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.close()


async def test_several_stores_may_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    for attempt in range(5):
        stores = [SqliteStore(str(tmp_path / f"{attempt}.db")) for _ in range(6)]
        await asyncio.gather(*(store.start() for store in stores))
        await stores[0].put_room(T, "lobby", open=True)
        assert all([await store.room(T, "lobby") is not None for store in stores])
        await asyncio.gather(*(store.close() for store in stores))


async def test_two_stores_on_one_file_number_without_gaps(path: Path) -> None:
    async with opened(path) as one, opened(path) as two:
        await one.put_room(T, "lobby", open=True)
        await asyncio.gather(
            *(store.append(T, "lobby", draft(f"{n}-{id(store)}")) for n in range(200) for store in (one, two))
        )
        assert await numbers(one) == [*range(1, 401)]


# --- closing ---


async def test_calls_that_wait_when_the_store_is_closed_are_still_carried_out(path: Path) -> None:
    store = SqliteStore(str(path))
    await store.start()
    await store.put_room(T, "lobby", open=True)
    writes = [asyncio.ensure_future(store.append(T, "lobby", draft(f"k{n}"))) for n in range(1_500)]
    closing = asyncio.ensure_future(store.close())
    late = asyncio.ensure_future(store.append(T, "lobby", draft("late")))
    assert len(await asyncio.gather(*writes)) == 1_500
    await closing
    with pytest.raises(StoreUnavailable):
        await late
    async with opened(path) as again:
        assert await numbers(again) == [*range(1, 1_501)]


async def test_a_closed_store_raises_store_unavailable_and_may_be_closed_again(path: Path) -> None:
    store = SqliteStore(str(path))
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.start()
    await store.ping()
    for _ in range(2):
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.ping()


async def test_a_closed_store_may_be_started_again(path: Path) -> None:
    store = SqliteStore(str(path))
    for open_room in ("a", "b"):
        await store.start()
        await store.put_room(T, open_room, open=True)
        await store.close()
    await store.start()
    assert [room.room for room in await store.rooms(T, None, 10)] == ["a", "b"]
    await store.close()


# --- reading ---


async def test_there_is_nothing_before_the_first_message(path: Path) -> None:
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        await store.append(T, "lobby", draft("k1"))
        for before in (0, 1):
            assert await store.messages(T, "lobby", before=before, limit=10) == []


# --- older files ---


def of_the_first_version(path: Path) -> None:
    """Write a file of the first version of Greendot."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(steps("sqlite")[0].sql)
        db.executescript(
            """
            INSERT INTO rooms VALUES ('t1', 'lobby', 1, 2, 3), ('t1', 'team', 0, 0, 1);
            INSERT INTO members VALUES ('t1', 'team', 'ann'), ('t1', 'team', 'bob');
            INSERT INTO messages VALUES ('t1', 'lobby', 1, 'm1', 'ann', 'Ann', CAST('"one"' AS BLOB), 'k1', 5),
                                        ('t1', 'lobby', 2, 'm2', 'bob', NULL, CAST('"two"' AS BLOB), 'k2', 6);
            INSERT INTO status VALUES ('t1', 'ann', 'busy', NULL, 'lunch', 4);
            PRAGMA user_version = 1;
            """
        )
    db.close()


async def test_a_file_of_the_first_version_goes_on(path: Path) -> None:
    of_the_first_version(path)
    async with opened(path) as store:
        assert await store.rooms(T, None, 9) == [Room(T, "lobby", True, 2, 3), Room(T, "team", False, 0, 1)]
        assert await store.members(T, "team", None, 9) == [("ann", "member"), ("bob", "member")]
        assert await store.messages(T, "lobby", after=0, limit=9) == [
            Record("lobby", 1, "m1", "ann", "Ann", b'"one"', 5),
            Record("lobby", 2, "m2", "bob", None, b'"two"', 6),
        ]
        again, new = await store.append(T, "lobby", draft("k1")), await store.append(T, "lobby", draft("k3"))
        assert [(result.record.seq, result.new) for result in (again, new) if result] == [(1, False), (3, True)]
        assert await store.statuses([(T, "ann")]) == {(T, "ann"): ManualStatus("busy", None, "lunch", 4)}
        assert (await store.put_marker(T, "lobby", "ann", 2))[:2] == (2, 3)
        assert await store.inbox(T, "ann") == Inbox()
    async with opened(path) as store:
        assert await numbers(store) == [1, 2, 3]


async def test_tables_can_be_brought_up_to_date_before_the_start(path: Path) -> None:
    of_the_first_version(path)
    assert await SqliteStore(str(path)).migrate() == [step.name for step in steps("sqlite")[1:]]
    assert await SqliteStore(str(path)).migrate() == []
    with pytest.raises(ConfigError, match=r"^cannot use the store /nowhere/at/all"):
        await SqliteStore("/nowhere/at/all").migrate()


async def test_counters_that_are_wrong_are_found_and_set_right(path: Path) -> None:
    async with opened(path) as store:
        await store.notify([Notice(T, user, "k", b"{}", f"k{n}", 5) for user in ("ann", "bob") for n in range(3)])
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE inboxes SET unread = 9 WHERE user = 'ann'")
            db.execute("DELETE FROM inboxes WHERE user = 'bob'")
        db.close()
        wrong = [((T, "ann"), Inbox(3, 9, 3), Inbox(3, 3, 3)), ((T, "bob"), Inbox(), Inbox(3, 3, 3))]
        assert await store.recount(fix=False) == wrong
        assert await store.recount(fix=True) == wrong
        assert await store.recount(fix=False) == []
        assert await store.inbox(T, "ann") == Inbox(3, 3, 3)


async def test_the_log_of_a_database_that_was_moved_is_not_thrown_away_for_a_new_one(
    path: Path, tmp_path: Path
) -> None:
    """SQLite would remove the log, which has the last commits of the moved database."""
    async with opened(path) as store:
        await store.put_room(T, "lobby", open=True)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", tmp_path / f"killed{suffix}")
    os.rename(tmp_path / "killed", tmp_path / "moved")
    log = (tmp_path / "killed-wal").read_bytes()
    assert log
    with pytest.raises(ConfigError, match=r"killed-wal .*greendot restore"):
        await SqliteStore(str(tmp_path / "killed")).start()
    assert (tmp_path / "killed-wal").read_bytes() == log
    assert not (tmp_path / "killed").exists()
    os.rename(tmp_path / "moved", tmp_path / "killed")
    async with opened(tmp_path / "killed") as store:
        assert await store.room(T, "lobby") is not None
