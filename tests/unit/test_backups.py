"""A backup is the store at one moment, whole or not there; it is put back only where nobody is."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from greendot.assembly import lock_store
from greendot.backups import Contents, Restored, back_up, put_back
from greendot.errors import ConfigError
from greendot.settings import Settings, load
from greendot.store.schema import steps
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.copying import PAGES

WRITE = "INSERT INTO rooms (tenant, room, open) VALUES ('default', ?, 1)"
SAY = "INSERT INTO messages (tenant, room, seq, id, user, body, key, at) VALUES ('t', 'r', 1, '1-a', 'ann', ?, 'k', 0)"
BIG = 1_200  # rooms with long names: several steps of a copy


def quietly(done: int, of: int) -> None:
    """Nobody looks on."""


def on(file: Path, engine: str = "memory") -> Settings:
    return load(None, {}, {"store": {"url": f"sqlite:///{file}"}, "engine": {"url": engine}})


def saved(settings: Settings, file: Path, *, force: bool = False) -> Contents:
    return back_up(settings, file, force=force, progress=quietly)


def restored(settings: Settings, file: Path, *, force: bool = False) -> Restored:
    return put_back(settings, file, force=force, progress=quietly)


def rooms(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        count: int = db.execute("SELECT count(*) FROM rooms").fetchone()[0]
        return count


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """One with something in it, as a server leaves it open: in WAL mode, another connection has it."""
    file = tmp_path / "greendot.db"
    SqliteStore(str(file))._thread.migrate()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN")
        db.executemany(WRITE, [(f"{number:05}{'x' * 1_000}",) for number in range(BIG)])
        db.execute(SAY, ("unmistakable",))
        db.execute("COMMIT")
        yield file


@pytest.fixture
def backup(store: Path, tmp_path: Path) -> Path:
    file = tmp_path / "backup.db"
    saved(on(store), file)
    return file


def test_writers_neither_wait_for_a_backup_nor_have_it_begin_again(store: Path, tmp_path: Path) -> None:
    """What is committed meanwhile, between any two steps of it, is not in it."""
    steps_seen: list[int] = []
    with closing(sqlite3.connect(store, isolation_level=None, timeout=0)) as writer:

        def write(done: int, of: int) -> None:
            if len(steps_seen) < 50:  # the copy is read again when it is checked
                writer.execute(WRITE, (f"meanwhile {len(steps_seen)}",))
            steps_seen.append(done)

        found = back_up(on(store), tmp_path / "b.db", force=False, progress=write)
    pages = os.path.getsize(tmp_path / "b.db") // 4096
    copying = steps_seen[: -(-pages // PAGES)]
    assert len(copying) > 3
    assert copying == sorted(copying)
    assert found.records["rooms"] == BIG == rooms(tmp_path / "b.db")
    assert rooms(store) > BIG + 3


def test_a_backup_is_one_file_with_a_checksum_beside_it_for_its_owner_only(backup: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.glob("backup*")) == ["backup.db", "backup.db.sha256"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("backup*")} == {0o600}
    assert list(tmp_path.glob(".*")) == []


def test_nothing_is_overwritten_unless_it_is_said(store: Path, backup: Path) -> None:
    before = backup.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        saved(on(store), backup)
    assert backup.read_bytes() == before
    with closing(sqlite3.connect(store)) as db:
        db.execute(WRITE, ("one more",))
        db.commit()
    assert saved(on(store), backup, force=True).records["rooms"] == BIG + 1
    with pytest.raises(ConfigError, match="is the store itself"):
        saved(on(store), store, force=True)


def test_a_backup_that_is_interrupted_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(on(store), tmp_path / "b.db", force=False, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("greendot.db")] == []


def test_what_was_backed_up_is_put_back_and_what_was_there_is_kept(store: Path, backup: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "new" / "greendot.db"
    done = restored(on(fresh), backup)
    assert (done.checked, done.kept, done.old) == (True, None, False)
    assert rooms(fresh) == BIG
    with closing(sqlite3.connect(fresh)) as db:
        db.execute("DELETE FROM rooms")
        db.commit()
    with pytest.raises(ConfigError, match="--force"):
        restored(on(fresh), backup)
    done = restored(on(fresh), backup, force=True)
    assert rooms(fresh) == BIG
    assert done.kept is not None
    assert rooms(done.kept) == 0
    with pytest.raises(ConfigError, match="is the store itself"):
        restored(on(fresh), fresh, force=True)


@pytest.mark.parametrize("engine", ["memory", "redis://127.0.0.1:1"])
def test_nothing_is_put_back_under_a_running_server_with_whatever_engine(
    engine: str, backup: Path, tmp_path: Path
) -> None:
    file = tmp_path / "served.db"
    restored(on(file), backup)
    lock = lock_store(on(file, engine))
    assert lock is not None
    try:
        with pytest.raises(ConfigError, match="stop its servers"):
            restored(on(file), backup, force=True)
    finally:
        os.close(lock)
    restored(on(file), backup, force=True)


def test_servers_that_share_an_engine_share_the_file_and_others_do_not(tmp_path: Path) -> None:
    shared, alone = on(tmp_path / "g.db", "redis://127.0.0.1:1"), on(tmp_path / "g.db")
    locks = [lock_store(shared), lock_store(shared)]
    with pytest.raises(ConfigError, match="another Greendot is running"):
        lock_store(alone)
    for lock in locks:
        assert lock is not None
        os.close(lock)


def test_nothing_is_put_back_under_another_program_that_has_the_file_open(store: Path, backup: Path) -> None:
    """`store` is open in this process, as a sqlite3 shell or an older server would have it."""
    with pytest.raises(ConfigError, match="another program has"):
        restored(on(store), backup, force=True)
    assert rooms(store) == BIG


def test_a_damaged_store_is_replaced_and_nothing_of_it_is_taken_for_the_new_one(backup: Path, tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    file.write_bytes(b"no database at all" * 1_000)
    (tmp_path / "damaged.db-wal").write_bytes(b"a log of it")
    done = restored(on(file), backup, force=True)
    assert rooms(file) == BIG
    assert done.kept is not None
    assert (tmp_path / f"{done.kept.name}-wal").read_bytes() == b"a log of it"


def test_where_there_are_no_hard_links_it_works_too_and_overwrites_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    file, fresh, taken = tmp_path / "b.db", tmp_path / "fresh.db", tmp_path / "taken.db"
    saved(on(store), file)
    restored(on(fresh), file)
    kept = restored(on(fresh), file, force=True).kept
    assert kept is not None
    assert rooms(file) == rooms(fresh) == rooms(kept) == BIG

    def take(done: int, of: int) -> None:
        taken.write_text("another's")

    with pytest.raises(ConfigError, match="is there already"):
        back_up(on(store), taken, force=False, progress=take)
    assert taken.read_text() == "another's"
    assert list(tmp_path.glob(".*")) == []


def test_a_link_to_the_store_stays_and_leads_to_what_was_put_back(backup: Path, tmp_path: Path) -> None:
    file, link = tmp_path / "disk" / "real.db", tmp_path / "link.db"
    link.symlink_to(file)
    assert restored(on(link), backup).kept is None
    kept = restored(on(link), backup, force=True).kept
    assert link.is_symlink()
    assert rooms(file) == BIG
    assert kept is not None
    assert kept.parent == file.resolve().parent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_what_root_puts_back_belongs_to_who_had_it_or_has_the_folder(backup: Path, tmp_path: Path) -> None:
    def owners(*paths: Path) -> set[tuple[int, int]]:
        return {(path.lstat().st_uid, path.lstat().st_gid) for path in paths}

    folder, secret = tmp_path / "server", tmp_path / "secret"
    file, lock = folder / "greendot.db", folder / "greendot.db.lock"
    folder.mkdir()
    os.chown(folder, 4711, 4712)
    restored(on(file), backup)
    assert owners(file, lock) == {(4711, 4712)}
    os.chown(file, 4713, 4714)
    restored(on(file), backup, force=True)
    assert owners(file, lock) == {(4713, 4714)}
    secret.touch()
    file.unlink()
    lock.unlink()
    lock.symlink_to(secret)  # by the folder's owner, who would like to have it
    restored(on(file), backup)
    assert owners(secret) == {(0, os.getegid())}


def damaged(file: Path) -> None:
    """A byte of somebody's text is another: SQLite itself would not notice."""
    data = bytearray(file.read_bytes())
    data[data.index(b"unmistakable")] = ord("U")
    file.write_bytes(data)


