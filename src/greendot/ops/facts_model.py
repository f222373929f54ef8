"""Facts about servers, files and machines, without judgement. `greendot doctor` makes findings of them."""

from __future__ import annotations

from msgspec import Struct


class RedisFacts(Struct, frozen=True, kw_only=True):
    """Facts about one Redis server. With `trouble` nothing else is known. None: not readable with our rights."""

    address: str
    trouble: str = ""  # why no connection can be made
    product: str = "Redis"
    version: str = ""  # the version of Redis that the server is compatible with
    role: str = "master"
    policy: str = "noeviction"  # maxmemory-policy: keys that are evicted when the memory is full
    memory_used: int = 0
    memory_most: int = 0  # 0: no limit
    listpack_value: int | None = None  # hash-max-listpack-value
    clustered: bool = False
    cluster_state: str | None = None  # None also without a cluster
    lets_anyone_in: bool = False  # clients need no password
    has_more_rights: bool = False  # the login may do more than Greendot needs
    clients: int = 0  # connected now
    clients_most: int = 0  # maxclients; 0: unknown
    snapshot_failed: bool = False  # the last snapshot failed, and the server refuses writes for this reason
    persists: bool = False  # writes snapshots or an append-only file
    notifies: str = ""  # changes of keys that are published (notify-keyspace-events)
    pubsub_buffer: int | None = None  # bytes that may wait for a subscriber; 0: no limit
    skew_ms: float = 0.0  # lead of the server's clock over ours


class PostgresFacts(Struct, frozen=True, kw_only=True):
    """Facts about one PostgreSQL database. With `trouble` nothing else is known."""

    place: str
    trouble: str = ""  # why no connection can be made
    version: int = 0  # 160004: PostgreSQL 16.4
    read_only: bool = False
    encoding: str = "UTF8"
    fsync: bool = True
    synchronous_commit: str = "on"
    full_page_writes: bool = True
    autovacuum: bool = True
    statement_timeout_ms: int = 0  # 0: none
    most_connections: int = 0  # connections open to users without special rights
    superuser: bool = False
    tls: bool = False
    local: bool = False  # on this machine
    tables: int = 0  # version of the tables; 0: no tables
    api_keys: int = 0
    skew_ms: float = 0.0  # lead of the server's clock over ours


class SqliteFacts(Struct, frozen=True, kw_only=True):
    """Facts about an SQLite file, which may not exist yet."""

    path: str
    trouble: str = ""  # why a server cannot use the file
    exists: bool = False
    mode: int = 0o600  # permissions of the file, or of the folder while there is no file
    free_bytes: int = 0  # free space on the file's disk
    filesystem: str = ""
    tables: int = 0
    api_keys: int = 0


class FileFacts(Struct, frozen=True, kw_only=True):
    """Facts about a file that contains a secret."""

    setting: str
    path: str
    mode: int


class CertificateFacts(Struct, frozen=True, kw_only=True):
    """Facts about the certificate that clients get."""

    path: str
    days_left: float
    days_old: float  # negative: not valid yet


class MachineFacts(Struct, frozen=True, kw_only=True):
    """Facts about this machine. None: the system does not report the figure."""

    cores: int
    open_files: int | None  # the most that a process may have; None: no limit
    memory_free: int | None  # bytes
    somaxconn: int | None  # connections that may wait to be accepted
    conntrack: int | None = None  # connections that the firewall can track; None: no connection tracking
    clock_synchronised: bool | None
    year: int
