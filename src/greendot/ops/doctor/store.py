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
        yield error(about, f"not usable: {found.trouble}", why, "Check store.url, and that PostgreSQL runs.")
        return
    version = f"version {found.version // 10_000}.{found.version % 10_000}"
    yield from or_ok(about, f"{version}, tables {found.tables}", _postgres(settings, about, found, wanted))


def _postgres(settings: Settings, about: str, found: PostgresFacts, wanted: int) -> Findings:
    if found.version < OLDEST:
        do = "Use PostgreSQL 14 or newer."
        yield error(
            about, f"version {found.version // 10_000} is too old", "Greendot's statements need version 14.", do
        )
    if found.read_only:
        do = "Set store.url to the primary; with several hosts add ?target_session_attrs=read-write"
        yield error(about, "the database is read-only, perhaps a replica", "Nothing can be stored.", do)
    if found.encoding != "UTF8":
        why = "Not all characters can be stored."
        yield error(about, f"the encoding is {found.encoding}", why, "Create the database with ENCODING 'UTF8'.")
    yield from _tables(settings, about, found, wanted)
    yield from _promises(about, found)
    pool = settings.store.pool * settings.server.workers
    if pool > found.most_connections // 2:
        yield Finding(
            "error" if pool > found.most_connections else "warning",
            about,
            f"this machine may open {pool} connections (store.pool {settings.store.pool} × server.workers "
            f"{settings.server.workers}), but PostgreSQL allows {found.most_connections} in total",
            "Other nodes and apps need connections too. Requests without a connection wait, then fail.",
            "Lower store.pool, raise max_connections, or use PgBouncer in session mode.",
        )
    if found.superuser:
        why = "An attacker with this login controls the whole database server."
        do = "Create a user that owns the greendot_ tables: CREATE ROLE greendot LOGIN PASSWORD '…'"
        yield warning("store.url", "the login is a superuser", why, do)
    if not found.tls and not found.local:
        why = "User data can be read on the network."
        yield warning(
            "store.url", "no TLS to PostgreSQL on another machine", why, "Add ?sslmode=verify-full&sslrootcert=FILE"
        )
    password = unquote(urlsplit(settings.store.url).password or "")
    if password and (weak := weakness(password, LEAST_PASSWORD)):
        yield warning(
            "store.url",
            f"the password is weak: {weak}",
            "An attacker can guess it.",
            "Generate one with: openssl rand -hex 32",
        )
    yield from skew(about, found.skew_ms)


def _tables(settings: Settings, about: str, found: PostgresFacts, wanted: int) -> Findings:
    if found.tables > wanted:
        why = "A server refuses to start."
        yield error(about, "the tables belong to a newer Greendot", why, "Upgrade Greendot.")
    elif found.tables < wanted:
        there = (
            f"the tables have version {found.tables}, but {wanted} is needed" if found.tables else "there are no tables"
        )
        if settings.store.migrate or settings.server.dev:
            yield note(
                about, there, "A server migrates the tables when it starts.", "Start a server, or run: greendot migrate"
            )
        else:
            yield error(about, there, "A server refuses to start.", "With the same settings, run: greendot migrate")


def _promises(about: str, found: PostgresFacts) -> Findings:
    if not found.fsync:
        why = "A power failure can damage the database beyond repair."
        yield error(about, "fsync is off", why, "Run: ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();")
    if found.synchronous_commit == "off":
        why = "An acknowledged message can be lost when PostgreSQL crashes."
        do = (
            "Run: ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); Or for the user: ALTER ROLE … SET."
        )
        yield error(about, "synchronous_commit is off", why, do)
    if not found.full_page_writes:
        why = "A power failure can leave pages half written."
        do = "Run: ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();"
        yield error(about, "full_page_writes is off", why, do)
    if not found.autovacuum:
        why = "Deleted and changed rows keep their disk space, and reads become slower every day."
        do = "Run: ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"
        yield warning(about, "autovacuum is off", why, do)
    if 0 < found.statement_timeout_ms < SHORT_MS:
        why = "Under load writes wait for each other, and writes that time out are not acknowledged."
        do = "Greendot has its own limits. Run: ALTER ROLE greendot SET statement_timeout = 0;"
        yield warning(about, f"statement_timeout is {found.statement_timeout_ms} ms", why, do)


def sqlite(settings: Settings, found: SqliteFacts, wanted: int) -> Findings:
    about = f"SQLite {found.path}"
    if found.path == ":memory:":
        why = "Messages, rooms and API keys are lost when the server stops."
        yield warning("store.url", "the store is in memory", why, "Use --store sqlite:///FILE or postgresql://…")
        return
    if found.trouble:
        why = "Nothing can be stored, and a server does not start."
        yield error(
            about,
            f"not usable: {found.trouble}",
            why,
            "Choose another file: --store sqlite:////var/lib/greendot/greendot.db",
        )
        return
    there = f"{found.free_bytes / 1_000 / MEGABYTE:,.1f} GB free"
    yield from or_ok(
        about, there if found.exists else f"not created yet, {there}", _sqlite(settings, about, found, wanted)
    )


def _sqlite(settings: Settings, about: str, found: SqliteFacts, wanted: int) -> Findings:
    if found.filesystem in NETWORK:
        why = "Locks and shared memory do not work there, so the file gets damaged."
        yield error(
            about, f"the file is on a network file system ({found.filesystem})", why, "Use a local disk, or PostgreSQL."
        )
    if found.exists and found.mode & 0o007:
        why = "The file has all user data, and hashes of API keys."
        found_text = f"all users of this machine can read or write the file (mode {found.mode:03o})"
        yield warning(about, found_text, why, f"Run: chmod 600 {found.path}*. Set UMask=0077 in the service.")
    elif found.exists and found.mode & 0o070:
        why = "The file has all user data."
        yield note(
            about, f"its group can read or write the file (mode {found.mode:03o})", why, f"Run: chmod 600 {found.path}*"
        )
    if found.free_bytes < LITTLE:
        yield Finding(
            "error" if found.free_bytes < TOO_LITTLE else "warning",
            about,
            f"{found.free_bytes / MEGABYTE:,.0f} MB are free on the disk",
            "On a full disk nothing can be stored.",
            "Free disk space, or move the file.",
        )
    if found.tables > wanted:
        yield error(
            about, "the file was written by a newer Greendot", "A server refuses to start.", "Upgrade Greendot."
        )
    if settings.engine.url not in ("memory", LOCAL):
        why = "Nodes on other machines cannot share a file, so they would have other records."
        yield note(
            about,
            "the engine is shared, but the store is a local file",
            why,
            "For several machines, use postgresql://…",
        )