def broken(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8 * 4096 : 40 * 4096] = bytes(32 * 4096)
    file.write_bytes(data)
    file.with_name(f"{file.name}.sha256").unlink()


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 9999")


def foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE shop (id)")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "its checksum is another"),
        (broken, "is damaged"),
        (newer, "written by a newer Greendot"),
        (foreign, "no store of Greendot"),
        (lambda file: file.write_bytes(b"text"), "damaged, or no database"),
        (lambda file: file.unlink(), "there is no file"),
    ],
)  # fmt: skip
def test_what_is_no_good_backup_is_refused_and_the_store_stays(
    spoil: object, words: str, backup: Path, tmp_path: Path
) -> None:
    file = tmp_path / "kept.db"
    restored(on(file), backup)
    assert callable(spoil)
    spoil(backup)
    with pytest.raises(ConfigError, match=words):
        restored(on(file), backup, force=True)
    assert rooms(file) == BIG


def test_an_older_backup_is_taken_and_it_is_said_and_so_is_a_missing_checksum(backup: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(backup)) as db:
        db.execute(f"PRAGMA user_version = {steps('sqlite')[-2].number}")
    (tmp_path / "backup.db.sha256").unlink()
    done = restored(on(tmp_path / "old.db"), backup)
    assert (done.checked, done.old) == (False, True)


def test_of_postgres_it_is_said_how_with_no_password_in_it(tmp_path: Path) -> None:
    url = "postgresql://ann:hush@db.example:5433/chat?search_path=gd&sslmode=require"
    settings = load(None, {}, {"store": {"url": url}})
    with pytest.raises(ConfigError, match=r"pg_dump .*--schema=gd .*postgresql://ann@db.example:5433/chat") as caught:
        saved(settings, tmp_path / "x")
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"pg_restore --clean .*--dbname=postgresql://ann@db.example:5433/chat"):
        restored(settings, tmp_path / "x")


def test_where_there_is_no_store_none_is_made(tmp_path: Path) -> None:
    for file in (tmp_path / "none.db", Path(":memory:")):
        with pytest.raises(ConfigError, match="there is no store"):
            saved(on(file), tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == []
