"""Checks of the store: PostgreSQL, or a file of SQLite."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from greendot.config import LOCAL, Settings
from greendot.ops.doctor.finding import Finding, Findings, error, note, or_ok, warning
from greendot.ops.doctor.redis import LEAST_PASSWORD, skew
from greendot.ops.doctor.secrets import weakness
from greendot.ops.facts_model import PostgresFacts, SqliteFacts

OLDEST = 140_000
MEGABYTE = 1_000_000
SHORT_MS = 5_000
LITTLE, TOO_LITTLE = 1_000 * MEGABYTE, 100 * MEGABYTE
# File systems without working locks and shared memory for SQLite: its files break there.
NETWORK = {"9p", "afs", "afpfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "lustre",
           "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs", "virtiofs"}  # fmt: skip


def postgres(settings: Settings, found: PostgresFacts, wanted: int) -> Findings:
    """Yield the findings about PostgreSQL. `wanted` is the version of the tables that this Greendot works with."""
    about = f"PostgreSQL {found.place.partition('://')[2]}"
    if found.trouble:
        why = "Nothing can be stored, and a server does not start."
        yield error(about, f"it cannot be used: {found.trouble}", why, "Look at store.url, and whether it runs.")
        return
    version = f"version {found.version // 10_000}.{found.version % 10_000}"
    yield from or_ok(about, f"{version}, tables {found.tables}", _postgres(settings, about, found, wanted))


def _postgres(settings: Settings, about: str, found: PostgresFacts, wanted: int) -> Findings:
    if found.version < OLDEST:
        do = "PostgreSQL 14 or newer."
        yield error(about, f"version {found.version // 10_000}", "Statements need what it has not.", do)
    if found.read_only:
        do = "Give the primary; with several hosts: ?target_session_attrs=read-write"
        yield error(about, "it is read-only: a replica, or set so", "Nothing can be stored.", do)
    if found.encoding != "UTF8":
        why = "Texts of people cannot all be stored."
        yield error(about, f"its encoding is {found.encoding}", why, "A database made with ENCODING 'UTF8'.")
    yield from _tables(settings, about, found, wanted)
    yield from _promises(about, found)
    pool = settings.store.pool * settings.server.workers
    if pool > found.most_connections // 2:
        yield Finding(
            "error" if pool > found.most_connections else "warning",
            about,
            f"this machine may open {pool} connections (store.pool {settings.store.pool} × server.workers "
            f"{settings.server.workers}), and it takes {found.most_connections} in all",
            "Other nodes, the app and you want some too; who gets none waits, and fails.",
            "Lower store.pool, raise max_connections, or put PgBouncer in session mode between them.",
        )
    if found.superuser:
        why = "Who gets hold of the login has the whole server."
        do = "A user of its own: CREATE ROLE greendot LOGIN PASSWORD '…', which owns the greendot_ tables."
        yield warning("store.url", "the login is a superuser", why, do)
    if not found.tls and not found.local:
        why = "Who sees the traffic reads what people write."
        yield warning(
            "store.url", "no TLS to PostgreSQL on another machine", why, "?sslmode=verify-full&sslrootcert=FILE"
        )
    password = unquote(urlsplit(settings.store.url).password or "")
    if password and (weak := weakness(password, LEAST_PASSWORD)):
        yield warning("store.url", f"the password is weak: {weak}", "It can be guessed.", "openssl rand -hex 32")
    yield from skew(about, found.skew_ms)


def _tables(settings: Settings, about: str, found: PostgresFacts, wanted: int) -> Findings:
    if found.tables > wanted:
        why = "A server refuses to start so."
        yield error(about, "its tables are of a newer Greendot", why, "Upgrade Greendot.")
    elif found.tables < wanted:
        there = (
            f"its tables are of version {found.tables}, and {wanted} is needed" if found.tables else "it has no tables"
        )
        if settings.store.migrate or settings.server.dev:
            yield note(
                about, there, "They are brought up to date when a server starts.", "Nothing, or: greendot migrate"
            )
        else:
            yield error(about, there, "A server refuses to start so.", "greendot migrate, with the same settings.")


def _promises(about: str, found: PostgresFacts) -> Findings:
    if not found.fsync:
        why = "A power cut can leave the database broken beyond repair."
        yield error(about, "fsync is off", why, "ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf().")
    if found.synchronous_commit == "off":
        why = "A message that was acknowledged can be lost when the server crashes."
        do = (
            "ALTER SYSTEM SET synchronous_commit = on, then SELECT pg_reload_conf(); or for the user: ALTER ROLE … SET."
        )
        yield error(about, "synchronous_commit is off", why, do)
    if not found.full_page_writes:
        why = "A page that was half written in a power cut stays so."
        do = "ALTER SYSTEM SET full_page_writes = on, then SELECT pg_reload_conf()."
        yield error(about, "full_page_writes is off", why, do)
    if not found.autovacuum:
        why = "What is deleted and changed goes on taking room, and reads become slower every day."
        do = "ALTER SYSTEM SET autovacuum = on, then SELECT pg_reload_conf()."
        yield warning(about, "autovacuum is off", why, do)
    if 0 < found.statement_timeout_ms < SHORT_MS:
        why = "Under load writes wait for others, and those that are ended so are not acknowledged."
        do = "ALTER ROLE greendot SET statement_timeout = 0: Greendot has its own limits."
        yield warning(about, f"statement_timeout is {found.statement_timeout_ms} ms", why, do)


def sqlite(settings: Settings, found: SqliteFacts, wanted: int) -> Findings:
    about = f"SQLite {found.path}"
    if found.path == ":memory:":
        why = "Messages, rooms and API keys are gone when the server ends."
        yield warning("store.url", "the store is in memory", why, "--store sqlite:///FILE, or postgresql://…")
        return
    if found.trouble:
        why = "Nothing can be stored, and a server does not start."
        yield error(
            about,
            f"it cannot be used: {found.trouble}",
            why,
            "Another place: --store sqlite:////var/lib/greendot/greendot.db",
        )
        return
    there = f"{found.free_bytes / 1_000 / MEGABYTE:,.1f} GB free"
    yield from or_ok(
        about, there if found.exists else f"not there yet, {there}", _sqlite(settings, about, found, wanted)
    )


def _sqlite(settings: Settings, about: str, found: SqliteFacts, wanted: int) -> Findings:
    if found.filesystem in NETWORK:
        why = "Locks and shared memory do not work there: the file breaks."
        yield error(about, f"it is on a network file system ({found.filesystem})", why, "A local disk, or PostgreSQL.")
    if found.exists and found.mode & 0o007:
        why = "All that people write, and hashes of API keys, are in it."
        found_text = f"everybody on this machine may read or write it (mode {found.mode:03o})"
        yield warning(about, found_text, why, f"chmod 600 {found.path}*; UMask=0077 in the service.")
    elif found.exists and found.mode & 0o070:
        why = "All that people write is in it."
        yield note(about, f"its group may read or write it (mode {found.mode:03o})", why, f"chmod 600 {found.path}*")
    if found.free_bytes < LITTLE:
        yield Finding(
            "error" if found.free_bytes < TOO_LITTLE else "warning",
            about,
            f"{found.free_bytes / MEGABYTE:,.0f} MB are free on its disk",
            "When it is full nothing is stored any more.",
            "Make room, or move the file.",
        )
    if found.tables > wanted:
        yield error(about, "it was written by a newer Greendot", "A server refuses to start so.", "Upgrade Greendot.")
    if settings.engine.url not in ("memory", LOCAL):
        why = "Nodes on other machines cannot share a file: their records would be others."
        yield note(about, "the engine is shared, the store is a file here", why, "For several machines: postgresql://…")
