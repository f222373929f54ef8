"""Backup and restore of a store: a backup is complete or absent, and it is restored only where no server runs."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from greendot.app.adapters import lock_store
from greendot.config import Settings, load
from greendot.errors import ConfigError
from greendot.ops.backup import Contents, Restored, back_up, put_back
from greendot.store.schema import steps
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.backup import PAGES

WRITE = "INSERT INTO rooms (tenant, room, open) VALUES ('default', ?, 1)"
SAY = "INSERT INTO messages (tenant, room, seq, id, user, body, key, at) VALUES ('t', 'r', 1, '1-a', 'ann', ?, 'k', 0)"
BIG = 1_200  # rooms with long names: several steps of a copy


def quietly(done: int, of: int) -> None:
    """Ignore the progress."""


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
    """Make a store with rows, open as on a running server: in WAL mode, with another connection."""
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
    """Rows committed between two steps of the backup are not in it."""
    steps_seen: list[int] = []
    with closing(sqlite3.connect(store, isolation_level=None, timeout=0)) as writer:

        def write(done: int, of: int) -> None:
            if len(steps_seen) < 50:  # the copy is read once more for verification
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


def test_nothing_is_overwritten_without_force(store: Path, backup: Path) -> None:
    before = backup.read_bytes()
    with pytest.raises(ConfigError, match="already exists"):
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
        with pytest.raises(ConfigError, match=r"server or worker is running .* Stop all of them"):
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
    """`store` is open in this process, as in a sqlite3 shell or an older server."""
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


# --- files that SQLite keeps beside a database ---


def abandoned(store: Path, folder: Path) -> Path:
    """Copy the store as a killed server leaves it: its last commits are in the -wal file only."""
    folder.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{store}{suffix}", folder / f"greendot.db{suffix}")
    return folder / "greendot.db"


def state(file: Path) -> tuple[str, int]:
    """Open the database as a server does. Return the result of the integrity check and the number of rooms."""
    SqliteStore(str(file))._thread.migrate()
    with closing(sqlite3.connect(file)) as db:
        return db.execute("PRAGMA integrity_check").fetchone()[0], rooms(file)


def say(file: Path, text: str) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute(WRITE, (text,))
        db.commit()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Make a backup of another moment, with two rooms."""
    source, file = tmp_path / "small-source.db", tmp_path / "small.db"
    SqliteStore(str(source))._thread.migrate()
    say(source, "one")
    say(source, "two")
    saved(on(source), file)
    return file


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",), ("-shm",)])
def test_the_log_of_a_database_that_was_moved_aside_is_not_replayed_into_the_restored_one(
    left: tuple[str, ...], store: Path, small: Path, tmp_path: Path
) -> None:
    file = abandoned(store, tmp_path / "server")
    os.rename(file, tmp_path / "moved.db")
    for suffix in {"-wal", "-shm"} - {*left}:
        os.unlink(f"{file}{suffix}")
    done = restored(on(file), small)
    assert state(file) == ("ok", 2)
    assert done.kept is None
    assert sorted(path.name[-4:] for path in done.left) == sorted(left)
    if "-wal" in left:  # the -wal file was kept, and with the moved database it restores all rows
        (wal,) = (path for path in done.left if path.name.endswith("-wal"))
        os.rename(wal, tmp_path / "moved.db-wal")
        assert state(tmp_path / "moved.db") == ("ok", BIG)


def test_the_rollback_journal_of_a_database_that_was_moved_aside_is_not_rolled_back_into_the_restored_one(
    small: Path, tmp_path: Path
) -> None:
    file = tmp_path / "server.db"
    restored(on(file), small)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN")
        db.executemany(WRITE, [(f"{number}{'x' * 4_000}",) for number in range(100)])  # spills: the journal is hot
        shutil.copy(f"{file}-journal", tmp_path / "hot")
    file.unlink()
    shutil.copy(tmp_path / "hot", f"{file}-journal")
    (left,) = restored(on(file), small).left
    assert left.name.endswith("-journal")
    assert state(file) == ("ok", 2)


def test_commits_that_only_the_log_has_are_in_what_is_kept(store: Path, small: Path, tmp_path: Path) -> None:
    file = abandoned(store, tmp_path / "server")
    done = restored(on(file), small, force=True)
    assert state(file) == ("ok", 2)
    assert done.kept is not None
    assert (state(done.kept), done.left) == (("ok", BIG), [])


def test_a_program_that_opens_the_database_while_it_is_replaced_does_not_write_into_the_new_one(
    store: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has the old file open and would write its log next to the new one."""
    file = abandoned(store, tmp_path / "server")
    tried, failed = threading.Event(), []

    def late() -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            for wait_ms in (0, 20_000):
                db.execute(f"PRAGMA busy_timeout = {wait_ms}")
                try:
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute(WRITE, ("into nowhere",))
                except sqlite3.OperationalError as error:
                    failed.append(error.sqlite_errorname)
                tried.set()

    other, replace = threading.Thread(target=late), os.replace

    def slowly(source: Path, target: Path) -> None:
        other.start()
        assert tried.wait(10)
        replace(source, target)

    monkeypatch.setattr(os, "replace", slowly)
    restored(on(file), small, force=True)
    other.join(20)
    assert failed == ["SQLITE_BUSY", "SQLITE_READONLY_DBMOVED"]
    assert state(file) == ("ok", 2)


# --- a restore that is killed ---

FEW = 20  # rooms
SCENES = "abandoned", "moved", "damaged"


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Path]:
    """Make a small store that is open."""
    file = tmp_path / "few.db"
    SqliteStore(str(file))._thread.migrate()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executemany(WRITE, [(str(number),) for number in range(FEW)])
        yield file


def scene(name: str, store: Path, folder: Path) -> Path:
    file = abandoned(store, folder)
    if name == "moved":
        os.rename(file, folder / "moved.db")
    elif name == "damaged":
        file.write_bytes(b"no database at all" * 1_000)
    return file


def killed_at(call: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that gets SIGKILL before its call number `call` that changes a folder or a file."""
    if not (child := os.fork()):
        calls = count(1)

        def deadly(name: str) -> Callable[..., object]:
            real = getattr(os, name)

            def either(*args: object, **kwargs: object) -> object:
                if next(calls) == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return either

        for name in ("replace", "rename", "link", "unlink", "fsync", "open", "fchmod"):
            setattr(os, name, deadly(name))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("name", SCENES)
def test_a_restore_that_is_killed_leaves_the_old_store_or_the_new_one_and_is_made_again(
    name: str, few: Path, small: Path, tmp_path: Path
) -> None:
    seen = set()
    for call in count(1):
        file = scene(name, few, tmp_path / f"server-{call}")
        killed = killed_at(call, lambda file=file: restored(on(file), small, force=True))  # type: ignore[misc]
        if file.exists() and file.stat().st_size:
            try:
                found = state(copied(file, tmp_path / f"opened-{call}"))
            except ConfigError:
                found = "damaged", 0  # unchanged: a server does not start on it
            seen.add(found)
        restored(on(file), small, force=True)
        assert state(file) == ("ok", 2)
        assert [path.name for path in file.parent.iterdir() if "restoring" in path.name] == []
        if not killed:
            break
    assert call > 8, "the restore must make several calls"
    assert seen == {"abandoned": {("ok", FEW), ("ok", 2)}, "moved": {("ok", 2)}}.get(name, {("damaged", 0), ("ok", 2)})


def copied(file: Path, folder: Path) -> Path:
    """Copy the database with its log files, so that opening the copy changes nothing."""
    folder.mkdir()
    for suffix in ("", "-wal", "-shm", "-journal"):
        if Path(f"{file}{suffix}").exists():
            shutil.copy(f"{file}{suffix}", folder / f"{file.name}{suffix}")
    return folder / file.name


def test_a_file_that_fails_verification_after_the_restore_is_not_reported_as_restored(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case: a disk that loses a write."""
    file, replace = tmp_path / "server.db", os.replace

    def lossy(source: Path, target: Path) -> None:
        replace(source, target)
        data = bytearray(Path(target).read_bytes())
        data[4096:] = bytes(len(data) - 4096)
        Path(target).write_bytes(data)

    restored(on(file), small)
    say(file, "three")
    monkeypatch.setattr(os, "replace", lossy)
    with pytest.raises(ConfigError, match=r"is not usable.*before-"):
        restored(on(file), small, force=True)
    (kept,) = tmp_path.glob("server.db.before-*")
    assert state(kept) == ("ok", 3)


# --- owner, mode and links ---


def test_the_mode_of_the_store_is_kept_and_a_new_one_is_for_its_owner_only(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.db"
    restored(on(file), small)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    restored(on(file), small, force=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


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

    with pytest.raises(ConfigError, match="already exists"):
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
    lock.symlink_to(secret)  # planted by the owner of the folder, to get the secret file
    restored(on(file), backup)
    assert owners(secret) == {(0, os.getegid())}


def damaged(file: Path) -> None:
    """Change one byte of a message's text. SQLite itself does not detect that."""
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


def half_copied(file: Path) -> None:
    """Cut the copy short at the end of a page and remove its checksum."""
    os.truncate(file, 100 * 4096)
    file.with_name(f"{file.name}.sha256").unlink()


def short_of_bytes(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 100)
    file.with_name(f"{file.name}.sha256").unlink()


def alike(file: Path) -> None:
    """Replace the backup by a database of another program that has a table of the same name."""
    file.unlink()
    file.with_name(f"{file.name}.sha256").unlink()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE messages (id, body)")
        db.execute("PRAGMA user_version = 3")


def with_a_log(file: Path) -> None:
    """Leave the backup as `cp` copies the store of a running server: with a log."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(WRITE, ("in the log only",))
        db.commit()
        shutil.copy(f"{file}-wal", f"{file}-log")
    os.rename(f"{file}-log", f"{file}-wal")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (half_copied, "is damaged"),
        (short_of_bytes, "is damaged.*truncated"),
        (alike, "not a Greendot store"),
        (with_a_log, "greendot backup .*--store sqlite:///"),
        (damaged, "checksum mismatch"),
        (broken, "is damaged"),
        (newer, "written by a newer Greendot"),
        (foreign, "not a Greendot store"),
        (lambda file: file.write_bytes(b"text"), "damaged or not a database"),
        (lambda file: file.unlink(), "file .* not found"),
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


def test_an_older_backup_is_restored_and_reported_and_so_is_a_missing_checksum(backup: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(backup)) as db:
        db.execute(f"PRAGMA user_version = {steps('sqlite')[-2].number}")
    (tmp_path / "backup.db.sha256").unlink()
    done = restored(on(tmp_path / "old.db"), backup)
    assert (done.checked, done.old) == (False, True)


def test_a_backup_of_postgres_is_refused_with_the_command_to_use_and_without_the_password(tmp_path: Path) -> None:
    url = "postgresql://ann:hush@db.example:5433/chat?search_path=gd&sslmode=require"
    settings = load(None, {}, {"store": {"url": url}})
    with pytest.raises(
        ConfigError, match=r"pg_dump .*--schema=gd .*ann@db.example:5433/chat\?sslmode=require'$"
    ) as caught:
        saved(settings, tmp_path / "x")
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"pg_restore --clean .*--dbname='postgresql://ann@db.example:5433/chat\?"):
        restored(settings, tmp_path / "x")


def test_where_there_is_no_store_none_is_made(tmp_path: Path) -> None:
    for file in (tmp_path / "none.db", Path(":memory:")):
        with pytest.raises(ConfigError, match=r"store .* not found"):
            saved(on(file), tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == []
