"""What can be found out about servers, files and machines. Who looks gives no opinion: `greendot doctor` judges it."""

from __future__ import annotations

from msgspec import Struct


class RedisFacts(Struct, frozen=True, kw_only=True):
    """Of one server. With `trouble` nothing else is known; None is what we may not ask."""

    address: str
    trouble: str = ""  # why it cannot be spoken to
    product: str = "Redis"
    version: str = ""  # of the Redis it is compatible with
    role: str = "master"
    policy: str = "noeviction"  # what it throws away when its memory is full
    memory_used: int = 0
    memory_most: int = 0  # 0: no limit
    listpack_value: int | None = None  # hash-max-listpack-value
    clustered: bool = False
    cluster_state: str | None = None
    lets_anyone_in: bool = False  # also who says no password
    has_more_rights: bool = False  # than Greendot needs
    clients: int = 0  # connected now
    clients_most: int = 0  # 0: it does not tell
    snapshot_failed: bool = False  # the last one it tried to write
    persists: bool = False  # snapshots or a log of all writes
    notifies: str = ""  # of which changes of keys it tells whoever listens (notify-keyspace-events)
    pubsub_buffer: int | None = None  # bytes that may wait for a subscriber; 0: any number
    skew_ms: float = 0.0  # its clock ahead of ours


class PostgresFacts(Struct, frozen=True, kw_only=True):
    """Of one database."""

    place: str
    trouble: str = ""  # why it cannot be spoken to
    version: int = 0  # 160004 is 16.4
    read_only: bool = False
    encoding: str = "UTF8"
    fsync: bool = True
    synchronous_commit: str = "on"
    full_page_writes: bool = True
    autovacuum: bool = True
    statement_timeout_ms: int = 0  # 0: none
    most_connections: int = 0  # for users without special rights
    superuser: bool = False
    tls: bool = False
    local: bool = False  # on this machine
    tables: int = 0  # the version of the tables; 0: there are none
    api_keys: int = 0
    skew_ms: float = 0.0  # its clock ahead of ours


class SqliteFacts(Struct, frozen=True, kw_only=True):
    """Of a file, which may not be there yet."""

    path: str
    trouble: str = ""  # why it cannot be used
    exists: bool = False
    mode: int = 0o600  # rights of the file, or of the folder while there is no file
    free_bytes: int = 0  # on its disk
    filesystem: str = ""
    tables: int = 0
    api_keys: int = 0


class FileFacts(Struct, frozen=True, kw_only=True):
    """Of a file that has a secret in it."""

    setting: str
    path: str
    mode: int


class CertificateFacts(Struct, frozen=True, kw_only=True):
    """Of the one clients are shown."""

    path: str
    days_left: float
    days_old: float  # negative: it is not valid yet


class MachineFacts(Struct, frozen=True, kw_only=True):
    """Of where this runs. None is what the system does not tell."""

    cores: int
    open_files: int | None  # a process may have at most; None: any number
    memory_free: int | None  # bytes
    somaxconn: int | None  # connections that may wait to be taken
    conntrack: int | None = None  # connections that its firewall can keep in mind; None: it has none
    clock_synchronised: bool | None
    year: int
